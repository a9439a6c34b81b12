//! Asks nodes over their admin HTTP whether they are ready. Blocking; for the start only.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// For one question. A node that is up answers at once.
const TIMEOUT: Duration = Duration::from_millis(500);
/// A `/readyz` answer is a line or two.
const ANSWER_BYTES_MAX: u64 = 4096;

/// Whether the node at `admin` is ready.
///
/// # Errors
/// Why it is not, in its own words or in those of the operating system.
pub(super) fn ask(admin: SocketAddr) -> Result<(), String> {
    let answer = fetch(admin).map_err(|error| format!("no answer on {admin}: {error}"))?;
    judge(&answer)
}

fn fetch(admin: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&admin, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(
        stream,
        "GET /readyz HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn judge(answer: &str) -> Result<(), String> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    match (status, body.trim()) {
        ("200", _) => Ok(()),
        ("", _) => Err("an empty answer".to_owned()),
        (status, "") => Err(format!("status {status}")),
        (_, reason) => Err(reason.lines().next().unwrap_or_default().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged_by_status() {
        assert_eq!(
            judge("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n"),
            Ok(())
        );
        let unready = judge("HTTP/1.1 503 Service Unavailable\r\n\r\nno link to eu\n");
        assert_eq!(unready, Err("no link to eu".to_owned()));
        assert_eq!(
            judge("HTTP/1.1 503 Service Unavailable\r\n\r\n"),
            Err("status 503".to_owned())
        );
        assert_eq!(judge(""), Err("an empty answer".to_owned()));
    }
}
