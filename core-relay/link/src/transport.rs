//! How quinn is configured for a link: datagrams only, constant window, constant packet size, no migration.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::Controller as _;
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, ConnectionIdGenerator, EndpointConfig,
    HashedConnectionIdGenerator, IdleTimeout, ServerConfig, TransportConfig, VarInt,
};
use topology::Link;

use crate::congestion::Congestion;
use crate::congestion::ConstantWindow;
use crate::tls::Tls;

/// Packets one GSO send carries at most.
pub(crate) const SEGMENTS_MAX: usize = 40;
/// A path that reorders must not look like one that loses.
const PACKET_THRESHOLD: u32 = 1000;
/// Packets that are acknowledged together at most.
const UNACKNOWLEDGED_MAX: u32 = 32;
/// Datagrams quinn holds for us while one packet is handled; we take them at once.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;
/// Memory of quinn's send buffer that records never use, so that a heartbeat always has a place.
pub(crate) const HEARTBEAT_ROOM_BYTES: usize = 64 * 1024;
/// Unfinished connection attempts that quinn buffers for. We accept or refuse each at once.
const INCOMING_MAX: usize = 64;

/// Bytes of records that quinn holds at most: a GSO send's worth, or 1 ms of a slow link.
pub(crate) fn record_room_bytes(link: &Link) -> usize {
    let one_ms = usize::try_from(u64::from(link.rate_mbps) * 125).unwrap_or(usize::MAX);
    one_ms.clamp(4 * usize::from(link.mtu_bytes), 64 * 1024)
}

/// Packets that the peer may leave unacknowledged for as long as it delays acknowledgements: each one wakes the sender, who
/// sends nothing twice. An eighth of the window, so that waiting for one never fills it.
fn ack_frequency(link: &Link) -> AckFrequencyConfig {
    let window_packets = ConstantWindow::of(link).window() / u64::from(link.mtu_bytes);
    let threshold = u32::try_from(window_packets / 8).unwrap_or(u32::MAX);
    let mut config = AckFrequencyConfig::default();
    config
        .ack_eliciting_threshold(VarInt::from_u32(threshold.clamp(1, UNACKNOWLEDGED_MAX)))
        .reordering_threshold(VarInt::from_u32(PACKET_THRESHOLD - 1));
    config
}

/// Time one attempt to connect may take: four round trips and the detection time.
pub(crate) fn attempt_max(link: &Link) -> Duration {
    Duration::from_millis(u64::from(link.rtt_ms) * 4 + u64::from(link.down_after_ms))
}

pub(crate) fn transport(link: &Link, congestion: Congestion) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(
            link.down_after_ms.saturating_mul(4).max(10_000),
        ))))
        .initial_rtt(initial_rtt(link))
        .initial_mtu(link.mtu_bytes)
        .min_mtu(link.mtu_bytes)
        .mtu_discovery_config(None)
        .packet_threshold(PACKET_THRESHOLD)
        .ack_frequency_config(Some(ack_frequency(link)))
        .congestion_controller_factory(congestion.factory(link))
        .datagram_receive_buffer_size(Some(RECEIVE_BUFFER_BYTES))
        .datagram_send_buffer_size(record_room_bytes(link) + HEARTBEAT_ROOM_BYTES)
        .allow_spin(false);
    Arc::new(config)
}

/// Half the time the window is sized for: the first retransmission of a handshake follows after three of these.
fn initial_rtt(link: &Link) -> Duration {
    Duration::from_millis(u64::from(link.rtt_ms) / 2)
        .clamp(Duration::from_millis(10), Duration::from_millis(333))
}

pub(crate) fn client(tls: &Tls, link: &Link, congestion: Congestion) -> ClientConfig {
    let mut config = ClientConfig::new(tls.client());
    config.transport_config(transport(link, congestion));
    config
}

pub(crate) fn server(
    tls: &Tls,
    link: &Link,
    congestion: Congestion,
    worker: u8,
) -> Arc<ServerConfig> {
    let mut config = ServerConfig::new(tls.server(), Arc::new(tls.token_key(worker)));
    config
        .transport_config(transport(link, congestion))
        .migration(false)
        .max_incoming(INCOMING_MAX)
        .incoming_buffer_size(u64::from(link.mtu_bytes) * 4)
        .incoming_buffer_size_total(1 << 20);
    Arc::new(config)
}

pub(crate) fn endpoint(tls: &Tls, link: &Link, worker: u8, seed: [u8; 32]) -> Arc<EndpointConfig> {
    let mut config = EndpointConfig::new(Arc::new(tls.reset_key(worker)));
    let key = tls.connection_id_key(worker);
    config
        .cid_generator(move || -> Box<dyn ConnectionIdGenerator> {
            Box::new(HashedConnectionIdGenerator::from_key(key))
        })
        .rng_seed(Some(seed));
    // Out of range only below 1200, which the topology refuses; the default stays then.
    let payload_max = link.mtu_bytes.max(1472);
    if config.max_udp_payload_size(payload_max).is_err() {
        tracing::debug!(payload_max, "packet size out of range");
    }
    Arc::new(config)
}
