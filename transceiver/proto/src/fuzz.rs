//! Harnesses: arbitrary STUN, and arbitrary scripts over a few sessions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use wire::hint::{KeyId, KeyRing, Minute};
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

use crate::credentials::{LocalCredentials, RANDOM_LEN};
use crate::dtls::{Gate, Refusal};
use crate::sessions::{Command, Config, Limits, Sessions, Slot};
use crate::stun::{Request, nominating_request};
use crate::verdict::{DropReason, ReturnPath, Verdict};

/// Any bytes as DTLS datagrams of 64 bytes: the gate never panics, and once it has refused excess it goes on refusing.
///
/// # Panics
/// When a rule is broken.
pub fn dtls(input: &[u8]) {
    let mut gate = Gate::default();
    let mut spent = false;
    for datagram in input.chunks(64) {
        let verdict = gate.handle_datagram(datagram, false);
        assert!(!(spent && verdict.is_ok()), "a spent budget stays spent");
        spent |= verdict == Err(Refusal::Excess);
    }
}

/// Any bytes: parsing never panics, and what was not made with the password is never authentic.
///
/// # Panics
/// When a rule is broken.
pub fn request(input: &[u8]) {
    if let Ok(request) = Request::parse(input) {
        assert!(!request.is_authentic(b"a password that no corpus knows"));
    }
}

const SESSIONS_MAX: u32 = 4;

struct Script {
    sessions: Sessions,
    known: Vec<(Slot, LocalCredentials)>,
    now: Instant,
    counter: u8,
    checks: u32,
    /// By address: packets and bytes that verified, and copies that went there.
    ledger: HashMap<ClientAddr, Ledger, foldhash::fast::FixedState>,
}

#[derive(Default)]
struct Ledger {
    came: (u64, usize),
    went: (u64, usize),
}

/// Reads `input` as a script of creations, checks good and bad, media that verifies and that does not, from addresses that are bound
/// and that are not, restarts, ends and time.
///
/// # Panics
/// When a rule is broken.
pub fn sessions(start: Instant, input: &[u8]) {
    let Some(id) = KeyId::new(1) else { return };
    let mut script = Script {
        sessions: Sessions::new(Config {
            owner: Owner {
                region: RegionId(1),
                transceiver: TransceiverId(1),
            },
            limits: Limits {
                sessions_max: SESSIONS_MAX,
                pending_max: 3,
                pending_ttl: Duration::from_secs(15),
                vanish_after: Duration::from_secs(20),
            },
            keys: Arc::new(KeyRing::single(id, [7; 16])),
            hash_seed: 1,
        }),
        known: Vec::new(),
        now: start,
        counter: 0,
        checks: 0,
        ledger: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(1)),
    };
    for step in input.chunks_exact(4) {
        let [action, who, from, rest] = *step else {
            return;
        };
        script.step(action, who, from, rest);
        let load = script.sessions.load();
        assert!(
            load.sessions <= SESSIONS_MAX && load.pending <= load.sessions,
            "bounded"
        );
        assert!(load.guests <= load.sessions, "one guest of each session");
        assert!(
            load.streams <= 4 * load.sessions,
            "four streams of each session"
        );
    }
}

impl Script {
    fn step(&mut self, action: u8, who: u8, from: u8, rest: u8) {
        let client = ClientAddr::new(([192, 0, 2, from % 6], 4000).into());
        let via = ReturnPath {
            relay: SocketAddr::from(([127, 0, 1, rest % 2], 7543)),
            tag: Tag {
                pop: PopId(1),
                worker: 0,
                ingress: 0,
            },
        };
        match action % 8 {
            0 => self.create(),
            1 => self.check(who, via, client, false),
            2 => self.check(who, via, client, true),
            3 => {
                let verdict =
                    self.sessions
                        .handle_packet(via, client, &[0x80, rest], false, self.now);
                if let Verdict::Media { slot, .. } = verdict {
                    assert!(
                        self.sessions.paths(slot).any(|path| path.client == client),
                        "only bound addresses"
                    );
                }
            }
            7 => self.media(who, via, client, rest),
            4 => self.restart(who),
            5 => self.now += Duration::from_millis(u64::from(rest) * 61),
            _ => self.sessions.end(Slot(u32::from(who % 4))),
        }
        self.copies(usize::from(rest));
        self.sessions.handle_timeout(self.now);
        while let Some(command) = self.sessions.next_command() {
            match command {
                Command::Ended { slot, .. } => self.known.retain(|(known, _)| *known != slot),
                Command::Released { client, via } => assert_eq!(
                    self.sessions
                        .handle_packet(via, client, &[0x80], false, self.now),
                    Verdict::Drop(DropReason::UnboundAddress),
                    "a released address is nobody's"
                ),
            }
        }
    }

