//! A WebRTC client for tests of the engine: an `rtc` offerer with a full ICE agent, its packets handed over by the test.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use rtc::dtls::extension::extension_use_srtp::SrtpProtectionProfile;
use rtc::interceptor::Registry;
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::configuration::RTCConfigurationBuilder;
use rtc::peer_connection::configuration::RTCOfferOptions;
use rtc::peer_connection::configuration::interceptor_registry::configure_rtcp_reports;
use rtc::peer_connection::configuration::media_engine::MediaEngine;
use rtc::peer_connection::configuration::setting_engine::SettingEngineBuilder;
use rtc::peer_connection::event::{RTCDataChannelEvent, RTCPeerConnectionEvent};
use rtc::peer_connection::message::RTCMessage;
use rtc::peer_connection::sdp::RTCSessionDescription;
use rtc::peer_connection::state::RTCPeerConnectionState;
use rtc::peer_connection::transport::{
    CandidateConfig, CandidateHostConfig, RTCDtlsTransportState, RTCIceCandidate,
};
use rtc::peer_connection::{RTCPeerConnection, RTCPeerConnectionBuilder};
use rtc::rtp_transceiver::RTCRtpSenderId;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodecParameters, RTCRtpCodingParameters, RTCRtpEncodingParameters, RtpCodecKind,
};
use rtc::sansio::Protocol;
use rtc::shared::{TaggedBytesMut, TransportContext, TransportProtocol};
use rtc::statistics::StatsSelector;

use super::PeerFactory;
use super::factory::opus;

/// See the module head.
pub(crate) struct Client {
    pc: RTCPeerConnection,
    local: SocketAddr,
    sender: RTCRtpSenderId,
    ssrc: u32,
    pub(crate) sequence: u16,
    channel: Option<usize>,
    pub(crate) channel_open: bool,
    pub(crate) connected: bool,
    /// The other side has closed DTLS.
    pub(crate) closed: bool,
    /// Payloads that came as RTP.
    pub(crate) heard: Vec<Bytes>,
    pub(crate) sequences: Vec<u16>,
    pub(crate) messages: Vec<Bytes>,
    out: VecDeque<(SocketAddr, Bytes)>,
}

impl Client {
    pub(crate) fn new(factory: &PeerFactory, local: SocketAddr, ssrc: u32, now: Instant) -> Self {
        let mut media = MediaEngine::default();
        let parameters = RTCRtpCodecParameters {
            rtp_codec: opus(),
            payload_type: 111,
        };
        media
            .register_codec(parameters, RtpCodecKind::Audio)
            .unwrap();
        // `rtc` as DTLS server takes the first of the client's profiles that it has.
        let profiles = vec![
            SrtpProtectionProfile::Srtp_Aead_Aes_128_Gcm,
            SrtpProtectionProfile::Srtp_Aes128_Cm_Hmac_Sha1_80,
        ];
        let settings = SettingEngineBuilder::new()
            .with_srtp_protection_profiles(profiles)
            .with_multicast_dns_mode(rtc::ice::mdns::MulticastDnsMode::Disabled)
            .build();
        let configuration = RTCConfigurationBuilder::new()
            .with_certificates(vec![factory.certificate.clone()])
            .build();
        let mut pc = RTCPeerConnectionBuilder::new()
            .with_configuration(configuration)
            .with_media_engine(media)
            .with_setting_engine(settings)
            .with_interceptor_registry(configure_rtcp_reports(Registry::new()))
            .build(now)
            .unwrap();
        let sender = pc.add_track(track(ssrc)).unwrap();
        Self {
            pc,
            local,
            sender,
            ssrc,
            sequence: 0,
            channel: None,
            channel_open: false,
            connected: false,
            closed: false,
            heard: Vec::new(),
            sequences: Vec::new(),
            messages: Vec::new(),
            out: VecDeque::new(),
        }
    }

    pub(crate) fn open_channel(&mut self) {
        self.pc.create_data_channel("events", None).unwrap();
    }

    /// Another audio m-line with a stream of its own.
    pub(crate) fn add_stream(&mut self, ssrc: u32) {
        self.sender = self.pc.add_track(track(ssrc)).unwrap();
        self.ssrc = ssrc;
    }

