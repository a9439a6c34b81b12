//! Looks at the machine before anything starts, so that what is missing is one clear line and not half a network.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

use topology::Topology;

/// Oldest kernel with `UDP_GRO`, without which no link and no record socket opens.
const KERNEL_MIN: (u32, u32) = (5, 0);

/// Any port does.
const DISCARD_PORT: u16 = 9;

/// A socket that some node will bind.
struct Need {
    at: SocketAddr,
    kind: Transport,
    /// Who needs it, for the complaint.
    by: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

/// Checks kernel, addresses and ports.
///
/// # Errors
/// One line that says what to change.
pub(super) fn check(topology: &Topology) -> Result<(), String> {
    check_kernel(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default())?;
    check_reuse_port()?;
    for need in needs(topology) {
        probe(&need).map_err(|error| complaint(&need, &error))?;
    }
    Ok(())
}

/// The listener of the demo page, bound for good.
///
/// # Errors
/// One line that says what to change.
pub(super) fn listen(at: SocketAddr) -> Result<TcpListener, String> {
    let bound = TcpListener::bind(at).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| {
        let kind = error.kind();
        let why = if kind == io::ErrorKind::AddrInUse {
            format!("{at} is in use by another program")
        } else if kind == io::ErrorKind::PermissionDenied {
            format!("{at} takes privileges")
        } else {
            format!("cannot listen on {at}: {error}")
        };
        format!("{why}; choose another address with --listen")
    })
}

fn check_kernel(release: &str) -> Result<(), String> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (number(), number()) else {
        return Err(
            "cannot tell the kernel's version: firsthop runs on Linux with /proc".to_owned(),
        );
    };
    if (major, minor) < KERNEL_MIN {
        let (min_major, min_minor) = KERNEL_MIN;
        return Err(format!(
            "Linux {} is too old: firsthop needs {min_major}.{min_minor} or later (UDP_GRO)",
            release.trim()
        ));
    }
    Ok(())
}

/// Tried as such, because sandboxes claim kernel versions they are not. `UDP_SEGMENT` is not tried: nodes do without.
fn check_reuse_port() -> Result<(), String> {
    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)
        .and_then(|socket| socket.set_reuse_port(true))
        .map_err(|error| {
            format!("this kernel refuses SO_REUSEPORT ({error}): firsthop needs Linux 5.0 or later")
        })
}

fn needs(topology: &Topology) -> Vec<Need> {
    let need = |at, kind, by: String| Need { at, kind, by };
    let mut needs = Vec::new();
    for region in &topology.regions {
        for relay in &region.core_relays {
            let by = format!("core relay {}", relay.name);
            for port in [relay.link_port, relay.record_port] {
                for worker in 0..u16::from(relay.workers) {
                    let at = SocketAddr::new(relay.address, port.saturating_add(worker));
                    needs.push(need(at, Transport::Udp, by.clone()));
                }
            }
            needs.push(need(relay.admin, Transport::Tcp, by));
        }
        for node in &region.transceivers.nodes {
            let by = format!("transceiver {}", node.name);
            let at = SocketAddr::new(node.address, region.transceivers.port);
            needs.push(need(at, Transport::Udp, by.clone()));
            for at in [node.whip, node.peer, node.admin] {
                needs.push(need(at, Transport::Tcp, by.clone()));
            }
        }
    }
    for pop in &topology.pops {
        let by = format!("PoP {}", pop.name);
        for at in &pop.ingress {
            needs.push(need(*at, Transport::Udp, by.clone()));
        }
        let backbone = SocketAddr::new(pop.backbone, 0);
        needs.push(need(backbone, Transport::Udp, by.clone()));
        needs.push(need(pop.admin, Transport::Tcp, by));
    }
    for node in &topology.geodns {
        let by = format!("GeoDNS {}", node.name);
        for at in &node.dns {
            needs.push(need(*at, Transport::Udp, by.clone()));
        }
        let tcp = node.dns.iter().chain(&node.dot).chain(&node.doh);
        for at in tcp.chain([&node.steer, &node.admin]) {
            needs.push(need(*at, Transport::Tcp, by.clone()));
        }
    }
    needs
}

fn probe(need: &Need) -> io::Result<()> {
    match need.kind {
        Transport::Udp => UdpSocket::bind(need.at).map(drop)?,
        Transport::Tcp => TcpListener::bind(need.at).map(drop)?,
    }
    reach(need.at.ip())
}

/// Whether the kernel has a way to an address. An interface that is down keeps its addresses, and they can be bound.
/// Connecting a UDP socket looks the way up and sends nothing.
fn reach(ip: IpAddr) -> io::Result<()> {
    if ip.is_unspecified() {
        return Ok(());
    }
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0))?.connect((ip, DISCARD_PORT))
}

fn complaint(need: &Need, error: &io::Error) -> String {
    let Need { at, by, kind } = need;
    let transport = match kind {
        Transport::Udp => "UDP",
        Transport::Tcp => "TCP",
    };
    if error.kind() == io::ErrorKind::AddrInUse {
        format!(
            "{transport} {at}, which {by} needs, is in use by another program; is another `firsthop up` running?"
        )
    } else if !missing(error.kind()) {
        format!("{transport} {at}, which {by} needs: {error}")
    } else if at.is_ipv4() && at.ip().is_loopback() {
        format!(
            "{}, which {by} needs, cannot be used on this machine; is the loopback interface up \
             (`ip link set lo up`) and does it have all of 127.0.0.0/8?",
            at.ip()
        )
    } else {
        format!(
            "{}, which {by} needs, is not an address of this machine",
            at.ip()
        )
    }
}

/// The address is not there, or its interface is down.
fn missing(kind: io::ErrorKind) -> bool {
    kind == io::ErrorKind::AddrNotAvailable || kind == io::ErrorKind::NetworkUnreachable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_refused() {
        assert!(check_kernel("6.18.44-fc-v857\n").is_ok());
        assert!(check_kernel("5.0.0-generic\n").is_ok());
        assert_eq!(
            check_kernel("4.20.17\n"),
            Err("Linux 4.20.17 is too old: firsthop needs 5.0 or later (UDP_GRO)".to_owned())
        );
        assert!(check_kernel("").is_err());
    }

    #[test]
    fn complaints_name_who_needs_what() {
        let need = Need {
            at: "127.0.31.1:3478".parse().unwrap(),
            kind: Transport::Udp,
            by: "PoP ams".to_owned(),
        };
        let text = |kind| complaint(&need, &io::Error::from(kind));
        assert_eq!(
            text(io::ErrorKind::AddrInUse),
            "UDP 127.0.31.1:3478, which PoP ams needs, is in use by another program; is another `firsthop up` running?"
        );
        for kind in [
            io::ErrorKind::AddrNotAvailable,
            io::ErrorKind::NetworkUnreachable,
        ] {
            let expected = "127.0.31.1, which PoP ams needs, cannot be used on this machine; is the loopback interface up";
            assert!(text(kind).starts_with(expected), "{}", text(kind));
        }
    }

    #[test]
    fn a_taken_page_address_is_one_line() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = taken.local_addr().unwrap();
        let text = listen(at).unwrap_err();
        assert_eq!(
            text,
            format!("{at} is in use by another program; choose another address with --listen")
        );
    }
}
