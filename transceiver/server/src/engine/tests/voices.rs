//! Voices other than the echo: one that panics, one that speaks unasked.

use std::time::Instant;

use super::SECOND;
use super::world::{FRAME, World, address};
use crate::backend::{Backend, Channel, Frame, Message, Outbox};

/// A voice that panics when it is spoken to.
struct Panics;

impl Backend for Panics {
    fn handle_audio(&mut self, _: Frame, _: Instant, _: &mut Outbox) {
        panic!("as a test asks")
    }
    fn handle_message(&mut self, _: Message, _: Instant, _: &mut Outbox) {}
    fn handle_channel_open(&mut self, _: Channel, _: Instant, _: &mut Outbox) {}
    fn handle_timeout(&mut self, _: Instant, _: &mut Outbox) {}
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// A voice that speaks every 20 ms without being spoken to.
struct Talks {
    next: Instant,
    spoken: u16,
}

impl Backend for Talks {
    fn handle_audio(&mut self, _: Frame, _: Instant, _: &mut Outbox) {}
    fn handle_message(&mut self, _: Message, _: Instant, _: &mut Outbox) {}
    fn handle_channel_open(&mut self, _: Channel, _: Instant, _: &mut Outbox) {}
    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        assert!(now >= self.next, "asked before its time");
        self.next += FRAME;
        self.spoken += 1;
        out.send_audio(Frame {
            payload_type: 111,
            sequence: self.spoken,
            timestamp: u32::from(self.spoken) * 960,
            marker: false,
            payload: vec![7; 20].into(),
        });
    }
    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.next)
    }
}

#[test]
fn a_voice_speaks_at_its_own_times() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    let id = world.nodes[client].session.as_ref().unwrap().id;
    let slot = world.core.by_id[&id];
    let now = world.now;
    let talks = Talks {
        next: now + FRAME,
        spoken: 0,
    };
    world.core.live_mut(slot).unwrap().backend = Box::new(talks);
    world.core.touched(slot, now);
    let before = world.snapshot(client).unwrap().rtp_out;
    world.run(SECOND);
    let spoken = world.snapshot(client).unwrap().rtp_out - before;
    assert!((49..=51).contains(&spoken), "{spoken} frames in a second");
}

#[test]
fn a_panic_behind_one_session_ends_that_session_alone() {
    let mut world = World::new();
    let other = world.connect(address(1, 4000));
    let client = world.connect(address(2, 4000));
    let id = world.nodes[client].session.as_ref().unwrap().id;
    let slot = world.core.by_id[&id];
    world.core.live_mut(slot).unwrap().backend = Box::new(Panics);
    assert_eq!(world.talk(client, 2), 0);
    assert!(world.snapshot(client).is_none());
    assert_eq!(world.core.ended.failed, 1);
    assert_eq!(world.talk(other, 20), 20);
}
