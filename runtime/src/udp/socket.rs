//! One UDP socket and its options.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use socket2::{Domain, Protocol, Socket, Type};

use super::segments::Segmentation;
use crate::metrics::Registry;
use crate::sys;
use crate::sys::address::Name;
use crate::sys::control_message::Control;

/// How a socket is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindOptions {
    /// Several sockets share the address, and the kernel spreads clients over them.
    pub reuse_port: bool,
    /// Receive buffer, in bytes as the kernel accounts them.
    pub recv_buffer_bytes: usize,
    /// Send buffer, in bytes as the kernel accounts them.
    pub send_buffer_bytes: usize,
    /// Let the kernel join datagrams of one sender (UDP_GRO); slots of the batch must then hold 64 KiB.
    pub gro: bool,
    /// Never fragment, and ignore what the kernel believes of the path's MTU (RFC 8899 §4.1 wants that of QUIC).
    pub dont_fragment: bool,
    /// The address need not be on an interface yet (an anycast address that comes and goes).
    pub free_bind: bool,
}

impl Default for BindOptions {
    fn default() -> Self {
        Self {
            reuse_port: false,
            recv_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            gro: false,
            dont_fragment: false,
            free_bind: false,
        }
    }
}

/// A bound, non-blocking UDP socket. IPv6 sockets carry IPv6 only. Clones share it; closed when the last is dropped.
#[derive(Clone, Debug)]
pub struct UdpSocket {
    inner: Arc<Inner>,
    local: SocketAddr,
    recv_buffer_bytes: usize,
    send_buffer_bytes: usize,
}

#[derive(Debug)]
struct Inner {
    socket: Socket,
    segmentation: Segmentation,
}

impl UdpSocket {
    /// Opens and binds. A buffer the kernel made smaller than asked is one WARN line that names the sysctl.
    ///
    /// # Errors
    /// The address is taken or not ours, or the kernel lacks an option that was asked for; the text says which.
    pub fn bind(address: SocketAddr, options: &BindOptions) -> io::Result<Self> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::DGRAM.nonblocking().cloexec(),
            Some(Protocol::UDP),
        )
        .map_err(|error| named(error, "socket", address))?;
        apply(&socket, address, options)?;
        let recv_buffer_bytes = grow(&socket, &RECEIVE, options.recv_buffer_bytes, address);
        let send_buffer_bytes = grow(&socket, &SEND, options.send_buffer_bytes, address);
        socket
            .bind(&address.into())
            .map_err(|error| named(error, "bind", address))?;
        let local = socket
            .local_addr()?
            .as_socket()
            .ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self {
            inner: Arc::new(Inner {
                socket,
                segmentation: Segmentation::default(),
            }),
            local,
            recv_buffer_bytes,
            send_buffer_bytes,
        })
    }

    /// Sends to `to` and receives from nobody else, from here on: for load generators, whose way to the server is always the same.
    ///
    /// # Errors
    /// The address cannot be reached from this socket.
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.inner
            .socket
            .connect(&to.into())
            .map_err(|error| named(error, "connect", to))
    }

    /// Takes nothing more from the network: whoever sends here is told at once that nobody listens. What is in the receive buffer can
    /// still be read, and answered: closing a socket would throw it away.
    ///
    /// # Errors
    /// The kernel is out of memory.
    pub fn stop_receiving(&self) -> io::Result<()> {
        // A connected socket hears its peer alone, and this one is its own.
        self.connect(self.local)
    }

    /// The address it is bound to, with the port the kernel chose where 0 was asked for.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The receive buffer the kernel granted, in the unit of [`BindOptions::recv_buffer_bytes`].
    #[must_use]
    pub const fn recv_buffer_bytes(&self) -> usize {
        self.recv_buffer_bytes
    }

    /// The send buffer the kernel granted.
    #[must_use]
    pub const fn send_buffer_bytes(&self) -> usize {
        self.send_buffer_bytes
    }

    /// Datagrams the kernel dropped because the receive buffer was full.
    #[must_use]
    pub fn recv_drops(&self) -> u64 {
        self.inner.recv_drops()
    }

    /// Segment trains that went out as single datagrams, because the kernel or the device refused them.
    #[must_use]
    pub fn segmentation_fallbacks(&self) -> u64 {
        self.inner.segmentation.fallbacks()
    }

    /// Sends one datagram without blocking, for what is too rare to be worth a batch.
    ///
    /// # Errors
    /// The send buffer is full, or the kernel refuses the destination.
    pub fn send_to(&self, to: SocketAddr, payload: &[u8]) -> io::Result<()> {
        let (name, control) = (Name::encode(to), Control::EMPTY);
        sys::message::send_one(self.as_fd(), &name, payload, &control)
    }

    pub(super) fn segmentation(&self) -> &Segmentation {
        &self.inner.segmentation
    }

    /// Exports this socket's counters under `labels` for as long as it is open.
    pub fn observe(&self, registry: &Registry, labels: &[(&'static str, &str)]) {
        let observe = |read: fn(&Inner) -> u64| {
            let inner: Weak<Inner> = Arc::downgrade(&self.inner);
            move || inner.upgrade().map_or(0, |inner| read(&inner))
        };
        registry.observe_counter(
            "udp.rcvbuf_errors",
            "{packet}",
            "Datagrams the kernel dropped because the socket's receive buffer was full.",
            labels,
            observe(Inner::recv_drops),
        );
        registry.observe_counter(
            "udp.segmentation_fallbacks",
            "{train}",
            "Segment trains sent as single datagrams because the kernel refused UDP_SEGMENT.",
            labels,
            observe(|inner| inner.segmentation.fallbacks()),
        );
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.socket.as_fd()
    }
}

impl Inner {
    fn recv_drops(&self) -> u64 {
        sys::socket::receive_drops(self.socket.as_fd()).map_or(0, u64::from)
    }
}

fn apply(socket: &Socket, address: SocketAddr, options: &BindOptions) -> io::Result<()> {
    let v6 = address.is_ipv6();
    let set = |level, name, value, what| {
        sys::socket::set_int(socket.as_fd(), level, name, value)
            .map_err(|error| named(error, what, address))
    };
    if v6 {
        socket.set_only_v6(true)?;
    }
    if options.reuse_port {
        set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1, "SO_REUSEPORT")?;
    }
    if options.gro {
        set(libc::SOL_UDP, libc::UDP_GRO, 1, "UDP_GRO (Linux 5.0)")?;
    }
    if options.free_bind {
        // One option for both families: `IPV6_FREEBIND` is an alias of it in the kernel (ipv6(7)).
        set(libc::SOL_IP, libc::IP_FREEBIND, 1, "IP_FREEBIND")?;
    }
    if options.dont_fragment && v6 {
        let probe = libc::IPV6_PMTUDISC_PROBE;
        set(
            libc::SOL_IPV6,
            libc::IPV6_MTU_DISCOVER,
            probe,
            "IPV6_MTU_DISCOVER",
        )?;
    } else if options.dont_fragment {
        let probe = libc::IP_PMTUDISC_PROBE;
        set(
            libc::SOL_IP,
            libc::IP_MTU_DISCOVER,
            probe,
            "IP_MTU_DISCOVER",
        )?;
    }
    Ok(())
}

