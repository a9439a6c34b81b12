//! Reads a request body within a bound of bytes and of time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use hyper::header::EXPECT;
use tokio::time::timeout;

use crate::signaling::problem::Problem;

/// The whole body must have come by then.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an unwanted body that are read and thrown away, so that the client gets to read why.
const DISCARD_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How long that may take.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// The body, if it has `len_max` bytes at most and comes in time. Never holds more than that.
///
/// # Errors
/// [`Problem::TooLarge`], [`Problem::Slow`], [`Problem::Bad`] when the connection breaks.
pub(super) async fn read(body: &mut Incoming, len_max: usize) -> Result<Bytes, Problem> {
    // A declared length is refused before a byte of it is read.
    if body.size_hint().lower() > u64::try_from(len_max).unwrap_or(u64::MAX) {
        return Err(Problem::TooLarge);
    }
    timeout(BODY_TIMEOUT, collect(body, len_max))
        .await
        .map_err(|_| Problem::Slow)?
}

async fn collect(body: &mut Incoming, len_max: usize) -> Result<Bytes, Problem> {
    let mut collected = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::Bad("the body is broken"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if collected.len() + data.len() > len_max {
            return Err(Problem::TooLarge);
        }
        collected.extend_from_slice(&data);
    }
    Ok(collected.freeze())
}

/// Takes what is left of a body that will not be used. Closing a connection with unread bytes resets it, and the
/// client would lose the response. A client that waits for `100 Continue` has not sent anything, so nothing is asked for.
pub(super) async fn discard(headers: &HeaderMap, body: &mut Incoming) {
    if body.is_end_stream() || headers.contains_key(EXPECT) {
        return;
    }
    let drain = async {
        let mut left = DISCARD_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let len = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(len) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    // Too long or too slow: the connection is closed instead.
    let _ = timeout(DISCARD_TIMEOUT, drain).await;
}
