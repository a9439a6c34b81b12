//! Gathers the records of a batch by destination, so that each destination gets few, full datagrams.
//!
//! Buffers are kept from batch to batch; a batch allocates nothing once they have grown.

use wire::record::{self, DATAGRAM_HEADER_LEN, DatagramKind, RecordHeader};

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
}

impl<D: Copy + PartialEq> Regroup<D> {
    /// Keeps at most `destinations_max` destinations apart in one batch.
    #[must_use]
    pub const fn new(destinations_max: usize) -> Self {
        Self {
            groups: Vec::new(),
            used: 0,
            destinations_max,
        }
    }

    /// Adds a record for `to`; no datagram becomes longer than `datagram_len_max`, header included. The sequence number is
    /// left 0 for whoever sends the datagram.
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
        let group = self.group(to).ok_or(RegroupError::TooManyDestinations)?;
        let open_len = group.starts.last().map(|start| group.bytes.len() - start);
        if open_len.is_none_or(|len| len + record_len > datagram_len_max) {
            group.starts.push(group.bytes.len());
            group
                .bytes
                .extend_from_slice(&record::datagram_header(DatagramKind::Records, 0));
        }
        record::put_record(&mut group.bytes, header, payload);
        Ok(())
    }

    /// A batch rarely has more than a few destinations: the last one used is looked at first, then all.
    fn group(&mut self, to: D) -> Option<&mut Group<D>> {
        let known = self
            .groups
            .iter()
            .take(self.used)
            .rposition(|group| group.to == to);
        let index = match known {
            Some(index) => index,
            None => self.open(to)?,
        };
        self.groups.get_mut(index)
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
    pub fn drain(&mut self, mut send: impl FnMut(D, &mut [u8])) {
        for group in self.groups.iter_mut().take(self.used) {
            let ends = group
                .starts
                .iter()
                .skip(1)
                .copied()
                .chain([group.bytes.len()]);
            let spans: (usize, &mut [u8]) = (0, group.bytes.as_mut_slice());
            ends.fold(spans, |(at, rest), end| {
                let (datagram, rest) = rest.split_at_mut(end - at);
                send(group.to, datagram);
                (end, rest)
            });
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

#[cfg(test)]
mod tests {
    use super::*;
    use wire::record::Records;
    use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

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
        }
    }

    fn drained(regroup: &mut Regroup<u8>) -> Vec<(u8, usize, usize)> {
        let mut out = Vec::new();
        regroup.drain(|to, datagram| {
            let (_, _, body) = record::open_datagram(datagram).unwrap();
            out.push((
                to,
                datagram.len(),
                Records::new(body).map(Result::unwrap).count(),
            ));
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
