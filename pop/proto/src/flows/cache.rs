//! Where flows meet the flow cache: what is stored and forgotten, who is asked about, and what an answer does.
//!
//! A flow is stored when its owner has been heard, and again while it is heard: packets of a client alone keep no entry
//! alive, so an entry of a session that is over is never renewed.

use wire::{ClientAddr, Owner};

use super::offer::may_be_srtp;
use super::{Arrival, Flows, Now, Source, Taken, Unknown};
use crate::command::{Answer, Command};
use crate::flow::{Flow, Ingresses, OWNER_IDLE, State, TICKS_PER_S, Tick};
use crate::recovery::Released;
use crate::routes::Routes;
use crate::verdict::{DropReason, Uplink};

/// An entry is stored again after this part of the time it lives.
const REFRESH_PART: u32 = 3;
/// What the cache may have lost is stored again within this part of the time between two stores: so many times the usual rate.
const AGAIN_PART: u32 = 4;

/// Slots a step of a flush looks at.
const FLUSH_SLOTS_MAX: u32 = 512;

/// How far a flush has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flushing {
    slot: u32,
    unstored: u64,
}

impl Flows {
    /// What the flow cache is to be told or asked, oldest first. Take them after each input.
    pub fn next_command(&mut self) -> Option<Command> {
        self.commands.pop()
    }

    /// Whether commands should be taken before the rest of a batch is put in: many sessions may end with one datagram.
    #[must_use]
    pub fn has_many_commands(&self) -> bool {
        self.commands.are_many()
    }

    /// The flow cache is there again, and may have lost what it had: flows in use are stored again, evenly over a quarter
    /// of the time between two stores.
    pub fn store_again(&mut self, now: Now) {
        self.store_again = Some(self.tick(now.instant));
    }

    /// Begins to store every flow again whose owner is still heard, whenever it was stored last. [`Self::flush_step`] does it.
    pub const fn flush(&mut self) {
        self.flush = Some(Flushing {
            slot: 0,
            unstored: 0,
        });
    }

    /// Stores some of them; how many found no place once all have been looked at, `None` before that and without [`Self::flush`].
    pub fn flush_step(&mut self, now: Now) -> Option<u64> {
        let mut flushing = self.flush?;
        let tick = self.tick(now.instant);
        let end = flushing.slot.saturating_add(FLUSH_SLOTS_MAX);
        while flushing.slot < end.min(self.table.slots()) && !self.commands.are_many() {
            flushing.unstored += u64::from(!self.flush_slot(flushing.slot, tick));
            flushing.slot += 1;
        }
        let over = flushing.slot >= self.table.slots();
        self.flush = (!over).then_some(flushing);
        over.then_some(flushing.unstored)
    }

    /// Whether nothing is amiss with a slot: it is stored, or need not be. A flow whose owner is silent is left as it is, so
    /// that no entry of a session that is over is renewed.
    fn flush_slot(&mut self, slot: u32, now: Tick) -> bool {
        let heard = |flow: &&Flow| now.since(flow.heard) <= OWNER_IDLE;
        let Some(flow) = self.table.get(slot).filter(heard).copied() else {
            return true;
        };
        match flow.state {
            State::Committed { .. } => {}
            State::Tentative { .. } | State::Recovered | State::Ended { .. } => return true,
        }
        let client = flow.key.client();
        let mut stored = flow.stored_at != Ingresses::default();
        for ingress in flow.stored_at.iter() {
            stored &= self.command(Command::Store {
                client,
                ingress,
                owner: flow.owner,
            });
        }
        stored
    }

    /// When a flow that would be stored again at `due`, `refresh` after the last time, is.
    fn store_due(&self, hash: u64, due: Tick, refresh: u32) -> Tick {
        match self.store_again {
            Some(lost) if due <= lost.after(refresh) => {
                let spread = (hash >> 32) % u64::from(refresh / AGAIN_PART).max(1);
                due.min(lost.after(u32::try_from(spread).unwrap_or(0)))
            }
            Some(_) | None => due,
        }
    }

