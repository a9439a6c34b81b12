//! Runs the drivers of `clients/`: real WebRTC clients, one process each, one JSON object back.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::tools;
use crate::wait;

/// The clients there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Debian's Chromium, by playwright-core.
    Chromium,
    /// Debian's Firefox ESR, by puppeteer-core.
    Firefox,
    /// aiortc, in Python.
    Aiortc,
    /// libdatachannel, by node-datachannel.
    Libdatachannel,
    /// libwebrtc without a browser, by @roamhq/wrtc.
    Libwebrtc,
}

impl Client {
    const fn driver(self) -> &'static str {
        match self {
            Self::Chromium => "chromium.mjs",
            Self::Firefox => "firefox.mjs",
            Self::Aiortc => "aiortc_client.py",
            Self::Libdatachannel => "libdatachannel.mjs",
            Self::Libwebrtc => "libwebrtc.mjs",
        }
    }
}

/// What a client does with one call.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The WHIP endpoint.
    pub whip: &'a str,
    /// How long media flows at least.
    pub seconds: u32,
    /// What happens meanwhile, in order: `restart`, `renegotiate`, `trickle`.
    pub actions: &'a [&'a str],
    /// The only advertised address it uses, if it does not choose among all; for browsers.
    pub only: Option<&'a str>,
}

/// Beyond the call itself: starting a browser on a busy machine, setting up, ending.
const OVERHEAD: Duration = Duration::from_secs(60);

/// Makes one call and returns what the client measured; `README.md` beside the drivers says what that is.
///
/// # Errors
/// The driver is not installed, does not end in time, or reports an error.
pub fn call(client: Client, plan: &Plan<'_>) -> anyhow::Result<Value> {
    let name = client.driver();
    let mut child = command(client)?
        .arg(plan.whip)
        .arg(plan.seconds.to_string())
        .arg(plan.actions.join(","))
        .args(plan.only)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let deadline = OVERHEAD + Duration::from_secs(u64::from(plan.seconds) * 2);
    let ended = wait::until(&format!("{name} to end"), deadline, || {
        child.try_wait().transpose()
    });
    if ended.is_err() {
        // It is told to end; the error that counts is the one we have.
        let _ = child.kill();
        let _ = child.wait();
    }
    let status = ended??;
    let mut printed = String::new();
    let stdout = child.stdout.as_mut().context("stdout was piped")?;
    stdout.read_to_string(&mut printed)?;
    let line = printed.lines().last().unwrap_or_default();
    let result: Value = serde_json::from_str(line)
        .with_context(|| format!("{name} ended with {status} and printed {printed:?}"))?;
    if let Some(error) = result.get("error") {
        bail!("{name}: {error}");
    }
    Ok(result)
}

fn command(client: Client) -> anyhow::Result<Command> {
    let installed = tools::installed()?;
    let mut command = match client {
        Client::Aiortc => {
            let mut command = under_setpriv(&installed.python);
            command.arg(drivers_dir().join(client.driver()));
            command
        }
        Client::Chromium | Client::Firefox | Client::Libdatachannel | Client::Libwebrtc => {
            let mut command = under_setpriv(Path::new("node"));
            command.arg(installed.node_dir.join(client.driver()));
            command
        }
    };
    command.current_dir(&installed.node_dir);
    Ok(command)
}

/// The client dies with the thread that started it.
fn under_setpriv(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Where the drivers are kept.
#[must_use]
pub fn drivers_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}
