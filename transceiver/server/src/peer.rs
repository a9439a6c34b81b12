//! One client's WebRTC connection: DTLS, SRTP and SCTP, by the sans-IO `rtc` crate. The only file that knows `rtc`.
//!
//! `rtc` runs behind one constant virtual ICE pair: it never sees a client's address, candidate, ufrag or ICE restart. The
//! ICE-lite agent that clients speak to is `transceiver_proto`; here a nominated check is synthesised once, and all STUN
//! that `rtc` emits is answered on the spot and goes nowhere.
//!
//! ```text
//! client ──check──► transceiver_proto ──connected──► Peer::connect: virtual check ⇄ rtc
//! client ──DTLS, SRTP──────────────────────────────► Peer::handle_packet ───────► rtc ──► backend
//! ```

#[cfg(test)]
pub(crate) mod client;
mod stream;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rtc::dtls::extension::extension_use_srtp::SrtpProtectionProfile;
use rtc::interceptor::Registry;
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::certificate::{CertificateParams, RTCCertificate};
use rtc::peer_connection::configuration::RTCConfigurationBuilder;
use rtc::peer_connection::configuration::interceptor_registry::configure_rtcp_reports;
use rtc::peer_connection::configuration::media_engine::{MIME_TYPE_OPUS, MediaEngine};
use rtc::peer_connection::configuration::setting_engine::{
    SctpMaxMessageSize, SettingEngine, SettingEngineBuilder,
};
use rtc::peer_connection::event::{RTCDataChannelEvent, RTCPeerConnectionEvent};
use rtc::peer_connection::message::{RTCMessage, TaggedRTCMessage};
use rtc::peer_connection::sdp::RTCSessionDescription;
use rtc::peer_connection::state::RTCPeerConnectionState;
use rtc::peer_connection::transport::{
    CandidateConfig, CandidateHostConfig, RTCDtlsRole, RTCDtlsTransportState, RTCIceCandidate,
};
use rtc::peer_connection::{RTCPeerConnection, RTCPeerConnectionBuilder};
use rtc::rtp_transceiver::RTCRtpSenderId;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodec, RTCRtpCodecParameters, RTCRtpCodingParameters, RTCRtpEncodingParameters,
    RtpCodecKind,
};
use rtc::sansio::Protocol;
use rtc::shared::error::Error as RtcError;
use rtc::shared::{TaggedBytesMut, TransportContext, TransportProtocol};
use transceiver_proto::stun::{nominating_request, success_response};
use wire::stun::{Class, PacketKind};

use crate::backend::{Backend, Channel, Frame, Message, Outbox};
use crate::engine::sdp::{VIRTUAL_PASSWORD, VIRTUAL_UFRAG};
use crate::peer::stream::{Arrival, Inbound, Outbound};

/// Where `rtc` believes it is (TEST-NET-1, RFC 5737).
const VIRTUAL_LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);
/// Where `rtc` believes its peer is.
const VIRTUAL_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 9);
/// Our ICE credentials towards `rtc`. They never leave the process, so they need not be secret.
const RTC_UFRAG: &str = "firsthop";
const RTC_PASSWORD: &str = "firsthop-virtual-pair-pwd";
/// Exchanges the virtual check takes at most: request, triggered check, its answer, request again.
const VIRTUAL_ROUNDS: usize = 4;
/// Bytes of one data-channel message, and of all that wait to be read.
const MESSAGE_BYTES_MAX: u32 = 64 * 1024;
/// Datagrams a peer holds for the engine at most; the engine takes them after every call.
const DATAGRAMS_MAX: usize = 1024;

/// Why `rtc` refused something.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// An offer, a candidate or a setting.
    #[error("media engine: {0}")]
    Engine(#[from] RtcError),
    /// The DTLS certificate of this process.
    #[error("DTLS certificate: {0}")]
    Certificate(String),
}

/// What all peers of a process share.
pub struct PeerFactory {
    certificate: RTCCertificate,
    settings: SettingEngine,
}

