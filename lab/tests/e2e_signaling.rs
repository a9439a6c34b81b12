//! WHIP refuses what it must with the right status and one line, and keeps nothing of it.

#![cfg(test)]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use lab::http::{self, Response};
use lab::net::{Network, Shape, bearer};
use lab::raw::RawClient;
use lab::whip::{FRAGMENT, SDP, Session, bare_offer, post};
use runtime::clock;

/// One line of JSON that says what is wrong.
fn assert_problem(response: &Response, status: u16, case: &str) {
    assert_eq!(response.status, status, "{case}: {}", response.body);
    assert_eq!(
        response.header("content-type"),
        Some("application/problem+json"),
        "{case}"
    );
    assert_eq!(response.body.trim_end().lines().count(), 1, "{case}");
    let problem: serde_json::Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(problem["status"], status, "{case}");
}

/// The offer without the section that starts with `media`.
fn without(media: &str) -> String {
    let offer = bare_offer();
    let mut sections = offer.split("m=");
    let session = sections.next().unwrap().replace("BUNDLE 0 1", "BUNDLE 1");
    let kept = sections.filter(|section| !section.starts_with(media));
    kept.fold(session, |sdp, section| sdp + "m=" + section)
}

fn only_video() -> String {
    let video = "video 9 UDP/TLS/RTP/SAVPF 96";
    without("application")
        .replace("BUNDLE 1", "BUNDLE 0")
        .replace("audio 9 UDP/TLS/RTP/SAVPF 111", video)
        .replace("rtpmap:111 opus/48000/2", "rtpmap:96 VP8/90000")
        .replace("a=fmtp:111 minptime=10;useinbandfec=1\r\n", "")
}

#[test]
fn bad_offers_are_refused_and_leave_nothing() {
    let network = Network::start(&Shape::default()).unwrap();
    let whip = network.whip("t1");
    let huge = "a".repeat(1 << 20);
    let cases: [(&str, &str, &str, u16); 9] = [
        ("no audio", SDP, &without("audio"), 422),
        ("only video", SDP, &only_video(), 422),
        ("1 MiB body", SDP, &huge, 413),
        ("not SDP", SDP, "hello", 400),
        ("empty", SDP, "", 400),
        ("JSON", "application/json", &bare_offer(), 415),
        ("no content type", "", &bare_offer(), 415),
        ("text", "text/plain", &bare_offer(), 415),
        ("fragment", FRAGMENT, &bare_offer(), 415),
    ];
    for (case, content_type, body, status) in cases {
        let headers = [("content-type", content_type)];
        let headers = if content_type.is_empty() {
            &headers[..0]
        } else {
            &headers
        };
        let response = http::send("POST", &whip, headers, body.as_bytes()).unwrap();
        assert_problem(&response, status, case);
    }
    assert!(network.sessions("t1").unwrap().is_empty());
    // And it still works.
    let session = Session::open(&whip, &bare_offer(), None).unwrap();
    assert_eq!(network.sessions("t1").unwrap().len(), 1);
    session.close().unwrap();
    network.wait_no_sessions("t1").unwrap();
}

#[test]
fn requests_about_a_session_need_the_right_url_and_precondition() {
    let network = Network::start(&Shape::default()).unwrap();
    let whip = network.whip("t1");
    let mut session = Session::open(&whip, &bare_offer(), None).unwrap();
    let fragment = "a=ice-ufrag:clnt\r\na=ice-pwd:clientclientclientclient\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=end-of-candidates\r\n";
    let restart = fragment.replace("clnt", "othr");
    let etag = session.etag.clone();
    let patch = |headers: &[(&str, &str)], body: &str| {
        http::send("PATCH", &session.url, headers, body.as_bytes()).unwrap()
    };
    let typed = ("content-type", FRAGMENT);
    assert_problem(&patch(&[typed], fragment), 428, "no If-Match");
    let stale = patch(&[typed, ("if-match", "\"stale\"")], fragment);
    assert_problem(&stale, 412, "another ICE session");
    let json = patch(
        &[("content-type", "application/json"), ("if-match", &etag)],
        "{}",
    );
    assert_problem(&json, 415, "JSON");
    assert_eq!(patch(&[typed, ("if-match", &etag)], fragment).status, 204);
    let restarted = session.patch("\"*\"", FRAGMENT, &restart).unwrap();
    assert_eq!(restarted.status, 200, "{}", restarted.body);
    assert_ne!(session.etag, etag);
    let after = http::send(
        "PATCH",
        &session.url,
        &[typed, ("if-match", &etag)],
        fragment.as_bytes(),
    );
    assert_problem(
        &after.unwrap(),
        412,
        "the entity tag from before the restart",
    );
    let method = http::send("PUT", &session.url, &[], b"").unwrap();
    assert_problem(&method, 405, "PUT");
    let unknown = format!("{whip}/{}", "A".repeat(43));
    for method in ["PATCH", "DELETE"] {
        let headers = [typed, ("if-match", "\"x\"")];
        let response = http::send(method, &unknown, &headers, fragment.as_bytes()).unwrap();
        assert_problem(&response, 404, "unknown session");
    }
    session.close().unwrap();
    network.wait_no_sessions("t1").unwrap();
    let gone = http::send("DELETE", &session.url, &[], b"").unwrap();
    assert_problem(&gone, 404, "deleted twice");
}

