//! Recovery: what happens to packets of a client that nobody here knows, while the flow cache is asked whose it is.
//!
//! ```text
//!  unknown, not a Binding request ──► hold the packet, ask once ──► answer: an owner ──► a recovered flow, packets released in order
//!                                                              ├─► answer: unknown  ──► packets given up; not asked again for a while
//!                                                              ├─► none in `hold_max`:   packets given up, the question stays open
//!                                                              ├─► none in `answer_max`: the question is closed, a later answer ignored
//!                                                              └─► the flow commits meanwhile: packets released, question closed
//! ```
//!
//! What is given up leaves in order too, with the reason to drop it for. Flows may still offer it, as any packet that the cache knows nothing of.
//!
//! All of its memory is taken at the start. It decides about packets and questions; flows are the table's.

mod held;
pub(crate) mod limits;
mod questions;

use std::time::{Duration, Instant};

use wire::{ClientAddr, Owner};

use crate::flow::FlowKey;
use crate::recovery::held::{Held, List, Next};
use crate::recovery::limits::{Exceeded, Negative, Rates, rates_of};
use crate::recovery::questions::{Question, Questions};
use crate::verdict::{DropReason, Uplink};

/// How a worker recovers flows from a flow cache.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryConfig {
    /// How long an entry of the cache lives: it is stored again after a third of it.
    pub ttl: Duration,
    /// Questions open at a time.
    pub questions_max: u16,
    /// Packets held at a time, of all clients.
    pub held_max: u16,
    /// Packets held at a time, of one client.
    pub held_per_client_max: u8,
    /// Questions a second for clients of one IPv4 /24 or IPv6 /56.
    pub per_prefix_per_s: u32,
    /// Questions of one prefix that may come at once.
    pub per_prefix_burst: u32,
    /// Questions a second.
    pub per_s: u32,
    /// Questions that may come at once.
    pub burst: u32,
    /// How long a packet is held.
    pub hold_max: Duration,
    /// How long an answer is waited for.
    pub answer_max: Duration,
    /// How long a client that the cache does not know is not asked about again.
    pub unknown_ttl: Duration,
    /// The same for a client about which no answer came.
    pub unanswered_ttl: Duration,
}

impl RecoveryConfig {
    /// With the bounds a PoP has.
    #[must_use]
    pub const fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            questions_max: 2048,
            held_max: 2048,
            held_per_client_max: 8,
            per_prefix_per_s: 256,
            per_prefix_burst: 512,
            per_s: 10_000,
            burst: 4096,
            hold_max: Duration::from_millis(200),
            answer_max: Duration::from_secs(2),
            unknown_ttl: Duration::from_secs(5),
            unanswered_ttl: Duration::from_millis(300),
        }
    }
}

/// A packet that was held, with what has been decided since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released<'a> {
    /// Who sent it.
    pub client: ClientAddr,
    /// The ingress it came to.
    pub ingress: u8,
    /// The packet.
    pub packet: &'a [u8],
    /// Never [`Uplink::Hold`].
    pub verdict: Uplink,
}

/// A client as recovery sees it.
#[derive(Clone, Copy)]
pub(crate) struct Unknown {
    pub(crate) client: ClientAddr,
    pub(crate) key: FlowKey,
    /// The hash of `key`.
    pub(crate) hash: u64,
    pub(crate) ingress: u8,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Held; the question is open already.
    Held,
    /// The question has been opened: ask. The packet is held, or dropped if there is no place for it.
    Ask(Uplink),
}

/// See the module head.
pub(crate) struct Recovery {
    config: RecoveryConfig,
    questions: Questions,
    held: Held,
    released: List,
    rates: Rates,
    negative: Negative,
}

impl Recovery {
    pub(crate) fn new(config: RecoveryConfig, seed: u64, now: Instant) -> Self {
        Self {
            config,
            questions: Questions::new(config.questions_max),
            held: Held::new(config.held_max),
            released: List::EMPTY,
            rates: rates_of(&config, seed, now),
            negative: Negative::new(now),
        }
    }

    pub(crate) const fn config(&self) -> &RecoveryConfig {
        &self.config
    }