    /// A packet that was held and whose time has come, with its verdict. Take them after each input. One that the cache knew nothing of, or
    /// said nothing about in time, is offered like any other packet of an unknown client, and within the same bounds.
    pub fn next_released(&mut self, routes: &Routes, now: Now) -> Option<Released<'_>> {
        let recovery = self.recovery.as_mut()?;
        let next = recovery.next_released()?;
        let is_media = may_be_srtp(recovery.packet(&next));
        let (client, ingress) = (next.client, next.ingress);
        let verdict = match next.verdict {
            Uplink::Drop(unknown @ (DropReason::Uncached | DropReason::Unanswered)) => {
                let from = self.arrival(Source { client, ingress }, now);
                let verdict = self.given_up(routes, from, is_media, unknown, now);
                verdict.unwrap_or_else(Uplink::Drop)
            }
            Uplink::Forward { .. } | Uplink::Hold | Uplink::Offer { .. } | Uplink::Drop(_) => {
                next.verdict
            }
        };
        Some(Released {
            client,
            ingress,
            packet: self.recovery.as_ref()?.packet(&next),
            verdict,
        })
    }

    /// A packet that was held in vain. Its client's flow may have committed, or ended, a moment ago.
    fn given_up(
        &mut self,
        routes: &Routes,
        from: Arrival,
        is_media: bool,
        unknown: DropReason,
        now: Now,
    ) -> Result<Uplink, DropReason> {
        match self.uplink_other(from, unknown) {
            Err(reason) if reason == unknown || reason == DropReason::NotCommitted => {
                if is_media {
                    self.offer_media(routes, from, unknown, now)
                } else {
                    Err(unknown)
                }
            }
            settled => settled,
        }
    }

    /// The flow cache has answered. An answer that nobody waits for, because it comes late or the flow has committed
    /// meanwhile, changes nothing.
    pub fn handle_answer(
        &mut self,
        routes: &Routes,
        client: ClientAddr,
        ingress: u8,
        answer: Answer,
        now: Now,
    ) {
        let from = self.arrival(Source { client, ingress }, now);
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        let Some(question) = recovery.question(from.hash, &from.key, ingress) else {
            self.totals.late_answers += 1;
            return;
        };
        let refusal = match answer {
            Answer::Owner(owner) if question.ended == Some(owner) => DropReason::Ended,
            Answer::Owner(owner) if routes.knows(owner) => {
                return self.recover(from, owner, now);
            }
            // Of a topology that is no more.
            Answer::Owner(_) | Answer::Unknown => DropReason::Uncached,
            Answer::Unavailable => DropReason::Unanswered,
        };
        recovery.refuse(from.hash, &from.key, refusal, now.instant);
    }

    fn recover(&mut self, from: Arrival, owner: Owner, now: Now) {
        let mut also = None;
        let refusal = match self.live_slot(&from) {
            Some(slot) => {
                let refused = self.update(slot, |flow| match flow.state {
                    State::Ended { .. } if flow.owner == owner => Some(DropReason::Ended),
                    State::Tentative { .. } | State::Ended { .. } => {
                        flow.recovered(owner, from.tick);
                        also = flow.second_owner();
                        None
                    }
                    State::Recovered | State::Committed { .. } => None,
                });
                refused.flatten()
            }
            None if self.table.is_full() => {
                self.totals.unlearned += 1;
                Some(DropReason::TableFull)
            }
            None => {
                self.insert(from, State::Recovered, owner, now);
                None
            }
        };
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        if let Some(reason) = refusal {
            recovery.refuse(from.hash, &from.key, reason, now.instant);
            return;
        }
        self.totals.recovered += 1;
        let verdict = Uplink::Forward { owner, also };
        recovery.close(from.hash, &from.key, verdict);
    }

    /// A packet of a client that has no flow which lets it pass.
    pub(super) fn hold(
        &mut self,
        routes: &Routes,
        from: Arrival,
        packet: &[u8],
        now: Now,
    ) -> Result<Uplink, DropReason> {
        let Source { client, ingress } = from.source;
        routes.source(client)?;
        let Some(recovery) = &mut self.recovery else {
            return Err(DropReason::NoFlow);
        };
        let unknown = Unknown {
            client,
            key: from.key,
            hash: from.hash,
            ingress,
        };
        let may_ask = !self.commands.is_full();
        let verdict = match recovery.hold(unknown, packet, may_ask, now.instant)? {
            Taken::Held => Uplink::Hold,
            Taken::Ask(verdict) => {
                self.command(Command::Ask { client, ingress });
                self.totals.questions += 1;
                verdict
            }
        };
        self.schedule_sweep(now.instant);
        Ok(verdict)
    }

    /// The flow has an owner that answers: nobody needs to be asked.
    pub(super) fn release_to_owner(&mut self, slot: u32, to: Arrival) {
        let (Some(recovery), Some(flow)) = (&mut self.recovery, self.table.get(slot)) else {
            return;
        };
        let verdict = Uplink::Forward {
            owner: flow.owner,
            also: flow.second_owner(),
        };
        recovery.close(to.hash, &to.key, verdict);
    }

    /// Stores a committed flow when it is due or the client came to another ingress, now that `heard` has been heard: if it
    /// is the owner, and not a second one.
    pub(super) fn keep_stored(&mut self, slot: u32, to: Arrival, heard: Owner) {
        let Some(recovery) = &self.recovery else {
            return;
        };
        let Source { client, ingress } = to.source;
        let Some((owner, known, due)) = self.table.get(slot).and_then(|flow| match flow.state {
            State::Committed { store_due, .. } => Some((flow.owner, flow.stored_at, store_due)),
            State::Tentative { .. } | State::Recovered | State::Ended { .. } => None,
        }) else {
            return;
        };
        let ttl_s = u32::try_from(recovery.config().ttl.as_secs()).unwrap_or(u32::MAX);
        let refresh = (ttl_s.saturating_mul(TICKS_PER_S) / REFRESH_PART).max(1);
        let due = self.store_due(to.hash, due, refresh);
        let wanted = known.with(ingress);
        if owner != heard || (wanted == known && to.tick < due) {
            return;
        }
        let next = to.tick.after(refresh);
        let mut stored = true;
        for ingress in wanted.iter() {
            if to.tick >= due || !known.contains(ingress) {
                stored &= self.command(Command::Store {
                    client,
                    ingress,
                    owner,
                });
            }
        }
        // What found no place is due at the next packet.
        if stored {
            self.update(slot, |flow| {
                flow.stored_at = wanted;
                if let State::Committed { store_due, .. } = &mut flow.state
                    && to.tick >= due
                {
                    *store_due = next;
                }
            });
        }
    }

    /// Deletes what the cache knows of `owner` having this client.
    pub(super) fn forget_stored(&mut self, to: Arrival, owner: Owner) {
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        recovery.end(to.hash, &to.key, owner);
        let Source { client, ingress } = to.source;
        let slot = self.table.find(to.hash, &to.key);
        let known = slot
            .and_then(|slot| self.table.get(slot))
            .map(|flow| flow.stored_at);
        for ingress in known.unwrap_or_default().with(ingress).iter() {
            self.command(Command::Forget {
                client,
                ingress,
                owner,
            });
        }
    }

    /// Whether there was a place in the queue.
    fn command(&mut self, command: Command) -> bool {
        let fits = self.commands.push(command);
        self.totals.commands_refused += u64::from(!fits);
        fits
    }
}