/// The two options of a buffer: one that root may use beyond the sysctl, one for everybody.
struct Buffer {
    force: i32,
    plain: i32,
    granted: fn(&Socket) -> io::Result<usize>,
    sysctl: &'static str,
}

const RECEIVE: Buffer = Buffer {
    force: libc::SO_RCVBUFFORCE,
    plain: libc::SO_RCVBUF,
    granted: Socket::recv_buffer_size,
    sysctl: "net.core.rmem_max",
};
const SEND: Buffer = Buffer {
    force: libc::SO_SNDBUFFORCE,
    plain: libc::SO_SNDBUF,
    granted: Socket::send_buffer_size,
    sysctl: "net.core.wmem_max",
};

/// Asks for `wanted` bytes and returns what was granted. The kernel doubles what it is asked for, to account for its
/// own bookkeeping (socket(7)).
fn grow(socket: &Socket, buffer: &Buffer, wanted: usize, address: SocketAddr) -> usize {
    let value = i32::try_from(wanted).unwrap_or(i32::MAX / 2);
    let set = |name| sys::socket::set_int(socket.as_fd(), libc::SOL_SOCKET, name, value);
    if set(buffer.force).is_err() {
        // What the plain option could not do shows in what was granted.
        let _ = set(buffer.plain);
    }
    let granted = (buffer.granted)(socket).unwrap_or(0) / 2;
    if let Some(line) = clamp_line(buffer.sysctl, wanted, granted) {
        tracing::warn!(socket = %address, "{line}");
    }
    granted
}

pub(super) fn clamp_line(sysctl: &str, wanted: usize, granted: usize) -> Option<String> {
    (granted < wanted).then(|| {
        format!(
            "socket buffer is {granted} bytes, {wanted} were asked for: raise it with `sysctl -w {sysctl}={wanted}`"
        )
    })
}

fn named(error: io::Error, what: &str, address: SocketAddr) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {address}: {error}"))
}
