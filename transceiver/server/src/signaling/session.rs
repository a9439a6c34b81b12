//! `PATCH` and `DELETE` of a session, here or at its owner (RFC 9725 §4.2, §4.3).
//!
//! ```text
//! PATCH application/trickle-ice-sdpfrag   credentials the session knows, or none  -> 204, trickle
//!                                         other credentials                       -> 200, ICE restart
//! PATCH application/sdp                   an offer                                -> 200, renegotiation (our extension)
//! DELETE                                                                          -> 200, then 404
//! ```
//!
//! A restart and a renegotiation cost the engine what an offer does, so they are taken from the same rate.

use std::future::Future;

use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue, IF_MATCH};
use hyper::{Method, Response, StatusCode};
use tokio::time::timeout;

use crate::engine::handle::{IceParameters, Precondition, SessionError, SessionKey};
use crate::signaling::ingress::UnknownPop;
use crate::signaling::offer::{sdp, set_etag, text, within_rate};
use crate::signaling::precondition::{self, IfMatchError};
use crate::signaling::problem::{Problem, Reply, SDP, SDPFRAG};
use crate::signaling::route::{Asked, From, media_type, wanted_pop};
use crate::signaling::sdpfrag::{self, Credentials, Fragment};
use crate::signaling::{App, ENGINE_TIMEOUT, body, candidates, forward};
use crate::token::Token;

/// Changes or ends the session of a URL segment.
///
/// # Errors
/// The [`Problem`] to answer with.
pub(super) async fn change(
    app: &App,
    asked: &mut Asked<'_>,
    segment: &str,
) -> Result<Reply, Problem> {
    let settings = asked.settings;
    let token = Token::open(settings.ring(), segment).or_else(|_| {
        // The key that sealed the route may have been rotated away under a long call: then it is ours or nobody's.
        let key = Token::key_of(segment).map_err(|_| NO_SESSION)?;
        let owner = settings.owner;
        Ok(Token { owner, key })
    })?;
    if token.owner == settings.owner {
        return if asked.head.method == Method::DELETE {
            end(app, token.key).await
        } else {
            patch(app, asked, token.key).await
        };
    }
    // One hop is enough: a transceiver passes a request to the owner, or the two disagree about the topology. A session of
    // another region is not ours to pass on either.
    if asked.from == From::Transceiver || token.owner.region != settings.owner.region {
        return Err(Problem::Misdirected);
    }
    // An owner that is no longer in the topology has taken its sessions with it.
    let owner = settings.topology().owner(token.owner).ok_or(NO_SESSION)?;
    forward::pass(app, asked, owner).await
}

const NO_SESSION: Problem = Problem::NotFound("no such session");

/// `DELETE` ignores entity tags (RFC 9725 §4.3.1).
async fn end(app: &App, key: SessionKey) -> Result<Reply, Problem> {
    in_time(app.engine.end(key)).await.map_err(failed)?;
    Ok(Response::new(Full::default()))
}

async fn patch(app: &App, asked: &mut Asked<'_>, key: SessionKey) -> Result<Reply, Problem> {
    let media_type = media_type(asked.head);
    let is_offer = match media_type.as_deref() {
        Some(SDPFRAG) => false,
        Some(SDP) => true,
        Some(_) | None => return Err(Problem::PatchType),
    };
    let lines = asked.head.headers.get_all(IF_MATCH);
    let preconditions = precondition::parse(lines.iter().map(HeaderValue::as_bytes)).map_err(
        |error| match error {
            IfMatchError::Missing => Problem::IfMatchMissing,
            IfMatchError::Malformed => Problem::Bad("If-Match is malformed"),
        },
    )?;
    if is_offer {
        within_rate(app, asked)?;
    }
    let body = body::read(asked.body, asked.settings.body_len_max()).await?;
    if is_offer {
        let offer = text(&body)?;
        renegotiate(app, key, preconditions, &offer).await
    } else {
        let fragment = sdpfrag::parse(&body).map_err(|error| Problem::Bad(reason(error)))?;
        trickle_or_restart(app, asked, key, preconditions, fragment).await
    }
}

const fn reason(error: sdpfrag::FragmentError) -> &'static str {
    use sdpfrag::FragmentError as E;
    match error {
        E::Malformed => "the body is not an SDP fragment",
        E::Empty => "the fragment is empty",
        E::TooLong => "the fragment has too many lines or candidates",
        E::BadCredentials => "ice-ufrag and ice-pwd are not usable",
    }
}

