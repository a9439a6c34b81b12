//! A blocking HTTP/1.1 client: one connection for each request, everything visible.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    /// The value of a header that is there at most once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self
            .headers
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} twice");
        value
    }

    /// Asserts that this is a problem: one line of JSON with the status and a text (RFC 9457).
    pub(crate) fn is_problem(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(self.body.lines().count(), 1, "{}", self.body);
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(body["status"], status);
        assert_eq!(body["type"], "about:blank");
        assert!(!body["title"].as_str().unwrap().is_empty());
        assert!(!body["detail"].as_str().unwrap().is_empty());
        assert!(!self.body.contains("127."), "no addresses: {}", self.body);
        self
    }
}

/// Sends one request on its own connection and reads until the server closes.
pub(crate) fn http(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Response {
    let body = body.as_ref();
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || matches!(method, "POST" | "PATCH") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    raw(addr, &[head.as_bytes(), body].concat())
}

/// Sends bytes and reads the response until the server closes.
pub(crate) fn raw(addr: SocketAddr, request: &[u8]) -> Response {
    let mut stream = connect(addr);
    stream.write_all(request).unwrap();
    read_response(&mut stream)
}

/// A connection that gives up after a while instead of hanging a test.
pub(crate) fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
}

/// Reads one response, up to the close.
pub(crate) fn read_response(stream: &mut TcpStream) -> Response {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    parse(&String::from_utf8(bytes).unwrap())
}

fn parse(text: &str) -> Response {
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no response: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    Response {
        status: status.parse().unwrap(),
        headers: lines
            .map(|line| {
                let (name, value) = line.split_once(':').unwrap();
                (name.to_owned(), value.trim().to_owned())
            })
            .collect(),
        body: body.to_owned(),
    }
}

/// Reads one response of a connection that stays open; gives its status.
pub(crate) fn read_one(stream: &mut TcpStream) -> u16 {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
    let len = head.split("content-length: ").nth(1).unwrap();
    let len: usize = len.lines().next().unwrap().parse().unwrap();
    let mut body = vec![0; len];
    stream.read_exact(&mut body).unwrap();
    head.split(' ').nth(1).unwrap().parse().unwrap()
}
