//! DNS over a stream: TCP (RFC 7766) and TLS. Each message behind its length, answered in the order they came.
//!
//! ```text
//! 2 bytes  len     2 bytes  len
//! +------+-------+------+-------+--
//! | len  | query | len  | query | ..       any number, without waiting for answers
//! +------+-------+------+-------+--
//! ```

use geodns_proto::select::Locate;
use runtime::clock;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout, timeout_at};

use super::Shared;
use super::metrics::End;
use super::peer::Peer;

/// A query longer than this ends its connection: a question and a few options are a few hundred bytes.
const QUERY_BYTES_MAX: usize = 4_096;
/// Answers that wait to be written before more queries are looked at.
const OUTBOX_BYTES_MAX: usize = 64 << 10;

/// Bytes of a length.
const LENGTH_BYTES: usize = 2;

/// Answers until the connection ends, and says why it did.
pub(super) async fn serve<L: Locate>(
    shared: &Shared<L>,
    mut io: impl AsyncRead + AsyncWrite + Unpin,
    peer: &Peer,
) -> End {
    let mut inbox = Vec::with_capacity(512);
    let mut outbox = Vec::with_capacity(512);
    loop {
        let complete = match answer_all(shared, &mut inbox, &mut outbox, peer) {
            Ok(complete) => complete,
            Err(end) => {
                let _ = timeout(shared.limits.write, io.write_all(&outbox)).await;
                return end;
            }
        };
        match timeout(shared.limits.write, write(&mut io, &mut outbox)).await {
            Err(_) => return End::SlowReader,
            Ok(Err(_)) => return End::Peer,
            Ok(Ok(())) if !complete => {
                tokio::task::yield_now().await;
                continue;
            }
            Ok(Ok(())) => {}
        }
        if shared.is_old(peer, clock::now()) {
            return End::Old;
        }
        if let Err(end) = read(shared, &mut io, &mut inbox, peer).await {
            return end;
        }
    }
}

/// Answers every whole query of the inbox. `false`: the outbox is full first.
fn answer_all<L: Locate>(
    shared: &Shared<L>,
    inbox: &mut Vec<u8>,
    outbox: &mut Vec<u8>,
    peer: &Peer,
) -> Result<bool, End> {
    let mut rest = inbox.as_slice();
    let mut complete = true;
    while let Some((&length, behind)) = rest.split_first_chunk::<LENGTH_BYTES>() {
        let len = usize::from(u16::from_be_bytes(length));
        if len > QUERY_BYTES_MAX {
            return Err(End::LongQuery);
        }
        let Some((query, behind)) = behind.split_at_checked(len) else {
            break;
        };
        if outbox.len() > OUTBOX_BYTES_MAX {
            complete = false;
            break;
        }
        let reply = shared.reply(query, peer);
        // Nobody who speaks DNS sends what deserves no answer over a stream.
        let bytes = reply.ok_or(End::Garbage)?.bytes;
        let length = u16::try_from(bytes.len()).map_err(|_| End::Garbage)?;
        outbox.extend_from_slice(&length.to_be_bytes());
        outbox.extend_from_slice(&bytes);
        rest = behind;
    }
    let taken = inbox.len() - rest.len();
    inbox.drain(..taken);
    Ok(complete)
}

async fn write(io: &mut (impl AsyncWrite + Unpin), outbox: &mut Vec<u8>) -> std::io::Result<()> {
    if outbox.is_empty() {
        return Ok(());
    }
    io.write_all(outbox).await?;
    io.flush().await?;
    outbox.clear();
    Ok(())
}

/// Reads until the inbox has a whole query.
async fn read<L>(
    shared: &Shared<L>,
    io: &mut (impl AsyncRead + Unpin),
    inbox: &mut Vec<u8>,
    peer: &Peer,
) -> Result<(), End> {
    let within = |within| Instant::from_std(clock::now()) + within;
    let (mut deadline, mut late) = if inbox.is_empty() {
        (within(shared.idle(peer.transport)), End::Idle)
    } else {
        (within(shared.limits.query), End::SlowQuery)
    };
    loop {
        let was_empty = inbox.is_empty();
        // What has come is read before the node's end is looked at. Half a query gets its time even then.
        let read = tokio::select! {
            biased;
            read = timeout_at(deadline, io.read_buf(inbox)) => read,
            () = shared.stopped(), if was_empty => return Err(End::Stopped),
        };
        match read {
            Err(_) => return Err(late),
            Ok(Ok(0) | Err(_)) => return Err(End::Peer),
            Ok(Ok(_)) => {}
        }
        if has_query(inbox) {
            return Ok(());
        }
        if was_empty {
            (deadline, late) = (within(shared.limits.query), End::SlowQuery);
        }
    }
}

/// Whether the inbox begins with a whole query, or with a length that ends the connection.
fn has_query(inbox: &[u8]) -> bool {
    inbox
        .split_first_chunk::<LENGTH_BYTES>()
        .is_some_and(|(length, rest)| {
            let len = usize::from(u16::from_be_bytes(*length));
            len > QUERY_BYTES_MAX || rest.len() >= len
        })
}
