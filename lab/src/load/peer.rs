//! A WebRTC offerer on the sans-IO `rtc` crate: one Opus stream, and a data channel when asked for.
//! The only file of the lab that imports `rtc`. It knows neither sockets nor what the payloads mean.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::certificate::{CertificateParams, RTCCertificate};
use rtc::peer_connection::configuration::RTCConfigurationBuilder;
use rtc::peer_connection::configuration::interceptor_registry::configure_rtcp_reports;
use rtc::peer_connection::configuration::media_engine::{MIME_TYPE_OPUS, MediaEngine};
use rtc::peer_connection::configuration::setting_engine::SettingEngineBuilder;
use rtc::peer_connection::event::{RTCDataChannelEvent, RTCPeerConnectionEvent};
use rtc::peer_connection::message::RTCMessage;
use rtc::peer_connection::sdp::RTCSessionDescription;
use rtc::peer_connection::state::RTCPeerConnectionState;
use rtc::peer_connection::transport::{CandidateConfig, CandidateHostConfig, RTCIceCandidate};
use rtc::peer_connection::{RTCPeerConnection, RTCPeerConnectionBuilder};
use rtc::rtp_transceiver::RTCRtpSenderId;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodec, RTCRtpCodecParameters, RTCRtpCodingParameters, RTCRtpEncodingParameters,
    RtpCodecKind,
};
use rtc::sansio::Protocol;
use rtc::shared::{TaggedBytesMut, TransportContext, TransportProtocol};

const PAYLOAD_TYPE: u8 = 111;
/// 20 ms at 48 kHz.
const TIMESTAMP_STEP: u32 = 960;
/// SSRCs count up from here, so that a capture shows which session a packet is of.
const SSRC_FIRST: u32 = 0x4c41_0000;

/// One certificate for all sessions: making it is the dearest part of a session.
pub(super) struct Identity(RTCCertificate);

impl Identity {
    pub(super) fn new() -> anyhow::Result<Self> {
        let provider = rtc::crypto::default_provider()?;
        let params = CertificateParams::new(vec!["lab".to_owned()])?;
        let scheme = rtc::crypto::SignatureScheme::EcdsaP256Sha256;
        Ok(Self(RTCCertificate::generate(
            provider.crypto(),
            scheme,
            params,
        )?))
    }
}

/// What differs between peers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Whether it has a data channel.
    pub(super) data_channel: bool,
    /// How often it checks its path (RFC 7675).
    pub(super) check_interval: Duration,
}

/// What a peer tells its session.
#[derive(Debug)]
pub(super) enum PeerEvent {
    /// ICE and DTLS are up.
    Connected,
    /// They were, or never will be.
    Disconnected,
    /// The payload of an RTP packet.
    Rtp(Bytes),
    /// A message on the data channel, and whether it is text.
    ChannelMessage(Bytes, bool),
}

pub(super) struct Peer {
    pc: RTCPeerConnection,
    local: SocketAddr,
    sender: RTCRtpSenderId,
    ssrc: u32,
    /// Of the next RTP packet; its low half is the sequence number.
    number: u32,
    channel: Option<usize>,
    timestamp: u32,
    events: VecDeque<PeerEvent>,
}

impl Peer {
    pub(super) fn new(
        identity: &Identity,
        local: SocketAddr,
        settings: Settings,
        index: usize,
        now: Instant,
    ) -> anyhow::Result<Self> {
        let ssrc = SSRC_FIRST.wrapping_add(u32::try_from(index)?);
        let mut pc = connection(identity, settings.check_interval, now)?;
        let sender = pc.add_track(track(ssrc))?;
        if settings.data_channel {
            pc.create_data_channel("events", None)?;
        }
        let offer = pc.create_offer(None)?;
        pc.set_local_description(now, offer)?;
        pc.add_local_candidate(host_candidate(local)?)?;
        pc.add_local_candidate(Default::default())?;
        Ok(Self {
            pc,
            local,
            sender,
            ssrc,
            number: 0,
            channel: None,
            timestamp: 0,
            events: VecDeque::new(),
        })
    }

    pub(super) fn offer(&self) -> String {
        let description = self.pc.local_description();
        description.map(|offer| offer.sdp).unwrap_or_default()
    }

    pub(super) fn answer(&mut self, sdp: String, now: Instant) -> anyhow::Result<()> {
        let answer = RTCSessionDescription::answer(sdp).context("reading the answer")?;
        let set = self.pc.set_remote_description(now, answer);
        set.context("applying the answer")
    }

    pub(super) fn handle_packet(&mut self, from: SocketAddr, packet: &[u8], now: Instant) {
        let message = TaggedBytesMut {
            now,
            transport: TransportContext {
                local_addr: self.local,
                peer_addr: from,
                ecn: None,
                transport_protocol: TransportProtocol::UDP,
            },
            message: BytesMut::from(packet),
        };
        // One bad packet is the sender's problem; it shows as a packet that is missing.
        let _ = self.pc.handle_read(message);
    }

