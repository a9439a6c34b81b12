//! One connection of `rtc`, and the virtual ICE pair it runs behind.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use rtc::peer_connection::RTCPeerConnection;
use rtc::peer_connection::event::{RTCDataChannelEvent, RTCPeerConnectionEvent};
use rtc::peer_connection::message::{RTCMessage, TaggedRTCMessage};
use rtc::peer_connection::sdp::RTCSessionDescription;
use rtc::peer_connection::state::RTCPeerConnectionState;
use rtc::peer_connection::transport::{
    CandidateConfig, CandidateHostConfig, RTCDtlsTransportState, RTCIceCandidate,
};
use rtc::rtp_transceiver::RTCRtpSenderId;
use rtc::sansio::Protocol;
use rtc::shared::{TaggedBytesMut, TransportContext, TransportProtocol};
use transceiver_proto::stun::{nominating_request, success_response};
use wire::stun::{Class, PacketKind};

use super::factory::{RTC_PASSWORD, RTC_UFRAG};
use super::ssrc::{SsrcGate, ssrc_of};
use super::stream::{Arrival, Inbound, Outbound};
use super::{PeerCounters, PeerError, PeerFactory, Taken};
use crate::backend::{Backend, Channel, Frame, Message, Outbox};
use crate::engine::sdp::{VIRTUAL_PASSWORD, VIRTUAL_UFRAG};

/// Where `rtc` believes it is (TEST-NET-1, RFC 5737).
const VIRTUAL_LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);
/// Where `rtc` believes its peer is.
const VIRTUAL_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 9);
/// Exchanges the virtual check takes at most: request, triggered check, its answer, request again.
const VIRTUAL_ROUNDS: usize = 4;
/// Bytes that wait for the client's acknowledgement on one data channel at most; a message more is refused and counted.
const OUTSTANDING_BYTES_MAX: usize = 1024 * 1024;
/// Data channels that are open at a time at most.
const CHANNELS_MAX: usize = 64;
/// Datagrams a peer holds for the engine at most; the engine takes them after every call.
const DATAGRAMS_MAX: usize = 1024;

/// See the module head.
pub(super) struct Connection {
    pc: RTCPeerConnection,
    sender: RTCRtpSenderId,
    ssrc: u32,
    datagrams: VecDeque<Bytes>,
    outbox: Outbox,
    stun: Vec<u8>,
    counters: PeerCounters,
    state: RTCPeerConnectionState,
    inbound: Inbound,
    outbound: Outbound,
    gate: SsrcGate,
    channels: usize,
}

impl Connection {
    /// Answers an offer whose ICE lines name the virtual peer. Returns the answer with `rtc`'s own ICE lines in it.
    ///
    /// # Errors
    /// When `rtc` refuses the offer.
    pub(super) fn answer(
        factory: &PeerFactory,
        offer: String,
        ssrc: u32,
        now: Instant,
    ) -> Result<(Self, String), PeerError> {
        let (pc, sender) = factory.build(ssrc, now)?;
        let mut peer = Self {
            pc,
            sender,
            ssrc,
            datagrams: VecDeque::new(),
            outbox: Outbox::default(),
            stun: Vec::new(),
            counters: PeerCounters::default(),
            state: RTCPeerConnectionState::New,
            inbound: Inbound::default(),
            outbound: Outbound::default(),
            gate: SsrcGate::default(),
            channels: 0,
        };
        peer.accept(offer, now)?;
        peer.add_virtual_candidate()?;
        let answer = peer.local_answer(now)?;
        Ok((peer, answer))
    }

    /// Answers another offer of the same client.
    ///
    /// # Errors
    /// When `rtc` refuses the offer.
    pub(super) fn reanswer(&mut self, offer: String, now: Instant) -> Result<String, PeerError> {
        self.accept(offer, now)?;
        self.local_answer(now)
    }

    fn accept(&mut self, offer: String, now: Instant) -> Result<(), PeerError> {
        self.gate.declare(&offer);
        let offer = RTCSessionDescription::offer(offer)?;
        self.pc.set_remote_description(now, offer)?;
        Ok(())
    }

    fn local_answer(&mut self, now: Instant) -> Result<String, PeerError> {
        let answer = self.pc.create_answer(None)?;
        self.pc.set_local_description(now, answer)?;
        Ok(self
            .pc
            .local_description()
            .map(|description| description.sdp)
            .unwrap_or_default())
    }

    fn add_virtual_candidate(&mut self) -> Result<(), PeerError> {
        let base_config = CandidateConfig {
            network: "udp".to_owned(),
            address: VIRTUAL_LOCAL.ip().to_string(),
            port: VIRTUAL_LOCAL.port(),
            component: 1,
            ..Default::default()
        };
        let candidate = CandidateHostConfig {
            base_config,
            ..Default::default()
        }
        .new_candidate_host()?;
        self.pc
            .add_local_candidate(RTCIceCandidate::from(&candidate).to_json()?)?;
        self.pc.add_local_candidate(Default::default())?;
        Ok(())
    }

