//! WHIP over real HTTP against a fake engine: exact statuses and headers.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share panic as tests do"
)]

mod whip;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::json;
use transceiver::engine::handle::{EngineLoad, OfferError};

use whip::client::{Response, connect, http, raw, read_one, read_response};
use whip::node::{Network, Node};
use whip::{OFFER, SDP, SDPFRAG, VIDEO_OFFER, fragment};

#[test]
fn a_session_from_offer_to_end() {
    let network = Network::new(1);
    let node = network.start(1);
    let created = http(node.whip, "POST", "/whip", &[SDP], OFFER);
    assert_eq!(created.status, 201);
    assert_eq!(created.header("content-type"), Some("application/sdp"));
    assert_eq!(created.header("etag"), Some("\"ice-1-1\""));
    assert_eq!(created.header("firsthop-session"), Some("eu-t1/1"));
    let patch_types = "application/trickle-ice-sdpfrag, application/sdp";
    assert_eq!(created.header("accept-patch"), Some(patch_types));
    assert_eq!(created.header("access-control-allow-origin"), Some("*"));
    assert_eq!(created.body, "v=0\r\na=answer-to:1\r\n");
    // The path clients see is that of the region's URL; the load balancer strips its prefix again.
    let location = created.header("location").unwrap();
    let path = location.strip_prefix("/eu").unwrap();
    assert_eq!(path.len(), "/whip/".len() + 45, "{path}");
    let expected = ["192.0.2.1:3478", "[2001:db8::1]:3478", "192.0.2.3:3478"];
    let expected: Vec<_> = expected
        .iter()
        .map(|a| a.parse::<SocketAddr>().unwrap())
        .collect();
    assert_eq!(node.engine.sessions()[0].ingress, expected);

    let current = ("If-Match", "\"ice-1-1\"");
    let trickled = http(
        node.whip,
        "PATCH",
        path,
        &[SDPFRAG, current],
        fragment("EsAw"),
    );
    assert_eq!((trickled.status, &*trickled.body), (204, ""));
    assert_eq!(trickled.header("etag"), None);

    let restarted = http(
        node.whip,
        "PATCH",
        path,
        &[SDPFRAG, ("If-Match", "*")],
        fragment("ysXw"),
    );
    assert_eq!(restarted.status, 200);
    assert_eq!(restarted.header("etag"), Some("\"ice-1-2\""));
    assert_eq!(restarted.header("content-type"), Some(SDPFRAG.1));
    assert_eq!(
        restarted.body,
        "a=ice-lite\r\na=ice-ufrag:our2\r\na=ice-pwd:serverserverserverserver\r\n\
         m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
         a=candidate:1 1 udp 2130706431 192.0.2.1 3478 typ host\r\n\
         a=candidate:2 1 udp 2130706175 2001:db8::1 3478 typ host\r\n\
         a=candidate:3 1 udp 2130705919 192.0.2.3 3478 typ host\r\na=end-of-candidates\r\n"
    );
}

#[test]
fn entity_tags_follow_the_ice_session() {
    let network = Network::new(1);
    let node = network.start(1);
    let path = &session(&node);
    let patch = |content_type, if_match, body: &str| {
        let headers = [content_type, ("If-Match", if_match)];
        http(node.whip, "PATCH", path, &headers, body)
    };
    assert_eq!(patch(SDPFRAG, "*", &fragment("ysXw")).status, 200);
    // The old entity tag names an ICE session that is over.
    patch(SDPFRAG, "\"ice-1-1\"", &fragment("ysXw")).is_problem(412);
    // Other credentials are a restart with the current entity tag too; the client's own ones with `*` are none.
    let again = patch(SDPFRAG, "\"ice-1-2\"", &fragment("third"));
    let expected = (200, Some("\"ice-1-3\""));
    assert_eq!((again.status, again.header("etag")), expected);
    assert_eq!(patch(SDPFRAG, "\"*\"", &fragment("third")).status, 204);
    assert_eq!(
        patch(SDPFRAG, "\"a\", \"ice-1-3\"", &fragment("third")).status,
        204
    );

    let renegotiated = patch(SDP, "\"ice-1-3\"", OFFER);
    assert_eq!(renegotiated.status, 200);
    assert_eq!(renegotiated.header("content-type"), Some("application/sdp"));
    assert_eq!(renegotiated.header("etag"), Some("\"ice-1-3\""));
    assert_eq!(renegotiated.body, "v=0\r\na=renegotiated\r\n");

    // RFC 9725 §4.3.1: DELETE ignores entity tags.
    let ended = http(node.whip, "DELETE", path, &[("If-Match", "\"old\"")], "");
    assert_eq!((ended.status, &*ended.body), (200, ""));
    http(node.whip, "DELETE", path, &[], "").is_problem(404);
    patch(SDPFRAG, "*", &fragment("x234")).is_problem(404);
    assert!(node.engine.sessions().is_empty());
}

