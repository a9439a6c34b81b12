//! Installs what the real clients need beside Debian packages: npm packages and a Python environment. Does nothing that is
//! done already, says what it does, and fails with one line that says what failed.
//!
//! ```text
//! target/e2e-tools/node/     package.json, package-lock.json, the drivers, node_modules
//! target/e2e-tools/python/   a virtual environment
//! each with a file `installed`: the text it was installed from
//! ```

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::clients::drivers_dir;
use crate::net::programs_dir;

/// Where things are.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Holds the Node drivers and their packages.
    pub node_dir: PathBuf,
    /// The Python that has aiortc.
    pub python: PathBuf,
}

/// Written last: its text says what was installed.
const MARK: &str = "installed";

/// Where things are, if they are.
///
/// # Errors
/// Something is missing; the error says how to install it.
pub fn installed() -> anyhow::Result<Installed> {
    let found = places()?;
    let node = fs::read_to_string(found.node_dir.join(MARK)).ok();
    let python = fs::read_to_string(python_dir()?.join(MARK)).ok();
    if node != Some(node_wanted()?) || python != Some(python_wanted()?) {
        bail!("the real clients are not installed: run `cargo run -p lab --bin e2e-setup` as root");
    }
    refresh_drivers(&found.node_dir)?;
    Ok(found)
}

/// Installs what is missing.
///
/// # Errors
/// One line that says which step failed.
pub fn install() -> anyhow::Result<Installed> {
    install_node()?;
    install_python()?;
    installed()
}

fn install_node() -> anyhow::Result<()> {
    let dir = places()?.node_dir;
    let wanted = node_wanted()?;
    fs::create_dir_all(&dir)?;
    refresh_drivers(&dir)?;
    if fs::read_to_string(dir.join(MARK)).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    for file in ["package.json", "package-lock.json"] {
        fs::copy(drivers_dir().join(file), dir.join(file))?;
    }
    let mut npm = Command::new("npm");
    npm.current_dir(&dir)
        .args(["ci", "--no-audit", "--no-fund"]);
    run("npm ci of the browser and Node clients", &mut npm)?;
    fs::write(dir.join(MARK), wanted).context("marking what npm installed")
}

fn install_python() -> anyhow::Result<()> {
    let dir = python_dir()?;
    let wanted = python_wanted()?;
    if fs::read_to_string(dir.join(MARK)).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(&dir);
    run("python3 -m venv", &mut venv)?;
    let mut pip = Command::new(dir.join("bin/pip"));
    pip.args(["install", "--quiet", "--requirement"])
        .arg(drivers_dir().join("requirements.txt"));
    run("pip install of aiortc", &mut pip)?;
    fs::write(dir.join(MARK), wanted).context("marking what pip installed")
}

/// The drivers run beside `node_modules`, because that is where Node looks for packages.
fn refresh_drivers(dir: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(drivers_dir())? {
        let path = entry?.path();
        let name = path.file_name().context("a directory entry has a name")?;
        if path.extension().is_some_and(|extension| extension == "mjs") {
            copy_if_changed(&path, &dir.join(name))?;
        }
    }
    Ok(())
}

/// In one step, because tests that run side by side all do it.
fn copy_if_changed(from: &Path, to: &Path) -> anyhow::Result<()> {
    let text = fs::read(from)?;
    if fs::read(to).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let thread = std::thread::current().id();
    let draft = to.with_extension(format!("{}-{thread:?}", std::process::id()));
    fs::write(&draft, text)?;
    fs::rename(&draft, to).with_context(|| format!("replacing {}", to.display()))
}

fn places() -> anyhow::Result<Installed> {
    Ok(Installed {
        node_dir: tools_dir()?.join("node"),
        python: python_dir()?.join("bin/python"),
    })
}

fn python_dir() -> anyhow::Result<PathBuf> {
    Ok(tools_dir()?.join("python"))
}

/// Beside the profiles, so that debug and release share it.
fn tools_dir() -> anyhow::Result<PathBuf> {
    let profile = programs_dir()?;
    Ok(profile.parent().unwrap_or(&profile).join("e2e-tools"))
}

fn node_wanted() -> anyhow::Result<String> {
    Ok(fs::read_to_string(drivers_dir().join("package-lock.json"))?)
}

fn python_wanted() -> anyhow::Result<String> {
    Ok(fs::read_to_string(drivers_dir().join("requirements.txt"))?)
}

fn run(what: &str, command: &mut Command) -> anyhow::Result<()> {
    writeln!(std::io::stderr(), "e2e-setup: {what}")?;
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("{what} could not start"))?;
    if !status.success() {
        bail!("{what} failed with {status}; run it by hand to see why");
    }
    Ok(())
}
