//! What DTLS of a client may cost before it has proved who it is.
//!
//! A DTLS implementation keeps fragments of handshake messages until they are whole, and records of the next epoch until the
//! handshake is done (RFC 6347 §4.2.3, §4.1). Until then everything is unauthenticated, so the bytes and records that reach
//! the media engine are bounded here, and fragments must be well-formed. Nothing is decrypted.
//!
//! ```text
//! record     type 1 | version 2 | epoch 2 | sequence 6 | length 2 | fragment
//! handshake  type 1 | length 3 | message_seq 2 | fragment_offset 3 | fragment_length 3 | body      (epoch 0)
//! ```

/// Records, and handshake fragments, that a client may send before its handshake is done. A full handshake with
/// retransmissions takes a few dozen.
const EARLY_RECORDS_MAX: u32 = 256;
/// Bytes it may send before.
const EARLY_BYTES_MAX: u32 = 128 * 1024;
/// Records of epoch 0 that pass after the handshake: the client's last flight, repeated.
const LATE_RECORDS_MAX: u32 = 32;
/// A handshake message: a chain of certificates fits.
const MESSAGE_LEN_MAX: u32 = 16 * 1024;
/// Content type of handshake records.
const HANDSHAKE: u8 = 22;

/// Why a DTLS datagram is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A record or fragment that overruns, overlaps its message's end, or is empty for no reason.
    #[error("malformed DTLS")]
    Malformed,
    /// More than a handshake takes.
    #[error("too much DTLS before the handshake is done")]
    Excess,
}

/// The budget of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    early_records: u32,
    early_bytes: u32,
    late_records: u32,
}

impl Gate {
    /// Looks at a datagram whose first byte says DTLS. `done`: the handshake is complete.
    ///
    /// # Errors
    /// See [`Refusal`]; the datagram must not reach the media engine then.
    pub fn handle_datagram(&mut self, datagram: &[u8], done: bool) -> Result<(), Refusal> {
        let length = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
        if !done {
            self.early_bytes = self.early_bytes.saturating_add(length);
        }
        let mut rest = datagram;
        while !rest.is_empty() {
            let (record, after) = take_record(rest).ok_or(Refusal::Malformed)?;
            let fragments = if record.epoch == 0 && record.kind == HANDSHAKE {
                count_fragments(record.body).ok_or(Refusal::Malformed)?
            } else {
                1
            };
            let counter = match (done, record.epoch) {
                (false, _) => &mut self.early_records,
                (true, 0) => &mut self.late_records,
                (true, _) => &mut 0,
            };
            *counter = counter.saturating_add(fragments);
            rest = after;
        }
        // What was spent early does not count against a client that has arrived.
        let excess = if done {
            self.late_records > LATE_RECORDS_MAX
        } else {
            self.early_records > EARLY_RECORDS_MAX || self.early_bytes > EARLY_BYTES_MAX
        };
        if excess { Err(Refusal::Excess) } else { Ok(()) }
    }
}

struct Record<'a> {
    kind: u8,
    epoch: u16,
    body: &'a [u8],
}

fn take_record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let ([kind, _, _, e0, e1, _, _, _, _, _, _, l0, l1], rest) = bytes.split_first_chunk::<13>()?;
    let (body, after) = rest.split_at_checked(usize::from(u16::from_be_bytes([*l0, *l1])))?;
    let record = Record {
        kind: *kind,
        epoch: u16::from_be_bytes([*e0, *e1]),
        body,
    };
    Some((record, after))
}

/// Handshake fragments in a record of epoch 0; `None` when one is malformed. An empty record is none.
fn count_fragments(mut body: &[u8]) -> Option<u32> {
    let mut count = 0;
    while !body.is_empty() {
        let ([_, m0, m1, m2, _, _, o0, o1, o2, f0, f1, f2], rest) =
            body.split_first_chunk::<12>()?;
        let message = u32::from_be_bytes([0, *m0, *m1, *m2]);
        let offset = u32::from_be_bytes([0, *o0, *o1, *o2]);
        let fragment = u32::from_be_bytes([0, *f0, *f1, *f2]);
        let empty_for_no_reason = fragment == 0 && message != 0;
        if message > MESSAGE_LEN_MAX || offset + fragment > message || empty_for_no_reason {
            return None;
        }
        body = rest.get(usize::try_from(fragment).ok()?..)?;
        count += 1;
    }
    (count > 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, epoch: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![kind, 254, 253, 0, epoch, 0, 0, 0, 0, 0, 1];
        out.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        out.extend(body);
        out
    }

    fn fragment(message: u32, offset: u32, len: u32, body: usize) -> Vec<u8> {
        let three = |value: u32| value.to_be_bytes()[1..].to_vec();
        let mut out = vec![1];
        out.extend(three(message));
        out.extend([0, 0]);
        out.extend(three(offset));
        out.extend(three(len));
        out.resize(12 + body, 7);
        out
    }

    #[test]
    fn a_handshake_passes() {
        let mut gate = Gate::default();
        let hello = record(HANDSHAKE, 0, &fragment(200, 0, 200, 200));
        let flight = [
            record(HANDSHAKE, 0, &fragment(1000, 0, 500, 500)),
            record(20, 0, &[1]),
            record(HANDSHAKE, 1, &[9; 40]),
        ]
        .concat();
        let done = record(HANDSHAKE, 0, &fragment(0, 0, 0, 0));
        for datagram in [&hello, &flight, &done] {
            for _ in 0..10 {
                assert_eq!(gate.handle_datagram(datagram, false), Ok(()));
            }
        }
        for _ in 0..100_000 {
            assert_eq!(
                gate.handle_datagram(&record(23, 1, &[0; 100]), true),
                Ok(())
            );
        }
    }

    #[test]
    fn malformed_fragments_are_refused() {
        let cases = [
            fragment(0x00ff_ffff, 0, 1, 1),
            fragment(100, 100, 1, 1),
            fragment(100, 0, 0, 0),
            fragment(100, 0, 50, 49),
            vec![1; 11],
            vec![],
        ];
        for body in cases {
            let datagram = record(HANDSHAKE, 0, &body);
            assert_eq!(
                Gate::default().handle_datagram(&datagram, false),
                Err(Refusal::Malformed)
            );
        }
        let mut overrun = record(23, 1, &[0; 10]);
        overrun.pop();
        for datagram in [overrun, vec![22; 12]] {
            assert_eq!(
                Gate::default().handle_datagram(&datagram, true),
                Err(Refusal::Malformed)
            );
        }
    }

    #[test]
    fn records_fragments_and_bytes_before_the_handshake_are_bounded() {
        let passed = |datagram: &[u8], done| {
            let mut gate = Gate::default();
            (0..10_000)
                .take_while(|_| gate.handle_datagram(datagram, done).is_ok())
                .count()
        };
        let tiny = fragment(1000, 5, 1, 1).repeat(50);
        assert_eq!(
            passed(&record(HANDSHAKE, 0, &fragment(1000, 5, 1, 1)), false),
            256
        );
        assert_eq!(passed(&record(HANDSHAKE, 0, &tiny), false), 5);
        assert_eq!(passed(&record(23, 1, &[0; 1000]), false), 129);
        assert_eq!(
            passed(&record(HANDSHAKE, 0, &fragment(1000, 5, 1, 1)), true),
            32
        );
    }

    #[test]
    fn a_spent_budget_does_not_bar_a_client_that_arrived() {
        let mut gate = Gate::default();
        let early = record(23, 1, &[0; 1000]);
        while gate.handle_datagram(&early, false).is_ok() {}
        assert_eq!(gate.handle_datagram(&early, true), Ok(()));
    }
}
