//! How many connections there may be, from one source and in all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Connections of a node at most, over all transports.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Connections from one source (an IPv4 address, an IPv6 /64) at most.
pub const CONNECTIONS_PER_SOURCE_MAX: usize = 64;

/// Why a connection is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// [`CONNECTIONS_MAX`].
    All,
    /// [`CONNECTIONS_PER_SOURCE_MAX`].
    Source,
}

/// The places of a node. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Places(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    all: usize,
    /// Holds sources that have connections, so [`CONNECTIONS_MAX`] bounds it.
    by_source: HashMap<IpAddr, usize>,
}

/// A place, until it is dropped.
pub(super) struct Place {
    places: Places,
    source: IpAddr,
}

impl Places {
    /// A place for a connection from `source`.
    pub(super) fn take(&self, source: IpAddr) -> Result<Place, Full> {
        let source = source_of(source);
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= CONNECTIONS_MAX {
            return Err(Full::All);
        }
        let of_source = taken.by_source.entry(source).or_default();
        if *of_source >= CONNECTIONS_PER_SOURCE_MAX {
            return Err(Full::Source);
        }
        *of_source += 1;
        taken.all += 1;
        Ok(Place {
            places: self.clone(),
            source,
        })
    }

    /// Connections there are.
    pub(super) fn taken(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).all
    }

    /// Whether places are short, so that idle connections should not keep theirs for long.
    pub(super) fn are_short(&self) -> bool {
        self.taken() > CONNECTIONS_MAX / 2
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(count) = taken.by_source.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                taken.by_source.remove(&self.source);
            }
        }
    }
}

fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_given_back() {
        let places = Places::default();
        let source = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut held: Vec<_> = (0..CONNECTIONS_PER_SOURCE_MAX)
            .map(|_| places.take(source("2001:db8::1")).unwrap())
            .collect();
        assert_eq!(places.take(source("2001:db8::2")).err(), Some(Full::Source));
        held.pop();
        held.push(places.take(source("2001:db8::2")).unwrap());
        for i in 0..CONNECTIONS_MAX - held.len() {
            let address = u32::try_from(i).unwrap().into();
            held.push(places.take(IpAddr::V4(address)).unwrap());
        }
        assert!(places.are_short());
        assert_eq!(places.take(source("192.0.2.1")).err(), Some(Full::All));
        held.clear();
        assert_eq!(places.taken(), 0);
        assert!(places.0.lock().unwrap().by_source.is_empty());
    }
}
