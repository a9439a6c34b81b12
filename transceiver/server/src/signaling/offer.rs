//! `POST /whip`: an offer becomes a session (RFC 9725 §4.2).
//!
//! Cheap refusals come first: token, media type, PoP, load, rate, size. Nothing of the offer is parsed, and the engine
//! not asked, before all of them have passed.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, LOCATION};
use hyper::{Response, StatusCode};
use tokio::time::timeout;
use wire::hint::Minute;

use crate::engine::handle::{Created, OfferError};
use crate::signaling::ingress::{self, UnknownPop};
use crate::signaling::problem::{ACCEPT_PATCH, PATCH_TYPES, Problem, Reply, SDP};
use crate::signaling::route::{Asked, media_type, wanted_pop};
use crate::signaling::{App, ENGINE_TIMEOUT, body, candidates};
use crate::token::Token;

/// Names a session for people: the transceiver and the public id there.
pub(super) const FIRSTHOP_SESSION: HeaderName = HeaderName::from_static("firsthop-session");

/// Makes a session.
///
/// # Errors
/// The [`Problem`] to answer with.
pub(super) async fn create(app: &App, asked: &mut Asked<'_>) -> Result<Reply, Problem> {
    let settings = asked.settings;
    if media_type(asked.head).as_deref() != Some(SDP) {
        return Err(Problem::OfferType);
    }
    let pop = wanted_pop(asked.head)?;
    if ingress::select(settings.topology(), &settings.region, pop)
        .map_err(|UnknownPop| Problem::Bad("no PoP of this name serves this region"))?
        .is_empty()
    {
        return Err(Problem::Unavailable("no PoP serves this region"));
    }
    room(app, asked)?;
    let offer = body::read(asked.body, settings.body_len_max()).await?;
    let offer = text(&offer)?;
    // Last, because it asks somebody else.
    let ingress = candidates::of(app, asked, pop)
        .await
        .map_err(|UnknownPop| Problem::Bad("no PoP of this name serves this region"))?;
    let created = timeout(ENGINE_TIMEOUT, app.engine.create(offer, ingress))
        .await
        .unwrap_or(Err(OfferError::Busy))
        .map_err(refused)?;
    Ok(reply(app, asked, pop, created))
}

/// Load before rate, so that a refusal for load costs no token of the bucket.
fn room(app: &App, asked: &Asked<'_>) -> Result<(), Problem> {
    let limits = asked.settings.signaling();
    let load = app.engine.load();
    if load.draining {
        return Err(refused(OfferError::Draining));
    }
    if load.sessions >= limits.sessions_max {
        return Err(refused(OfferError::Full));
    }
    if load.pending >= limits.pending_max {
        return Err(refused(OfferError::Pending));
    }
    within_rate(app, asked)
}

/// Takes one from `signaling.offers_per_s`: all that makes the engine read a description or draw credentials does.
///
/// # Errors
/// [`Problem::Rate`].
pub(super) fn within_rate(app: &App, asked: &Asked<'_>) -> Result<(), Problem> {
    let per_s = asked.settings.signaling().offers_per_s;
    app.take_offer(per_s).map_err(|wait| Problem::Rate {
        retry_after_s: wait.as_secs() + 1,
    })
}

fn refused(error: OfferError) -> Problem {
    match error {
        // RFC 9725 §4.2: a malformed body is 400.
        OfferError::NotSdp => Problem::Bad("the body is not an SDP offer"),
        // RFC 9725 §4.4.2 and §4.4.3: understood, but tracks or sections that cannot be served are 422 (RFC 9110 §15.5.21).
        OfferError::NoAudio => Problem::Unprocessable("the offer has no audio to answer"),
        OfferError::Unsupported(why) => Problem::Unprocessable(why),
        OfferError::Full => Problem::Unavailable("this transceiver is full"),
        OfferError::Pending => Problem::Unavailable("too many sessions wait for their client"),
        OfferError::Draining => Problem::Unavailable("this transceiver is draining"),
        OfferError::Busy => Problem::Unavailable("this transceiver is busy"),
    }
}

/// 201 with the answer, where the session is, and the entity tag of its ICE session (RFC 9725 §4.2, §4.3.1).
fn reply(app: &App, asked: &Asked<'_>, pop: Option<&str>, created: Created) -> Reply {
    let settings = asked.settings;
    let token = Token {
        owner: settings.owner,
        key: created.key,
    };
    let issued = Minute::from_unix_s(runtime::clock::unix_s());
    let segment = token.seal(settings.ring(), issued, app.random());
    // The choice of a PoP stays in the URL, so that an ICE restart advertises it again.
    let location = match pop {
        Some(pop) => format!("{}/{segment}?pop={pop}", settings.public_path),
        None => format!("{}/{segment}", settings.public_path),
    };
    let session = format!("{}/{}", settings.node, created.id);
    let mut reply = sdp(StatusCode::CREATED, created.answer.into(), &created.etag);
    let headers = reply.headers_mut();
    for (name, value) in [(LOCATION, location), (FIRSTHOP_SESSION, session)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    headers.insert(ACCEPT_PATCH, HeaderValue::from_static(PATCH_TYPES));
    reply
}

/// A session description of ours.
pub(super) fn sdp(status: StatusCode, answer: Bytes, etag: &str) -> Reply {
    let mut reply = Response::new(Full::new(answer));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(SDP));
    set_etag(&mut reply, etag);
    reply
}

/// A strong entity tag (RFC 9110 §8.8.3).
pub(super) fn set_etag(reply: &mut Reply, etag: &str) {
    if let Ok(value) = HeaderValue::try_from(format!("\"{etag}\"")) {
        reply.headers_mut().insert(ETAG, value);
    }
}

/// The body as text.
///
/// # Errors
/// [`Problem::Bad`] when it is none.
pub(super) fn text(body: &[u8]) -> Result<String, Problem> {
    String::from_utf8(body.to_vec()).map_err(|_| Problem::Bad("the body is not an SDP offer"))
}
