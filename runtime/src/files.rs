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

/// Writes `bytes` in place of what `path` holds. Whoever reads it, also after a loss of power, has the one or the other, whole. One
/// writer at a time.
///
/// # Errors
/// The directory cannot be written to, or is none. The file is as it was.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut draft = name.to_owned();
    draft.push(".new");
    let draft = path.with_file_name(draft);
    let written = write_through(&draft, bytes).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // What cannot be removed is written over the next time.
        let _ = fs::remove_file(&draft);
    }
    written
}

fn write_through(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
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
    fn what_is_no_file_is_not_opened() {
        for path in ["/dev/zero", "/dev/null", "/"] {
            let error = read_text(Path::new(path), 10).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file", "{path}");
        }
    }
}
