//! A NAT for one service: hands the packets of each caller on from a port of its own, and may give every caller another one.
//!
//! ```text
//!  caller ──► front ──► a port of the outer address, until `rebind` ──► target
//!  caller ◄── front ◄── the same port; what comes to a former one is lost
//! ```
//!
//! It notes when packets passed after the last change, by direction. Its threads end when it is dropped.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use runtime::clock;

/// Callers at most; packets of further ones are lost.
const CALLERS_MAX: usize = 64;
/// How often a thread looks whether it is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// See the module head.
pub struct Nat {
    shared: Arc<Shared>,
    front: SocketAddr,
}

struct Shared {
    front: UdpSocket,
    target: SocketAddr,
    outer: IpAddr,
    callers: Mutex<BTreeMap<SocketAddr, Arc<UdpSocket>>>,
    /// Counts changes: a thread that serves a former port ends.
    generation: AtomicU64,
    passed: Mutex<Passed>,
    ended: AtomicBool,
}

/// When what passed after the last change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// The change.
    pub changed: Option<Instant>,
    /// The first packet of a caller that is media.
    pub media_up: Option<Instant>,
    /// The first check of a caller.
    pub check_up: Option<Instant>,
    /// The first packet to a caller that is media.
    pub media_down: Option<Instant>,
}

