//! Between two batches: what flows and the flow cache say to each other, and packets whose time has come.

use pop_proto::Now;
use wire::Tag;

use super::Worker;
use crate::uplink::Way;

impl Worker {
    /// Nothing to do without a flow cache.
    pub(super) fn recover(&mut self, at: Now) {
        self.flush(at);
        let Some(cache) = &mut self.cache else {
            return;
        };
        cache.exchange(&mut self.flows, &self.routes, at);
        let mut way = Way {
            regions: &self.regions,
            links: &mut self.links,
            totals: &mut self.totals,
            last_forwarded: &mut self.last_forwarded,
        };
        let mut any = false;
        while let Some(released) = self.flows.next_released(&self.routes, at) {
            any = true;
            let tag = Tag {
                pop: self.pop,
                worker: self.index,
                ingress: released.ingress,
            };
            way.carry(
                released.verdict,
                (tag, released.client),
                released.packet,
                at,
            );
        }
        if any {
            self.links.flush();
        }
        self.tell_flushed();
    }

    /// Stores flows again when a drain wants it, some in each turn.
    fn flush(&mut self, at: Now) {
        let Some(wanted) = self.board.vitals.flush_wanted(self.flushed) else {
            return;
        };
        if self.flushing != Some(wanted) {
            self.flushing = Some(wanted);
            self.flows.flush();
        }
        if self.cache.as_ref().is_some_and(|cache| !cache.has_room()) {
            return;
        }
        if let Some(unstored) = self.flows.flush_step(at) {
            self.unstored = unstored;
            self.flushing = None;
            self.flushed = wanted;
        }
    }

    /// Says that a flush is done, after what it stores has been handed over.
    pub(super) fn tell_flushed(&self) {
        self.board
            .vitals
            .flushed(self.index, self.flushed, self.unstored);
    }
}
