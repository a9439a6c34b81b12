//! From a client to one of the answers: the list its network has, and what that list is answered with at the moment.
//!
//! ```text
//! client ──► Tables (rebuilt with databases and measurements) ──► list, scope
//! list ──► Selection (rebuilt when health, drains, load or weights change) ──► AnswerId, or one of 64 by the client's prefix
//! ```

use std::net::IpAddr;
use std::sync::Arc;

use geodns_policy::compile::{Located, Tables};
use geodns_policy::{share_prefix, slot_of};

use crate::render::{AnswerId, Rendered};

/// Slots equals share a list's clients by.
pub const SLOTS: usize = geodns_policy::SLOTS as usize;

/// What is known of a client's network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Index of its list.
    pub list: u32,
    /// Length of the prefix all of which has this list.
    pub scope: u8,
}

/// Finds the list of a network.
pub trait Locate {
    /// Of an IPv4 address.
    fn locate_v4(&self, address: u32) -> Place;
    /// Of an IPv6 address.
    fn locate_v6(&self, address: u128) -> Place;
    /// The word that looking up this address reads first: whoever looks up many fetches it ahead.
    fn first_word(&self, address: IpAddr) -> &u32;
    /// Which of the [`SLOTS`] a client has, by the first [`share_prefix`] bits of its address alone.
    fn slot(&self, client: IpAddr) -> u8;
}

impl Locate for Tables {
    #[inline]
    fn locate_v4(&self, address: u32) -> Place {
        self.lookup_v4(address).into()
    }

    #[inline]
    fn locate_v6(&self, address: u128) -> Place {
        self.lookup_v6(address).into()
    }

    #[inline]
    fn first_word(&self, address: IpAddr) -> &u32 {
        match address {
            IpAddr::V4(v4) => self.word_v4(v4.to_bits()),
            IpAddr::V6(v6) => self.word_v6(v6.to_bits()),
        }
    }

    fn slot(&self, client: IpAddr) -> u8 {
        slot_of(client)
    }
}

impl From<Located> for Place {
    fn from(located: Located) -> Self {
        Self {
            list: located.list.0,
            scope: located.scope,
        }
    }
}

/// What each list is answered with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    choices: Vec<Choice>,
    shared: Vec<[AnswerId; SLOTS]>,
}

/// What one list is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    One(AnswerId),
    /// Index of the slots.
    Shared(u32),
}

impl Selection {
    /// Without lists.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The next list has this answer.
    pub fn push(&mut self, answer: AnswerId) {
        self.choices.push(Choice::One(answer));
    }

    /// The next list has equals, which share its clients.
    pub fn push_shared(&mut self, slots: [AnswerId; SLOTS]) {
        let [first, rest @ ..] = slots;
        if rest.iter().all(|answer| *answer == first) {
            return self.push(first);
        }
        match u32::try_from(self.shared.len()) {
            Ok(index) => {
                self.shared.push(slots);
                self.choices.push(Choice::Shared(index));
            }
            Err(_) => self.push(first),
        }
    }

    /// Lists there are.
    #[must_use]
    pub fn lists(&self) -> usize {
        self.choices.len()
    }

    /// The answer for a client of `place`, and the scope it has. A list that is not there has the first answer.
    #[must_use]
    pub fn answer(&self, place: Place, client: IpAddr, locate: &impl Locate) -> (AnswerId, u8) {
        let choice = usize::try_from(place.list)
            .ok()
            .and_then(|list| self.choices.get(list));
        match choice {
            Some(Choice::One(answer)) => (*answer, place.scope),
            Some(Choice::Shared(index)) => {
                let slot = usize::from(locate.slot(client)) % SLOTS;
                let slots = usize::try_from(*index)
                    .ok()
                    .and_then(|at| self.shared.get(at));
                let answer = slots.and_then(|slots| slots.get(slot)).copied();
                let scope = place.scope.max(share_prefix(client));
                (answer.unwrap_or(AnswerId(0)), scope)
            }
            None => (AnswerId(0), 0),
        }
    }
}

/// All a question is answered from. Exchanged as a whole.
#[derive(Debug)]
pub struct Served<L> {
    /// Networks and their lists.
    pub tables: Arc<L>,
    /// What each list is answered with.
    pub selection: Arc<Selection>,
    /// The bytes.
    pub rendered: Arc<Rendered>,
}

impl<L> Clone for Served<L> {
    fn clone(&self) -> Self {
        Self {
            tables: Arc::clone(&self.tables),
            selection: Arc::clone(&self.selection),
            rendered: Arc::clone(&self.rendered),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Locate for Fixed {
        fn locate_v4(&self, _: u32) -> Place {
            Place::default()
        }
        fn locate_v6(&self, _: u128) -> Place {
            Place::default()
        }
        fn first_word(&self, _: IpAddr) -> &u32 {
            &0
        }
        fn slot(&self, client: IpAddr) -> u8 {
            if client.is_ipv4() { 3 } else { 200 }
        }
    }

    #[test]
    fn equals_share_by_slot_and_lengthen_the_scope() {
        let mut selection = Selection::new();
        selection.push(AnswerId(5));
        let slots = std::array::from_fn(|slot| AnswerId(u16::try_from(slot).unwrap()));
        selection.push_shared(slots);
        selection.push_shared([AnswerId(9); SLOTS]);
        assert_eq!(selection.lists(), 3);
        let ip = |text: &str| text.parse().unwrap();
        let (v4, v6, mapped) = (ip("192.0.2.1"), ip("2001:db8::1"), ip("::ffff:192.0.2.1"));
        // The slot is that of the IPv4 address inside.
        let (nat64, teredo) = (ip("64:ff9b::192.0.2.1"), ip("2001:0:1::3fff:fdfe"));
        let six_to_four = ip("2002:c000:201::1");
        let cases = [
            (0, 8, v4, (AnswerId(5), 8)),
            (1, 8, v4, (AnswerId(3), 20)),
            (1, 24, v4, (AnswerId(3), 24)),
            (1, 24, v6, (AnswerId(8), 40)),
            (1, 110, mapped, (AnswerId(8), 116)),
            (1, 96, nat64, (AnswerId(8), 116)),
            (1, 40, teredo, (AnswerId(8), 116)),
            (1, 24, six_to_four, (AnswerId(8), 36)),
            (1, 48, six_to_four, (AnswerId(8), 48)),
            (2, 8, v4, (AnswerId(9), 8)),
            (3, 8, v4, (AnswerId(0), 0)),
        ];
        for (list, scope, client, expected) in cases {
            let place = Place { list, scope };
            assert_eq!(selection.answer(place, client, &Fixed), expected);
        }
    }
}
