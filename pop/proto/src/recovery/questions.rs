//! The questions that are open, at most one for a client.

use std::time::Instant;

use wire::Owner;

use crate::flow::FlowKey;
use crate::index::Index;
use crate::recovery::held::List;
use crate::recovery::{RecoveryConfig, Unknown};
use crate::verdict::{DropReason, Uplink};

/// One question.
pub(crate) struct Question {
    pub(crate) from: Unknown,
    /// What waits for the answer.
    pub(crate) packets: List,
    /// Until then packets are held.
    pub(crate) hold_until: Instant,
    /// Until then an answer is taken.
    pub(crate) answer_until: Instant,
    /// The owner whose session has ended since.
    pub(crate) ended: Option<Owner>,
}

impl Question {
    pub(crate) fn new(from: Unknown, now: Instant, config: &RecoveryConfig) -> Self {
        Self {
            from,
            packets: List::EMPTY,
            hold_until: now + config.hold_max,
            answer_until: now + config.answer_max,
            ended: None,
        }
    }

    /// What becomes of the packets when the question comes to nothing. Those of a session that has ended since are no stranger's.
    pub(crate) const fn refusal(&self, reason: DropReason) -> Uplink {
        match (self.ended, reason) {
            (Some(_), DropReason::Uncached | DropReason::Unanswered) => {
                Uplink::Drop(DropReason::Ended)
            }
            (Some(_) | None, reason) => Uplink::Drop(reason),
        }
    }
}

/// See the module head.
pub(crate) struct Questions {
    slots: Vec<Option<Question>>,
    index: Index,
    free: Vec<u32>,
    open: u32,
}

impl Questions {
    pub(crate) fn new(questions_max: u16) -> Self {
        let max = usize::from(questions_max);
        Self {
            slots: Vec::with_capacity(max),
            index: Index::with_room(u32::from(questions_max)),
            free: Vec::with_capacity(max),
            open: 0,
        }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.open
    }

    pub(crate) fn is_full(&self) -> bool {
        self.open as usize >= self.slots.capacity()
    }

    /// Slots there have ever been: ids are below.
    pub(crate) fn slots(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn find(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        self.index.find(hash, |id| {
            self.get(id)
                .is_some_and(|question| question.from.key == *key)
        })
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Question> {
        self.slots.get(id as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Question> {
        self.slots.get_mut(id as usize)?.as_mut()
    }

    /// The caller has checked [`Self::is_full`] and that the client has no question.
    pub(crate) fn open(&mut self, question: Question) -> u32 {
        let hash = question.from.hash;
        let id = self.free.pop().unwrap_or_else(|| {
            let id = self.slots();
            self.slots.push(None);
            id
        });
        if let Some(slot) = self.slots.get_mut(id as usize) {
            *slot = Some(question);
        }
        self.index.insert(hash, id);
        self.open += 1;
        id
    }

    pub(crate) fn close(&mut self, id: u32) -> Option<Question> {
        let question = self.slots.get_mut(id as usize)?.take()?;
        self.index.remove(question.from.hash, id);
        self.free.push(id);
        self.open -= 1;
        Some(question)
    }
}