impl PeerFactory {
    /// Makes the DTLS certificate of this process.
    ///
    /// # Errors
    /// When the cryptography provider fails.
    pub fn new() -> Result<Self, PeerError> {
        let provider = rtc::crypto::default_provider().map_err(certificate_error)?;
        let params =
            CertificateParams::new(vec!["firsthop".to_owned()]).map_err(certificate_error)?;
        let scheme = rtc::crypto::SignatureScheme::EcdsaP256Sha256;
        let certificate = RTCCertificate::generate(provider.crypto(), scheme, params)?;
        Ok(Self {
            certificate,
            settings: settings(),
        })
    }
}

fn certificate_error(error: impl std::fmt::Display) -> PeerError {
    PeerError::Certificate(error.to_string())
}

fn settings() -> SettingEngine {
    let off = Some(Duration::ZERO);
    SettingEngineBuilder::new()
        .with_lite(true)
        .with_ice_credentials(RTC_UFRAG.to_owned(), RTC_PASSWORD.to_owned())
        .with_ice_timeouts(off, off, off)
        .with_answering_dtls_role(RTCDtlsRole::Server)
        .with_multicast_dns_mode(rtc::ice::mdns::MulticastDnsMode::Disabled)
        .with_srtp_protection_profiles(vec![
            SrtpProtectionProfile::Srtp_Aead_Aes_128_Gcm,
            SrtpProtectionProfile::Srtp_Aes128_Cm_Hmac_Sha1_80,
        ])
        .with_sctp_max_receive_buffer_size(2 * MESSAGE_BYTES_MAX)
        .with_sctp_max_message_size(SctpMaxMessageSize::Bounded(MESSAGE_BYTES_MAX))
        .build()
}

fn opus() -> RTCRtpCodec {
    RTCRtpCodec {
        mime_type: MIME_TYPE_OPUS.into(),
        clock_rate: 48_000,
        channels: 2,
        sdp_fmtp_line: "minptime=10;useinbandfec=1".into(),
        rtcp_feedback: Vec::new(),
    }
}

/// What a packet turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// SRTP or SRTCP whose tag verified: the sender is the client.
    Authenticated,
    /// Processed; it proves nothing.
    Processed,
    /// Refused.
    Refused,
}

/// One client's connection.
pub struct Peer {
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
}

/// Figures of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// RTP packets received.
    pub rtp_in: u64,
    /// RTP packets sent.
    pub rtp_out: u64,
    /// RTP packets that did not come in their turn, from gaps in sequence numbers; late ones are taken off again.
    pub rtp_lost: u64,
    /// RTP packets of streams beside the voice; the backend does not hear them.
    pub rtp_other: u64,
    /// Data-channel messages received.
    pub messages_in: u64,
    /// Data-channel messages sent.
    pub messages_out: u64,
    /// What a full buffer or a channel that is not open cost of what the backend sent.
    pub backend_refused: u64,
}

