//! Socket options that `socket2` does not have.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an option whose value is an `int`.
pub(crate) fn set_int(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value pointer and length describe a live `c_int`; the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            INT_BYTES,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Datagrams the kernel dropped because this socket's receive buffer was full (`SK_MEMINFO_DROPS`, sock_diag(7)).
pub(crate) fn receive_drops(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut info = [0u32; MEMINFO_VARS];
    let mut len = MEMINFO_BYTES;
    // SAFETY: `info` is writable for `len` bytes, and the kernel writes no more than `len`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    (result == 0)
        .then(|| info.get(MEMINFO_DROPS).copied())
        .flatten()
}

const INT_BYTES: libc::socklen_t = 4;
/// `linux/sock_diag.h`: an array of u32, `SK_MEMINFO_DROPS` is its ninth and last entry.
const MEMINFO_VARS: usize = 9;
const MEMINFO_DROPS: usize = 8;
const MEMINFO_BYTES: libc::socklen_t = 36;
/// `asm-generic/socket.h`.
const SO_MEMINFO: i32 = 55;
