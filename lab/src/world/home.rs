//! The directory of a world: who may have it, and that nothing is removed which is not a world's.
//!
//! ```text
//! worlds/small.lock    held by the process that brings the world up, as long as it lives (flock, so that a killed one holds nothing)
//! worlds/small/.world  says that all of the directory was made for a world, and may go with it
//! worlds/small/orders  the socket; that of a world that was killed stays, and nobody listens
//!
//! worlds/small-PID-N/          of the N-th world of a process, for a while only; what a dead process left, the next one removes
//! worlds/small-PID-N/.failed   its test failed: it stays for whoever looks into it
//! ```

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::interrupt::{OnInterrupt, on_interrupt};
use crate::wait;

/// Name of a world's socket in its directory.
pub(super) const SOCKET: &str = "orders";
/// In every directory that was made for a world.
const MARK: &str = ".world";
/// In the directory of a world whose test failed.
const FAILED: &str = ".failed";
/// How long the directory of a world is removed over and over while those who write there end.
const REMOVE_MAX: Duration = Duration::from_secs(3);

/// A directory that was made for one world. Dropped, it is gone if it was to be for a while only.
#[derive(Debug)]
pub(super) struct Home {
    dir: PathBuf,
    /// Of one that is for a while only.
    temporary: Option<OnInterrupt>,
}

impl Home {
    /// An empty directory, in place of that of an earlier world.
    ///
    /// # Errors
    /// What is there is not a world's, or the directory cannot be made.
    pub(super) fn make(dir: PathBuf, temporary: bool) -> anyhow::Result<Self> {
        let name = || dir.display().to_string();
        clear(&dir).with_context(name)?;
        let gone = dir.clone();
        let temporary = temporary.then(|| on_interrupt(move || remove_while_it_is_used(&gone)));
        fs::create_dir_all(&dir).with_context(name)?;
        let mark = "Everything beside this file was made for a world of the lab, and is removed with it.\n";
        fs::write(dir.join(MARK), mark).with_context(name)?;
        Ok(Self { dir, temporary })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.temporary.is_none() {
            return;
        }
        // Whoever looks into a panic wants the logs.
        let _left = if std::thread::panicking() {
            fs::write(self.dir.join(FAILED), "")
        } else {
            fs::remove_dir_all(&self.dir)
        };
    }
}

/// Everybody who writes there was killed, and may not be gone yet.
fn remove_while_it_is_used(dir: &Path) {
    let _left = wait::until_true("an empty directory", REMOVE_MAX, || {
        let _not_yet = fs::remove_dir_all(dir);
        !dir.exists()
    });
}

/// Removes what processes that are dead left among the directories that are there for a while only.
pub(super) fn remove_left(worlds: &Path) {
    let lives = |pid: u32| Path::new("/proc").join(pid.to_string()).exists();
    let entries = fs::read_dir(worlds).into_iter().flatten().flatten();
    for dir in entries.map(|entry| entry.path()) {
        let made = dir.join(MARK).is_file() && !dir.join(FAILED).exists();
        if made && maker(&dir).is_some_and(|pid| !lives(pid)) {
            let _left = fs::remove_dir_all(&dir);
        }
    }
}

/// The name of a directory that is there for a while only.
pub(super) fn temporary_name(world: &str, number: u32) -> String {
    format!("{world}-{}-{number}", std::process::id())
}

/// The process that gave a directory its [`temporary_name`].
fn maker(dir: &Path) -> Option<u32> {
    let mut parts = dir.file_name()?.to_str()?.rsplitn(3, '-');
    let _number: u32 = parts.next()?.parse().ok()?;
    let pid = parts.next()?.parse().ok()?;
    parts.next().map(|_world| pid)
}

/// Removes the directory of an earlier world, if there is one.
fn clear(dir: &Path) -> anyhow::Result<()> {
    let mut entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if entries.next().is_none() {
        return Ok(());
    }
    ensure!(
        dir.join(MARK).is_file(),
        "no world made this directory, so it is left alone: remove it, or choose another name"
    );
    fs::remove_dir_all(dir).context("removing the files of an earlier world")
}

/// Takes the name of a world, for as long as the file is open.
///
/// # Errors
/// A world of this name stands or comes up, or the file cannot be made.
pub(super) fn take(worlds: &Path, name: &str) -> anyhow::Result<File> {
    fs::create_dir_all(worlds).with_context(|| worlds.display().to_string())?;
    match try_take(worlds, name)? {
        Some(taken) => Ok(taken),
        None => bail!(
            "a world `{name}` stands or comes up: `lab world down --world {name}`, or --name for one beside it"
        ),
    }
}