/// What is wrong, where `SESSION` is one that exists and `tag` its entity tag; `-` leaves a header out.
const BAD_REQUESTS: &str = "
    POST   /whip                  sdp   -      text         400
    POST   /whip                  sdp   -      nothing      400
    POST   /whip                  sdp   -      binary       400
    POST   /whip                  sdp   -      no-media     422
    POST   /whip                  sdp   -      video        422
    POST   /whip                  sdp   -      mebibyte     413
    POST   /whip                  text  -      offer        415  accept-post
    POST   /whip                  frag  -      offer        415  accept-post
    POST   /whip                  -     -      offer        415  accept-post
    POST   /whip                  text  -      mebibyte     415  accept-post
    POST   /whip?pop=lhr          sdp   -      offer        400
    POST   /whip?pop=nyc          sdp   -      offer        400
    POST   /whip?pop=             sdp   -      offer        400
    POST   /whip?pop=ams&pop=sin  sdp   -      offer        400
    POST   /                      sdp   -      offer        404
    POST   /whipped               sdp   -      offer        404
    DELETE /whip/                 -     -      nothing      404
    DELETE /whip/a/b              -     -      nothing      404
    DELETE /whip/UNKNOWN          -     -      nothing      404
    PATCH  /whip/UNKNOWN          frag  tag    fragment     404
    PATCH  /whip/UNKNOWN          frag  -      fragment     428
    PATCH  SESSION                -     tag    fragment     415  accept-patch
    PATCH  SESSION                text  tag    fragment     415  accept-patch
    PATCH  SESSION                frag  -      fragment     428
    PATCH  SESSION                sdp   -      offer        428
    PATCH  SESSION                frag  other  fragment     412
    PATCH  SESSION                frag  weak   fragment     412
    PATCH  SESSION                sdp   other  offer        412
    PATCH  SESSION                frag  bare   fragment     400
    PATCH  SESSION                frag  tag    nothing      400
    PATCH  SESSION                frag  tag    text         400
    PATCH  SESSION                frag  tag    ufrag-alone  400
    PATCH  SESSION                sdp   tag    text         400
    PATCH  SESSION                frag  tag    mebibyte     413
";

/// Every bad request has its status, a one-line problem and the headers that go with it; none changes a session.
#[test]
fn bad_requests() {
    let network = Network::new(1);
    let node = network.start(1);
    let session = session(&node);
    for row in BAD_REQUESTS.lines().filter(|row| !row.trim().is_empty()) {
        let words: Vec<&str> = row.split_whitespace().collect();
        let [
            method,
            path,
            content_type,
            if_match,
            body,
            status,
            header @ ..,
        ] = &*words
        else {
            panic!("{row}")
        };
        let path = path
            .replace("SESSION", &session)
            .replace("UNKNOWN", &"A".repeat(45));
        let mut headers = Vec::new();
        headers.extend(content_type_named(content_type).map(|value| ("Content-Type", value)));
        headers.extend(if_match_named(if_match).map(|value| ("If-Match", value)));
        let response = http(node.whip, method, &path, &headers, body_named(body));
        assert_eq!(response.status.to_string(), *status, "{row}: {response:?}");
        response.is_problem(response.status);
        let allowed = response.header("access-control-allow-origin");
        assert_eq!(allowed, Some("*"), "{row}");
        for name in ["accept-post", "accept-patch"] {
            let expected = match name {
                "accept-post" => "application/sdp",
                _ => "application/trickle-ice-sdpfrag, application/sdp",
            };
            let expected = (header == [name]).then_some(expected);
            assert_eq!(response.header(name), expected, "{row}");
        }
    }
    assert_eq!(node.engine.sessions().len(), 1);
    assert_eq!(node.engine.sessions()[0].generation, 1);
}

fn content_type_named(name: &str) -> Option<&'static str> {
    match name {
        "sdp" => Some(SDP.1),
        "frag" => Some(SDPFRAG.1),
        "text" => Some("text/plain"),
        _ => None,
    }
}

