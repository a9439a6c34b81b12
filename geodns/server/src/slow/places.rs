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
//! So a few sources fill half the places at most, and the last eighth is for sources that have none.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use super::answer::Transport;

/// Connections of a node at most, over all transports.
pub const CONNECTIONS_MAX: usize = TCP_MAX + TLS_MAX + HTTPS_MAX;
/// Plain TCP has the most: a resolver whose answer was truncated has no other way.
const TCP_MAX: usize = 512;
const TLS_MAX: usize = 256;
const HTTPS_MAX: usize = 256;

/// Connections of one transport from one source (an IPv4 address, an IPv6 /56: what one customer gets) at most.
pub const CONNECTIONS_PER_SOURCE_MAX: usize = 32;
const PER_SOURCE_MAX_FROM_HALF: usize = 4;
const PER_SOURCE_MAX_FROM_SEVEN_EIGHTHS: usize = 1;
const SOURCE_BITS_V6: u8 = 56;

/// Why a connection is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// All places of the transport are taken.
    All,
    /// The source has as many as it may have now.
    Source,
}

/// The places of a node. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Places {
    tcp: Arc<Mutex<Taken>>,
    tls: Arc<Mutex<Taken>>,
    https: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    /// Holds sources that have connections, so the places of the transport bound it.
    by_source: HashMap<IpAddr, usize>,
}

/// A place, until it is dropped.
pub(super) struct Place {
    taken: Arc<Mutex<Taken>>,
    source: IpAddr,
}

impl Places {
    /// A place for a connection from `source`.
    pub(super) fn take(&self, transport: Transport, source: IpAddr) -> Result<Place, Full> {
        let source = source_of(source);
        let (places, most) = self.of(transport);
        let mut taken = lock(places);
        if taken.all >= most {
            return Err(Full::All);
        }
        let of_source = taken.by_source.get(&source).copied().unwrap_or(0);
        if of_source >= per_source_max(taken.all, most) {
            return Err(Full::Source);
        }
        taken.by_source.insert(source, of_source + 1);
        taken.all += 1;
        Ok(Place {
            taken: Arc::clone(places),
            source,
        })
    }

    /// Connections of all transports.
    pub(super) fn taken(&self) -> usize {
        let all = [&self.tcp, &self.tls, &self.https];
        all.iter().map(|places| lock(places).all).sum()
    }

    /// Whether places are short, so that idle connections should not keep theirs for long.
    pub(super) fn are_short(&self, transport: Transport) -> bool {
        let (places, most) = self.of(transport);
        lock(places).all > most / 2
    }

    /// Queries over UDP have no connection and no place.
    const fn of(&self, transport: Transport) -> (&Arc<Mutex<Taken>>, usize) {
        match transport {
            Transport::Udp | Transport::Tcp => (&self.tcp, TCP_MAX),
            Transport::Tls => (&self.tls, TLS_MAX),
            Transport::Https => (&self.https, HTTPS_MAX),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        taken.all -= 1;
        if let Some(count) = taken.by_source.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                taken.by_source.remove(&self.source);
            }
        }
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

/// Counts are whole at every moment, whoever panicked.
fn lock(places: &Mutex<Taken>) -> std::sync::MutexGuard<'_, Taken> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let mask = u128::MAX << (128 - SOURCE_BITS_V6);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A network of its own for each number.
    fn stranger(number: usize) -> IpAddr {
        IpAddr::V4(u32::try_from(number).unwrap().into())
    }

    fn take_all(places: &Places, transport: Transport, source: IpAddr) -> Vec<Place> {
        std::iter::from_fn(|| places.take(transport, source).ok()).collect()
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let places = Places::default();
        let mut held = take_all(&places, Transport::Tcp, source("2001:db8::1"));
        assert_eq!(held.len(), CONNECTIONS_PER_SOURCE_MAX);
        // The same customer's, and another's.
        let take = |text| places.take(Transport::Tcp, source(text));
        assert_eq!(take("2001:db8:0:ff::2").err(), Some(Full::Source));
        held.push(take("2001:db8:0:100::2").unwrap());
        held.pop();
        for transport in [Transport::Tcp, Transport::Tls, Transport::Https] {
            held.extend((0..1000).filter_map(|i| places.take(transport, stranger(i)).ok()));
            assert!(places.are_short(transport));
            let full = places.take(transport, source("192.0.2.1")).err();
            assert_eq!(full, Some(Full::All));
        }
        assert_eq!(places.taken(), CONNECTIONS_MAX);
        held.clear();
        assert_eq!(places.taken(), 0);
        assert!(lock(&places.tcp).by_source.is_empty());
    }

    #[test]
    fn sixteen_sources_that_take_all_they_get_shut_nobody_out() {
        let places = Places::default();
        let greedy = (0..16).flat_map(|i| take_all(&places, Transport::Tcp, stranger(i)));
        let held: Vec<_> = greedy.collect();
        assert!(held.len() < TCP_MAX / 8 * 7, "{} places", held.len());
        for transport in [Transport::Tcp, Transport::Tls, Transport::Https] {
            let other = take_all(&places, transport, source("192.0.2.1"));
            assert!(other.len() >= PER_SOURCE_MAX_FROM_HALF, "{transport:?}");
        }
    }

    #[test]
    fn the_last_places_are_for_sources_that_have_none() {
        let places = Places::default();
        let mut held = Vec::new();
        for i in 0..1000 {
            let (of_transport, most) = (places.taken(), TCP_MAX);
            let got = take_all(&places, Transport::Tcp, stranger(i));
            if of_transport >= most / 8 * 7 && of_transport < most {
                assert_eq!(got.len(), 1, "{of_transport} are taken");
            }
            held.extend(got);
        }
        assert_eq!(held.len(), TCP_MAX);
    }
}
