//! Harnesses: bytes from a network that must not panic.

use http::{HeaderMap, HeaderValue};
use ipnet::IpNet;

use super::TrustedProxies;
use super::v2::{PREFIX_BYTES, Prefix};

/// A PROXY header.
pub fn proxy_header(bytes: &[u8]) {
    if let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>()
        && let Ok(prefix) = Prefix::parse(prefix)
    {
        let rest = rest.get(..prefix.rest_len()).unwrap_or(rest);
        let _source = prefix.source(rest);
    }
}

/// `Forwarded` and `X-Forwarded-For`, one line each, behind a proxy that is trusted.
pub fn header_fields(bytes: &[u8]) {
    let everybody = IpNet::from(std::net::IpAddr::from([127, 0, 0, 1]));
    let trusted = TrustedProxies {
        nets: [everybody].into(),
        proxy_protocol: true,
    };
    for name in ["forwarded", "x-forwarded-for"] {
        let mut headers = HeaderMap::new();
        for line in bytes.split(|byte| *byte == b'\n').take(8) {
            if let Ok(value) = HeaderValue::from_bytes(line) {
                headers.append(name, value);
            }
        }
        let _client = trusted.client([127, 0, 0, 1].into(), None, &headers);
    }
}
