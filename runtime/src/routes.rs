//! Routes of the kernel, by rtnetlink(7): one is set, replaced or taken away, and the kernel says whether it was.
//!
//! ```text
//!  0       4       6       8       12      16            28
//! +-------+-------+-------+-------+-------+-------------+----------------------+
//! | len   | type  | flags | seq   | port  | rtmsg       | attributes, 4-aligned |     native byte order
//! +-------+-------+-------+-------+-------+-------------+----------------------+
//! ```
//!
//! For a control thread: every call waits for the kernel's answer, which comes at once or not at all. What is
//! not here: which route is wanted.

use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use socket2::{Domain, Protocol, Socket, Type};

/// How long the kernel may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Answers that are read while one is waited for.
const MESSAGES_MAX: usize = 16;
/// Routes of one prefix that [`Routes::clear`] takes away.
const CLEAR_MAX: u32 = 64;
/// Who made a route, as `ip route` shows it; the kernel, BIRD and routing daemons have other numbers (rtnetlink.h).
const PROTOCOL: u8 = 201;

/// A route through a device, in a table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where it leads.
    pub prefix: IpNet,
    /// Number of the table.
    pub table: u32,
    /// Its metric. Routes of one prefix with different metrics stand side by side.
    pub metric: u32,
    /// Index of the device.
    pub device: u32,
}

/// The kernel's routes, as one thread changes them, in the network namespace where it was opened.
#[derive(Debug)]
pub struct Routes {
    socket: Socket,
    sequence: u32,
}

