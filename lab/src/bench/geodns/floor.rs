//! What the kernel charges for a question and its answer, and nothing else: batches of 64, and what came goes back with the bit set
//! that makes it an answer.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use runtime::poll::Poller;
use runtime::udp::{BindOptions, ReplyBatch, UdpSocket};

/// Answers at `at` until killed.
pub(super) fn serve(at: SocketAddr) -> anyhow::Result<()> {
    let options = BindOptions {
        dont_fragment: true,
        ..BindOptions::default()
    };
    let socket = UdpSocket::bind(at, &options)?;
    let mut batch = ReplyBatch::new(SLOTS, BYTES_MAX);
    let mut poller = Poller::new();
    loop {
        poller.wait(&[socket.as_fd()], None)?;
        loop {
            let filled = batch.recv(&socket)?;
            for slot in 0..filled {
                let Some(request) = batch.request(slot) else {
                    continue;
                };
                let len = request.len;
                if let Some(flags) = request.buffer.get_mut(2) {
                    *flags |= 0x80;
                }
                batch.reply(slot, len);
            }
            batch.flush(&socket);
            if filled < SLOTS {
                break;
            }
        }
    }
}

/// As our name server's.
const SLOTS: usize = 64;
const BYTES_MAX: usize = 512;
