//! `TUNSETIFF`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `struct ifreq` as far as the call reads it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    /// A `short` there; the highest flag is its sign.
    flags: u16,
    rest: [u8; 22],
}

/// Makes `tun`, an open `/dev/net/tun`, the device `name` of the calling thread's network namespace: layer 3, packets as they are.
/// One that is there already is not taken over: it may outlive its holder.
pub(crate) fn set_interface(tun: &File, name: &[u8]) -> io::Result<()> {
    let mut request = Request {
        name: [0; libc::IFNAMSIZ],
        // All are small positive constants.
        flags: u16::try_from(libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL)
            .map_err(|_| io::ErrorKind::InvalidInput)?,
        rest: [0; 22],
    };
    // The last byte stays 0.
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.name.iter_mut().zip(name) {
        *to = *from;
    }
    // SAFETY: the descriptor is open for the whole call; the request is as long as the kernel's `struct ifreq` (40 bytes) and
    // lives until it returns.
    let done = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_as_long_as_the_kernels() {
        assert_eq!(size_of::<Request>(), size_of::<libc::ifreq>());
    }
}
