//! PROXY protocol, version 2 (haproxy's `proxy-protocol.txt` §2.2): one binary header in front of a connection.
//!
//! ```text
//! 0..12   signature 0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A
//! 12      version 2 (high nibble), command: 0 local, 1 proxy
//! 13      family (high nibble): 0 unspecified, 1 IPv4, 2 IPv6, 3 unix; transport (low nibble)
//! 14..16  length of what follows: addresses, then TLVs
//! 16..    source, destination, ports
//! ```
//!
//! TLVs are skipped. Version 1 is not read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes that say how long the header is.
pub const PREFIX_BYTES: usize = 16;
/// Longest rest that is taken: the longest address and room for TLVs.
pub const REST_BYTES_MAX: usize = 2 * 1024;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// What is wrong with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The connection does not begin with one.
    #[error("no PROXY header")]
    Signature,
    /// Another version or command.
    #[error("not version 2")]
    Version,
    /// More than [`REST_BYTES_MAX`].
    #[error("too long")]
    TooLong,
    /// Shorter than its addresses.
    #[error("too short")]
    TooShort,
}

/// The first bytes of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    is_local: bool,
    family: u8,
    rest_len: usize,
}

impl Prefix {
    /// Reads them.
    ///
    /// # Errors
    /// See [`HeaderError`].
    pub fn parse(bytes: &[u8; PREFIX_BYTES]) -> Result<Self, HeaderError> {
        let [signature @ .., version, family, high, low] = bytes;
        if *signature != SIGNATURE {
            return Err(HeaderError::Signature);
        }
        let is_local = match version {
            0x20 => true,
            0x21 => false,
            _ => return Err(HeaderError::Version),
        };
        let rest_len = usize::from(u16::from_be_bytes([*high, *low]));
        if rest_len > REST_BYTES_MAX {
            return Err(HeaderError::TooLong);
        }
        Ok(Self {
            is_local,
            family: family >> 4,
            rest_len,
        })
    }

    /// Bytes that follow.
    #[must_use]
    pub const fn rest_len(self) -> usize {
        self.rest_len
    }

    /// Whom the connection is for; `None` when the proxy speaks for itself or of no IP address.
    ///
    /// # Errors
    /// [`HeaderError::TooShort`].
    pub fn source(self, rest: &[u8]) -> Result<Option<IpAddr>, HeaderError> {
        if self.is_local {
            return Ok(None);
        }
        match self.family {
            1 => {
                let addresses = rest.first_chunk::<12>().ok_or(HeaderError::TooShort)?;
                let [a, b, c, d, ..] = *addresses;
                Ok(Some(Ipv4Addr::new(a, b, c, d).into()))
            }
            2 => {
                let addresses = rest.first_chunk::<36>().ok_or(HeaderError::TooShort)?;
                let source = addresses.first_chunk::<16>().ok_or(HeaderError::TooShort)?;
                Ok(Some(IpAddr::from(Ipv6Addr::from(*source)).to_canonical()))
            }
            _ => Ok(None),
        }
    }
}

/// Takes the header off a connection, and not a byte more.
///
/// # Errors
/// See [`HeaderError`]; a connection that breaks is too short.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<IpAddr>, HeaderError> {
    let mut prefix = [0; PREFIX_BYTES];
    let whole = stream.read_exact(&mut prefix).await;
    whole.map_err(|_| HeaderError::TooShort)?;
    let prefix = Prefix::parse(&prefix)?;
    let mut rest = vec![0; prefix.rest_len()];
    let whole = stream.read_exact(&mut rest).await;
    whole.map_err(|_| HeaderError::TooShort)?;
    prefix.source(&rest)
}