    pub(crate) fn offer(&mut self, ice_restart: bool, now: Instant) -> String {
        let options = RTCOfferOptions { ice_restart };
        let offer = self.pc.create_offer(Some(options)).unwrap();
        self.pc.set_local_description(now, offer).unwrap();
        let base_config = CandidateConfig {
            network: "udp".to_owned(),
            address: self.local.ip().to_string(),
            port: self.local.port(),
            component: 1,
            ..Default::default()
        };
        let candidate = CandidateHostConfig {
            base_config,
            ..Default::default()
        }
        .new_candidate_host()
        .unwrap();
        let candidate = RTCIceCandidate::from(&candidate).to_json().unwrap();
        self.pc.add_local_candidate(candidate).unwrap();
        self.pc.add_local_candidate(Default::default()).unwrap();
        self.pc.local_description().unwrap().sdp
    }

    pub(crate) fn answer(&mut self, sdp: &str, now: Instant) {
        let answer = RTCSessionDescription::answer(sdp.to_owned()).unwrap();
        self.pc.set_remote_description(now, answer).unwrap();
        self.drain(now);
    }

    pub(crate) fn handle_packet(&mut self, from: SocketAddr, packet: &[u8], now: Instant) {
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
        self.pc.handle_read(message).unwrap();
        self.drain(now);
    }

    pub(crate) fn poll_timeout(&mut self) -> Option<Instant> {
        self.pc.poll_timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.pc.handle_timeout(now).unwrap();
        self.drain(now);
    }

    /// Speaks one frame.
    pub(crate) fn speak(&mut self, payload: Bytes, now: Instant) {
        self.sequence = self.sequence.wrapping_add(1);
        let header = rtc::rtp::header::Header {
            version: 2,
            payload_type: 111,
            sequence_number: self.sequence,
            timestamp: u32::from(self.sequence) * 960,
            ssrc: self.ssrc,
            ..Default::default()
        };
        let packet = rtc::rtp::Packet { header, payload };
        let mut sender = self.pc.rtp_sender(self.sender).unwrap();
        sender.write_rtp(now, packet).unwrap();
        self.drain(now);
    }

    pub(crate) fn send_text(&mut self, text: &str, now: Instant) {
        let mut channel = self.pc.data_channel(self.channel.unwrap()).unwrap();
        channel.send_text(now, text).unwrap();
        self.drain(now);
    }

    pub(crate) fn send_binary(&mut self, data: &[u8], now: Instant) {
        let mut channel = self.pc.data_channel(self.channel.unwrap()).unwrap();
        channel.send(now, BytesMut::from(data)).unwrap();
        self.drain(now);
    }

    /// The SRTP profile that was negotiated.
    pub(crate) fn srtp_profile(&mut self, now: Instant) -> String {
        let report = self.pc.get_stats(now, StatsSelector::None);
        report.transport().unwrap().srtp_cipher.clone()
    }

    pub(crate) fn close(&mut self, now: Instant) {
        self.pc.close().unwrap();
        self.drain(now);
    }

    /// Where to, and what.
    pub(crate) fn next_datagram(&mut self) -> Option<(SocketAddr, Bytes)> {
        self.out.pop_front()
    }

    fn drain(&mut self, _now: Instant) {
        while let Some(tagged) = self.pc.poll_read() {
            if let RTCMessage::RtpPacket(_, packet) = tagged.message {
                self.sequences.push(packet.header.sequence_number);
                self.heard.push(packet.payload);
            } else if let RTCMessage::DataChannelMessage(_, message) = tagged.message {
                self.messages.push(message.data.freeze());
            }
        }
        while let Some(event) = self.pc.poll_event() {
            if let RTCPeerConnectionEvent::OnConnectionStateChangeEvent(state) = event {
                self.connected = state == RTCPeerConnectionState::Connected;
            } else if let RTCPeerConnectionEvent::OnDataChannel(event) = event {
                self.handle_channel(&event);
            }
        }
        let sender = self.pc.rtp_sender(self.sender);
        let dtls = sender.and_then(|sender| sender.transport().map(|dtls| dtls.state()));
        self.closed |= dtls == Some(RTCDtlsTransportState::Closed);
        while let Some(datagram) = self.pc.poll_write() {
            self.out
                .push_back((datagram.transport.peer_addr, datagram.message.freeze()));
        }
    }

    fn handle_channel(&mut self, event: &RTCDataChannelEvent) {
        if let RTCDataChannelEvent::OnOpen(channel) = event {
            self.channel = Some(*channel);
            self.channel_open = true;
        } else if let RTCDataChannelEvent::OnClose(_) = event {
            self.channel_open = false;
        }
    }
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
    let name = format!("voice-{ssrc}");
    MediaStreamTrack::new(
        "client".into(),
        name.clone(),
        name,
        RtpCodecKind::Audio,
        vec![encoding],
    )
}
