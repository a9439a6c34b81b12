//! Harness: bytes in, assertions inside. `cargo test` replays `corpora/flows/` through it and mutates it with a seed; a
//! coverage-guided fuzzer can call the same function. It asserts what must hold for every sequence of inputs.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use topology::Topology;
use wire::hint::{Hint, KeyId, KeyRing, Minute};
use wire::record::RecordHeader;
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

use crate::announce::{AnnounceConfig, Announcer, HISTORY_BYTES_MAX, History};
use crate::command::{Answer, Command};
use crate::flows::{Flows, FlowsConfig, Now, Source};
use crate::neighbours::{Neighbours, Owners};
use crate::offers::PER_CLIENT_MAX;
use crate::recovery::RecoveryConfig;
use crate::routes::Routes;
use crate::verdict::{Downlink, Uplink};

const FLOWS_MAX: u32 = 16;
const QUESTIONS_MAX: u16 = 3;
const HELD_MAX: u16 = 5;
/// Bytes of a step.
const STEP: usize = 4;
/// Bytes of a packet that may be offered.
const MEDIA_LEN: usize = 24;

/// Two clients at each of some IP addresses.
const fn port(client: u8) -> u16 {
    if client < 128 { 4000 } else { 4001 }
}

/// Reads `input` as a script of actions over a handful of clients and owners: steps of four bytes, what, who, whose and how.
///
/// # Panics
/// When a rule is broken.
pub fn flows(input: &[u8]) {
    let Some(mut script) = Script::new() else {
        return;
    };
    for step in input.chunks_exact(STEP) {
        if let [action, client, which, rest] = *step {
            script.step(action, client, which, rest);
            script.drain();
            script.check_bounds();
        }
    }
    script.everything_held_comes_back();
}

/// Reads `input` as the history of a PoP that starts, after eight bytes of the time it is. Whatever it says, it comes back from what is written
/// of it, and the way back has its bounds.
///
/// # Panics
/// When that does not hold.
pub fn history(input: &[u8]) {
    let Some((now_unix_s, text)) = input.split_first_chunk() else {
        return;
    };
    let now_unix_s = u64::from_be_bytes(*now_unix_s);
    let Ok(history) = History::parse(text, now_unix_s) else {
        return;
    };
    let text = history.text(now_unix_s);
    assert!(text.len() <= HISTORY_BYTES_MAX);
    assert_eq!(
        History::parse(text.as_bytes(), now_unix_s),
        Ok(history.clone())
    );
    let (base, now) = (Duration::from_secs(10), origin());
    let longest = base * 30;
    let config = AnnounceConfig {
        up_after: base,
        up_after_max: longest,
        min_announced: 1,
        cover: false,
    };
    let mut announcer = Announcer::new(config, now);
    announcer.handle_history(&history, now);
    let need = announcer.need(now);
    assert!(base <= need && need <= longest);
    assert_eq!(need > base, history.falls() > 0);
}

