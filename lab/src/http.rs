//! A small blocking HTTP/1.1 client: one request a connection, bounded in time and size. It sends exactly what it is
//! told, so that tests can be rude.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};

/// How long connecting, and each silence of the server, may take.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Bytes of a response at most.
const RESPONSE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What came back.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Header fields in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body, as text.
    pub body: String,
}

impl Response {
    /// The first field of this name, given in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Sends one request to `http://ADDRESS:PORT/PATH` and reads the response to its end.
///
/// # Errors
/// The URL is not of that form, nobody listens, or the response is not HTTP/1.1.
pub fn send(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> anyhow::Result<Response> {
    send_behind(b"", method, url, headers, body)
}

/// The same with bytes in front of the request: what a proxy says first.
///
/// # Errors
/// As [`send`].
pub fn send_behind(
    first: &[u8],
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> anyhow::Result<Response> {
    let (host, path) = split_url(url)?;
    let request = || format!("{method} {url}");
    let address: SocketAddr = host.parse().with_context(request)?;
    let mut stream = TcpStream::connect_timeout(&address, SILENCE_MAX).with_context(request)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || matches!(method, "POST" | "PATCH" | "PUT") {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    let head = [first, head.as_bytes()].concat();
    stream.write_all(&head).with_context(request)?;
    // A server may refuse a large body before it has read it: its answer counts, not the broken pipe.
    let written = stream.write_all(body);
    let mut bytes = Vec::new();
    let read = stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut bytes);
    match parse(&bytes) {
        Ok(response) => Ok(response),
        Err(error) => {
            written.with_context(request)?;
            read.with_context(request)?;
            Err(error.context(request()))
        }
    }
}

/// `GET`, for admin endpoints.
///
/// # Errors
/// See [`send`].
pub fn get(url: &str) -> anyhow::Result<Response> {
    send("GET", url, &[], &[])
}

fn split_url(url: &str) -> anyhow::Result<(&str, &str)> {
    let rest = url
        .strip_prefix("http://")
        .with_context(|| format!("{url} is not an http:// URL"))?;
    Ok(rest
        .find('/')
        .and_then(|slash| rest.split_at_checked(slash))
        .unwrap_or((rest, "/")))
}

fn parse(bytes: &[u8]) -> anyhow::Result<Response> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text
        .split_once("\r\n\r\n")
        .context("the response has no end of headers")?;
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let Some(status) = status_line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.split(' ').next())
        .and_then(|code| code.parse().ok())
    else {
        bail!("`{status_line}` is no HTTP/1.1 status line");
    };
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let chunked = headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = if chunked {
        join_chunks(body)?
    } else {
        body.to_owned()
    };
    Ok(Response {
        status,
        headers,
        body,
    })
}

/// RFC 9112 §7.1, without extensions and trailers.
fn join_chunks(mut rest: &str) -> anyhow::Result<String> {
    let mut whole = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n").context("a chunk has no size")?;
        let size = usize::from_str_radix(size.trim(), 16).context("a chunk's size is no number")?;
        if size == 0 {
            return Ok(whole);
        }
        let (chunk, after) = after
            .split_at_checked(size)
            .context("a chunk is cut short")?;
        whole.push_str(chunk);
        rest = after.strip_prefix("\r\n").unwrap_or(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_plain_and_a_chunked_response() {
        let plain = parse(b"HTTP/1.1 201 Created\r\nLocation: /s/1\r\n\r\nv=0").unwrap();
        assert_eq!((plain.status, plain.body.as_str()), (201, "v=0"));
        assert_eq!(plain.header("location"), Some("/s/1"));
        let chunked = parse(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n",
        );
        assert_eq!(chunked.unwrap().body, "abcd");
    }

    #[test]
    fn noise_is_an_error() {
        for noise in [
            &b""[..],
            b"HTTP/1.1 ",
            b"\r\n\r\n",
            b"HTTP/1.1 x OK\r\n\r\n",
        ] {
            assert!(parse(noise).is_err());
        }
    }
}