    /// The client has nominated a path: lets the virtual pair come up, so that DTLS may begin.
    pub(super) fn connect(&mut self, backend: &mut dyn Backend, now: Instant) {
        for round in 0..VIRTUAL_ROUNDS {
            let mut request = std::mem::take(&mut self.stun);
            let transaction = [u8::try_from(round).unwrap_or_default(); 12];
            let username = format!("{RTC_UFRAG}:{VIRTUAL_UFRAG}");
            nominating_request(
                &mut request,
                &transaction,
                &username,
                RTC_PASSWORD.as_bytes(),
            );
            self.read(&request, now);
            self.stun = request;
            self.drain(backend, now);
        }
    }

    /// A packet that `transceiver_proto` let through for this session.
    pub(super) fn handle_packet(
        &mut self,
        packet: &[u8],
        backend: &mut dyn Backend,
        now: Instant,
    ) -> Taken {
        if PacketKind::of(packet) != PacketKind::Rtp {
            let read = self.read(packet, now);
            let authenticated = self.drain(backend, now);
            return match (read, authenticated) {
                (true, true) => Taken::Authenticated,
                (true, false) => Taken::Processed,
                (false, _) => Taken::Refused,
            };
        }
        let rtcp = is_rtcp(packet);
        let Some(ssrc) = ssrc_of(packet, rtcp).filter(|ssrc| self.gate.admit(*ssrc)) else {
            return Taken::Refused;
        };
        let read = self.read(packet, now);
        // `rtc` tells no error of SRTP: RTP that it does not hand out, it did not accept. Some RTCP it keeps to itself.
        if self.drain(backend, now) {
            self.gate.prove(ssrc);
            Taken::Authenticated
        } else if read && rtcp {
            Taken::Processed
        } else {
            Taken::Refused
        }
    }

    fn read(&mut self, packet: &[u8], now: Instant) -> bool {
        let message = TaggedBytesMut {
            now,
            transport: TransportContext {
                local_addr: VIRTUAL_LOCAL,
                peer_addr: VIRTUAL_PEER,
                ecn: None,
                transport_protocol: TransportProtocol::UDP,
            },
            message: BytesMut::from(packet),
        };
        match self.pc.handle_read(message) {
            Ok(()) => true,
            Err(error) => {
                tracing::trace!(%error, "packet refused");
                false
            }
        }
    }

    /// Takes everything `rtc` has to say. Returns whether any media came out, which only authenticated packets bring.
    fn drain(&mut self, backend: &mut dyn Backend, now: Instant) -> bool {
        let mut authenticated = false;
        while let Some(TaggedRTCMessage { message, .. }) = self.pc.poll_read() {
            authenticated |= self.take(message, backend, now);
        }
        while let Some(event) = self.pc.poll_event() {
            if let RTCPeerConnectionEvent::OnConnectionStateChangeEvent(state) = event {
                self.state = state;
            } else if let RTCPeerConnectionEvent::OnDataChannel(event) = event {
                self.handle_channel(&event, backend, now);
            }
        }
        self.empty_outbox(now);
        self.write(now);
        authenticated
    }

    fn handle_channel(
        &mut self,
        event: &RTCDataChannelEvent,
        backend: &mut dyn Backend,
        now: Instant,
    ) {
        if let RTCDataChannelEvent::OnOpen(channel) = event {
            self.channels += 1;
            if !self.is_excessive() {
                backend.handle_channel_open(Channel(*channel), now, &mut self.outbox);
            }
        } else if let RTCDataChannelEvent::OnClose(_) = event {
            self.channels = self.channels.saturating_sub(1);
        }
    }

    /// Whether the client has opened more data channels than we keep state for.
    pub(super) const fn is_excessive(&self) -> bool {
        self.channels > CHANNELS_MAX
    }

    fn take(&mut self, message: RTCMessage, backend: &mut dyn Backend, now: Instant) -> bool {
        match message {
            RTCMessage::RtpPacket(_, packet) => {
                self.take_rtp(packet, backend, now);
                true
            }
            RTCMessage::DataChannelMessage(channel, message) => {
                self.counters.messages_in += 1;
                let message = Message {
                    channel: Channel(channel),
                    text: message.is_string,
                    data: message.data.freeze(),
                };
                backend.handle_message(message, now, &mut self.outbox);
                false
            }
            RTCMessage::RtcpPacket(..) => true,
            _ => false,
        }
    }

    fn take_rtp(&mut self, packet: rtc::rtp::Packet, backend: &mut dyn Backend, now: Instant) {
        let header = &packet.header;
        self.counters.rtp_in += 1;
        match self
            .inbound
            .handle_packet(header.ssrc, header.sequence_number, now)
        {
            Arrival::Ahead(missing) => self.counters.rtp_lost += u64::from(missing),
            Arrival::Late => {
                self.counters.rtp_lost = self.counters.rtp_lost.saturating_sub(1);
            }
            Arrival::Other => {
                self.counters.rtp_other += 1;
                return;
            }
        }
        let frame = Frame {
            payload_type: header.payload_type,
            sequence: header.sequence_number,
            timestamp: header.timestamp,
            marker: header.marker,
            payload: packet.payload,
        };
        backend.handle_audio(frame, now, &mut self.outbox);
    }

