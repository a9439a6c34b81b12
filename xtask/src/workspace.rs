//! What cargo knows about the workspace: where it is, what it builds, which test targets it has.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::step::Step;

/// Prefix of integration tests that start real processes and real clients: one at a time.
const END_TO_END: &str = "e2e_";

/// The facts the commands need.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    /// Programs of all members.
    programs: Vec<String>,
    /// Integration tests of all members, in alphabetical order.
    tests: Vec<String>,
}

impl Workspace {
    /// Asks `cargo metadata`.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .context("cargo metadata")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata: {error}");
        Self::from_metadata(&serde_json::from_slice(&output.stdout)?)
    }

    fn from_metadata(metadata: &Value) -> anyhow::Result<Self> {
        let path = |key: &str| {
            let text = metadata.get(key).and_then(Value::as_str);
            text.map(PathBuf::from)
                .with_context(|| format!("cargo metadata has no {key}"))
        };
        Ok(Self {
            root: path("workspace_root")?,
            target: path("target_directory")?,
            programs: targets(metadata, "bin"),
            tests: targets(metadata, "test"),
        })
    }

    /// Where `cargo build --release` puts programs.
    pub(crate) fn programs_dir(&self) -> PathBuf {
        self.target.join("release")
    }

    pub(crate) fn has_program(&self, name: &str) -> bool {
        self.programs.iter().any(|program| program == name)
    }

    /// A step that runs a program of the workspace, built by [`crate::test::build_programs`].
    pub(crate) fn program(&self, name: &str) -> anyhow::Result<Step> {
        ensure!(
            self.has_program(name),
            "the workspace has no program `{name}`"
        );
        let program = self.programs_dir().join(name);
        Ok(Step::new(name, program, &self.root).env("FIRSTHOP_BIN_DIR", self.programs_dir()))
    }

    /// Integration tests that run inside one process.
    pub(crate) fn plain_tests(&self) -> impl Iterator<Item = &str> {
        self.select(false)
    }

    /// Integration tests over real processes.
    pub(crate) fn end_to_end_tests(&self) -> impl Iterator<Item = &str> {
        self.select(true)
    }

    fn select(&self, end_to_end: bool) -> impl Iterator<Item = &str> {
        self.tests
            .iter()
            .map(String::as_str)
            .filter(move |name| name.starts_with(END_TO_END) == end_to_end)
    }

    /// Where tools that the machine lacks are installed.
    pub(crate) fn tools_dir(&self) -> PathBuf {
        self.target.join("tools")
    }
}

/// Names of the targets of one kind, sorted, each once.
fn targets(metadata: &Value, kind: &str) -> Vec<String> {
    let list = |value: &Value, key: &str| {
        let list = value.get(key).and_then(Value::as_array);
        list.cloned().unwrap_or_default()
    };
    let mut names: Vec<_> = list(metadata, "packages")
        .iter()
        .flat_map(|package| list(package, "targets"))
        .filter(|target| list(target, "kind").iter().any(|of| of == kind))
        .filter_map(|target| Some(target.get("name")?.as_str()?.to_owned()))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Whether a program answers `--version` with text that starts so.
pub(crate) fn answers(program: &Path, arguments: &[&str], version: &str) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| {
        output.status.success() && String::from_utf8_lossy(&output.stdout).starts_with(version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_to_end_tests_are_told_from_plain_ones() {
        let metadata = serde_json::json!({
            "workspace_root": "/w",
            "target_directory": "/t",
            "packages": [
                { "targets": [{ "name": "pop", "kind": ["bin"] }, { "name": "pop", "kind": ["lib"] }] },
                { "targets": [
                    { "name": "layering", "kind": ["test"] },
                    { "name": "e2e_kill", "kind": ["test"] },
                    { "name": "e2e_browsers", "kind": ["test"] },
                ] },
            ],
        });
        let workspace = Workspace::from_metadata(&metadata).unwrap();
        assert_eq!(workspace.plain_tests().collect::<Vec<_>>(), ["layering"]);
        assert_eq!(
            workspace.end_to_end_tests().collect::<Vec<_>>(),
            ["e2e_browsers", "e2e_kill"]
        );
        assert!(workspace.has_program("pop"));
        assert!(workspace.program("lab").is_err());
    }
}
