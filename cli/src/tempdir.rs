//! A private directory that ends with the process that made it.
//!
//! It is removed when dropped. What a killed process left is removed by the next one that makes such a directory:
//! each holds a lock on the file `lock` inside for as long as its maker lives, so an unlocked one has no maker.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::random;

/// How the directories' names begin.
pub const PREFIX: &str = "firsthop-up.";
const LOCK: &str = "lock";

/// See the module.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
    // Holds the lock for as long as the directory is there.
    _lock: File,
}

impl TempDir {
    /// Makes a directory that only this user can enter, under `TMPDIR` or `/tmp`.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn create() -> anyhow::Result<Self> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        let path = parent.join(format!("{PREFIX}{}", random::hex::<8>()?));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("making {}", path.display()))?;
        let lock = lock(&path).with_context(|| format!("locking {}", path.display()))?;
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the temporary directory");
        }
    }
}

/// Makes the lock file. It has its name only when it is locked, so that nobody finds it unlocked before.
fn lock(dir: &Path) -> io::Result<File> {
    let fresh = dir.join("fresh");
    let lock = File::create_new(&fresh)?;
    lock.try_lock()?;
    fs::rename(fresh, dir.join(LOCK))?;
    Ok(lock)
}

/// Removes directories whose maker is gone. Failing to is no reason not to start.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_abandoned(&entry.path()) {
            let _next_time = fs::remove_dir_all(entry.path());
        }
    }
}

/// A directory of this user with a lock file that nobody holds. One without a lock file is just being made, or not ours.
fn is_abandoned(path: &Path) -> bool {
    let own = |path: &Path| {
        let uid = fs::metadata("/proc/self").ok()?.uid();
        let meta = fs::symlink_metadata(path).ok()?;
        Some(meta.is_dir() && meta.uid() == uid)
    };
    own(path) == Some(true) && File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_and_goes_when_dropped() {
        let dir = TempDir::create().unwrap();
        let path = dir.path().to_owned();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        fs::write(path.join("x"), "x").unwrap();
        drop(dir);
        assert!(!path.exists());
    }

    #[test]
    fn only_abandoned_ones_are_removed() {
        let alive = TempDir::create().unwrap();
        let abandoned =
            std::env::temp_dir().join(format!("{PREFIX}test-{}", random::hex::<8>().unwrap()));
        fs::create_dir(&abandoned).unwrap();
        File::create_new(abandoned.join(LOCK)).unwrap();
        let other = TempDir::create().unwrap();
        assert!(!abandoned.exists());
        assert!(alive.path().exists() && other.path().exists());
    }
}
