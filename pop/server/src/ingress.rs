//! The client side of one worker: a socket for each ingress address, received from and sent to in batches.

use std::net::SocketAddr;

use anyhow::Context as _;
use pop_proto::DropReason;
use pop_proto::verdict::Drops;
use runtime::metrics::Registry;
use runtime::udp::{BindOptions, RecvBatch, SendBatch, UdpSocket};
use topology::Pop;
use wire::ClientAddr;
use wire::record::PAYLOAD_LEN_MAX;

/// Packets of one receive or send batch.
const BATCH_SLOTS: usize = 64;

/// Every ingress address as one worker has it, in topology order: the index is what a tag carries.
pub(crate) struct Ingress {
    ports: Vec<Port>,
    pub(crate) batch: RecvBatch,
    truncated_before: u64,
}

/// One ingress address.
pub(crate) struct Port {
    pub(crate) socket: UdpSocket,
    sends: SendBatch,
}

/// Fails when somebody else has an ingress address. Sockets that share an address with `SO_REUSEPORT` would not notice, and
/// the kernel would hand half of the clients to another process.
pub(crate) fn refuse_taken(pop: &Pop) -> anyhow::Result<()> {
    let alone = BindOptions {
        recv_buffer_bytes: 0,
        send_buffer_bytes: 0,
        ..BindOptions::default()
    };
    for address in &pop.ingress {
        UdpSocket::bind(*address, &alone).context("ingress")?;
    }
    Ok(())
}

impl Ingress {
    pub(crate) fn bind(pop: &Pop, metrics: &Registry) -> anyhow::Result<Self> {
        let options = BindOptions {
            reuse_port: pop.workers > 1,
            ..BindOptions::default()
        };
        let mut ports = Vec::with_capacity(pop.ingress.len());
        for address in &pop.ingress {
            let socket = UdpSocket::bind(*address, &options)?;
            socket.observe(metrics, &[("socket", "ingress")]);
            ports.push(Port {
                socket,
                sends: SendBatch::new(BATCH_SLOTS, PAYLOAD_LEN_MAX),
            });
        }
        Ok(Self {
            ports,
            batch: RecvBatch::new(BATCH_SLOTS, PAYLOAD_LEN_MAX),
            truncated_before: 0,
        })
    }

    pub(crate) const fn len(&self) -> usize {
        self.ports.len()
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.ports.iter().map(|port| &port.socket)
    }

    /// Receives one batch of one address. `true`: more may be waiting.
    pub(crate) fn recv(&mut self, index: usize, drops: &mut Drops) -> bool {
        let Some(port) = self.ports.get(index) else {
            return false;
        };
        let filled = match self.batch.recv(&port.socket) {
            Ok(filled) => filled,
            Err(error) => {
                tracing::debug!(%error, "ingress socket");
                0
            }
        };
        let truncated = self.batch.truncated();
        drops.add(DropReason::TooLong, truncated - self.truncated_before);
        self.truncated_before = truncated;
        filled == self.batch.slots()
    }

    /// Whether the address of this index can reach the client.
    pub(crate) fn reaches(&self, index: u8, client: ClientAddr) -> bool {
        self.ports
            .get(usize::from(index))
            .is_some_and(|port| port.socket.local_addr().is_ipv4() == client.ip().is_ipv4())
    }

    /// Queues a packet for a client; it leaves when the batch is full or at [`Self::flush`].
    pub(crate) fn send(&mut self, index: u8, to: SocketAddr, payload: &[u8], drops: &mut Drops) {
        let Some(port) = self.ports.get_mut(usize::from(index)) else {
            drops.count(DropReason::BadIngress);
            return;
        };
        if port.sends.is_full() {
            port.flush(drops);
        }
        if !port.sends.push(to, payload) {
            drops.count(DropReason::SendFailed);
        }
    }

    pub(crate) fn flush(&mut self, drops: &mut Drops) {
        for port in &mut self.ports {
            port.flush(drops);
        }
    }
}

impl Port {
    fn flush(&mut self, drops: &mut Drops) {
        if self.sends.is_empty() {
            return;
        }
        let report = self.sends.flush(&self.socket);
        let lost = u64::try_from(report.failed + report.would_block).unwrap_or_default();
        drops.add(DropReason::SendFailed, lost);
    }
}
