//! `cargo xtask lint`: everything that can be said about the code without running it.

use std::path::{Path, PathBuf};

use crate::step::Step;
use crate::workspace::{Workspace, answers};

/// The version that reads `deny.toml`; another one on the machine is left alone.
const CARGO_DENY: &str = "0.20.2";

pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    Step::cargo("format", workspace)
        .args(["fmt", "--all", "--check"])
        .run()?;
    Step::cargo("clippy", workspace)
        .args(["clippy", "--locked", "--workspace", "--all-targets"])
        .args(["--", "--deny", "warnings"])
        .run()?;
    Step::cargo("documentation", workspace)
        // Private items too: readers of the documentation are readers of the code.
        .args([
            "doc",
            "--locked",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ])
        .env("RUSTDOCFLAGS", "--deny warnings")
        .run()?;
    let deny = cargo_deny(workspace)?;
    Step::new("dependencies", deny, &workspace.root)
        .args(["check", "licenses", "bans", "sources"])
        .run()
}

/// A cargo-deny of the right series: the machine's, or one installed under the target directory.
fn cargo_deny(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let series = CARGO_DENY
        .rsplit_once('.')
        .map_or(CARGO_DENY, |(series, _)| series);
    let version = format!("cargo-deny {series}.");
    let fits = |program: &Path| answers(program, &["--version"], &version);

    let machine = PathBuf::from("cargo-deny");
    if fits(&machine) {
        return Ok(machine);
    }
    let ours = workspace.tools_dir().join("bin/cargo-deny");
    if !fits(&ours) {
        Step::cargo("install cargo-deny", workspace)
            .args(["install", "--locked", "cargo-deny", "--version", CARGO_DENY])
            .args([Path::new("--root"), &workspace.tools_dir()])
            .run()?;
    }
    Ok(ours)
}
