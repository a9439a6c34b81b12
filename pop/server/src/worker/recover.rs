//! Between two batches: what flows and the flow cache say to each other, and packets whose time has come.

use pop_proto::Now;
use wire::Tag;

use super::Worker;
use crate::uplink::Way;

impl Worker {
    /// Nothing to do without a flow cache.
    pub(super) fn recover(&mut self, at: Now) {
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
        while let Some(released) = self.flows.next_released() {
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
    }
}
