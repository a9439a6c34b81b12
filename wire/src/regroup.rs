//! Gathers the records of a batch by destination, so that each destination gets few, full datagrams.
//!
//! Buffers are kept from batch to batch; a batch allocates nothing once they have grown.

use std::ops::Range;

use crate::record::{self, DATAGRAM_HEADER_LEN, DatagramKind, RecordHeader};
use crate::sequence::Sequences;

/// Why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegroupError {
    /// The record alone is longer than a datagram.
    #[error("record does not fit a datagram")]
    Oversize,
    /// More destinations than one batch keeps apart: the caller drains first.
    #[error("too many destinations in one batch")]
    TooManyDestinations,
}

struct Group<D> {
    to: D,
    /// Finished datagrams back to back, then the open one.
    bytes: Vec<u8>,
    /// Where each datagram begins.
    starts: Vec<usize>,
}

/// Records of one batch, by destination.
pub struct Regroup<D> {
    groups: Vec<Group<D>>,
    used: usize,
    destinations_max: usize,
    sequences: Sequences<D>,
}

impl<D: Copy + Ord> Regroup<D> {
    /// Keeps at most `destinations_max` destinations apart in one batch.
    #[must_use]
    pub const fn new(destinations_max: usize) -> Self {
        Self {
            groups: Vec::new(),
            used: 0,
            destinations_max,
            sequences: Sequences::new(),
        }
    }

    /// Adds a record for `to`; no datagram becomes longer than `datagram_len_max`, header included. Datagrams to
    /// one destination are numbered from 0, across batches.
    ///
    /// # Errors
    /// See [`RegroupError`]; the record is not taken then.
    pub fn push(
        &mut self,
        to: D,
        header: &RecordHeader,
        payload: &[u8],
        datagram_len_max: usize,
    ) -> Result<(), RegroupError> {
        let record_len = header.encoded_len() + payload.len();
        if DATAGRAM_HEADER_LEN + record_len > datagram_len_max {
            return Err(RegroupError::Oversize);
        }
        let index = self.group(to).ok_or(RegroupError::TooManyDestinations)?;
        let group = self.groups.get_mut(index);
        let group = group.ok_or(RegroupError::TooManyDestinations)?;
        let open_len = group.starts.last().map(|start| group.bytes.len() - start);
        if open_len.is_none_or(|len| len + record_len > datagram_len_max) {
            group.starts.push(group.bytes.len());
            let head = record::datagram_header(DatagramKind::Records, self.sequences.next(to));
            group.bytes.extend_from_slice(&head);
        }
        record::put_record(&mut group.bytes, header, payload);
        Ok(())
    }

    /// A batch rarely has more than a few destinations: the last one used is looked at first, then all.
    fn group(&mut self, to: D) -> Option<usize> {
        let known = self
            .groups
            .iter()
            .take(self.used)
            .rposition(|group| group.to == to);
        known.or_else(|| self.open(to))
    }

    fn open(&mut self, to: D) -> Option<usize> {
        if self.used >= self.destinations_max {
            return None;
        }
        let index = self.used;
        match self.groups.get_mut(index) {
            Some(group) => group.to = to,
            None => self.groups.push(Group {
                to,
                bytes: Vec::new(),
                starts: Vec::new(),
            }),
        }
        self.used += 1;
        Some(index)
    }

    /// Hands out every datagram, destination by destination in the order they first appeared, and empties the batch.
    ///
    /// Datagrams of equal length come as one train (`bytes`, `segment_bytes`), the last of it possibly shorter: what the
    /// kernel sends with one UDP_SEGMENT call.
    pub fn drain(&mut self, mut send: impl FnMut(D, &[u8], usize)) {
        for group in self.groups.iter_mut().take(self.used) {
            let ends = group.starts.iter().skip(1).copied();
            let mut train = Train::default();
            for end in ends.chain([group.bytes.len()]) {
                if let Some((whole, segment_bytes)) = train.extend_to(end)
                    && let Some(bytes) = group.bytes.get(whole)
                {
                    send(group.to, bytes, segment_bytes);
                }
            }
            if let Some(bytes) = group.bytes.get(train.span()) {
                send(group.to, bytes, train.segment_bytes);
            }
            group.bytes.clear();
            group.starts.clear();
        }
        self.used = 0;
    }

    /// Whether the batch holds nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }
}

/// Datagrams that may leave in one call: equally long ones, and a shorter one at the end.
#[derive(Default)]
struct Train {
    start: usize,
    end: usize,
    segment_bytes: usize,
}

