//! The built-in backend: every Opus frame and every message goes back as it came.
//!
//! Sequence numbers and timestamps are the client's own, so what the network loses on the way in is missing on the way back.

use std::time::Instant;

use super::{Backend, Channel, Frame, Message, Outbox};

/// See the module head.
#[derive(Debug, Default)]
pub struct Echo;

impl Backend for Echo {
    fn handle_audio(&mut self, frame: Frame, _now: Instant, out: &mut Outbox) {
        out.send_audio(frame);
    }

    fn handle_message(&mut self, message: Message, _now: Instant, out: &mut Outbox) {
        out.send_message(message);
    }

    fn handle_channel_open(&mut self, _channel: Channel, _now: Instant, _out: &mut Outbox) {}

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