impl Routes {
    /// Opens the way to the kernel. Changing anything needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// No descriptor is left, or the kernel has no rtnetlink.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::new(
            Domain::from(libc::AF_NETLINK),
            Type::RAW.cloexec(),
            Some(Protocol::from(libc::NETLINK_ROUTE)),
        )?;
        socket.set_read_timeout(Some(ANSWER_MAX))?;
        socket.set_write_timeout(Some(ANSWER_MAX))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Sets a device up, and says its index.
    ///
    /// # Errors
    /// There is no such device, or not privileged.
    pub fn device_up(&mut self, name: &str) -> io::Result<u32> {
        self.ask(|sequence| link_up(sequence, name))?;
        let answer = self.ask(|sequence| link_of(sequence, name))?;
        let index = answer.get(LINK_INDEX..LINK_INDEX + 4);
        let index = index.and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        index
            .map(u32::from_ne_bytes)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Sets a route; one of the same prefix, table and metric gives way to it.
    ///
    /// # Errors
    /// The device is down or gone, or not privileged.
    pub fn set(&mut self, route: &Route) -> io::Result<()> {
        let flags = REQUEST | ACK | CREATE | REPLACE;
        self.ask(|sequence| route_message(NEW_ROUTE, flags, sequence, route))
            .map(drop)
    }

    /// Takes a route away; whether there was one.
    ///
    /// # Errors
    /// Not privileged.
    pub fn delete(&mut self, route: &Route) -> io::Result<bool> {
        let flags = REQUEST | ACK;
        let answer = self.ask(|sequence| route_message(DELETE_ROUTE, flags, sequence, route));
        match answer {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes away every route of a prefix in a table, whoever made it and whatever its metric; how many there were.
    ///
    /// # Errors
    /// Not privileged, or more than anybody has.
    pub fn clear(&mut self, prefix: IpNet, table: u32) -> io::Result<u32> {
        let any = Route {
            prefix,
            table,
            metric: 0,
            device: 0,
        };
        for cleared in 0..CLEAR_MAX {
            if !self.delete(&any)? {
                return Ok(cleared);
            }
        }
        Err(io::ErrorKind::QuotaExceeded.into())
    }

    /// Sends a message and returns what the kernel says to it, without its header; nothing when that is "done".
    fn ask(&mut self, message: impl FnOnce(u32) -> Vec<u8>) -> io::Result<Vec<u8>> {
        self.sequence = self.sequence.wrapping_add(1);
        let message = message(self.sequence);
        (&self.socket).write_all(&message)?;
        let mut buffer = vec![0; ANSWER_BYTES_MAX];
        for _ in 0..MESSAGES_MAX {
            let len = (&self.socket).read(&mut buffer)?;
            let answer = buffer.get(..len).unwrap_or_default();
            // An answer to a call that was given up earlier.
            if sequence_of(answer) == Some(self.sequence) {
                return read_answer(answer);
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// `linux/netlink.h`, `linux/rtnetlink.h`.
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const ERROR: u16 = 2;
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;
const ATTRIBUTE_IF_NAME: u16 = 3;
const ATTRIBUTE_DESTINATION: u16 = 1;
const ATTRIBUTE_DEVICE: u16 = 4;
const ATTRIBUTE_METRIC: u16 = 6;
const ATTRIBUTE_TABLE: u16 = 15;
const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 10;
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const SCOPE_ANY: u8 = 255;
const TYPE_ANY: u8 = 0;
const TYPE_UNICAST: u8 = 1;
const IFF_UP: u32 = 1;

const HEADER_BYTES: usize = 16;
/// Where `ifi_index` is in `struct ifinfomsg`.
const LINK_INDEX: usize = 4;
/// More than a description of a device takes.
const ANSWER_BYTES_MAX: usize = 16 << 10;

fn route_message(kind: u16, flags: u16, sequence: u32, route: &Route) -> Vec<u8> {
    let adds = kind == NEW_ROUTE;
    let (family, scope) = match route.prefix.network() {
        IpAddr::V4(_) => (FAMILY_V4, SCOPE_LINK),
        IpAddr::V6(_) => (FAMILY_V6, SCOPE_UNIVERSE),
    };
    let (protocol, scope, route_type) = if adds {
        (PROTOCOL, scope, TYPE_UNICAST)
    } else {
        (0, SCOPE_ANY, TYPE_ANY)
    };
    // struct rtmsg: family, dst_len, src_len, tos, table (0: it is an attribute), protocol, scope, type, flags
    let head = [
        family,
        route.prefix.prefix_len(),
        0,
        0,
        0,
        protocol,
        scope,
        route_type,
        0,
        0,
        0,
        0,
    ];
    let mut body = head.to_vec();
    match route.prefix.network() {
        IpAddr::V4(ip) => attribute(&mut body, ATTRIBUTE_DESTINATION, &ip.octets()),
        IpAddr::V6(ip) => attribute(&mut body, ATTRIBUTE_DESTINATION, &ip.octets()),
    }
    attribute(&mut body, ATTRIBUTE_TABLE, &route.table.to_ne_bytes());
    // Zero: whichever there is, when one is taken away.
    for (kind, value) in [
        (ATTRIBUTE_METRIC, route.metric),
        (ATTRIBUTE_DEVICE, route.device),
    ] {
        if adds || value != 0 {
            attribute(&mut body, kind, &value.to_ne_bytes());
        }
    }
    message(kind, flags, sequence, &body)
}

fn link_up(sequence: u32, name: &str) -> Vec<u8> {
    link_message(NEW_LINK, REQUEST | ACK, sequence, (name, IFF_UP))
}

fn link_of(sequence: u32, name: &str) -> Vec<u8> {
    link_message(GET_LINK, REQUEST, sequence, (name, 0))
}

fn link_message(kind: u16, flags: u16, sequence: u32, (name, up): (&str, u32)) -> Vec<u8> {
    // struct ifinfomsg: family, type, index (0: by name), flags, which of them change
    let mut body = vec![0; 8];
    body.extend(up.to_ne_bytes());
    body.extend(up.to_ne_bytes());
    let mut name = name.as_bytes().to_vec();
    name.push(0);
    attribute(&mut body, ATTRIBUTE_IF_NAME, &name);
    message(kind, flags, sequence, &body)
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(len.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(len.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(body);
    message
}

fn sequence_of(answer: &[u8]) -> Option<u32> {
    let bytes = answer.get(8..12)?;
    <[u8; 4]>::try_from(bytes).ok().map(u32::from_ne_bytes)
}

/// The body of an answer, or the error it tells.
fn read_answer(answer: &[u8]) -> io::Result<Vec<u8>> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = answer.get(4..6).ok_or_else(malformed)?;
    let body = answer.get(HEADER_BYTES..).ok_or_else(malformed)?;
    if kind != ERROR.to_ne_bytes() {
        return Ok(body.to_vec());
    }
    let code = body.get(..4).ok_or_else(malformed)?;
    let code = <[u8; 4]>::try_from(code).map_err(|_| malformed())?;
    match i32::from_ne_bytes(code) {
        0 => Ok(Vec::new()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_these_bytes() {
        let route = Route {
            prefix: "192.0.2.0/24".parse().unwrap(),
            table: 1001,
            metric: 100,
            device: 7,
        };
        let flags = REQUEST | ACK | CREATE | REPLACE;
        let bytes = route_message(NEW_ROUTE, flags, 9, &route);
        assert_eq!(bytes.len(), HEADER_BYTES + 12 + 4 * 8);
        assert_eq!(sequence_of(&bytes), Some(9));
        assert_eq!(&bytes[16..28], [2, 24, 0, 0, 0, 201, 253, 1, 0, 0, 0, 0]);
        assert_eq!(&bytes[32..36], [192, 0, 2, 0]);
        assert_eq!(&bytes[40..44], 1001u32.to_ne_bytes());
        let v6 = Route {
            prefix: "2001:db8:100::/48".parse().unwrap(),
            metric: 0,
            device: 0,
            ..route
        };
        let bytes = route_message(DELETE_ROUTE, REQUEST | ACK, 9, &v6);
        assert_eq!(
            bytes.len(),
            HEADER_BYTES + 12 + 20 + 8,
            "no metric, no device"
        );
        assert_eq!(&bytes[16..24], [10, 48, 0, 0, 0, 0, 255, 0]);
    }

    #[test]
    fn answers_are_an_error_done_or_a_body() {
        let error = |code: i32| message(ERROR, 0, 1, &code.to_ne_bytes());
        let denied = read_answer(&error(-libc::EPERM)).unwrap_err();
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
        assert!(read_answer(&error(0)).unwrap().is_empty());
        let body = read_answer(&message(NEW_LINK, 0, 1, &[1, 2, 3])).unwrap();
        assert_eq!(body, [1, 2, 3]);
        let whole = error(-1);
        for len in 0..whole.len() {
            assert!(read_answer(&whole[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_has_no_index() {
        let mut routes = Routes::open().unwrap();
        assert!(routes.device_up("no-such-device").is_err());
    }
}