impl Train {
    const fn span(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Adds the datagram from the end of the train to `end`. When it does not belong to the train, the train is returned
    /// and a new one starts with it.
    fn extend_to(&mut self, end: usize) -> Option<(Range<usize>, usize)> {
        let len = end - self.end;
        let closed = !(self.end - self.start).is_multiple_of(self.segment_bytes.max(1));
        if self.segment_bytes == 0 {
            self.segment_bytes = len;
        } else if closed || len > self.segment_bytes {
            let whole = (self.span(), self.segment_bytes);
            *self = Self {
                start: self.end,
                end,
                segment_bytes: len,
            };
            return Some(whole);
        }
        self.end = end;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Records;
    use crate::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

    fn header() -> RecordHeader {
        RecordHeader {
            owner: Owner {
                region: RegionId(1),
                transceiver: TransceiverId(1),
            },
            tag: Tag {
                pop: PopId(1),
                worker: 0,
                ingress: 0,
            },
            client: ClientAddr::new(([192, 0, 2, 1], 5).into()),
            hops: 0,
            fragment: None,
            offered: false,
        }
    }

    fn drained(regroup: &mut Regroup<u8>) -> Vec<(u8, usize, usize)> {
        let mut out = Vec::new();
        regroup.drain(|to, bytes, segment_bytes| {
            for datagram in bytes.chunks(segment_bytes) {
                let (_, _, body) = record::open_datagram(datagram).unwrap();
                out.push((
                    to,
                    datagram.len(),
                    Records::new(body).map(Result::unwrap).count(),
                ));
            }
        });
        out
    }

    #[test]
    fn records_share_datagrams_by_destination() {
        let mut regroup = Regroup::new(4);
        for i in 0..20 {
            regroup.push(i % 2, &header(), &[0x80; 160], 1414).unwrap();
        }
        // 4 + 7 * 180 = 1264; an eighth would make 1444.
        assert_eq!(
            drained(&mut regroup),
            [(0, 1264, 7), (0, 544, 3), (1, 1264, 7), (1, 544, 3)]
        );
        assert!(regroup.is_empty());
        assert_eq!(drained(&mut regroup), []);
    }

    #[test]
    fn equal_datagrams_form_a_train_and_a_shorter_one_ends_it() {
        type Case<'a> = (&'a [usize], &'a [(usize, usize)]);
        let cases: [Case<'_>; 6] = [
            (&[100], &[(100, 100)]),
            (&[100, 100, 100], &[(300, 100)]),
            (&[100, 100, 60], &[(260, 100)]),
            (&[100, 60, 60], &[(160, 100), (60, 60)]),
            (&[60, 100, 100], &[(60, 60), (200, 100)]),
            (&[100, 100, 60, 100], &[(260, 100), (100, 100)]),
        ];
        for (lens, trains) in cases {
            let mut regroup = Regroup::new(1);
            for len in lens {
                // 24 bytes of headers; no second record fits beside the first.
                let payload = vec![1; len - 24];
                regroup.push(0, &header(), &payload, 101).unwrap();
            }
            let mut out = Vec::new();
            regroup.drain(|_, bytes, segment_bytes| out.push((bytes.len(), segment_bytes)));
            assert_eq!(out, trains, "{lens:?}");
        }
    }

    #[test]
    fn a_record_that_fits_exactly_is_taken_and_one_byte_more_is_not() {
        let mut regroup = Regroup::new(4);
        assert_eq!(regroup.push(0, &header(), &[1; 100], 124), Ok(()));
        assert_eq!(
            regroup.push(0, &header(), &[1; 101], 124),
            Err(RegroupError::Oversize)
        );
        assert_eq!(drained(&mut regroup), [(0, 124, 1)]);
    }

    #[test]
    fn datagrams_to_one_destination_are_numbered_across_batches() {
        let mut regroup = Regroup::new(4);
        let mut numbers = Vec::new();
        for _ in 0..3 {
            for to in [0, 1, 1] {
                regroup.push(to, &header(), &[1; 100], 124).unwrap();
            }
            regroup.drain(|to, bytes, segment_bytes| {
                for datagram in bytes.chunks(segment_bytes) {
                    let (_, sequence, _) = record::open_datagram(datagram).unwrap();
                    numbers.push((to, sequence));
                }
            });
        }
        let of = |wanted| {
            let own = numbers.iter().filter(move |(to, _)| *to == wanted);
            own.map(|(_, sequence)| *sequence).collect::<Vec<_>>()
        };
        assert_eq!((of(0), of(1)), (vec![0, 1, 2], vec![0, 1, 2, 3, 4, 5]));
    }

    #[test]
    fn destinations_are_bounded() {
        let mut regroup = Regroup::new(2);
        assert_eq!(regroup.push(0, &header(), &[1], 1414), Ok(()));
        assert_eq!(regroup.push(1, &header(), &[1], 1414), Ok(()));
        assert_eq!(
            regroup.push(2, &header(), &[1], 1414),
            Err(RegroupError::TooManyDestinations)
        );
        assert_eq!(regroup.push(1, &header(), &[1], 1414), Ok(()));
        assert_eq!(drained(&mut regroup), [(0, 25, 1), (1, 46, 2)]);
        assert_eq!(
            regroup.push(2, &header(), &[1], 1414),
            Ok(()),
            "a drained batch starts afresh"
        );
    }
}
