//! A command to a Redis server, and its answer (RESP 2): to look into it, not to be fast.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(2);
/// Answers within answers.
const DEPTH_MAX: u8 = 8;

/// Asks the server at `address`.
///
/// # Errors
/// It does not answer, or says that something is wrong.
pub(super) fn ask(address: SocketAddr, words: &[&str]) -> anyhow::Result<Value> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).context("connecting to Redis")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command += &format!("${}\r\n{word}\r\n", word.len());
    }
    (&stream)
        .write_all(command.as_bytes())
        .context("asking Redis")?;
    answer(&mut BufReader::new(stream), DEPTH_MAX)
}

fn answer(from: &mut BufReader<TcpStream>, depth: u8) -> anyhow::Result<Value> {
    let mut line = String::new();
    from.read_line(&mut line).context("the answer of Redis")?;
    let (kind, rest) = line
        .trim_end()
        .split_at_checked(1)
        .context("Redis says nothing")?;
    match kind {
        "+" => Ok(rest.into()),
        "-" => bail!("Redis: {rest}"),
        ":" => Ok(rest.parse::<i64>()?.into()),
        "$" => text(from, rest.parse()?),
        "*" if depth > 0 => {
            let len: i64 = rest.parse()?;
            let items = (0..len).map(|_| answer(from, depth - 1));
            Ok(Value::Array(items.collect::<Result<_, _>>()?))
        }
        _ => bail!("Redis says {line:?}"),
    }
}

fn text(from: &mut BufReader<TcpStream>, len: i64) -> anyhow::Result<Value> {
    let Ok(len) = u64::try_from(len) else {
        return Ok(Value::Null);
    };
    let mut bytes = Vec::new();
    from.take(len + 2)
        .read_to_end(&mut bytes)
        .context("the answer of Redis")?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text
        .strip_suffix("\r\n")
        .context("a cut answer of Redis")?
        .into())
}
