//! How many connections there may be: of each transport, and from one source. No transport takes another's places, and the fuller one
//! is, the fewer of its places one source may have:
//!
//! ```text
//! places of the transport taken    a source may have
//! less than half                   32
//! less than seven eighths           4
//! more                              1
//! ```
//!
//! So a few sources fill half the places at most, and the last eighth is for sources that have none. Nobody is turned away: one too
//! many ends the connection that has waited longest for a query, of its source where that has as many as it may have, of all where
//! every place is taken. So whoever holds many connections keeps nobody out, and a query that comes at once is always answered.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use runtime::source;
use tokio::sync::oneshot;

use super::answer::Transport;

/// Connections of each transport at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// Plain TCP. It has the most: a resolver whose answer was truncated has no other way.
    pub tcp: usize,
    /// DNS over TLS.
    pub tls: usize,
    /// DNS over HTTPS.
    pub https: usize,
}

impl Default for Most {
    fn default() -> Self {
        Self {
            tcp: 512,
            tls: 256,
            https: 256,
        }
    }
}

/// Connections of one transport from one [source] at most.
pub const CONNECTIONS_PER_SOURCE_MAX: usize = 32;
const PER_SOURCE_MAX_FROM_HALF: usize = 4;
const PER_SOURCE_MAX_FROM_SEVEN_EIGHTHS: usize = 1;

/// Why a connection has to make room for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// All places of the transport were taken.
    All,
    /// The source had as many as it may have.
    Source,
}

/// The places of a node. Clones share them.
#[derive(Clone)]
pub(super) struct Places {
    tcp: Arc<Mutex<Taken>>,
    tls: Arc<Mutex<Taken>>,
    https: Arc<Mutex<Taken>>,
}

/// The places of one transport.
struct Taken {
    most: usize,
    /// By number, `most` of them at most.
    guests: BTreeMap<u64, Guest>,
    /// Counts connections and queries.
    now: u64,
}

struct Guest {
    source: IpAddr,
    /// When it came, or asked last.
    asked: u64,
    leave: oneshot::Sender<Full>,
}

/// A place, until it is dropped.
pub(super) struct Place {
    taken: Arc<Mutex<Taken>>,
    number: u64,
}

/// Tells whoever has a place when it is another's.
pub(super) type Notice = oneshot::Receiver<Full>;

impl Places {
    pub(super) fn new(most: Most) -> Self {
        let places = |most| {
            Arc::new(Mutex::new(Taken {
                most,
                guests: BTreeMap::new(),
                now: 0,
            }))
        };
        Self {
            tcp: places(most.tcp),
            tls: places(most.tls),
            https: places(most.https),
        }
    }

    /// A place for a connection from `source`.
    pub(super) fn take(&self, transport: Transport, source: IpAddr) -> (Place, Notice) {
        let source = source::of(source);
        let places = self.of(transport);
        let mut taken = lock(places);
        taken.make_room(source);
        let (leave, notice) = oneshot::channel();
        let number = taken.tick();
        let guest = Guest {
            source,
            asked: number,
            leave,
        };
        taken.guests.insert(number, guest);
        let place = Place {
            taken: Arc::clone(places),
            number,
        };
        (place, notice)
    }

    /// Connections of all transports.
    pub(super) fn taken(&self) -> usize {
        let all = [&self.tcp, &self.tls, &self.https];
        all.iter().map(|places| lock(places).guests.len()).sum()
    }

    /// Whether places are short, so that nobody should keep one for long.
    pub(super) fn are_short(&self, transport: Transport) -> bool {
        let taken = lock(self.of(transport));
        taken.guests.len() > taken.most / 2
    }

    /// Queries over UDP have no connection and no place.
    const fn of(&self, transport: Transport) -> &Arc<Mutex<Taken>> {
        match transport {
            Transport::Udp | Transport::Tcp => &self.tcp,
            Transport::Tls => &self.tls,
            Transport::Https => &self.https,
        }
    }
}

impl Taken {
    /// For one more from `source`.
    fn make_room(&mut self, source: IpAddr) {
        let of_source = |guest: &Guest| guest.source == source;
        let count = self.guests.values().filter(|guest| of_source(guest));
        if count.count() >= per_source_max(self.guests.len(), self.most) {
            self.end_longest_waiting(of_source, Full::Source);
        } else if self.guests.len() >= self.most {
            self.end_longest_waiting(|_| true, Full::All);
        }
    }

    fn end_longest_waiting(&mut self, among: impl Fn(&Guest) -> bool, full: Full) {
        let guests = self.guests.iter().filter(|(_, guest)| among(guest));
        let longest = guests.min_by_key(|(_, guest)| guest.asked);
        let number = longest.map(|(number, _)| *number);
        if let Some(guest) = number.and_then(|number| self.guests.remove(&number)) {
            // Who ends at this moment anyway does not hear it.
            let _ = guest.leave.send(full);
        }
    }

    const fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }
}

impl Place {
    /// Its connection has asked.
    pub(super) fn asked(&self) {
        let mut taken = lock(&self.taken);
        let now = taken.tick();
        if let Some(guest) = taken.guests.get_mut(&self.number) {
            guest.asked = now;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.taken).guests.remove(&self.number);
    }
}