    /// Whether a timer was due.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        let due = self
            .pc
            .poll_timeout()
            .is_some_and(|deadline| deadline <= now);
        if due {
            // Failures of timers surface as a change of the connection's state.
            let _ = self.pc.handle_timeout(now);
        }
        due
    }

    pub(super) fn poll_transmit(&mut self) -> Option<(SocketAddr, BytesMut)> {
        let transmit = self.pc.poll_write()?;
        Some((transmit.transport.peer_addr, transmit.message))
    }

    /// The number of the packet, when it was accepted.
    pub(super) fn send_rtp(&mut self, payload: Bytes, now: Instant) -> Option<u32> {
        let number = self.number;
        let [.., high, low] = number.to_be_bytes();
        let header = rtc::rtp::header::Header {
            version: 2,
            payload_type: PAYLOAD_TYPE,
            sequence_number: u16::from_be_bytes([high, low]),
            timestamp: self.timestamp,
            ssrc: self.ssrc,
            ..Default::default()
        };
        self.number = self.number.wrapping_add(1);
        self.timestamp = self.timestamp.wrapping_add(TIMESTAMP_STEP);
        let packet = rtc::rtp::Packet { header, payload };
        let sender = self.pc.rtp_sender(self.sender);
        let sent = sender.is_some_and(|mut sender| sender.write_rtp(now, packet).is_ok());
        sent.then_some(number)
    }

    /// Says something on the data channel. Returns whether there is one that takes it.
    pub(super) fn send_text(&mut self, text: &str, now: Instant) -> bool {
        let channel = self.channel.and_then(|id| self.pc.data_channel(id));
        channel.is_some_and(|mut channel| channel.send_text(now, text).is_ok())
    }

    pub(super) fn close(&mut self) {
        // It is closed either way.
        let _ = self.pc.close();
    }

    pub(super) fn next_event(&mut self, now: Instant) -> Option<PeerEvent> {
        while let Some(tagged) = self.pc.poll_read() {
            // The rest is RTCP, which `rtc` has acted on.
            if let RTCMessage::RtpPacket(_, packet) = tagged.message {
                self.events.push_back(PeerEvent::Rtp(packet.payload));
            } else if let RTCMessage::DataChannelMessage(_, message) = tagged.message {
                let said = PeerEvent::ChannelMessage(message.data.freeze(), message.is_string);
                self.events.push_back(said);
            }
        }
        while let Some(event) = self.pc.poll_event() {
            self.take_event(event, now);
        }
        self.events.pop_front()
    }

    fn take_event(&mut self, event: RTCPeerConnectionEvent, now: Instant) {
        if let RTCPeerConnectionEvent::OnConnectionStateChangeEvent(state) = event {
            if state == RTCPeerConnectionState::Connected {
                self.events.push_back(PeerEvent::Connected);
            } else if ENDED.contains(&state) {
                self.events.push_back(PeerEvent::Disconnected);
            }
        } else if let RTCPeerConnectionEvent::OnDataChannel(RTCDataChannelEvent::OnOpen(id)) = event
            && let Some(mut channel) = self.pc.data_channel(id)
        {
            self.channel = Some(id);
            // A message that cannot be sent is one that never comes back.
            let _ = channel.send_text(now, "hello");
        }
    }
}

/// States in which no media flows, and none did or none will.
const ENDED: [RTCPeerConnectionState; 3] = [
    RTCPeerConnectionState::Disconnected,
    RTCPeerConnectionState::Failed,
    RTCPeerConnectionState::Closed,
];

fn connection(
    identity: &Identity,
    check_interval: Duration,
    now: Instant,
) -> anyhow::Result<RTCPeerConnection> {
    let mut media = MediaEngine::default();
    let codec = RTCRtpCodecParameters {
        rtp_codec: opus(),
        payload_type: PAYLOAD_TYPE,
    };
    media.register_codec(codec, RtpCodecKind::Audio)?;
    let settings = SettingEngineBuilder::new()
        .with_include_loopback_candidate(true)
        .with_ice_timeouts(None, None, Some(check_interval))
        .with_multicast_dns_mode(rtc::ice::mdns::MulticastDnsMode::Disabled)
        .build();
    let configuration = RTCConfigurationBuilder::new()
        .with_certificates(vec![identity.0.clone()])
        .build();
    let connection = RTCPeerConnectionBuilder::new()
        .with_configuration(configuration)
        .with_media_engine(media)
        .with_setting_engine(settings)
        .with_interceptor_registry(configure_rtcp_reports(rtc::interceptor::Registry::new()))
        .build(now);
    connection.context("making a peer connection")
}

fn track(ssrc: u32) -> MediaStreamTrack {
    let encoding = RTCRtpEncodingParameters {
        rtp_coding_parameters: RTCRtpCodingParameters {
            ssrc: Some(ssrc),
            ..Default::default()
        },
        codec: opus(),
        ..Default::default()
    };
    MediaStreamTrack::new(
        "stream".to_owned(),
        "track".to_owned(),
        "track".to_owned(),
        RtpCodecKind::Audio,
        vec![encoding],
    )
}

fn opus() -> RTCRtpCodec {
    RTCRtpCodec {
        mime_type: MIME_TYPE_OPUS.to_owned(),
        clock_rate: 48_000,
        channels: 2,
        sdp_fmtp_line: "minptime=10;useinbandfec=1".to_owned(),
        rtcp_feedback: Vec::new(),
    }
}

fn host_candidate(
    local: SocketAddr,
) -> anyhow::Result<rtc::peer_connection::transport::RTCIceCandidateInit> {
    let config = CandidateHostConfig {
        base_config: CandidateConfig {
            network: "udp".to_owned(),
            address: local.ip().to_string(),
            port: local.port(),
            component: 1,
            ..Default::default()
        },
        ..Default::default()
    };
    let candidate = config.new_candidate_host()?;
    Ok(RTCIceCandidate::from(&candidate).to_json()?)
}
