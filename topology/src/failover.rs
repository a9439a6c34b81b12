//! Failover groups: PoPs that can take over from each other, and the Redis they keep flows in.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// PoPs that can take over each other's clients, and the flow cache they share.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FailoverGroup {
    /// Unique name: lower-case letters, digits, `-` and `.`.
    pub name: String,
    /// Redis servers, `redis://HOST:PORT` or `rediss://HOST:PORT` for TLS, 1..=16. With `cluster` any of its nodes; without, servers
    /// that are tried in this order. User and password are in the credentials directory.
    #[schemars(length(min = 1, max = 16))]
    pub redis: Vec<RedisUrl>,
    /// Whether they are one Redis Cluster.
    #[serde(default)]
    pub cluster: bool,
    /// How long an entry lives without being refreshed, in seconds. 60..=3600.
    #[schemars(range(min = 60, max = 3_600))]
    #[serde(default = "default_ttl_s")]
    pub ttl_s: u32,
    /// How long a lookup may take before it counts as unanswered, in milliseconds. 5..=1000.
    #[schemars(range(min = 5, max = 1_000))]
    #[serde(default = "default_lookup_max_ms")]
    pub lookup_max_ms: u32,
}

const fn default_ttl_s() -> u32 {
    60
}

const fn default_lookup_max_ms() -> u32 {
    50
}

/// Where a Redis server listens: `redis://HOST:PORT` or `rediss://HOST:PORT`, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct RedisUrl {
    /// Whether TLS is spoken.
    pub tls: bool,
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Why a text is no [`RedisUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisUrlError {
    /// Neither `redis://` nor `rediss://`.
    #[error("expected redis://HOST:PORT or rediss://HOST:PORT")]
    Shape,
    /// A user or password.
    #[error("user and password belong in the credentials directory")]
    Secret,
    /// No port, or port 0.
    #[error("expected a port, 1..=65535, after the host")]
    Port,
}

impl RedisUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// See [`RedisUrlError`].
    pub fn parse(text: &str) -> Result<Self, RedisUrlError> {
        let (tls, rest) = match (
            text.strip_prefix("redis://"),
            text.strip_prefix("rediss://"),
        ) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(RedisUrlError::Shape),
        };
        if rest.contains('@') {
            return Err(RedisUrlError::Secret);
        }
        let (host, port) = rest.rsplit_once(':').ok_or(RedisUrlError::Port)?;
        let host = match host.strip_prefix('[') {
            Some(host) => host
                .strip_suffix(']')
                .filter(|host| host.parse::<std::net::Ipv6Addr>().is_ok()),
            None => Some(host).filter(|host| is_host(host)),
        };
        let port = port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or(RedisUrlError::Port)?;
        Ok(Self {
            tls,
            host: host.ok_or(RedisUrlError::Shape)?.to_owned(),
            port,
        })
    }
}

/// A host name or an IPv4 address.
fn is_host(host: &str) -> bool {
    let characters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    (1..=253).contains(&host.len()) && host.bytes().all(characters)
}

impl TryFrom<String> for RedisUrl {
    type Error = RedisUrlError;

    fn try_from(text: String) -> Result<Self, RedisUrlError> {
        Self::parse(&text)
    }
}

impl From<RedisUrl> for String {
    fn from(url: RedisUrl) -> Self {
        url.to_string()
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for text in [
            "redis://127.0.0.1:6379",
            "rediss://cache.eu.example:6380",
            "redis://[2001:db8::1]:6379",
        ] {
            let url = RedisUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), text);
            assert_eq!(url.tls, text.starts_with("rediss"));
        }
        for (text, error) in [
            ("http://a:1", RedisUrlError::Shape),
            ("redis:a:1", RedisUrlError::Shape),
            ("redis://:1", RedisUrlError::Shape),
            ("redis://a b:1", RedisUrlError::Shape),
            ("redis://[::1:1", RedisUrlError::Shape),
            ("redis://[host]:1", RedisUrlError::Shape),
            ("redis://::1:1", RedisUrlError::Shape),
            ("redis://user:secret@a:1", RedisUrlError::Secret),
            ("redis://a", RedisUrlError::Port),
            ("redis://a:0", RedisUrlError::Port),
            ("redis://a:65536", RedisUrlError::Port),
            ("redis://a:1/0", RedisUrlError::Port),
        ] {
            assert_eq!(RedisUrl::parse(text), Err(error), "{text}");
        }
    }
}