async fn renegotiate(
    app: &App,
    key: SessionKey,
    preconditions: Vec<Precondition>,
    offer: &str,
) -> Result<Reply, Problem> {
    let answer = first_match(preconditions, |precondition| {
        app.engine.renegotiate(key, precondition, offer.to_owned())
    })
    .await?;
    Ok(sdp(StatusCode::OK, answer.sdp.into(), &answer.etag))
}

/// RFC 9725 §4.3.3: credentials that differ from the client's current ones are an ICE restart, whatever `If-Match` says;
/// the same ones, or none, belong to a trickled candidate. The engine knows the current ones and calls others a mismatch.
async fn trickle_or_restart(
    app: &App,
    asked: &Asked<'_>,
    key: SessionKey,
    preconditions: Vec<Precondition>,
    fragment: Fragment<'_>,
) -> Result<Reply, Problem> {
    let ufrag = fragment.credentials.map(|client| client.ufrag.to_owned());
    let trickled = first_match(preconditions.clone(), |precondition| {
        app.engine.trickle(key, precondition, ufrag.clone())
    })
    .await;
    match (trickled, fragment.credentials) {
        // RFC 9725 §4.3.2: no body and no entity tag.
        (Ok(()), _) => {
            let mut reply = Response::new(Full::default());
            *reply.status_mut() = StatusCode::NO_CONTENT;
            Ok(reply)
        }
        (Err(Problem::EtagMismatch), Some(client)) => {
            within_rate(app, asked)?;
            let ours = first_match(preconditions, |precondition| {
                let (ufrag, pwd) = (client.ufrag.to_owned(), client.pwd.to_owned());
                app.engine.restart_ice(key, precondition, ufrag, pwd)
            })
            .await?;
            Ok(restarted(app, asked, &ours, fragment.media).await)
        }
        (Err(problem), _) => Err(problem),
    }
}

/// RFC 9725 §4.3.3: our fragment and the entity tag of the restarted ICE session. The candidates are those of this moment, so
/// a restart also leads a client away from a PoP that the topology has lost.
async fn restarted(
    app: &App,
    asked: &Asked<'_>,
    ours: &IceParameters,
    media: Option<(&str, &str)>,
) -> Reply {
    let pop = wanted_pop(asked.head).ok().flatten();
    let candidates = match candidates::of(app, asked, pop).await {
        Ok(candidates) => candidates,
        Err(UnknownPop) => candidates::of(app, asked, None).await.unwrap_or_default(),
    };
    let credentials = Credentials {
        ufrag: &ours.ufrag,
        pwd: &ours.pwd,
    };
    let body = sdpfrag::render(credentials, media, &candidates);
    let mut reply = Response::new(Full::from(body));
    let content_type = HeaderValue::from_static(SDPFRAG);
    reply.headers_mut().insert(CONTENT_TYPE, content_type);
    set_etag(&mut reply, &ours.etag);
    reply
}

/// Asks with one entity tag after the other until one is the session's (RFC 9110 §13.1.1). No tag at all, because all
/// were weak, is a mismatch.
async fn first_match<T, F>(
    preconditions: Vec<Precondition>,
    ask: impl Fn(Precondition) -> F,
) -> Result<T, Problem>
where
    F: Future<Output = Result<T, SessionError>>,
{
    for precondition in preconditions {
        match in_time(ask(precondition)).await {
            Err(SessionError::EtagMismatch) => {}
            outcome => return outcome.map_err(failed),
        }
    }
    Err(Problem::EtagMismatch)
}

async fn in_time<T>(
    asking: impl Future<Output = Result<T, SessionError>>,
) -> Result<T, SessionError> {
    timeout(ENGINE_TIMEOUT, asking)
        .await
        .unwrap_or(Err(SessionError::Busy))
}

const fn failed(error: SessionError) -> Problem {
    match error {
        SessionError::NotFound => NO_SESSION,
        SessionError::EtagMismatch => Problem::EtagMismatch,
        SessionError::BadSdp(why) => Problem::Bad(why),
        SessionError::Busy => Problem::Unavailable("this transceiver is busy"),
    }
}
