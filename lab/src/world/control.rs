//! A running world takes orders from a Unix socket: a line, and one line of JSON in answer.
//!
//! ```text
//! status                 what there is, what runs, who serves whom
//! fault kill lon         see `fault`
//! wan show               any order of the WAN emulator
//! birdc lon show route   any command of BIRD
//! admin lon GET /state   any request to a node
//! down                   the end
//! ```

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};

use super::{Kind, World};
use crate::wan::hear;

/// How long an answer may take: a node may have to think.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Takes orders, one after the other, until `down`, which is told to `end`.
pub(super) fn serve(world: &World, listener: &UnixListener, end: &SyncSender<()>) {
    for stream in listener.incoming() {
        // Somebody who hangs up, or says nothing, harms nobody else.
        let Ok(stream) = stream else { continue };
        let Some(line) = hear(&stream) else { continue };
        let down = line.trim() == "down";
        let answer = match obey(world, line.trim()) {
            Ok(answer) => answer,
            Err(error) => json!({ "error": format!("{error:#}") }),
        };
        let _ = writeln!(&stream, "{answer}");
        if down {
            let _ = end.try_send(());
            return;
        }
    }
}

fn obey(world: &World, line: &str) -> anyhow::Result<Value> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let words: Vec<&str> = rest.split_whitespace().collect();
    match (verb, words.as_slice()) {
        ("status", []) => status(world),
        ("down", []) => Ok(json!({ "down": true })),
        ("fault", [_, ..]) => {
            world.fault(&rest.parse()?)?;
            Ok(json!({ "done": rest }))
        }
        ("wan", [_, ..]) => world.wan(rest),
        ("birdc", [node, command @ ..]) => Ok(world.birdc(node, &command.join(" "))?.into()),
        ("admin", [node, method, path]) => {
            let response = world.admin(node, method, path)?;
            let body = serde_json::from_str(&response.body);
            let body = body.unwrap_or_else(|_| Value::from(response.body));
            Ok(json!({ "status": response.status, "body": body }))
        }
        _ => bail!("orders: status, fault, wan, birdc, admin, down"),
    }
}

fn status(world: &World) -> anyhow::Result<Value> {
    let mut nodes = Map::new();
    for (name, node) in &world.plan().nodes {
        let runs = world.is_running(name).ok();
        let bird = world.is_running(&super::launch::bird_of(name)).ok();
        let said = json!({
            "kind": node.kind.name(),
            "city": node.city,
            "addresses": node.addresses,
            "runs": runs,
            "bird": bird,
        });
        nodes.insert(name.clone(), said);
    }
    let nearest = world.nearest_table()?;
    let nearest = nearest
        .iter()
        .map(|((client, vip), pop)| json!({ "client": client, "vip": vip, "pop": pop }));
    Ok(json!({
        "world": world.plan().wan.name,
        "dir": world.dir(),
        "pid": world.pid(),
        "nodes": nodes,
        "nearest": nearest.collect::<Vec<_>>(),
    }))
}

impl Kind {
    /// For people.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Client { .. } => "client",
            Self::Isp => "isp",
            Self::Router => "router",
            Self::Pop => "pop",
            Self::CoreRelay => "core-relay",
            Self::Transceiver => "transceiver",
            Self::GeoDns => "geodns",
            Self::Redis(_) => "redis",
        }
    }
}

/// Gives an order to the world that listens at `socket`; returns its answer.
///
/// # Errors
/// Nobody listens, or it refuses.
pub(super) fn ask(socket: &Path, line: &str) -> anyhow::Result<Value> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("no world listens at {}", socket.display()))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    writeln!(stream, "{line}").context("asking")?;
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .context("the answer")?;
    let answer: Value = serde_json::from_str(&answer).context("the answer")?;
    match answer.get("error") {
        Some(error) => bail!("{}", error.as_str().unwrap_or("refused")),
        None => Ok(answer),
    }
}