fn if_match_named(name: &str) -> Option<&'static str> {
    match name {
        "tag" => Some("\"ice-1-1\""),
        "other" => Some("\"ice-1-9\""),
        "weak" => Some("W/\"ice-1-1\""),
        "bare" => Some("ice-1-1"),
        _ => None,
    }
}

fn body_named(name: &str) -> Vec<u8> {
    match name {
        "nothing" => Vec::new(),
        "text" => b"hello".to_vec(),
        "binary" => vec![0xff; 9],
        "no-media" => b"v=0\r\n".to_vec(),
        "video" => VIDEO_OFFER.as_bytes().to_vec(),
        "offer" => OFFER.as_bytes().to_vec(),
        "fragment" => fragment("EsAw").into_bytes(),
        "ufrag-alone" => b"a=ice-ufrag:abcd".to_vec(),
        "mebibyte" => vec![b'v'; 1024 * 1024],
        other => panic!("no body is called {other}"),
    }
}

/// RFC 9725 §4.2: these methods are reserved, and `Allow` says which are not.
#[test]
fn methods() {
    let network = Network::new(1);
    let node = network.start(1);
    let path = session(&node);
    for (path, methods, allow) in [
        (
            "/whip",
            ["GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE"],
            "POST, OPTIONS",
        ),
        (
            &*path,
            ["GET", "HEAD", "PUT", "POST", "TRACE", "BREW"],
            "PATCH, DELETE, OPTIONS",
        ),
    ] {
        for method in methods {
            let response = http(node.whip, method, path, &[SDP], "");
            assert_eq!(response.status, 405, "{method} {path}");
            assert_eq!(response.header("allow"), Some(allow));
            if method == "HEAD" {
                assert_eq!(response.body, "");
            } else {
                response.is_problem(405);
            }
        }
    }
    assert_eq!(node.engine.sessions().len(), 1);
}

#[test]
fn cross_origin() {
    let mut network = Network::new(1);
    *network.signaling() = json!({ "cors_origins": ["https://app.test"] });
    network.secret = Some(b"0123456789abcdef0123456789abcdef".to_vec());
    let node = network.start(1);
    let origin = ("Origin", "https://app.test");
    let preflight = |path, origin| {
        let wanted = [
            origin,
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "content-type"),
        ];
        // No token: a browser sends none with a preflight.
        http(node.whip, "OPTIONS", path, &wanted, "")
    };
    let response = preflight("/whip", origin);
    assert_eq!((response.status, &*response.body), (200, ""));
    for (name, value) in [
        ("access-control-allow-origin", "https://app.test"),
        ("access-control-allow-methods", "POST, OPTIONS"),
        (
            "access-control-allow-headers",
            "Authorization, Content-Type, If-Match",
        ),
        ("access-control-max-age", "7200"),
        ("accept-post", "application/sdp"),
        ("allow", "POST, OPTIONS"),
        ("vary", "Origin"),
    ] {
        assert_eq!(response.header(name), Some(value), "{name}");
    }
    let response = preflight("/whip/x", origin);
    let methods = response.header("access-control-allow-methods");
    assert_eq!(methods, Some("PATCH, DELETE, OPTIONS"));
    let types = "application/trickle-ice-sdpfrag, application/sdp";
    assert_eq!(response.header("accept-patch"), Some(types));
    let response = preflight("/whip", ("Origin", "https://evil.test"));
    assert_eq!(response.header("access-control-allow-origin"), None);
    assert_eq!(response.header("access-control-allow-methods"), None);
    // A page must be able to read why it failed.
    let response = http(node.whip, "POST", "/whip", &[SDP, origin], OFFER);
    response.is_problem(401);
    let allowed = response.header("access-control-allow-origin");
    assert_eq!(allowed, Some("https://app.test"));
    let exposed = "Location, ETag, Link, firsthop-session, Retry-After";
    assert_eq!(
        response.header("access-control-expose-headers"),
        Some(exposed)
    );
}

