//! What `birdc` does: a command to a BIRD through its control socket, and the answer.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};

const PATIENCE: Duration = Duration::from_secs(5);
/// Lines of an answer at most.
const LINES_MAX: usize = 100_000;

/// Gives `command` to the BIRD that listens at `socket`.
///
/// # Errors
/// Nobody listens, or BIRD does not want it.
pub(super) fn ask(socket: &Path, command: &str) -> anyhow::Result<String> {
    let stream = UnixStream::connect(socket);
    let mut stream = stream.with_context(|| format!("no BIRD at {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines().take(LINES_MAX);
    let _greeting = lines.next().context("BIRD says nothing")??;
    writeln!(stream, "{command}").context("asking BIRD")?;
    let mut answer = String::new();
    for line in lines {
        let line = line.context("BIRD's answer")?;
        match end_of(&line) {
            Some(code) if code.starts_with(['8', '9']) => bail!("birdc {command}: {line}"),
            Some(_) => {
                answer += line.get(5..).unwrap_or_default();
                return Ok(answer);
            }
            None => {
                let text = line.get(5..).unwrap_or_default();
                answer += line.strip_prefix(' ').unwrap_or(text);
                answer.push('\n');
            }
        }
    }
    bail!("BIRD's answer to {command} has no end")
}

/// The code of the last line of an answer: four digits and a space.
fn end_of(line: &str) -> Option<&str> {
    let (code, rest) = line.split_at_checked(4)?;
    let last = code.bytes().all(|byte| byte.is_ascii_digit()) && rest.starts_with(' ');
    (last || (rest.is_empty() && code == "0000")).then_some(code)
}
