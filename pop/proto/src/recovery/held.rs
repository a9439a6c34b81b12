//! Packets held while a question is open, in places taken at the start, and those released and not yet fetched.

use std::net::{Ipv4Addr, SocketAddr};

use wire::ClientAddr;
use wire::record::PAYLOAD_LEN_MAX;

use crate::verdict::{DropReason, Uplink};

const NONE: u16 = u16::MAX;

/// Packets in order: a list through [`Held`]. Whoever owns one gives it back by [`Held::release`].
#[derive(Debug)]
pub(crate) struct List {
    head: u16,
    tail: u16,
    len: u16,
}

impl List {
    pub(crate) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        len: 0,
    };

    pub(crate) const fn len(&self) -> u16 {
        self.len
    }
}

struct Place {
    client: ClientAddr,
    ingress: u8,
    len: u16,
    next: u16,
    verdict: Uplink,
}

/// A packet that was taken out of a list. Its bytes stay until another one is kept: [`Held::bytes_of`].
#[derive(Clone, Copy)]
pub(crate) struct Next {
    pub(crate) client: ClientAddr,
    pub(crate) ingress: u8,
    pub(crate) verdict: Uplink,
    at: u16,
    len: u16,
}

/// See the module head.
pub(crate) struct Held {
    places: Vec<Place>,
    bytes: Vec<u8>,
    free: List,
    used: u16,
}

impl Held {
    pub(crate) fn new(packets_max: u16) -> Self {
        let packets_max = packets_max.min(NONE - 1);
        Self {
            places: Vec::with_capacity(usize::from(packets_max)),
            bytes: vec![0; usize::from(packets_max) * PAYLOAD_LEN_MAX],
            free: List::EMPTY,
            used: 0,
        }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.used as u32
    }

    /// Copies a packet to the end of `list`; `false` when all places are taken.
    #[must_use]
    pub(crate) fn keep(
        &mut self,
        list: &mut List,
        client: ClientAddr,
        ingress: u8,
        packet: &[u8],
    ) -> bool {
        let (Some(at), Ok(len)) = (self.take_place(), u16::try_from(packet.len())) else {
            return false;
        };
        let begin = usize::from(at) * PAYLOAD_LEN_MAX;
        let room = self.bytes.get_mut(begin..begin + packet.len());
        let (Some(room), Some(place)) = (room, self.places.get_mut(usize::from(at))) else {
            return false;
        };
        room.copy_from_slice(packet);
        *place = Place {
            client,
            ingress,
            len,
            next: NONE,
            verdict: Uplink::Hold,
        };
        self.append(list, at, 1, at);
        true
    }

    fn take_place(&mut self) -> Option<u16> {
        let at = if let Some(at) = self.pop_free() {
            at
        } else if self.places.len() < self.places.capacity() {
            self.places.push(Place::FREE);
            u16::try_from(self.places.len() - 1).ok()?
        } else {
            return None;
        };
        self.used += 1;
        Some(at)
    }

    fn pop_free(&mut self) -> Option<u16> {
        let mut free = std::mem::replace(&mut self.free, List::EMPTY);
        let at = self.pop(&mut free);
        self.free = free;
        at
    }

    /// Everything in `list` goes to the end of `released` with this verdict.
    pub(crate) fn release(&mut self, list: List, verdict: Uplink, released: &mut List) {
        let mut at = list.head;
        while let Some(place) = self.places.get_mut(usize::from(at)) {
            place.verdict = verdict;
            at = place.next;
        }
        if list.len > 0 {
            self.append(released, list.head, list.len, list.tail);
        }
    }

    /// Takes the first packet of `released`; its place is free from here on.
    pub(crate) fn next(&mut self, released: &mut List) -> Option<Next> {
        let at = self.pop(released)?;
        self.used -= 1;
        let mut free = std::mem::replace(&mut self.free, List::EMPTY);
        if let Some(place) = self.places.get_mut(usize::from(at)) {
            place.next = NONE;
        }
        self.append(&mut free, at, 1, at);
        self.free = free;
        let place = self.places.get(usize::from(at))?;
        Some(Next {
            client: place.client,
            ingress: place.ingress,
            verdict: place.verdict,
            at,
            len: place.len,
        })
    }

    pub(crate) fn bytes_of(&self, next: &Next) -> &[u8] {
        let begin = usize::from(next.at) * PAYLOAD_LEN_MAX;
        let bytes = self.bytes.get(begin..begin + usize::from(next.len));
        bytes.unwrap_or_default()
    }

    fn append(&mut self, list: &mut List, first: u16, count: u16, last: u16) {
        match self.places.get_mut(usize::from(list.tail)) {
            Some(tail) => tail.next = first,
            None => list.head = first,
        }
        list.tail = last;
        list.len += count;
    }

    fn pop(&self, list: &mut List) -> Option<u16> {
        let at = list.head;
        let place = self.places.get(usize::from(at))?;
        list.head = place.next;
        list.len -= 1;
        if list.len == 0 {
            *list = List::EMPTY;
        }
        Some(at)
    }
}

impl Place {
    const FREE: Self = Self {
        client: ClientAddr::new(SocketAddr::new(
            std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            0,
        )),
        ingress: 0,
        len: 0,
        next: NONE,
        verdict: Uplink::Drop(DropReason::HoldFull),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(held: &mut Held, list: &mut List, fill: u8, len: usize) -> bool {
        let client = ClientAddr::new(([192, 0, 2, fill], 9).into());
        held.keep(list, client, fill, &vec![fill; len])
    }

    #[test]
    fn packets_leave_in_order_and_places_come_back() {
        let mut held = Held::new(4);
        let (mut one, mut two, mut released) = (List::EMPTY, List::EMPTY, List::EMPTY);
        for round in 0..3u8 {
            assert!(keep(&mut held, &mut one, 1, 1));
            assert!(keep(&mut held, &mut two, 2, PAYLOAD_LEN_MAX));
            assert!(keep(&mut held, &mut one, 3, 7));
            assert!(keep(&mut held, &mut one, round, 9));
            assert!(!keep(&mut held, &mut two, 5, 1), "bounded");
            assert_eq!((held.len(), one.len(), two.len()), (4, 3, 1));
            let drop = Uplink::Drop(DropReason::Uncached);
            held.release(
                std::mem::replace(&mut two, List::EMPTY),
                drop,
                &mut released,
            );
            held.release(
                std::mem::replace(&mut one, List::EMPTY),
                Uplink::Hold,
                &mut released,
            );
            let mut seen = Vec::new();
            while let Some(next) = held.next(&mut released) {
                let bytes = held.bytes_of(&next);
                assert!(bytes.iter().all(|byte| *byte == next.ingress));
                seen.push((next.ingress, bytes.len(), next.verdict == drop));
            }
            assert_eq!(
                seen,
                [
                    (2, PAYLOAD_LEN_MAX, true),
                    (1, 1, false),
                    (3, 7, false),
                    (round, 9, false)
                ]
            );
            assert_eq!(held.len(), 0);
        }
    }
}