#[test]
fn bearer_tokens() {
    let secret = b"0123456789abcdef0123456789abcdef";
    let mut network = Network::new(1);
    network.secret = Some(secret.to_vec());
    let node = network.start(1);
    let now = runtime::clock::unix_s();
    let bearer = |secret: &[u8], exp: u64| format!("Bearer {}", jwt(secret, exp));
    let (good, expired) = (bearer(secret, now + 60), bearer(secret, now - 1));
    let forged = bearer(b"another secret of enough bytes...", now + 60);
    let created = http(
        node.whip,
        "POST",
        "/whip",
        &[SDP, ("Authorization", &good)],
        OFFER,
    );
    assert_eq!(created.status, 201);
    let path = created
        .header("location")
        .unwrap()
        .strip_prefix("/eu")
        .unwrap()
        .to_owned();
    let plain = "Bearer realm=\"firsthop\"";
    let invalid = "Bearer realm=\"firsthop\", error=\"invalid_token\"";
    for (method, path, headers) in [
        ("POST", "/whip", vec![SDP]),
        ("PATCH", &*path, vec![SDPFRAG, ("If-Match", "*")]),
        ("DELETE", &*path, vec![]),
    ] {
        for (authorization, challenge) in [
            (None, plain),
            (Some("Basic dTpw"), plain),
            (Some(&*expired), invalid),
            (Some(&*forged), invalid),
            (Some("Bearer x"), invalid),
        ] {
            let mut headers = headers.clone();
            headers.extend(authorization.map(|value| ("Authorization", value)));
            let response = http(node.whip, method, path, &headers, OFFER);
            response.is_problem(401);
            let got = response.header("www-authenticate").unwrap();
            assert!(got.starts_with(challenge), "{got}");
            assert_eq!(got.contains("error="), challenge == invalid);
        }
    }
    let headers = [SDPFRAG, ("If-Match", "*"), ("Authorization", &good)];
    let response = http(node.whip, "PATCH", &path, &headers, fragment("EsAw"));
    assert_eq!(response.status, 204);
    let response = http(node.whip, "DELETE", &path, &[("Authorization", &good)], "");
    assert_eq!(response.status, 200);
    assert_eq!(node.engine.state.lock().unwrap().offers, 1);
}

#[test]
fn limits_before_the_offer_is_looked_at() {
    let mut network = Network::new(1);
    *network.signaling() = json!({ "sessions_max": 10, "pending_max": 5, "offers_per_s": 1 });
    let node = network.start(1);
    let load = |sessions, pending, draining| EngineLoad {
        sessions,
        pending,
        draining,
    };
    for full in [load(10, 0, false), load(5, 5, false), load(0, 0, true)] {
        node.engine.set(|state| state.load = Some(full));
        let response = http(node.whip, "POST", "/whip", &[SDP], OFFER);
        response.is_problem(503);
        assert_eq!(response.header("retry-after"), Some("2"));
    }
    node.engine
        .set(|state| state.load = Some(load(9, 4, false)));
    assert_eq!(node.engine.state.lock().unwrap().offers, 0);
    // The refusals above have cost nothing: one passes, and no second one in the same second.
    assert_eq!(http(node.whip, "POST", "/whip", &[SDP], OFFER).status, 201);
    let response = http(node.whip, "POST", "/whip", &[SDP], OFFER);
    response.is_problem(429);
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(node.engine.state.lock().unwrap().offers, 1);
}

#[test]
fn changes_that_cost_as_much_as_an_offer_share_its_rate() {
    let mut network = Network::new(1);
    *network.signaling() = json!({ "offers_per_s": 2 });
    let node = network.start(1);
    // One of the burst goes to the session, one to the renegotiation; the next change has to wait for half a second.
    let path = &session(&node);
    let patch = |content_type, body: &str| {
        let headers = [content_type, ("If-Match", "*")];
        http(node.whip, "PATCH", path, &headers, body)
    };
    assert_eq!(patch(SDP, OFFER).status, 200);
    let asked = node.engine.state.lock().unwrap().requests;
    let refused = patch(SDP, OFFER);
    refused.is_problem(429);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(node.engine.state.lock().unwrap().requests, asked);
    let refused = patch(SDPFRAG, &fragment("ysXw"));
    refused.is_problem(429);
    assert_eq!(refused.header("retry-after"), Some("1"));
    // Neither a candidate nor the end waits.
    assert_eq!(patch(SDPFRAG, &fragment("EsAw")).status, 204);
    let generations: Vec<_> = node
        .engine
        .sessions()
        .iter()
        .map(|s| s.generation)
        .collect();
    assert_eq!(generations, [1], "no restart has reached the engine");
    assert_eq!(http(node.whip, "DELETE", path, &[], "").status, 200);
}

