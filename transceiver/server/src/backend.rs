//! The voice behind a session: what comes in as Opus and messages, and what goes back.
//!
//! A backend decides; it has no socket and no clock of its own: it is told the time, and says when it wants to be told again.
//! What it wants to send waits in a bounded [`Outbox`].

pub mod echo;

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;

/// One Opus frame as RTP carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// RTP payload type the client negotiated.
    pub payload_type: u8,
    /// RTP sequence number.
    pub sequence: u16,
    /// RTP timestamp, in 1/48000 s.
    pub timestamp: u32,
    /// RTP marker: first frame after silence.
    pub marker: bool,
    /// The Opus packet.
    pub payload: Bytes,
}

/// A data channel of a session, by the media engine's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel(pub usize);

/// One data-channel message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The channel.
    pub channel: Channel,
    /// Text, else binary.
    pub text: bool,
    /// The content.
    pub data: Bytes,
}

/// Frames, and messages, that wait for the media engine at most; one more is dropped and counted.
const OUTBOX_MAX: usize = 256;

/// What a backend wants sent.
#[derive(Debug, Default)]
pub struct Outbox {
    frames: VecDeque<Frame>,
    messages: VecDeque<Message>,
    refused: u64,
}

impl Outbox {
    /// Sends an Opus frame to the client.
    pub fn send_audio(&mut self, frame: Frame) {
        if self.frames.len() < OUTBOX_MAX {
            self.frames.push_back(frame);
        } else {
            self.refused += 1;
        }
    }

    /// Sends a message to the client.
    pub fn send_message(&mut self, message: Message) {
        if self.messages.len() < OUTBOX_MAX {
            self.messages.push_back(message);
        } else {
            self.refused += 1;
        }
    }

    /// What was more than may wait, since the last call.
    pub(crate) fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    pub(crate) fn next_frame(&mut self) -> Option<Frame> {
        self.frames.pop_front()
    }

    pub(crate) fn next_message(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }
}

/// The voice of one session.
pub trait Backend: Send {
    /// An Opus frame came from the client.
    fn handle_audio(&mut self, frame: Frame, now: Instant, out: &mut Outbox);
    /// A message came from the client.
    fn handle_message(&mut self, message: Message, now: Instant, out: &mut Outbox);
    /// A data channel is open.
    fn handle_channel_open(&mut self, channel: Channel, now: Instant, out: &mut Outbox);
    /// The clock reached what [`Self::poll_timeout`] said.
    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox);
    /// When to call [`Self::handle_timeout`]; `None` for a voice that only answers.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// Makes the voice of a session that begins.
pub type Voice = fn() -> Box<dyn Backend>;
