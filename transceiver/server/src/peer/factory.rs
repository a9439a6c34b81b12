//! How connections are made: settings, codecs and the one certificate that all of a process share.

use std::time::{Duration, Instant};

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
use rtc::peer_connection::transport::RTCDtlsRole;
use rtc::peer_connection::{RTCPeerConnection, RTCPeerConnectionBuilder};
use rtc::rtp_transceiver::RTCRtpSenderId;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodec, RTCRtpCodecParameters, RTCRtpCodingParameters, RTCRtpEncodingParameters,
    RtpCodecKind,
};

use super::PeerError;

/// Our ICE credentials towards `rtc`. They never leave the process, so they need not be secret.
pub(super) const RTC_UFRAG: &str = "firsthop";
/// See [`RTC_UFRAG`].
pub(super) const RTC_PASSWORD: &str = "firsthop-virtual-pair-pwd";
/// Bytes of one data-channel message.
const MESSAGE_BYTES_MAX: u32 = 64 * 1024;

/// What all peers of a process share.
pub struct PeerFactory {
    pub(super) certificate: RTCCertificate,
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

    /// A connection that sends one audio stream of `ssrc` and has seen no offer.
    pub(super) fn build(
        &self,
        ssrc: u32,
        now: Instant,
    ) -> Result<(RTCPeerConnection, RTCRtpSenderId), PeerError> {
        let mut media = MediaEngine::default();
        let parameters = RTCRtpCodecParameters {
            rtp_codec: opus(),
            payload_type: 111,
        };
        media.register_codec(parameters, RtpCodecKind::Audio)?;
        let configuration = RTCConfigurationBuilder::new()
            .with_certificates(vec![self.certificate.clone()])
            .build();
        let mut pc = RTCPeerConnectionBuilder::new()
            .with_configuration(configuration)
            .with_media_engine(media)
            .with_setting_engine(self.settings.clone())
            .with_interceptor_registry(configure_rtcp_reports(Registry::new()))
            .build(now)?;
        let sender = pc.add_track(track(ssrc))?;
        Ok((pc, sender))
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

pub(super) fn opus() -> RTCRtpCodec {
    RTCRtpCodec {
        mime_type: MIME_TYPE_OPUS.into(),
        clock_rate: 48_000,
        channels: 2,
        sdp_fmtp_line: "minptime=10;useinbandfec=1".into(),
        rtcp_feedback: Vec::new(),
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
    MediaStreamTrack::new(
        "firsthop".into(),
        "audio".into(),
        "audio".into(),
        RtpCodecKind::Audio,
        vec![encoding],
    )
}
