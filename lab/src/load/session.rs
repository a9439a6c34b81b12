//! One session of the load: a socket, a peer, and the figures of its media.

use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;

use super::checks::Checks;
use super::measured::Measured;
use super::peer::{Identity, Peer, PeerEvent, Settings};
use super::{FarEnd, Plan};
use crate::meter;

/// One Opus packet each.
const PACKET_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of a payload: 32 kbit/s.
const PAYLOAD_LEN: usize = 80;
const STAMP_LEN: usize = 16;
/// Packets taken from a socket a turn.
const RECEIVE_BUDGET: usize = 16;
/// Samples of the round trip that a session keeps; what follows is not sampled.
const RTT_SAMPLES_MAX: usize = 100_000;

/// How a check begins (RFC 8489 §5), and no media.
const BINDING_REQUEST: [u8; 2] = [0, 1];

/// What happened to the media of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Echoes that are no payload of ours.
    pub(super) altered: u64,
    /// From offer to connected.
    pub(super) connect: Option<Duration>,
    /// Longest time between two echoes while packets were being sent.
    pub(super) gap_max: Duration,
    /// Data-channel messages that came back.
    pub(super) echoes: u64,
    pub(super) rtt_us: Vec<u32>,
    pub(super) after_move: AfterMove,
}

/// What came first after the session went on from another address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AfterMove {
    /// It never moved.
    #[default]
    Stayed,
    /// Neither yet.
    Waiting,
    /// An echo was heard.
    Heard,
    /// A check was sent.
    Checked,
}

impl AfterMove {
    fn note(&mut self, first: Self) {
        if *self == Self::Waiting {
            *self = first;
        }
    }
}

pub(super) struct Session {
    socket: UdpSocket,
    /// Sockets it had before it moved: what comes to them is lost, and nobody is told.
    left: Vec<UdpSocket>,
    checks: Option<Checks>,
    measured: Option<Box<Measured>>,
    peer: Peer,
    opened: Instant,
    connected: bool,
    failed: bool,
    /// Sessions start at different moments of a packet's 20 ms, as callers do.
    phase: Duration,
    next_packet: Option<Instant>,
    last_echo: Option<Instant>,
    figures: Figures,
}

impl Session {
    pub(super) fn new(
        identity: &Identity,
        plan: &Plan,
        index: usize,
        now: Instant,
    ) -> anyhow::Result<Self> {
        let socket = open(plan.address)?;
        let settings = Settings {
            data_channel: plan.data_channels,
            check_interval: plan.check_interval,
        };
        let peer = Peer::new(identity, socket.local_addr()?, settings, index, now)?;
        let measures = plan.far_end == FarEnd::Meter;
        Ok(Self {
            socket,
            left: Vec::new(),
            checks: plan.hurried_check.map(Checks::new),
            measured: measures.then(Box::default),
            peer,
            opened: now,
            connected: false,
            failed: false,
            phase: phase(index),
            next_packet: None,
            last_echo: None,
            figures: Figures::default(),
        })
    }

    pub(super) const fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    pub(super) fn offer(&self) -> String {
        self.peer.offer()
    }

    pub(super) const fn figures(&self) -> &Figures {
        &self.figures
    }

    /// It is, or it was before it failed.
    pub(super) const fn was_connected(&self) -> bool {
        self.figures.connect.is_some()
    }

    /// It never connected, failed later, or its last echo is older than `silence_max`.
    pub(super) fn is_lost(&self, now: Instant, silence_max: Duration) -> bool {
        let silent = self.last_echo.is_none_or(|last| now - last > silence_max);
        !self.connected || self.failed || silent
    }

    /// Goes on from another address; the peer does not hear of it.
    pub(super) fn move_to(&mut self, address: IpAddr) -> anyhow::Result<()> {
        let left = std::mem::replace(&mut self.socket, open(address)?);
        self.left.push(left);
        self.figures.after_move = AfterMove::Waiting;
        Ok(())
    }

    /// What it measured together with its far end.
    pub(super) fn measured(&self) -> Option<&Measured> {
        self.measured.as_deref()
    }

    /// Asks the far end for its notes.
    pub(super) fn ask_report(&mut self, now: Instant, epoch: Instant) {
        self.peer.send_text(meter::REPORT, now);
        self.pump(now, epoch);
    }

    pub(super) fn answer(
        &mut self,
        (answer, name): (String, String),
        now: Instant,
    ) -> anyhow::Result<()> {
        if let Some(measured) = &mut self.measured {
            measured.name = name;
        }
        self.peer.answer(answer, now)?;
        self.pump(now, now);
        Ok(())
    }

    /// Forgets the round trips so far: those of a network that is busy with handshakes.
    pub(super) fn restart_sampling(&mut self) {
        self.figures.rtt_us.clear();
    }

    pub(super) const fn give_up(&mut self) {
        self.failed = true;
    }

    /// Takes what has arrived.
    pub(super) fn receive(&mut self, now: Instant, epoch: Instant) {
        let mut buffer = [0; 2048];
        for _ in 0..RECEIVE_BUDGET {
            match self.socket.recv_from(&mut buffer) {
                Ok((len, from)) => {
                    let packet = buffer.get(..len).unwrap_or_default();
                    if let Some(checks) = &mut self.checks {
                        checks.handle_received(packet);
                    }
                    self.peer.handle_packet(from, packet, now);
                }
                // A refused send to a port that is closed for a moment shows up here.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => break,
            }
        }
        self.pump(now, epoch);
    }

