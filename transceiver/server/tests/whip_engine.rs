//! WHIP with the real engine behind it: what an offer leaves behind, and what every change of a session does.
//! Media needs a PoP and a core relay and is tested where they are.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share panic as tests do"
)]

mod whip;

use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use runtime::control::Control;
use runtime::node::{Config, NodeContext, Running};
use serde_json::{Value, json};

use whip::client::{Response, connect, http, read_one};
use whip::node::{Network, free_addr};
use whip::{PWD, SDP, SDPFRAG, VIDEO_OFFER, fragment};

/// A browser's offer: Opus and a data channel.
const OFFER: &str = "v=0\r\no=- 5228595038118931041 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n\
a=extmap-allow-mixed\r\na=msid-semantic: WMS\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\n\
a=rtcp:9 IN IP4 0.0.0.0\r\na=ice-ufrag:EsAw\r\na=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\na=ice-options:trickle\r\n\
a=fingerprint:sha-256 DA:7B:57:DC:28:CE:04:4F:31:79:85:C4:31:67:EB:27:58:29:ED:77:2A:0D:24:AE:ED:AD:30:BC:BD:F1:9C:02\r\n\
a=setup:actpass\r\na=mid:0\r\na=sendrecv\r\na=msid:- d46fb922-d52a-4e9c-aa87-444eadc1521b\r\na=rtcp-mux\r\n\
a=rtpmap:111 opus/48000/2\r\na=fmtp:111 minptime=10;useinbandfec=1\r\na=ssrc:1001 cname:x\r\n\
a=candidate:1 1 udp 2122260223 198.51.100.77 61764 typ host generation 0\r\n\
m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:EsAw\r\n\
a=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\na=ice-options:trickle\r\n\
a=fingerprint:sha-256 DA:7B:57:DC:28:CE:04:4F:31:79:85:C4:31:67:EB:27:58:29:ED:77:2A:0D:24:AE:ED:AD:30:BC:BD:F1:9C:02\r\n\
a=setup:actpass\r\na=mid:1\r\na=sctp-port:5000\r\na=max-message-size:262144\r\n";