const fn per_source_max(taken: usize, most: usize) -> usize {
    if taken < most / 2 {
        CONNECTIONS_PER_SOURCE_MAX
    } else if taken < most / 8 * 7 {
        PER_SOURCE_MAX_FROM_HALF
    } else {
        PER_SOURCE_MAX_FROM_SEVEN_EIGHTHS
    }
}

/// Guests are whole at every moment, whoever panicked.
fn lock(places: &Mutex<Taken>) -> std::sync::MutexGuard<'_, Taken> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Transport; 3] = [Transport::Tcp, Transport::Tls, Transport::Https];

    /// As a node has them, and what came of each connection.
    struct Node {
        places: Places,
        held: Vec<(Place, Notice)>,
    }

    impl Node {
        fn new() -> Self {
            Self {
                places: Places::new(Most::default()),
                held: Vec::new(),
            }
        }

        /// Number of the connection.
        fn connect(&mut self, transport: Transport, source: IpAddr) -> usize {
            self.held.push(self.places.take(transport, source));
            self.held.len() - 1
        }

        fn connect_often(&mut self, transport: Transport, sources: impl Iterator<Item = usize>) {
            for source in sources {
                self.connect(transport, stranger(source));
            }
        }

        /// Why it had to end.
        fn end(&mut self, number: usize) -> Option<Full> {
            self.held[number].1.try_recv().ok()
        }

        fn ends(&mut self) -> Vec<Full> {
            let ended = |(_, notice): &mut (Place, Notice)| notice.try_recv().ok();
            self.held.iter_mut().filter_map(ended).collect()
        }
    }

    fn source(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A source of its own for each number.
    fn stranger(number: usize) -> IpAddr {
        IpAddr::V4(u32::try_from(number).unwrap().into())
    }

    #[test]
    fn one_too_many_of_a_source_ends_the_one_of_it_that_waits_longest() {
        let mut node = Node::new();
        let other = node.connect(Transport::Tcp, source("2001:db8:0:100::2"));
        let mine = source("2001:db8::1");
        let first = node.connect(Transport::Tcp, mine);
        for _ in 1..CONNECTIONS_PER_SOURCE_MAX {
            node.connect(Transport::Tcp, mine);
        }
        assert_eq!(node.ends(), []);
        node.held[first].0.asked();
        // The same customer's.
        node.connect(Transport::Tcp, source("2001:db8:0:ff::2"));
        assert_eq!(node.end(first + 1), Some(Full::Source));
        assert_eq!((node.end(first), node.end(other)), (None, None));
        assert_eq!(node.places.taken(), 1 + CONNECTIONS_PER_SOURCE_MAX);
    }

    #[test]
    fn nobody_is_shut_out_by_those_who_hold_every_place() {
        for transport in ALL {
            let mut node = Node::new();
            // More sources than there are places, such as an IPv6 /48 has; each asks once.
            node.connect_often(transport, 0..1_000);
            for (place, _) in &node.held {
                place.asked();
            }
            let most = lock(node.places.of(transport)).most;
            assert_eq!(node.places.taken(), most);
            assert_eq!(node.ends(), vec![Full::All; 1_000 - most]);
            let late = node.connect(transport, source("2001:db8::1"));
            let oldest = 1_000 - most;
            assert_eq!(node.end(oldest), Some(Full::All));
            // And it keeps its place while others, who ask nothing, come after it.
            node.held[late].0.asked();
            node.connect_often(transport, 2_000..2_000 + most - 1);
            assert_eq!(node.end(late), None);
            assert_eq!(node.places.taken(), most);
        }
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let mut node = Node::new();
        for transport in ALL {
            assert!(!node.places.are_short(transport));
            node.connect_often(transport, 0..1_000);
            assert!(node.places.are_short(transport));
        }
        let Most { tcp, tls, https } = Most::default();
        assert_eq!(node.places.taken(), tcp + tls + https);
        node.held.clear();
        assert_eq!(node.places.taken(), 0);
    }

    #[test]
    fn sixteen_sources_that_take_all_they_get_make_nobody_leave() {
        let mut node = Node::new();
        let greedy = (0..16).flat_map(|source| [source; 100]);
        node.connect_often(Transport::Tcp, greedy);
        let taken = node.places.taken();
        assert!(taken < Most::default().tcp / 8 * 7, "{taken} places");
        assert!(node.ends().iter().all(|full| *full == Full::Source));
        for transport in ALL {
            let others = [100; PER_SOURCE_MAX_FROM_HALF].into_iter();
            node.connect_often(transport, others);
            assert_eq!(node.ends(), [], "{transport:?}");
        }
    }

    #[test]
    fn the_last_places_are_for_sources_that_have_none() {
        let mut node = Node::new();
        let most = Most::default().tcp;
        for source in 0..1_000 {
            let before = node.places.taken();
            node.connect_often(Transport::Tcp, [source; 100].into_iter());
            let got = node.places.taken() - before;
            if before >= most / 8 * 7 && before < most {
                assert_eq!(got, 1, "{before} are taken");
            }
        }
        assert_eq!(node.places.taken(), most);
    }
}
