//! A path that takes time: stands between two UDP endpoints and hands every packet on after a fixed delay, in order.
//!
//! ```text
//!  caller ──► front ── delay ──► a socket of its own, at an address the test chooses ──► target
//!  caller ◄── front ◄── delay ──────────────────────────────────────────────────────────┘
//! ```
//!
//! Its threads end when it is dropped.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use runtime::clock;

/// Callers at most; packets of further ones are lost.
const CALLERS_MAX: usize = 256;
/// Packets on their way in one direction at most; further ones are lost.
const PACKETS_MAX: usize = 1 << 14;
/// How often a thread looks whether it is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// See the module head.
pub struct Delay {
    front: SocketAddr,
    ended: Arc<AtomicBool>,
}

struct Packet {
    due: Instant,
    bytes: Vec<u8>,
    by: Arc<UdpSocket>,
    to: SocketAddr,
}

/// What the threads share.
struct Path {
    target: SocketAddr,
    one_way: Duration,
    /// Where the socket for the n-th caller is bound.
    source: Box<dyn Fn(usize) -> IpAddr + Send + Sync>,
    ended: Arc<AtomicBool>,
}

impl Delay {
    /// Between whoever sends to `front` and `target`, `one_way` in each direction.
    ///
    /// # Errors
    /// `front` cannot be bound.
    pub fn start(
        front: SocketAddr,
        target: SocketAddr,
        one_way: Duration,
        source: impl Fn(usize) -> IpAddr + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let socket = Arc::new(bind(front)?);
        let front = socket.local_addr()?;
        let ended = Arc::new(AtomicBool::new(false));
        let path = Arc::new(Path {
            target,
            one_way,
            source: Box::new(source),
            ended: Arc::clone(&ended),
        });
        let (up, up_queue) = sync_channel(PACKETS_MAX);
        let (down, down_queue) = sync_channel(PACKETS_MAX);
        thread::spawn(move || hand_on(&up_queue));
        thread::spawn(move || hand_on(&down_queue));
        thread::spawn(move || path.take_callers(&socket, &up, &down));
        Ok(Self { front, ended })
    }

    /// Where it listens.
    #[must_use]
    pub const fn front(&self) -> SocketAddr {
        self.front
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl Path {
    fn take_callers(
        self: &Arc<Self>,
        front: &Arc<UdpSocket>,
        up: &SyncSender<Packet>,
        down: &SyncSender<Packet>,
    ) {
        let callers: Mutex<BTreeMap<SocketAddr, Arc<UdpSocket>>> = Mutex::default();
        self.receive(front, |bytes, caller| {
            let mut callers = callers.lock().unwrap_or_else(PoisonError::into_inner);
            let known = callers.get(&caller).cloned();
            let by = match known {
                Some(known) => known,
                None if callers.len() >= CALLERS_MAX => return,
                None => {
                    let address = SocketAddr::new((self.source)(callers.len()), 0);
                    let Ok(back) = bind(address).map(Arc::new) else {
                        return;
                    };
                    let (path, front, down) = (Arc::clone(self), Arc::clone(front), down.clone());
                    let from = Arc::clone(&back);
                    thread::spawn(move || path.take_answers(&from, &front, caller, &down));
                    callers.insert(caller, Arc::clone(&back));
                    back
                }
            };
            // A full path loses packets.
            let _ = up.try_send(self.packet(bytes, by, self.target));
        });
    }

    fn take_answers(
        &self,
        back: &UdpSocket,
        front: &Arc<UdpSocket>,
        caller: SocketAddr,
        down: &SyncSender<Packet>,
    ) {
        self.receive(back, |bytes, _| {
            let _ = down.try_send(self.packet(bytes, Arc::clone(front), caller));
        });
    }

    fn packet(&self, bytes: &[u8], by: Arc<UdpSocket>, to: SocketAddr) -> Packet {
        Packet {
            due: clock::now() + self.one_way,
            bytes: bytes.to_vec(),
            by,
            to,
        }
    }

    fn receive(&self, socket: &UdpSocket, mut take: impl FnMut(&[u8], SocketAddr)) {
        let mut buffer = [0; 2048];
        while !self.ended.load(Ordering::Relaxed) {
            match socket.recv_from(&mut buffer) {
                Ok((len, from)) => take(buffer.get(..len).unwrap_or_default(), from),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // A refused send shows up here.
                Err(_) => thread::yield_now(),
            }
        }
    }
}

/// Until nobody is left who sends.
fn hand_on(queue: &Receiver<Packet>) {
    while let Ok(packet) = queue.recv() {
        thread::sleep(packet.due.saturating_duration_since(clock::now()));
        let _ = packet.by.send_to(&packet.bytes, packet.to);
    }
}

fn bind(address: SocketAddr) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind(address).with_context(|| format!("binding {address}"))?;
    socket.set_read_timeout(Some(LOOK_INTERVAL))?;
    Ok(socket)
}
