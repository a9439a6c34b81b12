//! What is read of DTLS: whether a packet begins with a handshake message in the clear, and which number it has (RFC 6347 §4.2.2).
//!
//! ```text
//!  DTLS 1.2    0     1        3      5              11     13         14      17       19
//!             +-----+--------+------+--------------+------+----------+-------+--------+----
//!             | 22  | fe fd  | epoch| sequence     | len  | msg type | len   | msg seq| ...
//!             +-----+--------+------+--------------+------+----------+-------+--------+----
//!  DTLS 1.3    0
//!             +----------+----
//!             | 001CSLEE | ...      EE: low bits of the epoch, 2 while the handshake lasts (RFC 9147 §4)
//!             +----------+----
//! ```
//!
//! Both sides number their messages from 0, and take turns. A side whose flight begins with message n is answered by one whose first message has
//! a number above n, or by a server with n at least, because the client began. Retransmitted messages keep their numbers.

use super::Micros;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// What a packet begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A handshake message in the clear.
    Handshake(Message),
    /// A handshake record of DTLS 1.3, sealed: its sender has the ServerHello.
    Sealed,
    /// Anything else.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    number: u16,
    client_hello: bool,
}

pub(super) fn read(packet: &[u8]) -> Record {
    match packet {
        [
            HANDSHAKE,
            0xfe,
            _,
            0,
            0, // type, version, epoch
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _, // sequence number, length
            kind,
            _,
            _,
            _,
            number_high,
            number_low,
            ..,
        ] => Record::Handshake(Message {
            number: u16::from_be_bytes([*number_high, *number_low]),
            client_hello: *kind == CLIENT_HELLO,
        }),
        [first @ 0x20..=0x3f, ..] if first & 3 == 2 => Record::Sealed,
        _ => Record::Other,
    }
}

/// The owner's flight that waits for the client's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Awaited {
    flight: Option<Flight>,
    /// The highest number the owner has used.
    high: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flight {
    first: Message,
    /// When the last message that had not been seen before passed.
    sent: Micros,
}

impl Awaited {
    /// The owner sends a message.
    pub(super) fn sent(&mut self, message: Message, at: Micros) {
        if self.high.is_some_and(|high| message.number <= high) {
            // A part of a message that goes on, or a retransmission.
            return;
        }
        self.high = Some(message.number);
        let first = self.flight.map_or(message, |flight| flight.first);
        self.flight = Some(Flight { first, sent: at });
    }

    /// The client sends something: when what it answers was sent, if it answers the flight that waits.
    pub(super) fn answered(&mut self, by: Record) -> Option<Micros> {
        let first = self.flight?.first;
        let answers = match by {
            Record::Handshake(message) if first.client_hello => {
                !message.client_hello && message.number >= first.number
            }
            Record::Handshake(message) => message.number > first.number,
            Record::Sealed => !first.client_hello,
            Record::Other => false,
        };
        if !answers {
            return None;
        }
        self.flight.take().map(|flight| flight.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER_HELLO: u8 = 2;
    const HELLO_VERIFY: u8 = 3;
    const CERTIFICATE: u8 = 11;
    const DONE: u8 = 14;
    const KEY_EXCHANGE: u8 = 16;

    fn packet(kind: u8, number: u8, epoch: u8) -> Vec<u8> {
        let mut packet = vec![22, 0xfe, 0xfd, 0, epoch, 0, 0, 0, 0, 0, 9, 0, 20];
        packet.extend([
            kind, 0, 0, 8, 0, number, 0, 0, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8,
        ]);
        packet
    }

    #[derive(Clone, Copy)]
    enum Step {
        Down(u8, u8, u64),
        Up(u8, u8, Option<u64>),
        Sealed(Option<u64>),
    }
    use Step::{Down, Sealed, Up};

    fn run(steps: &[Step]) {
        let mut awaited = Awaited::default();
        for (at, step) in steps.iter().enumerate() {
            match *step {
                Down(kind, number, time) => {
                    let Record::Handshake(message) = read(&packet(kind, number, 0)) else {
                        panic!("no message");
                    };
                    awaited.sent(message, time);
                }
                Up(kind, number, sent) => {
                    assert_eq!(
                        awaited.answered(read(&packet(kind, number, 0))),
                        sent,
                        "step {at}"
                    );
                }
                Sealed(sent) => {
                    assert_eq!(awaited.answered(read(&[0x2e, 0, 0])), sent, "step {at}");
                }
            }
        }
    }

    #[test]
    fn a_handshake_with_cookie_gives_two_round_trips() {
        run(&[
            Up(CLIENT_HELLO, 0, None),
            Down(HELLO_VERIFY, 0, 10),
            // Under way before the cookie came.
            Up(CLIENT_HELLO, 0, None),
            Up(CLIENT_HELLO, 1, Some(10)),
            Down(SERVER_HELLO, 1, 20),
            Down(CERTIFICATE, 2, 21),
            Up(CLIENT_HELLO, 1, None),
            Down(DONE, 5, 22),
            Up(CERTIFICATE, 2, Some(22)),
            Up(KEY_EXCHANGE, 3, None),
        ]);
    }

    #[test]
    fn a_handshake_without_cookie_gives_one() {
        run(&[
            Down(SERVER_HELLO, 0, 20),
            Down(DONE, 3, 21),
            Up(CLIENT_HELLO, 0, None),
            Up(KEY_EXCHANGE, 1, Some(21)),
        ]);
    }

    #[test]
    fn a_flight_that_is_sent_again_counts_from_its_first_passage() {
        run(&[
            Down(SERVER_HELLO, 1, 20),
            Down(CERTIFICATE, 2, 21),
            Down(SERVER_HELLO, 1, 1020),
            Up(CERTIFICATE, 2, Some(21)),
        ]);
    }

    #[test]
    fn an_owner_that_begins_is_answered_by_a_server() {
        run(&[
            Down(CLIENT_HELLO, 0, 5),
            Up(HELLO_VERIFY, 0, Some(5)),
            Down(CLIENT_HELLO, 1, 9),
            Up(HELLO_VERIFY, 0, None),
            Up(SERVER_HELLO, 1, Some(9)),
        ]);
    }

    #[test]
    fn dtls_1_3_answers_sealed() {
        run(&[
            Down(SERVER_HELLO, 0, 5),
            Up(CLIENT_HELLO, 0, None),
            Sealed(Some(5)),
            Sealed(None),
        ]);
        // A HelloRetryRequest, which is a ServerHello.
        run(&[Down(SERVER_HELLO, 0, 5), Up(CLIENT_HELLO, 1, Some(5))]);
    }

    #[test]
    fn sealed_short_and_strange_packets_are_other() {
        for end in 0..19 {
            assert_eq!(read(&packet(1, 0, 0)[..end]), Record::Other, "{end} bytes");
        }
        assert_eq!(read(&packet(20, 0, 1)), Record::Other, "epoch 1");
        assert_eq!(read(&[23, 0xfe, 0xfd, 0, 0]), Record::Other);
        assert_eq!(
            read(&[0x2f; 40]),
            Record::Other,
            "application data of DTLS 1.3"
        );
    }
}