#[test]
fn what_the_engine_refuses() {
    let network = Network::new(1);
    let node = network.start(1);
    for (error, status) in [
        (OfferError::NotSdp, 400),
        (OfferError::NoAudio, 422),
        (OfferError::Unsupported("no Opus"), 422),
        (OfferError::Full, 503),
        (OfferError::Pending, 503),
        (OfferError::Draining, 503),
        (OfferError::Busy, 503),
    ] {
        node.engine.set(|state| state.refuse = Some(error));
        let response = http(node.whip, "POST", "/whip", &[SDP], OFFER);
        response.is_problem(status);
        let retry_after = response.header("retry-after");
        assert_eq!(retry_after.is_some(), status == 503, "{error:?}");
    }
    node.engine
        .set(|state| (state.refuse, state.stuck) = (None, true));
    http(node.whip, "POST", "/whip", &[SDP], OFFER).is_problem(503);
    http(node.whip, "DELETE", "/whip/x", &[], "").is_problem(404);
}

#[test]
fn a_chosen_pop_stays_chosen() {
    let network = Network::new(1);
    let node = network.start(1);
    let created = http(node.whip, "POST", "/whip?pop=sin", &[SDP], OFFER);
    assert_eq!(created.status, 201);
    let expected: Vec<SocketAddr> = vec!["192.0.2.3:3478".parse().unwrap()];
    assert_eq!(node.engine.sessions()[0].ingress, expected);
    let location = created.header("location").unwrap();
    let path = location.strip_prefix("/eu").unwrap();
    assert!(path.ends_with("?pop=sin"), "{path}");
    let restart = |path: &str, ufrag| {
        let headers = [SDPFRAG, ("If-Match", "*")];
        let response = http(node.whip, "PATCH", path, &headers, fragment(ufrag));
        assert_eq!(response.status, 200);
        let candidates = response
            .body
            .lines()
            .filter(|l| l.starts_with("a=candidate:"));
        candidates
            .map(|line| line.split(' ').nth(4).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(restart(path, "sec1"), ["192.0.2.3"]);
    // A PoP that is gone must not cost the call.
    let gone = path.replace("pop=sin", "pop=gone");
    assert_eq!(
        restart(&gone, "sec2"),
        ["192.0.2.1", "2001:db8::1", "192.0.2.3"]
    );
}

#[test]
fn a_chunked_body_is_bounded_too() {
    let mut network = Network::new(1);
    *network.signaling() = json!({ "body_max_bytes": 2048 });
    let node = network.start(1);
    let chunked = |chunk: &str, times: usize| {
        let head = "POST /whip HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Type: application/sdp\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        let chunk = format!("{:x}\r\n{chunk}\r\n", chunk.len());
        let request = format!("{head}{}0\r\n\r\n", chunk.repeat(times));
        raw(node.whip, request.as_bytes())
    };
    assert_eq!(chunked(OFFER, 1).status, 201);
    chunked("v=0\r\n", 4096).is_problem(413);
    // Exactly the bound passes, one byte more does not.
    let of_len = |len: usize| {
        let offer = format!("{OFFER}{}", "a".repeat(len - OFFER.len()));
        http(node.whip, "POST", "/whip", &[SDP], offer).status
    };
    assert_eq!(of_len(2048), 201);
    assert_eq!(of_len(2049), 413);
}

#[test]
fn a_client_that_asks_first_sends_nothing() {
    let network = Network::new(1);
    let node = network.start(1);
    let mut stream = connect(node.whip);
    let head = "POST /whip HTTP/1.1\r\nHost: t\r\nContent-Type: application/sdp\r\n\
                Content-Length: 1048576\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let response = read_response(&mut stream);
    response.is_problem(413);
}

/// A head that is too long is refused by the HTTP layer, before there is a request to have a problem with.
#[test]
fn heads_are_bounded() {
    let network = Network::new(1);
    let node = network.start(1);
    let long = format!("X: {}\r\n", "x".repeat(20_000));
    let many: String = (0..70).map(|n| format!("X-{n}: x\r\n")).collect();
    for headers in [long, many] {
        let head = format!("POST /whip HTTP/1.1\r\nHost: t\r\n{headers}\r\n");
        assert_eq!(raw(node.whip, head.as_bytes()).status, 431);
    }
}

/// Neither a slow head, a slow body, nor a connection that idles after a request holds a place for ever.
#[test]
fn slow_clients() {
    let network = Network::new(1);
    let node = network.start(1);
    let mut idle = connect(node.whip);
    let mut head = connect(node.whip);
    head.write_all(b"POST /whip HTTP/1.1\r\nHost: t\r\nX: ")
        .unwrap();
    let mut served = connect(node.whip);
    served
        .write_all(b"PUT /whip HTTP/1.1\r\nHost: t\r\n\r\n")
        .unwrap();
    assert_eq!(read_one(&mut served), 405);
    let mut body = connect(node.whip);
    body.write_all(
        b"POST /whip HTTP/1.1\r\nHost: t\r\nContent-Type: application/sdp\r\nContent-Length: 99\r\n\r\nv=0",
    )
    .unwrap();
    read_response(&mut body).is_problem(408);
    for stream in [&mut idle, &mut head, &mut served] {
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{answer:?}");
    }
    assert_eq!(http(node.whip, "POST", "/whip", &[SDP], OFFER).status, 201);
}

#[test]
fn connections_are_bounded() {
    const BOUND: usize = 1024;
    let network = Network::new(1);
    let node = network.start(1);
    let held: Vec<_> = (0..BOUND).map(|_| connect(node.whip)).collect();
    // The one beyond is told at once, without a request.
    let mut beyond = connect(node.whip);
    assert_eq!(read_response(&mut beyond).status, 503);
    drop(held);
    let deadline = runtime::clock::now() + Duration::from_secs(5);
    loop {
        assert!(runtime::clock::now() < deadline, "places come back");
        let mut stream = connect(node.whip);
        let request = "OPTIONS /whip HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        if stream.read_to_end(&mut answer).is_ok() && answer.starts_with(b"HTTP/1.1 200") {
            break;
        }
    }
}

/// What is refused leaves nothing behind, however often.
#[test]
fn ten_thousand_bad_requests() {
    let network = Network::new(1);
    let node = network.start(1);
    let mut stream = connect(node.whip);
    let requests: [(&str, &str, &str); 5] = [
        ("POST", "Content-Type: application/sdp\r\n", "no SDP"),
        ("POST", "Content-Type: application/sdp\r\n", VIDEO_OFFER),
        ("POST", "Content-Type: text/plain\r\n", OFFER),
        ("POST", "", OFFER),
        ("PUT", "", ""),
    ];
    let mut refused = 0;
    for round in 0..10_000 {
        let (method, headers, body) = requests[round % requests.len()];
        let request = format!(
            "{method} /whip HTTP/1.1\r\nHost: t\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let status = read_one(&mut stream);
        assert!((400..500).contains(&status), "{status}");
        refused += 1;
    }
    assert_eq!(refused, 10_000);
    assert!(node.engine.sessions().is_empty());
}

#[test]
fn admin_routes() {
    let network = Network::new(1);
    let node = network.start(1);
    let _first = session(&node);
    let _second = session(&node);
    let admin = AdminServer::start(&node);
    let get = |path| http(admin.addr, "GET", path, &[], "");
    let list: serde_json::Value = serde_json::from_str(&get("/sessions").body).unwrap();
    assert_eq!(list["sessions"].as_array().unwrap().len(), 2);
    let one: serde_json::Value = serde_json::from_str(&get("/sessions/2").body).unwrap();
    assert_eq!(one["id"], 2);
    for path in ["/sessions/3", "/sessions/x"] {
        get(path).is_problem(404);
        http(admin.addr, "DELETE", path, &[], "").is_problem(404);
    }
    assert_eq!(
        http(admin.addr, "DELETE", "/sessions/2", &[], "").status,
        204
    );
    assert_eq!(node.engine.sessions().len(), 1);
}

struct AdminServer {
    addr: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl AdminServer {
    fn start(node: &Node) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let routes = transceiver::signaling::admin::routes(node.engine.handle.clone());
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let addr = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Self {
            addr,
            _runtime: runtime,
        }
    }
}

/// Makes a session and gives its path at the node.
fn session(node: &Node) -> String {
    let created: Response = http(node.whip, "POST", "/whip", &[SDP], OFFER);
    assert_eq!(created.status, 201);
    let location = created.header("location").unwrap();
    location.strip_prefix("/eu").unwrap().to_owned()
}

fn jwt(secret: &[u8], exp: u64) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed = format!(
        "{}.{}",
        encode(r#"{"alg":"HS256","typ":"JWT"}"#),
        encode(&json!({ "sub": "test", "exp": exp }).to_string())
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    format!("{signed}.{signature}")
}