    /// A packet or a report of one of a few streams, which the engine of the first session that may have it accepts, or one after it, or
    /// none.
    fn media(&mut self, who: u8, via: ReturnPath, client: ClientAddr, rest: u8) {
        let [offered, accepted, report, passed] = [1, 2, 4, 8].map(|bit| rest & bit == bit);
        let mut packet = if report {
            vec![0x80, 200, 0, 1, 0, 0, 0, who % 5, 0, 0, 0, 0]
        } else {
            vec![0x80, 111, 0, 1, 0, 0, 0, 0, 0, 0, 0, who % 5]
        };
        packet.resize(12 + usize::from(rest), 0);
        let verdict = self
            .sessions
            .handle_packet(via, client, &packet, offered, self.now);
        let first = match verdict {
            Verdict::Media { slot, also } if passed => {
                let refused = [Some(slot), also];
                let others = self
                    .sessions
                    .handle_refused(client, &packet, offered, refused, self.now)
                    .unwrap_or_default();
                assert!(
                    !report || others == [None; 3],
                    "nobody is known by a report"
                );
                let first = others.into_iter().flatten().next();
                assert!(first.is_none() || !refused.contains(&first), "asked twice");
                first
            }
            Verdict::Media { slot, .. } => Some(slot),
            Verdict::Try { slots } => {
                assert!(!report, "nobody is known by a report");
                slots.into_iter().flatten().next()
            }
            Verdict::Answer { .. } | Verdict::Drop(_) => None,
        };
        let Some(slot) = first.filter(|_| accepted) else {
            return;
        };
        let bound = self.sessions.paths(slot).any(|path| path.client == client);
        let before = self.sessions.selected(slot);
        self.sessions
            .handle_authenticated(slot, via, client, &packet, self.now);
        if !bound {
            assert_eq!(
                self.sessions.selected(slot),
                before,
                "moved without a check"
            );
        }
        let ledger = self.ledger.entry(client).or_default();
        ledger.came = (ledger.came.0 + 1, ledger.came.1 + packet.len());
    }

    /// Every session sends a packet: no address that is not its path gets more than came from it.
    fn copies(&mut self, len: usize) {
        for slot in (0..SESSIONS_MAX).map(Slot) {
            let Some((client, _)) = self.sessions.copy_to(slot, len) else {
                continue;
            };
            let selected = self.sessions.selected(slot).map(|(client, _)| client);
            assert_ne!(selected, Some(client), "a copy of its own");
            let ledger = self.ledger.entry(client).or_default();
            ledger.went = (ledger.went.0 + 1, ledger.went.1 + len);
            assert!(ledger.went.0 <= ledger.came.0 && ledger.went.1 <= ledger.came.1);
        }
    }

    const fn random(&mut self) -> [u8; RANDOM_LEN] {
        self.counter = self.counter.wrapping_add(1);
        [self.counter; RANDOM_LEN]
    }

    fn create(&mut self) {
        let random = self.random();
        if let Ok((slot, local)) = self.sessions.create("peer", random, self.now, Minute(9)) {
            assert!(
                self.known.iter().all(|(known, _)| *known != slot),
                "a live slot is not reused"
            );
            self.known.push((slot, local));
        }
    }

    fn restart(&mut self, who: u8) {
        let random = self.random();
        let count = self.known.len().max(1);
        if let Some((slot, local)) = self.known.get_mut(usize::from(who) % count)
            && let Ok(fresh) = self
                .sessions
                .restart(*slot, "peer", random, self.now, Minute(9))
        {
            *local = fresh;
        }
    }

    fn check(&mut self, who: u8, via: ReturnPath, client: ClientAddr, good: bool) {
        let count = self.known.len().max(1);
        let Some((slot, local)) = self.known.get(usize::from(who) % count) else {
            return;
        };
        let mut packet = Vec::new();
        let username = format!("{}:peer", local.ufrag.as_str());
        let password = if good {
            local.password.as_bytes()
        } else {
            b"wrong"
        };
        let [a, b, c, d] = self.checks.to_be_bytes();
        self.checks += 1;
        let transaction = [a, b, c, d, who, 0, 0, 0, 0, 0, 0, 1];
        nominating_request(&mut packet, &transaction, &username, password);
        let before = self.sessions.selected(*slot);
        match self
            .sessions
            .handle_packet(via, client, &packet, false, self.now)
        {
            Verdict::Answer { slot: answered, .. } => {
                assert!(good && answered == *slot);
                assert_eq!(self.sessions.selected(*slot), Some((client, via)));
            }
            Verdict::Drop(_) | Verdict::Media { .. } | Verdict::Try { .. } => {
                assert!(!good, "a good check is answered");
                assert_eq!(
                    self.sessions.selected(*slot),
                    before,
                    "a bad check changes nothing"
                );
            }
        }
    }
}