#[test]
fn tokens_are_asked_for_when_there_is_a_secret() {
    let network = Network::start(&Shape::default()).unwrap();
    let whip = network.whip("t1");
    let secret = "a secret that has more than thirty-two bytes";
    network.rewrite_credential("whip.secret", secret).unwrap();
    network.reload().unwrap();
    let now = clock::unix_s();
    let good = bearer(secret.as_bytes(), now + 60);
    let expired = bearer(secret.as_bytes(), now - 60);
    let forged = bearer(b"another secret that has thirty-two bytes", now + 60);
    for (case, token) in [
        ("none", None),
        ("expired", Some(expired.as_str())),
        ("forged", Some(&forged)),
        ("noise", Some("noise")),
    ] {
        let response = post(&whip, &bare_offer(), token).unwrap();
        assert_problem(&response, 401, case);
        assert!(
            response
                .header("www-authenticate")
                .unwrap()
                .starts_with("Bearer"),
            "{case}"
        );
    }
    assert!(network.sessions("t1").unwrap().is_empty());
    Session::open(&whip, &bare_offer(), Some(&good))
        .unwrap()
        .close()
        .unwrap();
}

#[test]
fn any_transceiver_takes_requests_for_a_session_of_another() {
    let shape = Shape {
        transceivers: 2,
        ..Shape::default()
    };
    let mut network = Network::start(&shape).unwrap();
    let mut session = Session::open(&network.whip("t1"), &bare_offer(), None).unwrap();
    let here = session.url.clone();
    let host = |whip: &str| whip.split('/').nth(2).unwrap().to_owned();
    session.url = here.replace(&host(&network.whip("t1")), &host(&network.whip("t2")));
    assert_ne!(session.url, here);
    let fragment = "a=ice-ufrag:othr\r\na=ice-pwd:otherotherotherotherother\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n";
    let restarted = session.patch("\"*\"", FRAGMENT, fragment).unwrap();
    assert_eq!(restarted.status, 200, "{}", restarted.body);
    session.close().unwrap();
    network.wait_no_sessions("t1").unwrap();
    let orphan = Session::open(&network.whip("t1"), &bare_offer(), None).unwrap();
    network.kill("t1").unwrap();
    let elsewhere = orphan
        .url
        .replace(&host(&network.whip("t1")), &host(&network.whip("t2")));
    let response = http::send("DELETE", &elsewhere, &[], b"").unwrap();
    assert_problem(&response, 502, "the owner is dead");
}

#[test]
fn pending_sessions_are_bounded() {
    let network = Network::start_with(&Shape::default(), |topology| {
        topology.network.signaling.pending_max = 10;
    })
    .unwrap();
    let whip = network.whip("t1");
    let open: Vec<_> = (0..10)
        .map(|_| Session::open(&whip, &bare_offer(), None).unwrap())
        .collect();
    let refused = post(&whip, &bare_offer(), None).unwrap();
    assert_problem(&refused, 503, "one too many");
    assert!(refused.header("retry-after").is_some());
    open.iter().for_each(|session| session.close().unwrap());
    network.wait_no_sessions("t1").unwrap();
}

/// Addresses of the answer's candidates, in order.
fn candidates(session: &Session) -> Vec<String> {
    let lines = session.answer.lines();
    let candidates = lines.filter_map(|line| line.strip_prefix("a=candidate:"));
    let mut found: Vec<_> = candidates
        .map(|candidate| {
            let fields: Vec<_> = candidate.split(' ').collect();
            SocketAddr::new(fields[4].parse().unwrap(), fields[5].parse().unwrap()).to_string()
        })
        .collect();
    found.dedup();
    found
}

#[test]
fn the_answer_advertises_ingress_addresses_only() {
    let shape = Shape {
        pops: 3,
        ..Shape::default()
    };
    let network = Network::start(&shape).unwrap();
    let advertised = |whip: &str| {
        let session = Session::open(whip, &bare_offer(), None).unwrap();
        session.close().unwrap();
        candidates(&session)
    };
    let ingress = |pop: &str| network.ingress(pop).to_string();
    let all = advertised(&network.whip("t1"));
    assert_eq!(all, [ingress("p1"), ingress("p2"), ingress("p3")]);
    let chosen = advertised(&format!("{}?pop=p2", network.whip("t1")));
    assert_eq!(chosen, [ingress("p2")]);
}

#[test]
fn both_families_are_advertised_and_answer() {
    let network = Network::start_with(&Shape::default(), |topology| {
        let pop = &mut topology.pops[0];
        // Loopback has one IPv6 address, so the port is what makes it this run's own.
        let IpAddr::V4(address) = pop.backbone else {
            panic!("the lab's backbone is IPv4")
        };
        let port = 20_000 + u16::from(address.octets()[1]);
        pop.ingress.push((Ipv6Addr::LOCALHOST, port).into());
    })
    .unwrap();
    let session = Session::open(&network.whip("t1"), &bare_offer(), None).unwrap();
    let ingress = &network.topology().pops[0].ingress;
    let expected: Vec<_> = ingress.iter().map(SocketAddr::to_string).collect();
    assert_eq!(candidates(&session), expected);
    let (ufrag, password) = (
        session.attribute("ice-ufrag").unwrap(),
        session.attribute("ice-pwd").unwrap(),
    );
    for ingress in ingress {
        let mut client = RawClient::connect(*ingress).unwrap();
        let answers = client.answers_until_check(ufrag, password, Duration::from_secs(5));
        assert_eq!(answers.unwrap().len(), 1, "{ingress}");
    }
    session.close().unwrap();
}