    fn empty_outbox(&mut self, now: Instant) {
        self.counters.backend_refused += self.outbox.take_refused();
        while let Some(frame) = self.outbox.next_frame() {
            let stream = self.inbound.number();
            let (sequence_number, timestamp) =
                self.outbound.map(stream, frame.sequence, frame.timestamp);
            let header = rtc::rtp::header::Header {
                version: 2,
                payload_type: frame.payload_type,
                sequence_number,
                timestamp,
                marker: frame.marker,
                ssrc: self.ssrc,
                ..Default::default()
            };
            let packet = rtc::rtp::Packet {
                header,
                payload: frame.payload,
            };
            let sent = self
                .pc
                .rtp_sender(self.sender)
                .is_some_and(|mut sender| sender.write_rtp(now, packet).is_ok());
            self.counters.rtp_out += u64::from(sent);
            self.counters.backend_refused += u64::from(!sent);
        }
        while let Some(message) = self.outbox.next_message() {
            let sent = self.send_message(message, now);
            self.counters.messages_out += u64::from(sent);
            self.counters.backend_refused += u64::from(!sent);
        }
    }

    fn send_message(&mut self, message: Message, now: Instant) -> bool {
        let Some(mut channel) = self.pc.data_channel(message.channel.0) else {
            return false;
        };
        // A client that sends and never acknowledges fills this and nothing more.
        if channel.outstanding_bytes() > OUTSTANDING_BYTES_MAX {
            return false;
        }
        if message.text {
            let Ok(text) = std::str::from_utf8(&message.data) else {
                return false;
            };
            channel.send_text(now, text).is_ok()
        } else {
            channel
                .send(now, BytesMut::from(message.data.as_ref()))
                .is_ok()
        }
    }

    /// What `rtc` wants to send: STUN is answered here, the rest is for the client.
    fn write(&mut self, now: Instant) {
        while let Some(datagram) = self.pc.poll_write() {
            if PacketKind::of(&datagram.message) == PacketKind::Stun {
                self.answer_virtual(&datagram.message, now);
            } else if self.datagrams.len() < DATAGRAMS_MAX {
                self.datagrams.push_back(datagram.message.freeze());
            } else {
                self.counters.backend_refused += 1;
            }
        }
    }

    fn answer_virtual(&mut self, packet: &[u8], now: Instant) {
        let Ok(header) = wire::stun::parse(packet) else {
            return;
        };
        if header.class == Class::Request {
            let mut response = std::mem::take(&mut self.stun);
            success_response(
                &mut response,
                &header.transaction_id,
                VIRTUAL_LOCAL,
                VIRTUAL_PASSWORD.as_bytes(),
            );
            self.read(&response, now);
            self.stun = response;
        }
    }

    /// The next datagram for the client.
    pub(super) fn next_datagram(&mut self) -> Option<Bytes> {
        self.datagrams.pop_front()
    }

    /// The clock reached what [`Self::poll_timeout`] or the voice said.
    pub(super) fn handle_timeout(&mut self, backend: &mut dyn Backend, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.poll_timeout())
            && let Err(error) = self.pc.handle_timeout(now)
        {
            tracing::trace!(%error, "timer");
        }
        if due(backend.poll_timeout()) {
            backend.handle_timeout(now, &mut self.outbox);
        }
        self.drain(backend, now);
    }

    /// When to call [`Self::handle_timeout`].
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        self.pc.poll_timeout()
    }

    /// Says goodbye: DTLS close_notify is among the datagrams afterwards.
    pub(super) fn close(&mut self, now: Instant) {
        if let Err(error) = self.pc.close() {
            tracing::trace!(%error, "close");
        }
        self.write(now);
    }

    /// Whether the client has closed DTLS. `rtc` raises no event for it, so it is asked after a packet that held an alert.
    pub(super) fn is_closed(&mut self) -> bool {
        let Some(sender) = self.pc.rtp_sender(self.sender) else {
            return false;
        };
        sender.transport().map(|transport| transport.state()) == Some(RTCDtlsTransportState::Closed)
    }

    /// Whether DTLS is up.
    #[must_use]
    pub(super) fn is_connected(&self) -> bool {
        self.state == RTCPeerConnectionState::Connected
    }

    /// State of the connection, in the words of the W3C.
    #[must_use]
    pub(super) fn state(&self) -> String {
        self.state.to_string()
    }

    /// Figures.
    #[must_use]
    pub(super) const fn counters(&self) -> PeerCounters {
        self.counters
    }
}

/// RFC 5761 §4: RTCP packet types are 192..=223 where RTP has its payload type.
fn is_rtcp(packet: &[u8]) -> bool {
    matches!(packet.get(1), Some(192..=223))
}