/// Reads `input` as packets that pass on one committed flow: a byte that says the way and, in milliseconds, the time since the last one, a byte of length,
/// the packet. Whatever passes, a round trip is within bounds and no longer than the time there was.
///
/// # Panics
/// When that does not hold.
pub fn timing(mut input: &[u8]) {
    let Some(script) = Script::new() else {
        return;
    };
    let Script {
        mut flows,
        routes,
        mut now,
        ..
    } = script;
    let source = Source {
        client: ClientAddr::new(([192, 0, 2, 1], 4000).into()),
        ingress: 0,
    };
    let owner = Owner {
        region: RegionId(1),
        transceiver: TransceiverId(1),
    };
    let mut took = Duration::ZERO;
    let pass = |flows: &mut Flows, down: bool, packet: &[u8], now: Now| {
        if down {
            flows.handle_downlink(&header(source, owner, 0), packet, now);
        } else {
            flows.handle_uplink(&routes, source, packet, now);
        }
    };
    pass(&mut flows, true, &[0x80], now);
    let settle = |flows: &mut Flows, now| {
        while flows.next_command().is_some() || flows.next_released(&routes, now).is_some() {}
    };
    while let Some(([what, len], rest)) = input.split_first_chunk() {
        let (packet, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        input = rest;
        let after = Duration::from_millis((what >> 1).into());
        now.instant += after;
        took += after;
        pass(&mut flows, what & 1 == 1, packet, now);
        settle(&mut flows, now);
    }
    for _ in 0..100 {
        now.instant += Duration::from_millis(250);
        flows.handle_timeout(now);
    }
    while let Some(sample) = flows.next_sample() {
        let rtt = Duration::from_micros(sample.rtt_us.into());
        assert!(sample.rtt_us > 0 && rtt <= took.max(Duration::from_micros(1)));
        assert!(rtt <= Duration::from_secs(2));
    }
}

struct Script {
    flows: Flows,
    routes: Routes,
    keys: KeyRing,
    now: Now,
    /// Who may get what a client sends beside its checks: owners that proved themselves or that the cache named.
    known: HashSet<(ClientAddr, Owner)>,
    /// Who was claimed by a good hint, and may get copies beside one that the cache named.
    claimed: HashSet<(ClientAddr, Owner)>,
    heard: HashSet<(ClientAddr, Owner)>,
    /// Owners that were heard at an IP address: others there may be offered to them.
    heard_at: HashSet<(IpAddr, Owner)>,
    /// Clients whose session an owner has ended since one of their packets was held last.
    ended: HashSet<ClientAddr>,
    /// What was offered of each client, and when.
    offers: HashMap<ClientAddr, Vec<Instant>>,
    held: u64,
}

impl Script {
    fn new() -> Option<Self> {
        let keys = KeyRing::single(KeyId::new(1)?, [7; 16]);
        let start = origin();
        let recovery = RecoveryConfig {
            questions_max: QUESTIONS_MAX,
            held_max: HELD_MAX,
            held_per_client_max: 3,
            ..RecoveryConfig::new(Duration::from_secs(60))
        };
        let config = FlowsConfig {
            flows_max: FLOWS_MAX,
            hash_seed: 1,
            recovery: Some(recovery),
        };
        let neighbours = Arc::new(Neighbours::new(FLOWS_MAX, 3, start));
        Some(Self {
            flows: Flows::new(config, start).with_neighbours(neighbours, 1, 2, start),
            routes: Routes::new(&TOPOLOGY, TOPOLOGY.pops.first()?, keys.clone()),
            keys,
            now: Now {
                instant: start,
                minute: Minute(1000),
            },
            known: HashSet::new(),
            claimed: HashSet::new(),
            heard: HashSet::new(),
            heard_at: HashSet::new(),
            ended: HashSet::new(),
            offers: HashMap::new(),
            held: 0,
        })
    }

    fn step(&mut self, action: u8, client: u8, which: u8, rest: u8) {
        let source = Source {
            client: ClientAddr::new(([192, 0, 2, client % 24], port(client)).into()),
            ingress: which / 3 % 2,
        };
        let owner = Owner {
            region: RegionId(1),
            transceiver: TransceiverId(u32::from(which % 3) + 1),
        };
        match action % 8 {
            0 => self.check(source, owner, [action, client, rest]),
            1 => self.other(source, &[rest.max(4), client, which]),
            7 if which >= 128 => self.other(source, &[0x80; MEDIA_LEN]),
            7 => self.taken(source, owner),
            2 => self.downlink(source, owner, rest),
            3 => {
                let header = header(source, owner, 0);
                self.flows.handle_end(&header, self.now);
                self.heard.remove(&(source.client, owner));
                self.ended.insert(source.client);
            }
            4 => self.now.instant += Duration::from_millis(u64::from(rest) * 97),
            5 => self.answer(source, owner, rest),
            _ => self.flows.handle_timeout(self.now),
        }
    }

    fn check(&mut self, source: Source, owner: Owner, random: [u8; 3]) {
        let hint = Hint {
            owner,
            issued: self.now.minute,
        };
        let request = binding_request(self.keys.seal(hint, random).as_bytes());
        let verdict = self
            .flows
            .handle_uplink(&self.routes, source, &request, self.now);
        let by_hint = Uplink::Forward { owner, also: None };
        assert!(
            verdict == by_hint || matches!(verdict, Uplink::Drop(_)),
            "a Binding request is routed by its own hint"
        );
        if verdict == by_hint {
            self.claimed.insert((source.client, owner));
        }
    }

    fn other(&mut self, source: Source, packet: &[u8]) {
        match self
            .flows
            .handle_uplink(&self.routes, source, packet, self.now)
        {
            Uplink::Forward { owner, also } => self.may_get(source.client, owner, also),
            Uplink::Offer { owners } => self.offered(source.client, packet, owners),
            Uplink::Hold => {
                self.held += 1;
                self.ended.remove(&source.client);
            }
            Uplink::Drop(_) => {}
        }
    }

    fn offered(&mut self, client: ClientAddr, packet: &[u8], owners: Owners) {
        assert_eq!(packet.len(), MEDIA_LEN, "only media is offered");
        assert!(!owners.is_empty(), "an offer to nobody");
        let heard = |owner| self.heard_at.contains(&(client.ip(), owner));
        assert!(owners.iter().all(heard), "offered to a stranger");
        // Counted from the first of a few seconds on, in tenths of a second.
        let past = Duration::from_millis(4_900);
        let now = self.now.instant;
        let offers = self.offers.entry(client).or_default();
        offers.retain(|at| now < *at + past);
        offers.push(now);
        let bound = 2 * usize::from(PER_CLIENT_MAX);
        assert!(offers.len() <= bound, "offers of a client are bounded");
    }

    fn taken(&mut self, source: Source, owner: Owner) {
        let header = RecordHeader {
            offered: true,
            ..header(source, owner, 0)
        };
        if self.flows.handle_taken(&header, self.now).is_ok() {
            self.hear(source.client, owner);
        }
    }

    fn hear(&mut self, client: ClientAddr, owner: Owner) {
        self.known.insert((client, owner));
        self.heard.insert((client, owner));
        self.heard_at.insert((client.ip(), owner));
    }

    fn may_get(&self, client: ClientAddr, owner: Owner, also: Option<Owner>) {
        let known = |owner| self.known.contains(&(client, owner));
        assert!(known(owner), "a stranger gets it");
        if let Some(also) = also {
            let claimed = self.claimed.contains(&(client, also));
            assert!(known(also) || claimed, "a stranger gets a copy");
        }
    }

    fn downlink(&mut self, source: Source, owner: Owner, rest: u8) {
        let header = header(source, owner, rest % 6);
        let verdict = self.flows.handle_downlink(&header, &[128, rest], self.now);
        if verdict == Downlink::Deliver {
            self.hear(source.client, owner);
        }
    }

    fn answer(&mut self, source: Source, owner: Owner, rest: u8) {
        let answer = match rest % 3 {
            0 => Answer::Unknown,
            1 => Answer::Unavailable,
            _ => Answer::Owner(owner),
        };
        if matches!(answer, Answer::Owner(_)) {
            self.known.insert((source.client, owner));
        }
        let Source { client, ingress } = source;
        self.flows
            .handle_answer(&self.routes, client, ingress, answer, self.now);
    }

    fn drain(&mut self) {
        while let Some(command) = self.flows.next_command() {
            if let Command::Store { client, owner, .. } = command {
                assert!(self.heard.contains(&(client, owner)), "an unheard owner");
            }
        }
        while let Some(released) = self.flows.next_released(&self.routes, self.now) {
            let (client, verdict) = (released.client, released.verdict);
            let packet = released.packet.to_vec();
            assert!((1..=MEDIA_LEN).contains(&packet.len()));
            self.held -= 1;
            match verdict {
                Uplink::Forward { owner, also } => self.may_get(client, owner, also),
                Uplink::Hold => unreachable!("held for ever"),
                Uplink::Offer { owners } => {
                    assert!(!self.ended.contains(&client), "its session is over");
                    self.offered(client, &packet, owners);
                }
                Uplink::Drop(_) => {}
            }
        }
    }

    fn check_bounds(&self) {
        let stats = self.flows.stats();
        assert!(stats.flows <= u64::from(FLOWS_MAX), "the table is bounded");
        assert!(stats.tentative <= u64::from(FLOWS_MAX / 4));
        assert!(stats.open_questions <= u64::from(QUESTIONS_MAX));
        assert!(stats.held_packets <= u64::from(HELD_MAX));
        assert_eq!(stats.held_packets, self.held, "none is lost or comes twice");
    }

    fn everything_held_comes_back(&mut self) {
        self.now.instant += Duration::from_secs(3);
        self.flows.handle_timeout(self.now);
        self.drain();
        assert_eq!((self.held, self.flows.stats().open_questions), (0, 0));
    }
}

const fn header(source: Source, owner: Owner, hops: u8) -> RecordHeader {
    RecordHeader {
        owner,
        tag: Tag {
            pop: PopId(1),
            worker: 0,
            ingress: source.ingress,
        },
        client: source.client,
        hops,
        fragment: None,
        offered: false,
    }
}

static TOPOLOGY: LazyLock<Topology> = LazyLock::new(|| {
    topology::load(
        include_str!("../../../topology/samples/local.yaml"),
        "local.yaml",
    )
    .unwrap_or_else(|errors| unreachable!("the sample is in order: {errors}"))
});

/// Some instant to count from, the same for the life of the process; which one does not matter.
#[expect(
    clippy::disallowed_methods,
    reason = "an Instant can be made in no other way, and its value has no effect"
)]
fn origin() -> Instant {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    *ORIGIN
}

/// A Binding request with only a USERNAME, as a PoP sees it.
#[must_use]
pub fn binding_request(ufrag: &[u8]) -> Vec<u8> {
    let mut username = ufrag.to_vec();
    username.extend(b":peer");
    let length = u16::try_from(username.len()).unwrap_or(0);
    let mut packet = vec![0, 1];
    packet.extend((4 + length.next_multiple_of(4)).to_be_bytes());
    packet.extend(wire::stun::MAGIC_COOKIE);
    packet.extend([9; 12]);
    packet.extend(wire::stun::ATTR_USERNAME.to_be_bytes());
    packet.extend(length.to_be_bytes());
    packet.extend(&username);
    packet.resize(20 + 4 + usize::from(length.next_multiple_of(4)), 0);
    packet
}
