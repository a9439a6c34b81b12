//! The model: see the head of the test.

use std::collections::{BTreeMap, BTreeSet};

use pop_proto::{Command, DropReason, Uplink};

use crate::{Outcome, client_of, owner_of};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload {
    Media,
    Success,
    Error,
}

/// One input. Clients and owners by number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Check {
        client: u16,
        ingress: u8,
        owner: u8,
        hint: u8,
        old: bool,
    },
    Other {
        client: u16,
        ingress: u8,
        media: bool,
    },
    Down {
        client: u16,
        ingress: u8,
        owner: u8,
        payload: Payload,
    },
    End {
        client: u16,
        ingress: u8,
        owner: u8,
    },
    Answer {
        client: u16,
        ingress: u8,
        answer: Result<Option<u8>, ()>,
    },
    /// Tenths of a second.
    Pass(u32),
}

/// What is known of one client. `Shared` is two owners of one address.
#[derive(Clone, Debug)]
enum Known {
    Claimed {
        owner: u8,
        /// Names the hint that made it: whose it was and which.
        by: (u8, u8, bool),
        seen: u32,
    },
    Cached {
        owner: u8,
        /// Whoever was claimed before the cache answered.
        claimed: Option<u8>,
        since: u32,
    },
    Owned {
        owner: u8,
        /// The hint of its checks, and whether the owner still has to answer them.
        by: Option<(u8, u8, bool)>,
        unanswered: bool,
        heard: u32,
        seen: u32,
        rival: Option<Rival>,
        stored: BTreeSet<u8>,
        /// `None`: at once.
        store_again: Option<u32>,
    },
    Over {
        owner: u8,
        /// Another session of the owner waits for its answer.
        claimed: bool,
        since: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Rival {
    owner: u8,
    since: u32,
    heard: u32,
    barred: bool,
}

struct Asked {
    ingress: u8,
    since: u32,
    held: usize,
    over: Option<u8>,
}

impl Asked {
    /// Packets of a session that ended meanwhile are no stranger's.
    fn refusal(&self, reason: DropReason) -> DropReason {
        let stranger = matches!(reason, DropReason::Uncached | DropReason::Unanswered);
        if stranger && self.over.is_some() {
            DropReason::Ended
        } else {
            reason
        }
    }
}

pub(crate) struct Model {
    flows_max: usize,
    recovery: bool,
    now: u32,
    known: BTreeMap<u16, Known>,
    asked: BTreeMap<u16, Asked>,
    /// Until when, and why, a client is not asked about.
    in_vain: BTreeMap<(u16, u8), (u32, DropReason)>,
    out: Outcome,
}

impl Model {
    pub(crate) fn new(flows_max: usize, recovery: bool) -> Self {
        Self {
            flows_max,
            recovery,
            now: 0,
            known: BTreeMap::new(),
            asked: BTreeMap::new(),
            in_vain: BTreeMap::new(),
            out: Outcome::default(),
        }
    }

    pub(crate) fn flows(&self) -> usize {
        let over = |known: &&Known| !matches!(known, Known::Over { .. });
        self.known.values().filter(over).count()
    }

    pub(crate) fn tentative(&self) -> usize {
        let claimed = |known: &&Known| matches!(known, Known::Claimed { .. });
        self.known.values().filter(claimed).count()
    }

    pub(crate) fn step(&mut self, act: Act) -> Outcome {
        self.out = Outcome::default();
        match act {
            Act::Check {
                client,
                owner,
                hint,
                old,
                ..
            } => {
                let verdict = self.check(client, owner, (owner, hint, old), old);
                self.out.verdict = Some(verdict.err().map_or_else(|| alone(owner), Uplink::Drop));
            }
            Act::Other {
                client,
                ingress,
                media,
            } => {
                let verdict = self.other(client, ingress, media);
                self.out.verdict = Some(verdict.unwrap_or_else(Uplink::Drop));
            }
            Act::Down {
                client,
                ingress,
                owner,
                payload,
            } => self.down(client, ingress, owner, payload),
            Act::End {
                client,
                ingress,
                owner,
            } => self.end(client, ingress, owner),
            Act::Answer {
                client,
                ingress,
                answer,
            } => self.answer(client, ingress, answer),
            Act::Pass(tenths) => (0..tenths).for_each(|_| self.tenth()),
        }
        self.out.released.sort_by_key(|(client, _)| *client);
        std::mem::take(&mut self.out)
    }

    /// Rules 1, 2 and 5.
    fn check(
        &mut self,
        client: u16,
        owner: u8,
        by: (u8, u8, bool),
        old: bool,
    ) -> Result<(), DropReason> {
        let now = self.now;
        match self.known.get_mut(&client) {
            Some(Known::Claimed {
                owner: claimed,
                seen,
                ..
            }) => {
                if old {
                    return Err(DropReason::HintExpired);
                }
                *claimed = owner;
                *seen = now;
                return Ok(());
            }
            Some(Known::Cached {
                owner: cached,
                claimed,
                ..
            }) => {
                let stale = old && *cached != owner && *claimed != Some(owner);
                return if stale {
                    Err(DropReason::HintExpired)
                } else {
                    Ok(())
                };
            }
            Some(Known::Owned {
                owner: first,
                by: known,
                unanswered,
                rival,
                seen,
                ..
            }) => {
                let second = rival.filter(|rival| !rival.barred).map(|rival| rival.owner);
                if *first == owner || second == Some(owner) {
                    *seen = now;
                    if *first == owner && *known != Some(by) {
                        *unanswered = known.is_some();
                        *known = Some(by);
                    }
                } else if old {
                    return Err(DropReason::HintExpired);
                }
                return Ok(());
            }
            Some(Known::Over { .. }) | None => {}
        }
        if old {
            return Err(DropReason::HintExpired);
        }
        if !self.known.contains_key(&client) && self.known.len() >= self.flows_max {
            return Err(DropReason::TableFull);
        }
        if self.tentative() >= self.flows_max / 4 {
            return Err(DropReason::TentativeFull);
        }
        let same =
            |known: &&Known| matches!(known, Known::Claimed { by: other, .. } if *other == by);
        if self.known.values().filter(same).count() >= 16 {
            return Err(DropReason::TentativeHint);
        }
        let claimed = Known::Claimed {
            owner,
            by,
            seen: now,
        };
        self.known.insert(client, claimed);
        Ok(())
    }

    /// Rules 3, 4 and 6.
    fn other(&mut self, client: u16, ingress: u8, media: bool) -> Result<Uplink, DropReason> {
        let now = self.now;
        if let Some(known) = self.known.get_mut(&client) {
            settle(known, now);
        }
        let reason = match self.known.get_mut(&client) {
            Some(Known::Cached { owner, claimed, .. }) => return Ok(pair(*owner, *claimed)),
            Some(Known::Owned {
                owner, rival, seen, ..
            }) => {
                *seen = now;
                let also = rival.filter(|rival| !rival.barred);
                return Ok(Uplink::Forward {
                    owner: owner_of(*owner),
                    also: also.map(|rival| owner_of(rival.owner)),
                });
            }
            Some(Known::Over { .. }) => return Err(DropReason::Ended),
            Some(Known::Claimed { .. }) => DropReason::NotCommitted,
            None => DropReason::NoFlow,
        };
        if !self.recovery || !media {
            return Err(reason);
        }
        self.hold(client, ingress)
    }

    fn hold(&mut self, client: u16, ingress: u8) -> Result<Uplink, DropReason> {
        if !self.asked.contains_key(&client) {
            if let Some((until, reason)) = self.in_vain.get(&(client, ingress))
                && *until > self.now
            {
                return Err(*reason);
            }
            if self.asked.len() >= 4 {
                return Err(DropReason::QuestionsFull);
            }
            let asked = Asked {
                ingress,
                since: self.now,
                held: 0,
                over: None,
            };
            self.asked.insert(client, asked);
            let client = client_of(client);
            self.out.commands.push(Command::Ask { client, ingress });
        }
        let all: usize = self.asked.values().map(|asked| asked.held).sum();
        let asked = self.asked.get_mut(&client).ok_or(DropReason::NoFlow)?;
        if self.now - asked.since >= 2 {
            return Err(DropReason::Unanswered);
        }
        if asked.held >= 3 {
            return Err(DropReason::HoldClientFull);
        }
        if all >= 6 {
            return Err(DropReason::HoldFull);
        }
        asked.held += 1;
        Ok(Uplink::Hold)
    }

    fn down(&mut self, client: u16, ingress: u8, owner: u8, payload: Payload) {
        let now = self.now;
        let proof = !matches!(payload, Payload::Error);
        let room = self.known.len() < self.flows_max;
        let mut release = None;
        match self.known.get_mut(&client) {
            Some(Known::Over {
                owner: over,
                claimed,
                ..
            }) if *over == owner && !(*claimed && matches!(payload, Payload::Success)) => return,
            Some(Known::Cached { owner: cached, .. }) if proof || *cached == owner => {
                let rival = (*cached != owner).then_some(Rival {
                    owner: *cached,
                    since: now,
                    heard: now,
                    barred: false,
                });
                release = Some(Uplink::Forward {
                    owner: owner_of(owner),
                    also: rival.map(|rival| owner_of(rival.owner)),
                });
                self.own(client, owner, None, rival);
            }
            Some(Known::Owned {
                owner: first,
                unanswered,
                heard,
                seen,
                rival,
                ..
            }) if proof || *first == owner => {
                *seen = now;
                if *first == owner {
                    *heard = now;
                    *unanswered &= !matches!(payload, Payload::Success);
                } else if let Some(rival) = rival {
                    if rival.owner == owner {
                        rival.heard = now;
                    }
                } else {
                    *rival = Some(Rival {
                        owner,
                        since: now,
                        heard: now,
                        barred: false,
                    });
                }
            }
            Some(Known::Claimed {
                owner: claimed, by, ..
            }) if proof => {
                let by = (*claimed == owner).then_some(*by);
                release = Some(alone(owner));
                self.own(client, owner, by, None);
            }
            Some(Known::Over { .. }) if proof => {
                release = Some(alone(owner));
                self.own(client, owner, None, None);
            }
            None if proof && room => {
                release = Some(alone(owner));
                self.own(client, owner, None, None);
            }
            Some(_) | None => return,
        }
        self.store(client, ingress, owner);
        if let Some(verdict) = release {
            self.close(client, verdict);
        }
    }

    fn own(&mut self, client: u16, owner: u8, by: Option<(u8, u8, bool)>, rival: Option<Rival>) {
        let owned = Known::Owned {
            owner,
            by,
            unanswered: false,
            heard: self.now,
            seen: self.now,
            rival,
            stored: BTreeSet::new(),
            store_again: None,
        };
        self.known.insert(client, owned);
    }

    fn store(&mut self, client: u16, ingress: u8, by: u8) {
        let now = self.now;
        let Some(Known::Owned {
            owner,
            stored,
            store_again,
            ..
        }) = self.known.get_mut(&client)
        else {
            return;
        };
        if !self.recovery || *owner != by {
            return;
        }
        let due = store_again.is_none_or(|at| now >= at);
        let new = stored.insert(ingress);
        for at in stored.iter().filter(|at| due || (new && **at == ingress)) {
            self.out.commands.push(Command::Store {
                client: client_of(client),
                ingress: *at,
                owner: owner_of(by),
            });
        }
        if due {
            *store_again = Some(now + 200);
        }
    }

    fn end(&mut self, client: u16, ingress: u8, owner: u8) {
        let now = self.now;
        if self.recovery {
            if let Some(asked) = self.asked.get_mut(&client) {
                asked.over = Some(owner);
            }
            let mut at = BTreeSet::from([ingress]);
            if let Some(Known::Owned { stored, .. }) = self.known.get(&client) {
                at.extend(stored);
            }
            for ingress in at {
                self.out.commands.push(Command::Forget {
                    client: client_of(client),
                    ingress,
                    owner: owner_of(owner),
                });
            }
        }
        let over = |claimed| Known::Over {
            owner,
            claimed,
            since: now,
        };
        let room = self.known.len() < self.flows_max;
        match self.known.get_mut(&client) {
            Some(Known::Claimed { owner: other, .. }) if *other == owner => {
                self.known.insert(client, over(true));
            }
            Some(Known::Cached { owner: other, .. }) if *other == owner => {
                self.known.insert(client, over(false));
            }
            Some(Known::Over {
                owner: other,
                claimed,
                ..
            }) if *other == owner => {
                let claimed = *claimed;
                self.known.insert(client, over(claimed));
            }
            Some(Known::Cached { claimed, .. }) => {
                *claimed = claimed.filter(|claimed| *claimed != owner);
            }
            Some(Known::Claimed { .. } | Known::Over { .. }) => {}
            Some(Known::Owned {
                owner: first,
                by,
                unanswered,
                heard,
                rival,
                store_again,
                ..
            }) => match (*first == owner, *rival) {
                (true, Some(other)) => {
                    (*first, *heard, *rival, *store_again) = (other.owner, other.heard, None, None);
                    (*by, *unanswered) = (None, false);
                }
                (true, None) => {
                    let claimed = *unanswered;
                    self.known.insert(client, over(claimed));
                }
                (false, _) => *rival = rival.filter(|rival| rival.owner != owner),
            },
            None if room => {
                self.known.insert(client, over(false));
            }
            None => {}
        }
    }

    fn answer(&mut self, client: u16, ingress: u8, answer: Result<Option<u8>, ()>) {
        let Some(asked) = self.asked.get(&client) else {
            return;
        };
        if asked.ingress != ingress {
            return;
        }
        let owner = match answer {
            Ok(Some(owner)) => owner,
            Ok(None) => return self.refuse(client, DropReason::Uncached),
            Err(()) => return self.refuse(client, DropReason::Unanswered),
        };
        let over = matches!(self.known.get(&client), Some(Known::Over { owner: other, .. }) if *other == owner);
        if asked.over == Some(owner) || over {
            return self.refuse(client, DropReason::Ended);
        }
        if !self.known.contains_key(&client) && self.known.len() >= self.flows_max {
            return self.refuse(client, DropReason::TableFull);
        }
        let claimed = match self.known.get(&client) {
            Some(Known::Claimed { owner: claimed, .. }) if *claimed != owner => Some(*claimed),
            Some(_) | None => None,
        };
        let cached = Known::Cached {
            owner,
            claimed,
            since: self.now,
        };
        self.known.insert(client, cached);
        self.close(client, pair(owner, claimed));
    }

    fn refuse(&mut self, client: u16, reason: DropReason) {
        let mut told = reason;
        if let Some(asked) = self.asked.get(&client) {
            let (tenths, later) = if reason == DropReason::Unanswered {
                (3, reason)
            } else {
                (50, DropReason::Uncached)
            };
            told = asked.refusal(reason);
            let until = self.now + tenths;
            self.in_vain.insert((client, asked.ingress), (until, later));
        }
        self.close(client, Uplink::Drop(told));
    }

    fn close(&mut self, client: u16, verdict: Uplink) {
        if let Some(asked) = self.asked.remove(&client) {
            let packets = std::iter::repeat_n((client, verdict), asked.held);
            self.out.released.extend(packets);
        }
    }

    /// A tenth of a second passes.
    fn tenth(&mut self) {
        self.now += 1;
        let now = self.now;
        for known in self.known.values_mut() {
            settle(known, now);
        }
        self.known.retain(|_, known| {
            let (since, ttl) = match *known {
                Known::Claimed { seen, .. } => (seen, 50),
                Known::Cached { since, .. } => (since, 100),
                Known::Owned { seen, .. } => (seen, 600),
                Known::Over { since, .. } => (since, 50),
            };
            now - since <= ttl
        });
        let mut unanswered = Vec::new();
        for (client, asked) in &mut self.asked {
            if now - asked.since >= 2 {
                let told = asked.refusal(DropReason::Unanswered);
                let packet = (*client, Uplink::Drop(told));
                let held = std::mem::take(&mut asked.held);
                self.out.released.extend(std::iter::repeat_n(packet, held));
            }
            if now - asked.since >= 20 {
                unanswered.push(*client);
            }
        }
        for client in unanswered {
            self.refuse(client, DropReason::Unanswered);
        }
    }
}

/// Rule 4: who of two owners keeps an address.
fn settle(known: &mut Known, now: u32) {
    let Known::Owned {
        owner,
        by,
        unanswered,
        heard,
        rival: place,
        store_again,
        ..
    } = known
    else {
        return;
    };
    let Some(mut rival) = *place else {
        return;
    };
    let silent = now - *heard > 100;
    if silent && rival.heard > *heard {
        (*owner, *heard, *place, *store_again) = (rival.owner, rival.heard, None, None);
        (*by, *unanswered) = (None, false);
        return;
    }
    let gone = if rival.barred {
        now - rival.since > 600
    } else {
        now - rival.heard > 100
    };
    if now - rival.since > 300 {
        rival.barred = true;
    }
    *place = (!gone).then_some(rival);
}

fn alone(owner: u8) -> Uplink {
    pair(owner, None)
}

fn pair(owner: u8, also: Option<u8>) -> Uplink {
    Uplink::Forward {
        owner: owner_of(owner),
        also: also.map(owner_of),
    }
}
