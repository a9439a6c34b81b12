//! `eventfd`, owned.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A non-blocking event counter that starts at 0.
pub(crate) fn eventfd() -> io::Result<File> {
    // SAFETY: takes no pointer; the flags are valid ones.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor; nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(File::from(fd))
}
