//! Distance: the round trip that geography suggests.
//!
//! Light in fibre makes 100 km and back in one millisecond. Cables are no great circles, and the public Internet takes longer
//! ways than a backbone: so the same distance costs a client more than the backbone, and between two equal ways the one with the
//! nearer ingress wins. A client's access line adds a constant. It knows nothing of submarine cables, which is why measured round
//! trips come first.

use crate::facts::Place;

/// Kilometres of great circle that light in fibre makes there and back in a millisecond.
const KM_PER_RTT_MS: f64 = 100.0;
/// How much longer than the great circle the way of a client is, ...
const PUBLIC_DETOUR: f64 = 2.0;
/// ... and that of a backbone.
const BACKBONE_DETOUR: f64 = 1.4;
/// What the access line of a client adds, in milliseconds.
const ACCESS_MS: f64 = 8.0;
const EARTH_RADIUS_KM: f64 = 6_371.0;

/// Estimated round trip of a client to a site, in milliseconds.
#[must_use]
pub fn client_ms(client: Place, site: Place) -> u16 {
    milliseconds(km(client, site) / KM_PER_RTT_MS * PUBLIC_DETOUR + ACCESS_MS)
}

/// Estimated round trip between two sites, in milliseconds.
#[must_use]
pub fn backbone_ms(a: Place, b: Place) -> u16 {
    milliseconds(km(a, b) / KM_PER_RTT_MS * BACKBONE_DETOUR)
}

/// Great-circle distance in kilometres (haversine).
#[must_use]
pub fn km(a: Place, b: Place) -> f64 {
    let (lat_a, lat_b) = (a.latitude().to_radians(), b.latitude().to_radians());
    let north = (lat_b - lat_a) / 2.0;
    let east = (b.longitude() - a.longitude()).to_radians() / 2.0;
    let chord = north.sin().powi(2) + lat_a.cos() * lat_b.cos() * east.sin().powi(2);
    2.0 * EARTH_RADIUS_KM * chord.clamp(0.0, 1.0).sqrt().asin()
}

fn milliseconds(ms: f64) -> u16 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "half the Earth is 408 ms; the cast saturates"
    )]
    let ms = ms.round() as u16;
    ms
}
