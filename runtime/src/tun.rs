//! TUN devices: a network interface whose packets a program reads and writes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use crate::sys;

/// A layer-3 device that is gone when this value is. Reading and writing never wait. The kernel splits what a program sent as a
/// train before it is read: each read is one IP packet.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Makes a device in the network namespace of the calling thread. It is down and has no address.
    ///
    /// # Errors
    /// Not privileged; a name that is taken ([`io::ErrorKind::ResourceBusy`]), persistent or not, empty or longer than 15 bytes, or no TUN in the kernel.
    pub fn create(name: &str) -> io::Result<Self> {
        if name.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        sys::tun::set_interface(&file, name.as_bytes())?;
        Ok(Self { file })
    }

    /// The next packet that the kernel sent into the device. `None`: there is none.
    ///
    /// # Errors
    /// The device was taken down.
    pub fn recv(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match (&self.file).read(packet) {
                Ok(len) => return Ok(Some(len)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets the kernel receive a packet from the device.
    ///
    /// # Errors
    /// The device is down, or what is sent is no IP packet.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        loop {
            match (&self.file).write(packet) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_device_can_have_is_refused() {
        for name in ["", "sixteen-bytes-lo", "far too long for any device"] {
            assert!(Tun::create(name).is_err(), "{name}");
        }
    }
}
