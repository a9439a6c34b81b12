//! A worker's end of the flow cache: commands out, answers in, between two batches. Nothing here waits or locks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use pop_proto::{Command, Flows, Now, Routes};

use crate::flow_cache::queues::{Ask, Place, Queues, What, Write};

pub(crate) struct Port {
    queues: Arc<Queues>,
    worker: u8,
    /// How often Redis had come into use when this worker last looked.
    ups: u64,
}

impl Port {
    pub(crate) const fn new(queues: Arc<Queues>, worker: u8) -> Self {
        Self {
            queues,
            worker,
            ups: 0,
        }
    }

    /// Hands over what the flows want to say, and to them what has been answered.
    pub(crate) fn exchange(&mut self, flows: &mut Flows, routes: &Routes, now: Now) {
        let ups = self.queues.ups.load(Ordering::Relaxed);
        if ups != self.ups {
            self.ups = ups;
            flows.store_again(now);
        }
        self.tell(flows, now);
        while let Some(reply) = self.queues.next_answer(self.worker) {
            let Place { client, ingress } = reply.place;
            flows.handle_answer(routes, client, ingress, reply.answer, now);
        }
    }

    /// Whether many more flows can be stored now.
    pub(crate) fn has_room(&self) -> bool {
        self.queues.has_room()
    }

    /// The first half of it.
    pub(crate) fn tell(&self, flows: &mut Flows, now: Now) {
        let mut said = false;
        while let Some(command) = flows.next_command() {
            said = true;
            self.push(command, now.instant);
        }
        if said {
            self.queues.wake_task();
        }
    }

    fn push(&self, command: Command, said: Instant) {
        match command {
            Command::Ask { client, ingress } => self.queues.push_ask(Ask {
                worker: self.worker,
                place: Place { client, ingress },
            }),
            Command::Store {
                client,
                ingress,
                owner,
            } => self.queues.push_write(Write {
                what: What::Store,
                place: Place { client, ingress },
                owner,
                said,
            }),
            Command::Forget {
                client,
                ingress,
                owner,
            } => self.queues.push_write(Write {
                what: What::Forget,
                place: Place { client, ingress },
                owner,
                said,
            }),
        }
    }
}
