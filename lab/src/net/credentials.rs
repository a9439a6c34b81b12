//! Credentials of a run: made by `firsthop certs all`, as an operator would make them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use super::node::program;

/// Makes `out/NODE/` for every node of the topology in `file`.
pub(crate) fn write(file: &Path, out: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(program("firsthop")?);
    command.args(["certs", "all", "--topology"]).arg(file);
    run(command.arg("--out").arg(out))
}

/// Makes each of `nodes` a new certificate of the authority, in place of the one it has.
pub(super) fn renew<'a>(
    authority: &Path,
    nodes: impl Iterator<Item = &'a str>,
) -> anyhow::Result<()> {
    for node in nodes {
        let mut command = Command::new(program("firsthop")?);
        command.args(["certs", "node", "--force", "--name", node]);
        run(command.arg("--ca").arg(authority).arg(authority.join(node)))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().context("running firsthop certs")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("firsthop certs: {}", error.trim());
    }
    Ok(())
}

/// A JWT (RFC 7519) of nothing but an expiry, signed HS256 with `secret`: what `whip.secret` asks for.
#[must_use]
pub fn bearer(secret: &[u8], expires_unix_s: u64) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let claims = URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{expires_unix_s}}}"#));
    let signed = format!("{header}.{claims}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    format!("{signed}.{signature}")
}
