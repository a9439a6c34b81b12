//! The client side of a PoP: where clients reach it, and of one worker a socket for each of these addresses, received from and sent to in
//! batches.

use std::io;
use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use pop_proto::DropReason;
use pop_proto::verdict::Drops;
use runtime::metrics::Registry;
use runtime::udp::{BindOptions, RecvBatch, SendBatch, UdpSocket};
use topology::{POP_ADDRESSES_MAX, Pop, Topology};
use wire::ClientAddr;
use wire::record::PAYLOAD_LEN_MAX;

/// Packets of one receive or send batch.
const BATCH_SLOTS: usize = 64;

/// Where clients reach the PoP: its own addresses in topology order, then the VIPs it serves. The index of one is what a tag carries.
#[derive(Clone, Debug)]
pub(crate) struct Addresses(Vec<Address>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address {
    socket: SocketAddr,
    vip: bool,
    /// It may be put on an interface later.
    free_bind: bool,
}

impl Addresses {
    /// Those of a PoP. One that announces VIPs serves all of them; another serves those that somebody brings here, which shows
    /// by their being on an interface.
    ///
    /// # Errors
    /// Somebody else has one of them, or there are too many.
    pub(crate) fn of(topology: &Topology, pop: &Pop) -> anyhow::Result<Self> {
        let announces = topology.anycast_of(pop).is_some();
        let own = pop.ingress.iter().map(|socket| Address {
            socket: *socket,
            vip: false,
            free_bind: false,
        });
        let mut all: Vec<Address> = own.collect();
        for vip in &topology.network.vips {
            if announces || is_brought_here(*vip) {
                all.push(Address {
                    socket: *vip,
                    vip: true,
                    free_bind: announces,
                });
            }
        }
        // VIPs that others bring are counted where they come; those that are announced are the topology's.
        if all.len() > POP_ADDRESSES_MAX {
            bail!(
                "a PoP serves {POP_ADDRESSES_MAX} addresses at most, `ingress` and the VIPs on this host together"
            );
        }
        let all = Self(all);
        all.refuse_taken()?;
        Ok(all)
    }

    /// Fails when somebody else has an address. Sockets that share an address with `SO_REUSEPORT` would not notice, and
    /// the kernel would hand half of the clients to another process.
    fn refuse_taken(&self) -> anyhow::Result<()> {
        for address in &self.0 {
            let what = if address.vip {
                "a VIP, which one pop of a host can serve"
            } else {
                "ingress"
            };
            UdpSocket::bind(address.socket, &alone(address.free_bind)).context(what)?;
        }
        Ok(())
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.0.iter().map(|address| address.socket)
    }

    /// VIPs that are served.
    pub(crate) fn vips(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let vips = self.0.iter().filter(|address| address.vip);
        vips.map(|address| address.socket)
    }

    /// Those of the VIPs that are on no interface of this host: what comes for them is answered by nobody.
    pub(crate) fn vips_missing(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.vips().filter(|vip| !is_on_an_interface(*vip))
    }
}

/// A socket that shares its address with nobody, to see whether there is one.
fn alone(free_bind: bool) -> BindOptions {
    BindOptions {
        recv_buffer_bytes: 0,
        send_buffer_bytes: 0,
        free_bind,
        ..BindOptions::default()
    }
}

fn is_on_an_interface(vip: SocketAddr) -> bool {
    let any_port = SocketAddr::new(vip.ip(), 0);
    UdpSocket::bind(any_port, &alone(false)).is_ok()
}

/// Whether a VIP that this PoP does not announce is served here.
fn is_brought_here(vip: SocketAddr) -> bool {
    match UdpSocket::bind(vip, &alone(false)) {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!(%vip, "another program of this host serves this VIP: it is not served here");
            false
        }
        Err(_) => {
            tracing::info!(%vip, "this VIP is on no interface of this host: it is not served here");
            false
        }
    }
}

/// Every address as one worker has it, in topology order: the index is what a tag carries.
pub(crate) struct Ingress {
    ports: Vec<Port>,
    pub(crate) batch: RecvBatch,
    truncated_before: u64,
}

/// One ingress address.
pub(crate) struct Port {
    pub(crate) socket: UdpSocket,
    vip: bool,
    sends: SendBatch,
}

impl Ingress {
    pub(crate) fn bind(
        addresses: &Addresses,
        workers: u8,
        metrics: &Registry,
    ) -> anyhow::Result<Self> {
        let mut ports = Vec::with_capacity(addresses.0.len());
        for address in &addresses.0 {
            let options = BindOptions {
                reuse_port: workers > 1,
                free_bind: address.free_bind,
                ..BindOptions::default()
            };
            let socket = UdpSocket::bind(address.socket, &options)?;
            let name = if address.vip { "vip" } else { "ingress" };
            socket.observe(metrics, &[("socket", name)]);
            ports.push(Port {
                socket,
                vip: address.vip,
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

    /// Whether the address of this index is a VIP.
    pub(crate) fn is_vip(&self, index: usize) -> bool {
        self.ports.get(index).is_some_and(|port| port.vip)
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