    /// Fires timers and sends the packets that are due.
    pub(super) fn handle_time(&mut self, now: Instant, epoch: Instant, sending: bool) {
        let fired = self.peer.handle_timeout(now);
        let mut due = false;
        while sending && self.next_packet.is_some_and(|next| next <= now) {
            due = true;
            self.next_packet = self.next_packet.map(|next| next + PACKET_INTERVAL);
            let payload = payload(self.figures.sent, us(now - epoch));
            if let Some(number) = self.peer.send_rtp(payload, now) {
                self.figures.sent += 1;
                if let Some(measured) = &mut self.measured {
                    measured.handle_sent(number, meter::us(now - epoch));
                }
            }
        }
        if let Some((to, check)) = self.checks.as_mut().and_then(|checks| checks.due(now)) {
            self.figures.after_move.note(AfterMove::Checked);
            let _ = self.socket.send_to(check, to);
        }
        if let Some(last) = self.last_echo
            && sending
        {
            self.figures.gap_max = self.figures.gap_max.max(now - last);
        }
        if fired || due {
            self.pump(now, epoch);
        }
    }

    pub(super) fn close(&mut self, now: Instant) {
        self.peer.close();
        self.pump(now, now);
    }

    fn pump(&mut self, now: Instant, epoch: Instant) {
        while let Some(event) = self.peer.next_event(now) {
            self.handle_event(event, now, epoch);
        }
        while let Some((to, packet)) = self.peer.poll_transmit() {
            if let Some(checks) = &mut self.checks {
                checks.handle_sent(to, &packet, now);
            }
            if packet.starts_with(&BINDING_REQUEST) {
                self.figures.after_move.note(AfterMove::Checked);
            }
            // Loss is what the figures are about; a socket that refuses shows there.
            let _ = self.socket.send_to(&packet, to);
        }
    }

    fn handle_event(&mut self, event: PeerEvent, now: Instant, epoch: Instant) {
        match event {
            PeerEvent::Connected => {
                self.connected = true;
                if self.figures.connect.is_none() {
                    self.figures.connect = Some(now - self.opened);
                    self.next_packet = Some(now + self.phase);
                }
            }
            PeerEvent::Disconnected => self.connected = false,
            PeerEvent::Rtp(payload) => self.take_echo(&payload, now, epoch),
            PeerEvent::ChannelMessage(data, text) => {
                let report = self.measured.as_mut();
                let taken = report.is_some_and(|measured| measured.handle_message(&data, text));
                self.figures.echoes += u64::from(!taken);
            }
        }
    }

    fn take_echo(&mut self, echo: &Bytes, now: Instant, epoch: Instant) {
        self.last_echo = Some(now);
        self.figures.after_move.note(AfterMove::Heard);
        if let Some(measured) = &mut self.measured {
            let known = measured.handle_frame(echo, meter::us(now - epoch));
            self.figures.received += u64::from(known);
            self.figures.altered += u64::from(!known);
            return;
        }
        let Some((counter, sent_us)) = stamp(echo) else {
            self.figures.altered += 1;
            return;
        };
        if counter >= self.figures.sent || *echo != payload(counter, sent_us) {
            self.figures.altered += 1;
            return;
        }
        self.figures.received += 1;
        if self.figures.rtt_us.len() < RTT_SAMPLES_MAX {
            let rtt_us = us(now - epoch).saturating_sub(sent_us);
            self.figures
                .rtt_us
                .push(u32::try_from(rtt_us).unwrap_or(u32::MAX));
        }
    }
}

fn open(address: IpAddr) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0)).context("binding a client socket")?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Spreads sessions evenly over the interval, whatever their number (multiples of the golden ratio).
fn phase(index: usize) -> Duration {
    PACKET_INTERVAL.mul_f64((index as f64 * 0.618_034).fract())
}

fn payload(counter: u64, sent_us: u64) -> Bytes {
    let [.., filler] = counter.to_be_bytes();
    let mut payload = vec![filler; PAYLOAD_LEN];
    let stamp = counter
        .to_be_bytes()
        .into_iter()
        .chain(sent_us.to_be_bytes());
    for (slot, byte) in payload.iter_mut().zip(stamp) {
        *slot = byte;
    }
    payload.into()
}

fn stamp(payload: &[u8]) -> Option<(u64, u64)> {
    let (stamp, _) = payload.split_first_chunk::<STAMP_LEN>()?;
    let stamp = u128::from_be_bytes(*stamp);
    let [counter, sent_us] = [stamp >> 64, stamp & u128::from(u64::MAX)];
    Some((u64::try_from(counter).ok()?, u64::try_from(sent_us).ok()?))
}

fn us(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_carries_its_stamp() {
        let sent = payload(0x1ff, 77);
        assert_eq!(sent.len(), PAYLOAD_LEN);
        assert_eq!(stamp(&sent), Some((0x1ff, 77)));
        assert_eq!(sent.last(), Some(&0xff));
        assert_eq!(stamp(&sent[..10]), None);
    }
}