impl Nat {
    /// Between whoever sends to `front` and `target`, which sees its callers at `outer`.
    ///
    /// # Errors
    /// An address cannot be bound.
    pub fn start(front: SocketAddr, target: SocketAddr, outer: IpAddr) -> anyhow::Result<Self> {
        let front = bind(front)?;
        let address = front.local_addr()?;
        let shared = Arc::new(Shared {
            front,
            target,
            outer,
            callers: Mutex::default(),
            generation: AtomicU64::new(0),
            passed: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let taking = Arc::clone(&shared);
        thread::spawn(move || taking.take_callers());
        Ok(Self {
            shared,
            front: address,
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn front(&self) -> SocketAddr {
        self.front
    }

    /// Forgets every mapping: the next packet of a caller leaves from another port, and what comes to the former one is lost.
    pub fn rebind(&self) {
        self.shared.generation.fetch_add(1, Ordering::AcqRel);
        let mut callers = lock(&self.shared.callers);
        *lock(&self.shared.passed) = Passed {
            changed: Some(clock::now()),
            ..Passed::default()
        };
        callers.clear();
    }

    /// What passed since the last change.
    #[must_use]
    pub fn passed(&self) -> Passed {
        *lock(&self.shared.passed)
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn take_callers(self: &Arc<Self>) {
        let lives = || !self.ended.load(Ordering::Relaxed);
        receive(&self.front, lives, |packet, caller| {
            let Some(outer) = self.outer_of(caller) else {
                return;
            };
            let now = clock::now();
            let mut passed = lock(&self.passed);
            match packet.first() {
                Some(0..=3) => passed.check_up = passed.check_up.or(Some(now)),
                Some(128..=191) => passed.media_up = passed.media_up.or(Some(now)),
                Some(_) | None => {}
            }
            drop(passed);
            // What the target refuses shows as silence.
            let _ = outer.send_to(packet, self.target);
        });
    }

    fn outer_of(self: &Arc<Self>, caller: SocketAddr) -> Option<Arc<UdpSocket>> {
        let mut callers = lock(&self.callers);
        if let Some(known) = callers.get(&caller) {
            return Some(Arc::clone(known));
        }
        if callers.len() >= CALLERS_MAX {
            return None;
        }
        let outer = Arc::new(bind(SocketAddr::new(self.outer, 0)).ok()?);
        callers.insert(caller, Arc::clone(&outer));
        let (shared, serving) = (Arc::clone(self), Arc::clone(&outer));
        let generation = self.generation.load(Ordering::Acquire);
        thread::spawn(move || shared.take_answers(&serving, caller, generation));
        Some(outer)
    }

    fn take_answers(&self, outer: &UdpSocket, caller: SocketAddr, generation: u64) {
        let current = || self.generation.load(Ordering::Acquire) == generation;
        let lives = || current() && !self.ended.load(Ordering::Relaxed);
        receive(outer, lives, |packet, _| {
            if !current() {
                return;
            }
            if matches!(packet.first(), Some(128..=191)) {
                let mut passed = lock(&self.passed);
                passed.media_down = passed.media_down.or_else(|| Some(clock::now()));
            }
            let _ = self.front.send_to(packet, caller);
        });
    }
}

/// A door to a WHIP endpoint that names another ingress: every answer's candidate at `advertised` leads to `instead`, whose
/// text must be as long. Returns its address; it serves until the process ends.
///
/// # Errors
/// No address is free, or the two differ in length.
pub fn whip_door(
    whip: SocketAddr,
    advertised: SocketAddr,
    instead: SocketAddr,
) -> anyhow::Result<SocketAddr> {
    let text = |address: SocketAddr| format!(" {} {} ", address.ip(), address.port());
    let (from, to) = (text(advertised), text(instead));
    anyhow::ensure!(from.len() == to.len(), "{from:?} is not as long as {to:?}");
    let listener = TcpListener::bind((whip.ip(), 0)).context("binding the door")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for caller in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(whip) else {
                return;
            };
            let (from, to) = (from.clone(), to.clone());
            let ways = caller
                .try_clone()
                .and_then(|back| Ok((back, server.try_clone()?)));
            let Ok((back, onward)) = ways else { return };
            thread::spawn(move || pipe(&caller, &onward, |_| {}));
            thread::spawn(move || pipe(&server, &back, |bytes| replace(bytes, &from, &to)));
        }
    });
    Ok(address)
}

fn pipe(from: &TcpStream, to: &TcpStream, change: impl Fn(&mut [u8])) {
    let (mut from, mut to) = (from, to);
    let mut buffer = vec![0; 1 << 16];
    // An answer is one write of a few kB on loopback, so it is read whole.
    while let Ok(len @ 1..) = std::io::Read::read(&mut from, &mut buffer) {
        let Some(bytes) = buffer.get_mut(..len) else {
            return;
        };
        change(bytes);
        if std::io::Write::write_all(&mut to, bytes).is_err() {
            return;
        }
    }
    // It is closed either way.
    let _ = to.shutdown(std::net::Shutdown::Write);
}

fn replace(bytes: &mut [u8], from: &str, to: &str) {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut at = 0;
    while let Some(found) = bytes.get_mut(at..at + from.len()) {
        if found == from {
            found.copy_from_slice(to);
        }
        at += 1;
    }
}

fn receive(socket: &UdpSocket, lives: impl Fn() -> bool, mut take: impl FnMut(&[u8], SocketAddr)) {
    let mut buffer = [0; 2048];
    while lives() {
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => take(buffer.get(..len).unwrap_or_default(), from),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // A refused send shows up here.
            Err(_) => thread::yield_now(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bind(address: SocketAddr) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("binding {address}"))?;
    socket.set_read_timeout(Some(LOOK_INTERVAL))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_gives_another_port_and_loses_what_comes_to_the_former() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let (target, caller) = (bind(local).unwrap(), bind(local).unwrap());
        let nat = Nat::start(local, target.local_addr().unwrap(), local.ip()).unwrap();
        let mut buffer = [0; 16];
        let mut seen = |socket: &UdpSocket| {
            let received = socket.set_read_timeout(Some(Duration::from_secs(5)));
            received
                .and_then(|()| socket.recv_from(&mut buffer))
                .unwrap()
                .1
        };
        caller.send_to(&[0x80, 1], nat.front()).unwrap();
        let before = seen(&target);
        target.send_to(&[0x80, 2], before).unwrap();
        assert_eq!(seen(&caller), nat.front());
        nat.rebind();
        target.send_to(&[0x80, 3], before).unwrap();
        caller.send_to(&[0, 1], nat.front()).unwrap();
        let after = seen(&target);
        assert_ne!(before, after);
        target.send_to(&[0x80, 4], after).unwrap();
        seen(&caller);
        let passed = nat.passed();
        assert!(passed.check_up.is_some() && passed.media_up.is_none());
        assert!(passed.media_down > passed.changed);
    }

    #[test]
    fn addresses_of_one_length_are_exchanged() {
        let mut text = b"a 127.1.2.3 9 b 127.1.2.3 9 ".to_vec();
        replace(&mut text, " 127.1.2.3 9 ", " 127.1.4.5 8 ");
        assert_eq!(text, b"a 127.1.4.5 8 b 127.1.4.5 8 ");
    }
}
