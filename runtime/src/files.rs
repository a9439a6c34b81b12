//! Reading files that people name: an endless, huge or silent one is an error, not a hang. Writing those that must be whole or as they were.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

/// The text of a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// It cannot be read, is a device, FIFO or directory, is longer, or is not UTF-8.
pub fn read_text(path: &Path, bytes_max: usize) -> io::Result<String> {
    regular_file(path)?;
    let take = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    // One byte more than is accepted shows that there is too much.
    File::open(path)?
        .take(take.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(io::Error::other(format!("longer than {bytes_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("not UTF-8"))
}

/// Longest write of [`probe_dir`].
const PROBE: &[u8] = b"Whether files can be kept here. May be removed.\n";

/// Writes `bytes` in place of what `path` holds. Whoever reads it, also after a loss of power, has the one or the other, whole. One
/// writer at a time.
///
/// # Errors
/// The directory cannot be written to, or is none. The file is as it was, but where only the directory's own write failed.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut draft = name.to_owned();
    draft.push(".new");
    let draft = path.with_file_name(draft);
    let written = write_through(&draft, bytes).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // What cannot be removed is removed the next time.
        let _ = fs::remove_file(&draft);
    }
    written?;
    sync_dir_of(path)
}

/// Removes a file, if it is there, also from the disk.
///
/// # Errors
/// It is there still, or may be after a loss of power.
pub fn remove(path: &Path) -> io::Result<()> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match fs::remove_file(path) {
        Err(error) if !gone(&error) => return Err(error),
        Ok(()) | Err(_) => {}
    }
    match sync_dir_of(path) {
        Err(error) if !gone(&error) => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether files can be kept in `dir`, by keeping one for a moment.
///
/// # Errors
/// Why not.
pub fn probe_dir(dir: &Path) -> io::Result<()> {
    let file = dir.join(format!(".probe-{}", std::process::id()));
    let kept = replace(&file, PROBE).and_then(|()| file.try_exists());
    let removed = remove(&file);
    if !kept? {
        return Err(io::Error::other("what is written there is not there"));
    }
    removed
}

fn write_through(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // What an earlier process left, whatever it is: to open a FIFO would be to wait.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// What a directory names is as little on the disk as what a file holds.
fn sync_dir_of(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = File::open(dir.unwrap_or_else(|| Path::new(".")))?;
    match dir.sync_all() {
        // There are file systems that have nothing to write there.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

/// Opening a FIFO would wait for a writer, and the caller with it.
pub(crate) fn regular_file(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_file() {
        Ok(())
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::issue::Dir;

    #[test]
    fn a_text_is_read_whole_or_not_at_all() {
        let dir = Dir::new();
        let read = |contents: &[u8], bytes_max| {
            let path = dir.path().join("file");
            fs::write(&path, contents).unwrap();
            read_text(&path, bytes_max).map_err(|error| error.to_string())
        };
        let error = |text: &str| Err(text.to_owned());
        assert_eq!(read("h\u{e9}".as_bytes(), 3), Ok("h\u{e9}".to_owned()));
        assert_eq!(
            read("h\u{e9}\u{e9}".as_bytes(), 3),
            error("longer than 3 bytes"),
            "though the bound cuts a character"
        );
        assert_eq!(read(b"", 0), Ok(String::new()));
        assert_eq!(read(&[0xff], 3), error("not UTF-8"));
    }

    #[test]
    fn a_file_is_replaced_whole_or_stays_as_it_was() {
        let dir = Dir::new();
        let path = dir.path().join("file");
        for text in ["one", "a longer one", ""] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let place = dir.path().join("place");
        fs::create_dir(&place).unwrap();
        assert!(replace(&place, b"a directory is there").is_err());
        assert!(replace(Path::new("/no/such/directory/file"), b"").is_err());
        assert!(replace(Path::new("/"), b"").is_err());
        let names = fs::read_dir(dir.path()).unwrap();
        assert_eq!(names.count(), 2, "no draft is left");
    }

    #[test]
    fn what_an_earlier_process_left_in_the_way_is_removed() {
        let dir = Dir::new();
        let path = dir.path().join("file");
        let draft = dir.path().join("file.new");
        // Sockets: like FIFOs they cannot be opened as files are.
        let _sockets = [&draft, &path].map(|path| UnixListener::bind(path).unwrap());
        replace(&path, b"text").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        for _ in 0..2 {
            remove(&path).unwrap();
            assert!(!path.exists());
        }
        assert!(remove(dir.path()).is_err(), "a directory");
    }

    #[test]
    fn a_directory_that_keeps_nothing_is_told() {
        let dir = Dir::new();
        probe_dir(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for place in [
            file.as_path(),
            Path::new("/no/such/directory"),
            Path::new("/proc"),
        ] {
            assert!(probe_dir(place).is_err(), "{}", place.display());
        }
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
        for path in ["/dev/zero", "/dev/null", "/"] {
            let error = read_text(Path::new(path), 10).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file", "{path}");
        }
    }
}
