//! DNS over HTTPS (RFC 8484), HTTP/2 and HTTP/1.1: `GET /dns-query?dns=..` and `POST /dns-query`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use geodns_proto::select::Locate;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use runtime::clock;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;

use super::Shared;
use super::message::Reply;
use super::metrics::End;
use super::peer::Peer;

const PATH: &str = "/dns-query";
const MEDIA_TYPE: &str = "application/dns-message";
/// Longest query, and as base64.
const QUERY_BYTES_MAX: usize = 4_096;
const QUERY_CHARS_MAX: usize = QUERY_BYTES_MAX.div_ceil(3) * 4;
/// A body comes within this.
const BODY_WITHIN: Duration = Duration::from_secs(5);
/// The head of a request of HTTP/1.1 comes within this; also how long such a connection idles.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// No connection is used longer, however many places there are; the client makes another.
const LIFETIME: Duration = Duration::from_secs(120);
/// What is under way when it ends may take as long.
const LAST_ANSWER: Duration = Duration::from_secs(3);
/// Questions under way on one connection.
const STREAMS_MAX: u32 = 64;
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Answers until the connection ends.
pub(super) async fn serve<L: Locate + Send + Sync + 'static>(
    shared: &Arc<Shared<L>>,
    stream: TlsStream<TcpStream>,
    peer: &Arc<Peer>,
) -> End {
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(|request| {
        let (shared, peer) = (Arc::clone(shared), Arc::clone(peer));
        async move { Ok::<_, Infallible>(respond(&shared, request, &peer).await) }
    });
    let io = TokioIo::new(stream);
    if is_h2 {
        let serving = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX))
            .keep_alive_interval(HEAD_WITHIN)
            .keep_alive_timeout(BODY_WITHIN)
            .serve_connection(io, service);
        until_end(shared, peer, serving, |serving| serving.graceful_shutdown()).await
    } else {
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .serve_connection(io, service);
        until_end(shared, peer, serving, |serving| serving.graceful_shutdown()).await
    }
}

/// Serves until the client ends it or there is a reason to; `finish` says to take no more requests.
async fn until_end<L, C: Future>(
    shared: &Shared<L>,
    peer: &Peer,
    serving: C,
    finish: impl FnOnce(Pin<&mut C>),
) -> End {
    let mut serving = std::pin::pin!(serving);
    let end = tokio::select! {
        biased;
        _ = serving.as_mut() => return End::Peer,
        end = outlived(shared, peer) => end,
        () = shared.stopped() => End::Stopped,
    };
    finish(serving.as_mut());
    let _ = timeout(LAST_ANSWER, serving).await;
    end
}

/// Until the connection should no longer be there. Whether places are short is looked at again and again, so that who came early has
/// no more right to its place than who came late.
async fn outlived<L>(shared: &Shared<L>, peer: &Peer) -> End {
    let interval = shared.limits.idle_short.min(shared.limits.lifetime_short);
    loop {
        sleep(interval).await;
        let now = clock::now();
        if peer.age(now) >= LIFETIME || shared.is_old(peer, now) {
            return End::Old;
        }
        let is_idle = peer.silence(now) >= shared.limits.idle_short;
        if is_idle && shared.is_idling_short(peer.transport) {
            return End::Idle;
        }
    }
}

async fn respond<L: Locate>(
    shared: &Shared<L>,
    request: Request<Incoming>,
    peer: &Peer,
) -> Response<Full<Bytes>> {
    let query = match query(request).await {
        Ok(query) => query,
        Err(status) => return refusal(status),
    };
    match shared.reply(&query, peer) {
        Some(reply) => response(reply),
        None => refusal(StatusCode::BAD_REQUEST),
    }
}

/// Kept for as long as its records are, by no cache that others share where it is its asker's alone (RFC 8484 §5.1).
fn response(reply: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(reply.bytes)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    let who = if reply.is_private { "private, " } else { "" };
    if let Ok(value) = HeaderValue::try_from(format!("{who}max-age={}", reply.ttl_s)) {
        headers.insert(CACHE_CONTROL, value);
    }
    response
}

async fn query(request: Request<Incoming>) -> Result<Vec<u8>, StatusCode> {
    if request.uri().path() != PATH {
        return Err(StatusCode::NOT_FOUND);
    }
    match *request.method() {
        Method::GET => from_uri(request.uri().query().unwrap_or_default()),
        Method::POST => {
            let media_type = request.headers().get(CONTENT_TYPE);
            if media_type.is_none_or(|value| value != MEDIA_TYPE) {
                return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
            }
            let body = Limited::new(request.into_body(), QUERY_BYTES_MAX);
            match timeout(BODY_WITHIN, body.collect()).await {
                Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
                Ok(Err(_)) => Err(StatusCode::PAYLOAD_TOO_LARGE),
                Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
            }
        }
        _ => Err(StatusCode::METHOD_NOT_ALLOWED),
    }
}

fn from_uri(query: &str) -> Result<Vec<u8>, StatusCode> {
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("dns="))
        .ok_or(StatusCode::BAD_REQUEST)?;
    if value.len() > QUERY_CHARS_MAX {
        return Err(StatusCode::URI_TOO_LONG);
    }
    URL_SAFE_NO_PAD
        .decode(value.trim_end_matches('='))
        .map_err(|_| StatusCode::BAD_REQUEST)
}

fn refusal(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, POST"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_in_a_uri() {
        let long = format!("dns={}", "A".repeat(QUERY_CHARS_MAX + 1));
        for (query, expected) in [
            ("dns=AAEC", Ok(vec![0, 1, 2])),
            ("dns=AAE", Ok(vec![0, 1])),
            ("dns=AAE=", Ok(vec![0, 1])),
            ("x=1&dns=_-8", Ok(vec![0xff, 0xef])),
            ("dns=", Ok(vec![])),
            ("", Err(StatusCode::BAD_REQUEST)),
            ("ct=1", Err(StatusCode::BAD_REQUEST)),
            ("dns=!", Err(StatusCode::BAD_REQUEST)),
            (&long, Err(StatusCode::URI_TOO_LONG)),
        ] {
            assert_eq!(from_uri(query), expected, "{query:.20}");
        }
    }
}