    /// Takes a packet of a client whose flow, if there is one, lets nothing pass. `may_ask` says whether there is
    /// a place for a question.
    pub(crate) fn hold(
        &mut self,
        from: Unknown,
        packet: &[u8],
        may_ask: bool,
        now: Instant,
    ) -> Result<Taken, DropReason> {
        if let Some(id) = self.questions.find(from.hash, &from.key) {
            return self.hold_for(id, from, packet, now).map(|()| Taken::Held);
        }
        if let Some(reason) = self.negative.find(from.hash, from.ingress, now) {
            return Err(reason);
        }
        if !may_ask || self.questions.is_full() {
            return Err(DropReason::QuestionsFull);
        }
        self.rates
            .take(from.client, now)
            .map_err(|exceeded| match exceeded {
                Exceeded::Prefix => DropReason::QuestionPrefixRate,
                Exceeded::Total => DropReason::QuestionRate,
            })?;
        let question = Question::new(from, now, &self.config);
        let id = self.questions.open(question);
        let verdict = match self.hold_for(id, from, packet, now) {
            Ok(()) => Uplink::Hold,
            Err(reason) => Uplink::Drop(reason),
        };
        Ok(Taken::Ask(verdict))
    }

    fn hold_for(
        &mut self,
        id: u32,
        from: Unknown,
        packet: &[u8],
        now: Instant,
    ) -> Result<(), DropReason> {
        let question = self
            .questions
            .get_mut(id)
            .ok_or(DropReason::QuestionsFull)?;
        if now >= question.hold_until {
            return Err(DropReason::Unanswered);
        }
        if question.packets.len() >= u16::from(self.config.held_per_client_max) {
            return Err(DropReason::HoldClientFull);
        }
        let kept = self
            .held
            .keep(&mut question.packets, from.client, from.ingress, packet);
        if kept {
            Ok(())
        } else {
            Err(DropReason::HoldFull)
        }
    }

    /// The session of `owner` with this client is over: an answer that names it comes too late.
    pub(crate) fn end(&mut self, hash: u64, key: &FlowKey, owner: Owner) {
        if let Some(id) = self.questions.find(hash, key)
            && let Some(question) = self.questions.get_mut(id)
        {
            question.ended = Some(owner);
        }
    }

    /// The question that an answer is for, if it is still open.
    pub(crate) fn question(&self, hash: u64, key: &FlowKey, ingress: u8) -> Option<&Question> {
        let id = self.questions.find(hash, key)?;
        self.questions
            .get(id)
            .filter(|question| question.from.ingress == ingress)
    }

    /// Closes a client's question. What was held goes the way of `verdict`.
    pub(crate) fn close(&mut self, hash: u64, key: &FlowKey, verdict: Uplink) {
        if let Some(id) = self.questions.find(hash, key)
            && let Some(question) = self.questions.close(id)
        {
            self.held
                .release(question.packets, verdict, &mut self.released);
        }
    }

    /// Closes a question that came to nothing: it is not asked again for a while.
    pub(crate) fn refuse(&mut self, hash: u64, key: &FlowKey, reason: DropReason, now: Instant) {
        let mut verdict = Uplink::Drop(reason);
        if let Some(question) = self.question_of(hash, key) {
            let from = question.from;
            verdict = question.refusal(reason);
            let ttl = if reason == DropReason::Unanswered {
                self.config.unanswered_ttl
            } else {
                self.config.unknown_ttl
            };
            self.negative.put(hash, from.ingress, reason, now, ttl);
        }
        self.close(hash, key, verdict);
    }

    fn question_of(&self, hash: u64, key: &FlowKey) -> Option<&Question> {
        self.questions.get(self.questions.find(hash, key)?)
    }

    /// Lets go of packets held too long, and closes questions that nobody answered.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for id in 0..self.questions.slots() {
            let Some(question) = self.questions.get_mut(id) else {
                continue;
            };
            if now >= question.hold_until {
                let packets = std::mem::replace(&mut question.packets, List::EMPTY);
                let verdict = question.refusal(DropReason::Unanswered);
                self.held.release(packets, verdict, &mut self.released);
            }
            let (from, due) = (question.from, question.answer_until);
            if now >= due {
                self.refuse(from.hash, &from.key, DropReason::Unanswered, now);
            }
        }
    }

    /// The next packet that is held no more; [`Self::packet`] has its bytes until another one is held.
    pub(crate) fn next_released(&mut self) -> Option<Next> {
        self.held.next(&mut self.released)
    }

    pub(crate) fn packet(&self, next: &Next) -> &[u8] {
        self.held.bytes_of(next)
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.questions.len() == 0
    }

    pub(crate) const fn open_questions(&self) -> u32 {
        self.questions.len()
    }

    pub(crate) const fn held_packets(&self) -> u32 {
        self.held.len()
    }
}
