//! What a service manager says in the environment of the process, read without touching anything.
//!
//! | variable | holds |
//! | --- | --- |
//! | `NOTIFY_SOCKET` | `/path` of a datagram socket, or `@name` of an abstract one |
//! | `WATCHDOG_USEC` | by when it wants the next beat |
//! | `WATCHDOG_PID` | whose beat; another's when the process inherited the environment |

use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Environment {
    pub(super) to: Option<SocketAddr>,
    pub(super) watchdog: Option<Duration>,
    pub(super) misuses: Vec<Misuse>,
}

/// What nobody can do anything with. One line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Misuse {
    /// Neither `/path` nor `@name`, or longer than a socket's name can be.
    #[error("NOTIFY_SOCKET is neither the path of a socket nor `@` and a name")]
    Socket,
    /// Not a number, or 0.
    #[error("WATCHDOG_USEC is no time in microseconds")]
    Time,
    /// Not a number.
    #[error("WATCHDOG_PID is no process")]
    Process,
    /// A watchdog, and no socket for its beats.
    #[error("WATCHDOG_USEC without NOTIFY_SOCKET")]
    NoSocket,
}

/// Reads the variables of the process `pid`.
pub(super) fn read(variable: impl Fn(&str) -> Option<OsString>, pid: u32) -> Environment {
    let mut found = Environment::default();
    match variable("NOTIFY_SOCKET").as_deref().map(address) {
        Some(Some(to)) => found.to = Some(to),
        Some(None) => found.misuses.push(Misuse::Socket),
        None => {}
    }
    match watchdog(&variable, pid) {
        Ok(None) => {}
        Ok(Some(_)) if found.to.is_none() => {
            if found.misuses.is_empty() {
                found.misuses.push(Misuse::NoSocket);
            }
        }
        Ok(watchdog) => found.watchdog = watchdog,
        Err(misuse) => found.misuses.push(misuse),
    }
    found
}

fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] if !name.is_empty() => SocketAddr::from_abstract_name(name).ok(),
        [b'/', _, ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

fn watchdog(
    variable: &impl Fn(&str) -> Option<OsString>,
    pid: u32,
) -> Result<Option<Duration>, Misuse> {
    let Some(us) = variable("WATCHDOG_USEC") else {
        return Ok(None);
    };
    let us: u64 = number(&us).ok_or(Misuse::Time)?;
    let own = match variable("WATCHDOG_PID") {
        Some(wanted) => number::<u32>(&wanted).ok_or(Misuse::Process)? == pid,
        None => true,
    };
    match us {
        0 => Err(Misuse::Time),
        us => Ok(own.then_some(Duration::from_micros(us))),
    }
}

fn number<N: std::str::FromStr>(text: &OsStr) -> Option<N> {
    text.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: u32 = 7;

    fn found(set: &[(&str, &str)]) -> Environment {
        let variable = |name: &str| {
            let pair = set.iter().find(|(own, _)| *own == name);
            pair.map(|(_, value)| OsString::from(value))
        };
        read(variable, PID)
    }

    #[test]
    fn nothing_is_asked_for_where_nothing_is_said() {
        let found = found(&[]);
        assert!(found.to.is_none() && found.watchdog.is_none());
        assert_eq!(found.misuses, []);
    }

    #[test]
    fn sockets_by_path_and_by_abstract_name() {
        let path = found(&[("NOTIFY_SOCKET", "/run/systemd/notify")]);
        let to = path.to.unwrap();
        assert_eq!(to.as_pathname().unwrap().as_os_str(), "/run/systemd/notify");
        let name = found(&[("NOTIFY_SOCKET", "@org.example/notify")]);
        let to = name.to.unwrap();
        assert_eq!(to.as_abstract_name(), Some(&b"org.example/notify"[..]));
        let long = format!("/{}", "a".repeat(200));
        for socket in ["", "@", "/", "run/notify", "vsock:2:1234", long.as_str()] {
            let found = found(&[("NOTIFY_SOCKET", socket), ("WATCHDOG_USEC", "1")]);
            assert_eq!(found.misuses, [Misuse::Socket], "{socket}");
            assert!(found.to.is_none() && found.watchdog.is_none(), "{socket}");
        }
    }

    #[test]
    fn a_watchdog_is_for_the_process_that_it_names_and_for_any_if_it_names_none() {
        let second = Some(Duration::from_secs(1));
        for (us, pid, watchdog, misuse) in [
            ("1000000", None, second, None),
            ("1000000", Some("7"), second, None),
            ("1000000", Some("8"), None, None),
            ("1000000", Some("self"), None, Some(Misuse::Process)),
            ("0", None, None, Some(Misuse::Time)),
            ("2s", None, None, Some(Misuse::Time)),
            ("-1", Some("7"), None, Some(Misuse::Time)),
        ] {
            let mut set = vec![("NOTIFY_SOCKET", "/run/notify"), ("WATCHDOG_USEC", us)];
            set.extend(pid.map(|pid| ("WATCHDOG_PID", pid)));
            let found = found(&set);
            assert_eq!(found.watchdog, watchdog, "{set:?}");
            assert_eq!(found.misuses.first().copied(), misuse, "{set:?}");
            assert!(found.to.is_some(), "the rest is told: {set:?}");
        }
        let found = found(&[("WATCHDOG_USEC", "1000000")]);
        assert_eq!(found.misuses, [Misuse::NoSocket]);
    }
}
