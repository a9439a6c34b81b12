//! Waiting for sockets, a deadline and other threads at once: `ppoll` and an eventfd. No allocation, no registration
//! that could go stale, nothing async.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::sys;

/// Descriptors one wait watches at most.
pub const FDS_MAX: usize = 64;

/// Wakes a thread that waits in [`Poller::wait`] on this waker's descriptor. Clones wake the same thread.
#[derive(Clone, Debug)]
pub struct Waker {
    event: Arc<File>,
}

impl Waker {
    /// A waker that nobody has woken.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        let event = Arc::new(sys::eventfd::eventfd()?);
        Ok(Self { event })
    }

    /// Makes the descriptor readable until [`Self::drain`]. Any thread, never blocks.
    pub fn wake(&self) {
        // The only refusal is a counter at its maximum, and then the descriptor is readable already.
        let _ = (&*self.event).write(&1u64.to_ne_bytes());
    }

    /// Takes all wakes so far; whether there were any. Call it before looking at what the wake was about.
    pub fn drain(&self) -> bool {
        (&*self.event).read(&mut [0; 8]).is_ok()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Which descriptors of a wait are ready: bit `i` is descriptor `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready(u64);

impl Ready {
    /// Every descriptor: look at all of them.
    pub const ALL: Self = Self(u64::MAX);

    /// Whether descriptor `index` can be read, or has an error that reading will tell.
    #[must_use]
    pub const fn is_ready(self, index: usize) -> bool {
        index < FDS_MAX && self.0 >> index & 1 == 1
    }

    /// Whether the wait ended by its timeout or a signal.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Waits for readable descriptors. One per thread; reuses its memory.
#[derive(Debug)]
pub struct Poller {
    fds: Vec<libc::pollfd>,
}

impl Default for Poller {
    fn default() -> Self {
        Self::new()
    }
}

impl Poller {
    /// A poller for up to [`FDS_MAX`] descriptors.
    #[must_use]
    pub fn new() -> Self {
        Self {
            fds: Vec::with_capacity(FDS_MAX),
        }
    }

    /// Waits until a descriptor is readable, `timeout` passes (`None`: for ever; zero: look and return), or a signal
    /// arrives, which ends the wait with nothing ready.
    ///
    /// # Errors
    /// More than [`FDS_MAX`] descriptors, or the kernel is out of memory.
    pub fn wait(&mut self, fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Ready> {
        if fds.len() > FDS_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.fds.clear();
        self.fds.extend(fds.iter().map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }));
        match sys::poll::ppoll(&mut self.fds, timeout) {
            Ok(_) => Ok(self.ready()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Ready::default()),
            Err(error) => Err(error),
        }
    }

    fn ready(&self) -> Ready {
        let bits = self
            .fds
            .iter()
            .rev()
            .fold(0, |bits, fd| bits << 1 | u64::from(fd.revents != 0));
        Ready(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_from_another_thread_ends_the_wait_and_stays_until_drained() {
        let (idle, waker) = (Waker::new().unwrap(), Waker::new().unwrap());
        let mut poller = Poller::new();
        let fds = [idle.as_fd(), waker.as_fd()];
        assert!(poller.wait(&fds, Some(Duration::ZERO)).unwrap().is_none());
        let remote = waker.clone();
        let thread = std::thread::spawn(move || remote.wake());
        let ready = poller.wait(&fds, None).unwrap();
        thread.join().unwrap();
        assert!(ready.is_ready(1) && !ready.is_ready(0));
        assert!(waker.drain());
        assert!(!waker.drain());
        assert!(poller.wait(&fds, Some(Duration::ZERO)).unwrap().is_none());
    }

    #[test]
    fn a_timeout_ends_the_wait() {
        let waker = Waker::new().unwrap();
        let before = crate::clock::now();
        let ready = Poller::new()
            .wait(&[waker.as_fd()], Some(Duration::from_millis(5)))
            .unwrap();
        assert!(ready.is_none());
        assert!(crate::clock::now() - before >= Duration::from_millis(5));
    }

    #[test]
    fn too_many_descriptors_are_refused() {
        let waker = Waker::new().unwrap();
        let fds = [waker.as_fd(); FDS_MAX + 1];
        assert!(Poller::new().wait(&fds, Some(Duration::ZERO)).is_err());
        assert!(Poller::new().wait(&fds[1..], Some(Duration::ZERO)).is_ok());
    }
}
