//! Plays a transceiver: holds its address and speaks records, and sees every payload as the network delivers it.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Context;
use runtime::clock;
use topology::Topology;
use wire::hint::{Hint, KeyRing, Minute};
use wire::reassembly::{Reassembled, Reassembler};
use wire::record::{
    DATAGRAM_HEADER_LEN, DatagramKind, RecordHeader, Records, datagram_header, open_datagram,
    put_record, split,
};
use wire::sequence::Sequences;
use wire::{Owner, RegionId, TransceiverId};

use crate::net::Network;
use crate::raw::Request;

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

/// A client of the PoP `p1` whose flow this transceiver has committed.
pub struct CommittedFlow {
    /// Its socket, connected to the ingress.
    pub client: UdpSocket,
    /// The check that committed it.
    pub check: Vec<u8>,
    /// The answer to the check.
    pub answer: Vec<u8>,
    /// The header of its records.
    pub header: RecordHeader,
    /// The core relay they come from.
    pub relay: SocketAddr,
}

const TRANSACTION: &[u8; 12] = b"transaction.";

impl FakeTransceiver {
    /// Commits the flow of a client that speaks to the PoP `p1`: its check arrives as it was sent, and so does the answer.
    ///
    /// # Errors
    /// Something is lost, or arrives as something else.
    pub fn commit(&mut self, network: &Network) -> anyhow::Result<CommittedFlow> {
        let keys = std::fs::read_to_string(network.credentials("p1").join("hint.keys"))?;
        let hint = Hint {
            owner: Owner {
                region: RegionId(1),
                transceiver: TransceiverId(1),
            },
            issued: Minute::from_unix_s(clock::unix_s()),
        };
        let ufrag = KeyRing::parse(&keys)?.seal(hint, [1, 2, 3]);
        let ingress = network.ingress("p1");
        let client = UdpSocket::bind(SocketAddr::new(ingress.ip(), 0))?;
        client.connect(ingress)?;
        client.set_read_timeout(Some(SILENCE_MAX))?;
        let check = Request::check(*TRANSACTION, ufrag.as_bytes()).sign(b"nobody knows it");
        client.send(check.bytes())?;
        let (relay, header, payload) = self.receive()?;
        anyhow::ensure!(payload == check.bytes(), "the check arrives as it was sent");
        let source = client.local_addr()?;
        anyhow::ensure!(
            header.client.socket_addr() == source,
            "and names its client"
        );
        let answer = [&[1, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42], &TRANSACTION[..]].concat();
        self.send(relay, header, &answer)?;
        let mut buffer = [0; 2048];
        let len = client.recv(&mut buffer).context("the answer")?;
        anyhow::ensure!(
            buffer.get(..len) == Some(&answer),
            "the answer arrives as it was sent"
        );
        Ok(CommittedFlow {
            client,
            check: check.bytes().to_vec(),
            answer,
            header,
            relay,
        })
    }

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
                    offered: false,
                    ..record.header
                };
                self.waiting.push((relay, header, payload.to_vec()));
            }
        }
        Ok(())
    }
}
