//! Plays a transceiver: holds its address and speaks records, and sees every payload as the network delivers it.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Context;
use runtime::clock;
use topology::Topology;
use wire::reassembly::{Reassembled, Reassembler};
use wire::record::{
    DATAGRAM_HEADER_LEN, DatagramKind, RecordHeader, Records, datagram_header, open_datagram,
    put_record, split,
};
use wire::sequence::Sequences;

/// How long a record may take to arrive.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Longest datagram there can be.
const DATAGRAM_LEN_MAX: usize = 1 << 16;

/// A socket at a transceiver's address.
pub struct FakeTransceiver {
    socket: UdpSocket,
    reassembler: Reassembler,
    datagram_len_max: usize,
    fragment_id: u16,
    sequences: Sequences<SocketAddr>,
    waiting: Vec<(SocketAddr, RecordHeader, Vec<u8>)>,
}

impl FakeTransceiver {
    /// In the place of the transceiver `name`, which must not run.
    ///
    /// # Errors
    /// There is no such transceiver, or its port is taken.
    pub fn bind(topology: &Topology, name: &str) -> anyhow::Result<Self> {
        let (region, node) = topology
            .transceiver_named(name)
            .with_context(|| format!("no transceiver `{name}`"))?;
        let socket = UdpSocket::bind((node.address, region.transceivers.port))?;
        socket.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(Self {
            socket,
            reassembler: Reassembler::new(16, SILENCE_MAX, 1),
            datagram_len_max: topology.network.link.datagram_len_max(),
            fragment_id: 0,
            sequences: Sequences::new(),
            waiting: Vec::new(),
        })
    }

    /// The next packet of a client, whole: the core relay's address, the header, the payload.
    ///
    /// # Errors
    /// None arrives, or what arrives is no datagram of records.
    pub fn receive(&mut self) -> anyhow::Result<(SocketAddr, RecordHeader, Vec<u8>)> {
        let mut buffer = vec![0; DATAGRAM_LEN_MAX];
        while self.waiting.is_empty() {
            let received = self.socket.recv_from(&mut buffer);
            let (len, relay) = received.context("waiting for a record")?;
            self.take_datagram(relay, buffer.get(..len).unwrap_or_default())?;
        }
        Ok(self.waiting.remove(0))
    }

    /// Sends a payload to the client of `header`, by way of `relay`.
    ///
    /// # Errors
    /// It does not fit, or the kernel refuses.
    pub fn send(
        &mut self,
        relay: SocketAddr,
        header: RecordHeader,
        payload: &[u8],
    ) -> anyhow::Result<()> {
        let header = RecordHeader { hops: 0, ..header };
        let room = self.datagram_len_max - DATAGRAM_HEADER_LEN;
        let parts = split(header, payload, room, self.fragment_id).context("too long to split")?;
        self.fragment_id = self.fragment_id.wrapping_add(1);
        for part in parts {
            let sequence = self.sequences.next(relay);
            let mut datagram = datagram_header(DatagramKind::Records, sequence).to_vec();
            put_record(&mut datagram, &part.header, part.payload);
            self.socket.send_to(&datagram, relay)?;
        }
        Ok(())
    }

    fn take_datagram(&mut self, relay: SocketAddr, datagram: &[u8]) -> anyhow::Result<()> {
        let (kind, _, body) = open_datagram(datagram)?;
        anyhow::ensure!(kind == DatagramKind::Records, "{kind:?} from a core relay");
        for record in Records::new(body) {
            let record = record?;
            let whole = self
                .reassembler
                .push(&record.header, record.payload, clock::now());
            if let Reassembled::Complete(payload) = whole {
                let header = RecordHeader {
                    fragment: None,
                    ..record.header
                };
                self.waiting.push((relay, header, payload.to_vec()));
            }
        }
        Ok(())
    }
}
