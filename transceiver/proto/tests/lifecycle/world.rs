//! A table of sessions, and clients that check.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use transceiver_proto::stun::{Builder, nominating_request};
use transceiver_proto::{
    Config, CreateError, Limits, LocalCredentials, ReturnPath, Sessions, Slot, Verdict,
};
use wire::hint::{KeyId, KeyRing, Minute};
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

pub(crate) const RTP: &[u8] = &[0x80, 111, 0, 1];
pub(crate) const PEER: &str = "peer";
pub(crate) const SEED: u64 = 0x5eed_0003;

pub(crate) struct World {
    pub(crate) sessions: Sessions,
    pub(crate) now: Instant,
    pub(crate) counter: u8,
    pub(crate) checks: u32,
}

impl World {
    pub(crate) fn new() -> Self {
        let limits = Limits {
            sessions_max: 4,
            pending_max: 3,
            pending_ttl: Duration::from_secs(15),
            vanish_after: Duration::from_secs(20),
        };
        let owner = Owner {
            region: RegionId(1),
            transceiver: TransceiverId(1),
        };
        let keys = std::sync::Arc::new(KeyRing::single(KeyId::new(1).unwrap(), [7; 16]));
        Self {
            sessions: Sessions::new(Config {
                owner,
                limits,
                keys,
                hash_seed: 3,
            }),
            now: start(),
            counter: 0,
            checks: 0,
        }
    }

    pub(crate) fn create(&mut self) -> (Slot, LocalCredentials) {
        self.try_create().unwrap()
    }

    pub(crate) fn try_create(&mut self) -> Result<(Slot, LocalCredentials), CreateError> {
        self.counter += 1;
        self.sessions
            .create(PEER, [self.counter; 27], self.now, Minute(1))
    }

    pub(crate) fn restart(&mut self, slot: Slot) -> LocalCredentials {
        self.counter += 1;
        self.sessions
            .restart(slot, "fresh", [self.counter; 27], self.now, Minute(1))
            .unwrap()
    }

    pub(crate) fn check(
        &mut self,
        local: &LocalCredentials,
        client: ClientAddr,
        via: ReturnPath,
    ) -> Verdict {
        self.check_as(local, PEER, client, via)
    }

    pub(crate) fn check_as(
        &mut self,
        local: &LocalCredentials,
        peer: &str,
        client: ClientAddr,
        via: ReturnPath,
    ) -> Verdict {
        let mut packet = Vec::new();
        let username = format!("{}:{peer}", local.ufrag.as_str());
        let transaction = self.transaction();
        nominating_request(
            &mut packet,
            &transaction,
            &username,
            local.password.as_bytes(),
        );
        self.packet(&packet, client, via)
    }

    /// One that no check has had.
    pub(crate) fn transaction(&mut self) -> [u8; 12] {
        self.checks += 1;
        let [a, b, c, d] = self.checks.to_be_bytes();
        [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 1]
    }

    /// A good check that does not nominate.
    pub(crate) fn probe(&mut self, local: &LocalCredentials, client: ClientAddr, via: ReturnPath) {
        let mut packet = Vec::new();
        let username = format!("{}:{PEER}", local.ufrag.as_str());
        let transaction = self.transaction();
        Builder::new(&mut packet, 1, &transaction)
            .attribute(6, username.as_bytes())
            .finish(local.password.as_bytes());
        let verdict = self.packet(&packet, client, via);
        assert!(matches!(verdict, Verdict::Answer { .. }));
    }

    pub(crate) fn packet(&mut self, packet: &[u8], client: ClientAddr, via: ReturnPath) -> Verdict {
        self.sessions
            .handle_packet(via, client, packet, false, self.now)
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(100);
            self.sessions.handle_timeout(self.now);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test has to begin somewhere")]
pub(crate) fn start() -> Instant {
    Instant::now()
}

pub(crate) fn client(port: u16) -> ClientAddr {
    ClientAddr::new(SocketAddr::from(([198, 51, 100, 7], port)))
}

pub(crate) fn via(relay: u8) -> ReturnPath {
    let tag = Tag {
        pop: PopId(u16::from(relay)),
        worker: 0,
        ingress: 0,
    };
    ReturnPath {
        relay: SocketAddr::from(([127, 0, 1, relay], 7543)),
        tag,
    }
}

pub(crate) fn media(slot: Slot) -> Verdict {
    Verdict::Media { slot, also: None }
}