fn try_take(worlds: &Path, name: &str) -> anyhow::Result<Option<File>> {
    let path = worlds.join(format!("{name}.lock"));
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = file.with_context(|| path.display().to_string())?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Names of all worlds that somebody listens for.
pub(super) fn standing(worlds: &Path) -> Vec<String> {
    let mut names = with_sockets(worlds);
    names.retain(|name| listens(worlds, name));
    names
}

/// Removes the sockets of worlds that were killed; returns their names. Their logs stay, as those of any world do.
///
/// # Errors
/// A socket that cannot be removed.
pub(super) fn clear_up(worlds: &Path, only: Option<&str>) -> anyhow::Result<Vec<String>> {
    let mut dead = Vec::new();
    for name in with_sockets(worlds) {
        if only.is_some_and(|only| only != name) || listens(worlds, &name) {
            continue;
        }
        // One that comes up has its name, and may not have removed the files of the one before.
        let Some(_taken) = try_take(worlds, &name)? else {
            continue;
        };
        let socket = worlds.join(&name).join(SOCKET);
        fs::remove_file(&socket).with_context(|| socket.display().to_string())?;
        dead.push(name);
    }
    Ok(dead)
}

fn with_sockets(worlds: &Path) -> Vec<String> {
    let entries = fs::read_dir(worlds).into_iter().flatten().flatten();
    let all = entries.filter(|entry| entry.path().join(SOCKET).exists());
    let mut names: Vec<String> = all
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn listens(worlds: &Path, name: &str) -> bool {
    UnixStream::connect(worlds.join(name).join(SOCKET)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A directory of one test.
    fn worlds(tag: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("lab-home-{tag}-{}", std::process::id()));
        let _left_by_an_earlier_run = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn only_the_directory_of_a_world_is_ever_removed() {
        let dir = worlds("mark");
        drop(Home::make(dir.join("small"), false).unwrap());
        fs::write(dir.join("small/log"), "of an earlier world").unwrap();
        drop(Home::make(dir.join("small"), false).unwrap());
        assert!(!dir.join("small/log").exists(), "in place of that");
        let error = Home::make(dir.clone(), false).unwrap_err();
        assert!(format!("{error:#}").contains("left alone"), "{error:#}");
        assert!(dir.join("small").exists(), "the others are as they were");
        let home = Home::make(dir.join("run"), true).unwrap();
        fs::write(home.dir().join("log"), "of a run").unwrap();
        drop(home);
        assert!(!dir.join("run").exists(), "for a while only");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_nothing_else() {
        let dir = worlds("left");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let own = temporary_name("small", 0);
        let of_dead = format!("a-world-{dead}-3");
        let failed = format!("failed-{dead}-0");
        for name in [&own, &of_dead, &failed, "small", "4-5"] {
            drop(Home::make(dir.join(name), false).unwrap());
        }
        fs::write(dir.join(&failed).join(FAILED), "").unwrap();
        let unmarked = format!("unmarked-{dead}-0");
        fs::create_dir(dir.join(&unmarked)).unwrap();
        remove_left(&dir);
        for name in [&own, &failed, &unmarked, "small", "4-5"] {
            assert!(dir.join(name).exists(), "{name}");
        }
        assert!(!dir.join(of_dead).exists());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_name_is_one_process_s() {
        let dir = worlds("take");
        let taken = take(&dir, "small").unwrap();
        let error = take(&dir, "small").unwrap_err().to_string();
        assert!(error.contains("stands or comes up"), "{error}");
        let _other = take(&dir, "small-2").unwrap();
        drop(taken);
        let _again = take(&dir, "small").unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_world_stands_while_somebody_listens() {
        let dir = worlds("stands");
        for name in ["alive", "dead", "coming"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        let socket = |name: &str| dir.join(name).join(SOCKET);
        let alive = UnixListener::bind(socket("alive")).unwrap();
        for name in ["dead", "coming"] {
            drop(UnixListener::bind(socket(name)).unwrap());
        }
        let _comes = take(&dir, "coming").unwrap();
        assert_eq!(standing(&dir), ["alive"]);
        assert_eq!(clear_up(&dir, Some("alive")).unwrap(), [""; 0]);
        assert_eq!(clear_up(&dir, None).unwrap(), ["dead"]);
        assert!(socket("alive").exists() && socket("coming").exists());
        assert_eq!(clear_up(&dir, None).unwrap(), [""; 0]);
        drop(alive);
        fs::remove_dir_all(&dir).unwrap();
    }
}
