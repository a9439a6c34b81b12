//! Writing files that must not be lost, half written or read by others: keys, certificates, tokens.
//!
//! All files of a set are looked at before the first is written, each is complete before it has its name, and an
//! existing file is replaced only when the caller says so.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Readable by its owner alone.
pub const MODE_PRIVATE: u32 = 0o600;
/// Readable by everybody.
pub const MODE_PUBLIC: u32 = 0o644;

/// What to do about a file that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Refuse, and write nothing of the set.
    Keep,
    /// Replace it.
    Replace,
}

/// A file to write. `Debug` shows no contents.
pub struct NewFile {
    path: PathBuf,
    contents: String,
    mode: u32,
}

impl NewFile {
    /// A file only its owner can read.
    #[must_use]
    pub const fn private(path: PathBuf, contents: String) -> Self {
        Self {
            path,
            contents,
            mode: MODE_PRIVATE,
        }
    }

    /// A file everybody can read.
    #[must_use]
    pub const fn public(path: PathBuf, contents: String) -> Self {
        Self {
            path,
            contents,
            mode: MODE_PUBLIC,
        }
    }

    /// Where it goes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl std::fmt::Debug for NewFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewFile")
            .field("path", &self.path)
            .field("mode", &format_args!("{:o}", self.mode))
            .finish_non_exhaustive()
    }
}

/// Writes a set of files, making directories as needed.
///
/// # Errors
/// When one exists and may not be replaced (then none is written), or the file system refuses.
pub fn write_set(files: &[NewFile], existing: Existing) -> anyhow::Result<()> {
    if existing == Existing::Keep
        && let Some(file) = files
            .iter()
            .find(|file| file.path.symlink_metadata().is_ok())
    {
        bail!("{} exists; --force replaces it", file.path.display());
    }
    for file in files {
        write_one(file, existing).with_context(|| format!("writing {}", file.path.display()))?;
    }
    Ok(())
}

fn write_one(file: &NewFile, existing: Existing) -> io::Result<()> {
    let dir = match file.path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        Some(_) | None => Path::new("."),
    };
    fs::create_dir_all(dir)?;
    let mut name = std::ffi::OsString::from(".");
    name.push(file.path.file_name().unwrap_or_default());
    name.push(format!(".{}.part", std::process::id()));
    let part = dir.join(name);
    let written = write_part(&part, file).and_then(|()| match existing {
        Existing::Replace => fs::rename(&part, &file.path),
        // A link fails when the name was taken meanwhile; a rename would replace.
        Existing::Keep => fs::hard_link(&part, &file.path).and_then(|()| fs::remove_file(&part)),
    });
    if written.is_err() {
        let _gone_already = fs::remove_file(&part);
    }
    written
}

fn write_part(part: &Path, file: &NewFile) -> io::Result<()> {
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(file.mode)
        .open(part)?;
    out.write_all(file.contents.as_bytes())?;
    out.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::tempdir::TempDir;

    #[test]
    fn a_set_is_written_whole_or_not_at_all() {
        let dir = TempDir::create().unwrap();
        let (a, b) = (dir.path().join("x/a"), dir.path().join("b"));
        fs::write(&b, "old").unwrap();
        let set = [
            NewFile::private(a.clone(), "secret".into()),
            NewFile::public(b.clone(), "new".into()),
        ];
        let error = write_set(&set, Existing::Keep).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("{} exists; --force replaces it", b.display())
        );
        assert!(!a.exists());

        write_set(&set, Existing::Replace).unwrap();
        assert_eq!(fs::read_to_string(&a).unwrap(), "secret");
        assert_eq!(fs::read_to_string(&b).unwrap(), "new");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&a), mode(&b)), (MODE_PRIVATE, MODE_PUBLIC));
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 3, "only `x`, `b` and the lock: {left:?}");
    }

    #[test]
    fn debug_shows_no_contents() {
        let file = NewFile::private("k".into(), "secret".into());
        assert!(!format!("{file:?}").contains("secret"));
    }
}