#[test]
fn a_session_from_offer_to_end() {
    let node = RealNode::start(json!({}));
    let created = node.post("/whip?pop=ams", OFFER);
    assert_eq!(created.status, 201, "{created:?}");
    let answer = &created.body;
    for line in [
        "a=ice-lite",
        "m=audio 9 UDP/TLS/RTP/SAVPF 111",
        "a=candidate:1 1 udp 2130706431 192.0.2.1 3478 typ host",
        "a=candidate:2 1 udp 2130706175 2001:db8::1 3478 typ host",
        "a=setup:passive",
    ] {
        assert!(answer.lines().any(|l| l == line), "{line} in {answer}");
    }
    assert!(!answer.contains("198.51.100.77"), "{answer}");
    let path = created.header("location").unwrap();
    let path = path.strip_prefix("/eu").unwrap();
    let first = created.header("etag").unwrap();
    let patch = |content_type, etag: &str, body: &str| {
        let headers = [content_type, ("If-Match", etag)];
        http(node.whip, "PATCH", path, &headers, body)
    };
    assert_eq!(patch(SDPFRAG, first, &fragment("EsAw")).status, 204);
    assert_eq!(patch(SDPFRAG, "*", &fragment("EsAw")).status, 204);
    patch(SDPFRAG, "\"other\"", &fragment("EsAw")).is_problem(412);

    let restarted = patch(SDPFRAG, "*", &fragment("ysXw"));
    assert_eq!(restarted.status, 200, "{restarted:?}");
    let second = restarted.header("etag").unwrap();
    assert_ne!(first, second);
    assert_ne!(
        attribute(answer, "ice-ufrag"),
        attribute(&restarted.body, "ice-ufrag")
    );
    assert_ne!(
        attribute(answer, "ice-pwd"),
        attribute(&restarted.body, "ice-pwd")
    );
    // The candidate lines are those of the answer: to the client they are the same candidates.
    let candidates = |sdp: &str| {
        let lines = sdp.lines().filter(|l| l.starts_with("a=candidate:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(candidates(answer), candidates(&restarted.body));
    patch(SDPFRAG, first, &fragment("ysXw")).is_problem(412);

    let again = OFFER.replace("EsAw", "ysXw").replace("31041 2", "31041 3");
    let renegotiated = patch(SDP, second, &again);
    assert_eq!(renegotiated.status, 200, "{renegotiated:?}");
    assert_eq!(renegotiated.header("etag"), Some(second));
    let (ours, before) = (&renegotiated.body, &restarted.body);
    assert_eq!(attribute(ours, "ice-ufrag"), attribute(before, "ice-ufrag"));

    assert_eq!(node.sessions().len(), 1);
    assert_eq!(http(node.whip, "DELETE", path, &[], "").status, 200);
    http(node.whip, "DELETE", path, &[], "").is_problem(404);
    patch(SDPFRAG, "*", &fragment("x234")).is_problem(404);
    assert!(node.sessions().is_empty());
}

#[test]
fn bad_offers() {
    let node = RealNode::start(json!({}));
    let no_ice = OFFER.replace("a=ice-ufrag:EsAw\r\n", "");
    let no_dtls = OFFER.replace("a=fingerprint:sha-256", "a=x");
    let short_dtls = OFFER.replace(":9C:02", "");
    let no_codec = OFFER.replace("opus/48000/2", "telephone-event/8000");
    let data_only = OFFER.split("m=audio").next().unwrap().to_owned()
        + "m=application"
        + OFFER.split("m=application").nth(1).unwrap();
    for (name, offer, status) in [
        ("not SDP", "hello", 400),
        ("JSON", "{\"sdp\":\"v=0\"}", 400),
        ("only video", VIDEO_OFFER, 422),
        ("only data", &*data_only, 422),
        (
            "no media",
            "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n",
            422,
        ),
        ("no ICE", &*no_ice, 422),
        ("no DTLS", &*no_dtls, 422),
        ("short fingerprint", &*short_dtls, 422),
        ("no Opus", &*no_codec, 422),
    ] {
        let response = node.post("/whip", offer);
        assert_eq!(response.status, status, "{name}: {response:?}");
        response.is_problem(status);
        assert!(node.sessions().is_empty(), "{name}");
    }
}

/// Sessions whose client never comes are bounded, and their places come back.
#[test]
fn pending_sessions() {
    let node = RealNode::start(json!({ "pending_max": 3, "pending_ttl_s": 3 }));
    let post = || node.post("/whip", OFFER).status;
    assert_eq!([post(), post(), post(), post()], [201, 201, 201, 503]);
    let refused = node.post("/whip", OFFER);
    assert_eq!(refused.header("retry-after"), Some("2"));
    node.until(|| node.sessions().is_empty());
    node.until(|| post() == 201);
    // DELETE gives the place back, long before its time is over; how loaded the engine is, is told right after the answer.
    let node = RealNode::start(json!({ "pending_max": 1, "pending_ttl_s": 300 }));
    for _ in 0..20 {
        let mut created = node.post("/whip", OFFER);
        node.until(|| {
            if created.status != 201 {
                created = node.post("/whip", OFFER);
            }
            created.status == 201
        });
        node.post("/whip", OFFER).is_problem(503);
        let path = created
            .header("location")
            .unwrap()
            .strip_prefix("/eu")
            .unwrap();
        assert_eq!(http(node.whip, "DELETE", path, &[], "").status, 200);
    }
}

#[test]
fn ten_thousand_bad_requests_leave_nothing() {
    let node = RealNode::start(json!({ "pending_max": 1, "offers_per_s": 1_000_000 }));
    let mut stream = connect(node.whip);
    let no_dtls = OFFER.replace("a=fingerprint:sha-256", "a=x");
    let bodies = ["hello", VIDEO_OFFER, &*no_dtls, "v=0\r\n"];
    for round in 0..10_000 {
        let body = bodies[round % bodies.len()];
        let len = body.len();
        let request = format!(
            "POST /whip HTTP/1.1\r\nHost: t\r\nContent-Type: application/sdp\r\nContent-Length: {len}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let status = read_one(&mut stream);
        assert!(matches!(status, 400 | 422), "{status}");
    }
    assert!(node.sessions().is_empty());
    assert_eq!(node.load()["pending"], 0);
    assert_eq!(node.post("/whip", OFFER).status, 201);
}

/// A client that hangs up before the answer leaves no session for long, and one that hangs up while sending none at all.
#[test]
fn clients_that_hang_up() {
    let node = RealNode::start(json!({ "pending_ttl_s": 1 }));
    for len in [0, 10, OFFER.len() - 1, OFFER.len()] {
        let mut stream = connect(node.whip);
        let declared = OFFER.len();
        write!(
            stream,
            "POST /whip HTTP/1.1\r\nHost: t\r\nContent-Type: application/sdp\r\nContent-Length: {declared}\r\n\r\n{}",
            &OFFER[..len]
        )
        .unwrap();
    }
    // By the time a later client is through, those are too.
    let created = node.post("/whip", OFFER);
    let path = created
        .header("location")
        .unwrap()
        .strip_prefix("/eu")
        .unwrap();
    assert_eq!(http(node.whip, "DELETE", path, &[], "").status, 200);
    node.until(|| node.sessions().is_empty());
    node.until(|| node.load()["pending"] == 0);
}

fn attribute<'a>(sdp: &'a str, name: &str) -> &'a str {
    let prefix = format!("a={name}:");
    let mut values = sdp.lines().filter_map(|line| line.strip_prefix(&*prefix));
    values.next().unwrap_or_else(|| panic!("{name} in {sdp}"))
}

/// A whole transceiver in this process.
struct RealNode {
    whip: SocketAddr,
    admin: SocketAddr,
    context: NodeContext,
    running: Option<Running>,
}

impl RealNode {
    fn start(signaling: Value) -> Self {
        let mut network = Network::new(1);
        *network.signaling() = signaling;
        let admin = free_addr();
        let cluster = &mut network.topology["regions"][0]["transceivers"];
        cluster["nodes"][0]["admin"] = json!(admin);
        let free = UdpSocket::bind("127.9.0.1:0").unwrap();
        cluster["port"] = json!(free.local_addr().unwrap().port());
        drop(free);
        let certificate = network.authority.issue("eu-t1");
        let config = Config {
            topology: network.topology(),
            credentials: network.credentials(&certificate),
            generation: 1,
        };
        let control = Control::new().unwrap();
        let context = NodeContext::new("transceiver", "eu-t1", config, control);
        let running = transceiver::start(context.clone()).unwrap();
        Self {
            whip: network.whip(1),
            admin,
            context,
            running: Some(running),
        }
    }

    fn post(&self, path: &str, offer: &str) -> Response {
        http(self.whip, "POST", path, &[SDP], offer)
    }

    fn get(&self, path: &str) -> Value {
        let response = http(self.admin, "GET", path, &[], "");
        assert_eq!(response.status, 200, "{path}");
        serde_json::from_str(&response.body).unwrap()
    }

    fn sessions(&self) -> Vec<Value> {
        self.get("/sessions")["sessions"]
            .as_array()
            .unwrap()
            .clone()
    }

    fn load(&self) -> Value {
        self.get("/state")
    }

    fn until(&self, mut condition: impl FnMut() -> bool) {
        let deadline = runtime::clock::now() + Duration::from_secs(10);
        while !condition() {
            assert!(runtime::clock::now() < deadline, "{:?}", self.sessions());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for RealNode {
    fn drop(&mut self) {
        self.context.shutdown.stop();
        self.running.take().unwrap().join();
    }
}

const _: () = assert!(PWD.len() == 24, "the fragments carry the offer's password");
