//! `ppoll`.

use std::io;
use std::time::Duration;

/// Waits until one of `fds` has what its `events` ask for, or `timeout` passes. Returns how many are ready.
pub(crate) fn ppoll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    let count = libc::nfds_t::try_from(fds.len()).unwrap_or(0);
    // SAFETY: `fds` is a live slice of `count` elements; `timeout` is null or points at a live `timespec`; a null
    // signal mask leaves the thread's as it is.
    let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), count, timeout, std::ptr::null()) };
    usize::try_from(ready).map_err(|_| io::Error::last_os_error())
}
