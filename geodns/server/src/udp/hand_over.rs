//! From workers to the slow path: a bounded queue of copies, each with the socket its answer leaves from.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use geodns_proto::respond::BUFFER_BYTES;
use runtime::metrics::Registry;
use runtime::udp::UdpSocket;
use tokio::sync::Notify;

/// Queries that wait for the slow path at most; one more is dropped and counted.
pub const SLOW_QUERIES_MAX: usize = 256;

/// See the module head. Clones share it.
#[derive(Clone, Debug)]
pub struct SlowQueue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: ArrayQueue<SlowQuery>,
    arrived: Notify,
    answered: AtomicU64,
    unsent: AtomicU64,
    over_streams: AtomicU64,
}

/// A query the fast path does not answer.
pub struct SlowQuery {
    /// Where it came from.
    pub source: SocketAddr,
    bytes: [u8; BUFFER_BYTES],
    len: usize,
    socket: UdpSocket,
}

impl Default for SlowQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl SlowQueue {
    /// An empty one. Its memory is there from the beginning.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                queue: ArrayQueue::new(SLOW_QUERIES_MAX),
                arrived: Notify::new(),
                answered: AtomicU64::new(0),
                unsent: AtomicU64::new(0),
                over_streams: AtomicU64::new(0),
            }),
        }
    }

    /// Exports how many answers the slow path sent.
    pub fn observe(&self, registry: &Registry) {
        let read = |cell: fn(&Shared) -> &AtomicU64| {
            let shared = Arc::clone(&self.shared);
            move || cell(&shared).load(Ordering::Relaxed)
        };
        registry.observe_counter(
            "geodns.slow.udp_answers",
            "{response}",
            "Answers the slow path sent over UDP.",
            &[],
            read(|shared| &shared.answered),
        );
        registry.observe_counter(
            "geodns.slow.udp_send_failures",
            "{response}",
            "Answers of the slow path that the kernel did not take.",
            &[],
            read(|shared| &shared.unsent),
        );
    }

    /// Waits for the next query. Several tasks may wait.
    pub async fn next(&self) -> SlowQuery {
        loop {
            if let Some(query) = self.shared.queue.pop() {
                return query;
            }
            self.shared.arrived.notified().await;
        }
    }

    /// Queries that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.queue.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.queue.is_empty()
    }

    /// Sends the answer to `query` from the socket it came to. One that the kernel does not take is counted: a resolver asks again.
    pub fn answer(&self, query: &SlowQuery, bytes: &[u8]) {
        let cell = match query.socket.send_to(query.source, bytes) {
            Ok(()) => &self.shared.answered,
            Err(_) => &self.shared.unsent,
        };
        cell.fetch_add(1, Ordering::Relaxed);
    }

    /// The slow path answered over a connection: whoever drains is still asked.
    pub fn answered_over_stream(&self) {
        self.shared.over_streams.fetch_add(1, Ordering::Relaxed);
    }

    /// Answers over connections so far.
    pub(super) fn over_streams(&self) -> u64 {
        self.shared.over_streams.load(Ordering::Relaxed)
    }

    /// `false`: it is full, and the query is dropped.
    pub(super) fn offer(&self, socket: &UdpSocket, source: SocketAddr, packet: &[u8]) -> bool {
        let mut bytes = [0; BUFFER_BYTES];
        let Some(slot) = bytes.get_mut(..packet.len()) else {
            return false;
        };
        slot.copy_from_slice(packet);
        let query = SlowQuery {
            source,
            bytes,
            len: packet.len(),
            socket: socket.clone(),
        };
        let taken = self.shared.queue.push(query).is_ok();
        if taken {
            self.shared.arrived.notify_one();
        }
        taken
    }
}

impl SlowQuery {
    /// The packet, as it came.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The address it came to.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.socket.local_addr()
    }
}

impl std::fmt::Debug for SlowQuery {
    /// Never the source or what it asks.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlowQuery")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