impl Peer {
    /// Answers an offer whose ICE lines name the virtual peer. Returns the answer with `rtc`'s own ICE lines in it.
    ///
    /// # Errors
    /// When `rtc` refuses the offer.
    pub fn answer(
        factory: &PeerFactory,
        offer: String,
        ssrc: u32,
        now: Instant,
    ) -> Result<(Self, String), PeerError> {
        let mut media = MediaEngine::default();
        let parameters = RTCRtpCodecParameters {
            rtp_codec: opus(),
            payload_type: 111,
        };
        media.register_codec(parameters, RtpCodecKind::Audio)?;
        let configuration = RTCConfigurationBuilder::new()
            .with_certificates(vec![factory.certificate.clone()])
            .build();
        let mut pc = RTCPeerConnectionBuilder::new()
            .with_configuration(configuration)
            .with_media_engine(media)
            .with_setting_engine(factory.settings.clone())
            .with_interceptor_registry(configure_rtcp_reports(Registry::new()))
            .build(now)?;
        let sender = pc.add_track(track(ssrc))?;
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
        };
        peer.pc
            .set_remote_description(now, RTCSessionDescription::offer(offer)?)?;
        peer.add_virtual_candidate()?;
        let answer = peer.local_answer(now)?;
        Ok((peer, answer))
    }

    /// Answers another offer of the same client.
    ///
    /// # Errors
    /// When `rtc` refuses the offer.
    pub fn reanswer(&mut self, offer: String, now: Instant) -> Result<String, PeerError> {
        self.pc
            .set_remote_description(now, RTCSessionDescription::offer(offer)?)?;
        self.local_answer(now)
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
    pub fn connect(&mut self, backend: &mut dyn Backend, now: Instant) {
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
    pub fn handle_packet(
        &mut self,
        packet: &[u8],
        backend: &mut dyn Backend,
        now: Instant,
    ) -> Taken {
        let read = self.read(packet, now);
        let authenticated = self.drain(backend, now);
        // `rtc` tells no error of SRTP: RTP that it does not hand out, it did not accept. Some RTCP it keeps to itself.
        let rtp = PacketKind::of(packet) == PacketKind::Rtp && !is_rtcp(packet);
        match (read, authenticated) {
            (true, true) => Taken::Authenticated,
            (true, false) if !rtp => Taken::Processed,
            (true, false) | (false, _) => Taken::Refused,
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
            } else if let RTCPeerConnectionEvent::OnDataChannel(RTCDataChannelEvent::OnOpen(
                channel,
            )) = event
            {
                backend.handle_channel_open(Channel(channel), &mut self.outbox);
            }
        }
        self.empty_outbox(now);
        self.write(now);
        authenticated
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
                backend.handle_message(message, &mut self.outbox);
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
        backend.handle_audio(frame, &mut self.outbox);
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
    pub fn next_datagram(&mut self) -> Option<Bytes> {
        self.datagrams.pop_front()
    }

    /// The clock reached what [`Self::poll_timeout`] said.
    pub fn handle_timeout(&mut self, backend: &mut dyn Backend, now: Instant) {
        if let Err(error) = self.pc.handle_timeout(now) {
            tracing::trace!(%error, "timer");
        }
        self.drain(backend, now);
    }

    /// When to call [`Self::handle_timeout`].
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.pc.poll_timeout()
    }

    /// Says goodbye: DTLS close_notify is among the datagrams afterwards.
    pub fn close(&mut self, now: Instant) {
        if let Err(error) = self.pc.close() {
            tracing::trace!(%error, "close");
        }
        self.write(now);
    }

    /// Whether the client has closed DTLS. `rtc` raises no event for it, so it is asked after a packet that held an alert.
    pub fn is_closed(&mut self) -> bool {
        let Some(sender) = self.pc.rtp_sender(self.sender) else {
            return false;
        };
        sender.transport().map(|transport| transport.state()) == Some(RTCDtlsTransportState::Closed)
    }

    /// Whether DTLS is up.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state == RTCPeerConnectionState::Connected
    }

    /// State of the connection, in the words of the W3C.
    #[must_use]
    pub fn state(&self) -> String {
        self.state.to_string()
    }

    /// Figures.
    #[must_use]
    pub const fn counters(&self) -> PeerCounters {
        self.counters
    }
}

/// RFC 5761 §4: RTCP packet types are 192..=223 where RTP has its payload type.
fn is_rtcp(packet: &[u8]) -> bool {
    matches!(packet.get(1), Some(192..=223))
}

fn track(ssrc: u32) -> MediaStreamTrack {
    let coding = RTCRtpCodingParameters {
        ssrc: Some(ssrc),
        ..Default::default()
    };
    let encoding = RTCRtpEncodingParameters {
        rtp_coding_parameters: coding,
        codec: opus(),
        ..Default::default()
    };
    MediaStreamTrack::new(
        "firsthop".into(),
        "audio".into(),
        "audio".into(),
        RtpCodecKind::Audio,
        vec![encoding],
    )
}
