//! Transceivers of one region behind one load balancer: any of them takes a request, the owner acts on it.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share panic as tests do"
)]

mod whip;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;

use whip::client::{Response, http};
use whip::node::{Authority, Certificate, Network, Node};
use whip::{OFFER, SDP, SDPFRAG, fragment};

#[test]
fn the_other_transceiver_passes_it_on() {
    let network = Network::new(2);
    let (one, two) = (network.start(1), network.start(2));
    let path = session(&two);
    assert_eq!(one.engine.sessions().len(), 0);
    let current = ("If-Match", "\"ice-1-1\"");
    let trickled = http(
        one.whip,
        "PATCH",
        &path,
        &[SDPFRAG, current],
        fragment("EsAw"),
    );
    assert_eq!((trickled.status, &*trickled.body), (204, ""));
    let restarted = http(
        one.whip,
        "PATCH",
        &path,
        &[SDPFRAG, ("If-Match", "*")],
        fragment("ysXw"),
    );
    assert_eq!(restarted.status, 200, "{restarted:?}");
    assert_eq!(restarted.header("etag"), Some("\"ice-1-2\""));
    assert_eq!(restarted.header("content-type"), Some(SDPFRAG.1));
    assert_eq!(restarted.header("access-control-allow-origin"), Some("*"));
    assert!(restarted.body.contains("a=ice-ufrag:our2\r\n"));
    // What the owner refuses is refused with its status, headers and text.
    http(
        one.whip,
        "PATCH",
        &path,
        &[SDPFRAG, current],
        fragment("ysXw"),
    )
    .is_problem(412);
    http(one.whip, "PATCH", &path, &[SDPFRAG], fragment("ysXw")).is_problem(428);
    let refused = http(one.whip, "PATCH", &path, &[current], fragment("ysXw"));
    refused.is_problem(415);
    assert!(refused.header("accept-patch").is_some());
    http(
        one.whip,
        "PATCH",
        &path,
        &[SDPFRAG, current],
        vec![b'a'; 1 << 20],
    )
    .is_problem(413);
    let renegotiated = http(one.whip, "PATCH", &path, &[SDP, ("If-Match", "*")], OFFER);
    assert_eq!(renegotiated.body, "v=0\r\na=renegotiated\r\n");
    assert_eq!(http(one.whip, "DELETE", &path, &[], "").status, 200);
    http(one.whip, "DELETE", &path, &[], "").is_problem(404);
    assert!(two.engine.sessions().is_empty());
    assert_eq!(one.engine.state.lock().unwrap().requests, 0);
}

#[test]
fn the_chosen_pop_is_passed_on_too() {
    let network = Network::new(2);
    let (one, two) = (network.start(1), network.start(2));
    let created = http(two.whip, "POST", "/whip?pop=sin", &[SDP], OFFER);
    let path = created
        .header("location")
        .unwrap()
        .strip_prefix("/eu")
        .unwrap();
    let headers = [SDPFRAG, ("If-Match", "*")];
    let restarted = http(one.whip, "PATCH", path, &headers, fragment("ysXw"));
    let candidates = restarted.body.matches("a=candidate:").count();
    assert_eq!(candidates, 1, "{}", restarted.body);
}

/// The token is checked where the request comes in; the owner believes the transceiver.
#[test]
fn the_token_is_checked_once() {
    let mut network = Network::new(2);
    let open = network.start(1);
    network.secret = Some(vec![b'x'; 32]);
    let closed = network.start(2);
    let path = session(&open);
    http(closed.whip, "DELETE", &path, &[], "").is_problem(401);
    assert_eq!(open.engine.sessions().len(), 1);
    // The other way round: the owner wants tokens, the node asked does not.
    network.secret = None;
    closed.reload(&network, &network.authority.issue("eu-t2"));
    let path = session(&closed);
    network.secret = Some(vec![b'x'; 32]);
    closed.reload(&network, &network.authority.issue("eu-t2"));
    assert_eq!(http(open.whip, "DELETE", &path, &[], "").status, 200);
}

#[test]
fn the_owner_is_down() {
    let network = Network::new(3);
    let (one, two) = (network.start(1), network.start(2));
    let path = session(&two);
    drop(two);
    let response = http(one.whip, "DELETE", &path, &[], "");
    response.is_problem(502);
    // It accepts, and says nothing: the time limit holds.
    let silent = TcpListener::bind(network.peer(2)).unwrap();
    let started = runtime::clock::now();
    let response = http(one.whip, "DELETE", &path, &[], "");
    response.is_problem(504);
    let took = runtime::clock::now() - started;
    assert!(took.as_secs_f32() < 8.0, "{took:?}");
    drop(silent);
    // It is back, without the session.
    let _two = network.start(2);
    http(one.whip, "DELETE", &path, &[], "").is_problem(404);
}

#[test]
fn an_impostor_is_not_asked() {
    let network = Network::new(3);
    let one = network.start(1);
    // Same authority, another node: eu-t3's certificate on eu-t2's address.
    let two = network.start(2);
    let path = session(&two);
    let address = two.peer;
    drop(two);
    let impostor = network.start_with(2, &network.authority.issue("eu-t3"));
    assert_eq!(impostor.peer, address);
    http(one.whip, "DELETE", &path, &[], "").is_problem(502);
    drop(impostor);
    // Another authority.
    let mut stranger = Network::new(3);
    stranger.topology = network.topology.clone();
    stranger.authority = Authority::new();
    let foreign = stranger.authority.issue("eu-t2");
    let two = network.start(2);
    two.reload(&stranger, &foreign);
    http(one.whip, "DELETE", &path, &[], "").is_problem(502);
    assert_eq!(two.engine.state.lock().unwrap().requests, 0);
}

/// Only a transceiver of the region is heard on the peer address.
#[test]
fn callers_prove_who_they_are() {
    let network = Network::new(2);
    let node = network.start(1);
    let path = session(&node);
    let authority = network.authority.pem();
    let delete = |certificate: Option<&Certificate>| {
        peer_request(node.peer, &authority, certificate, "DELETE", &path)
    };
    assert_eq!(delete(None), None, "no certificate");
    let pop = network.authority.issue("ams");
    assert_eq!(delete(Some(&pop)), None, "a PoP's certificate");
    let foreign = Authority::new().issue("eu-t2");
    assert_eq!(delete(Some(&foreign)), None, "another authority's");
    assert_eq!(node.engine.sessions().len(), 1);
    let mut plain = TcpStream::connect(node.peer).unwrap();
    // It may hang up before it has read all of this.
    drop(write!(plain, "DELETE {path} HTTP/1.1\r\nHost: t\r\n\r\n"));
    let mut answer = Vec::new();
    drop(plain.read_to_end(&mut answer));
    assert!(!answer.starts_with(b"HTTP/1.1 2"), "no TLS");
    assert_eq!(node.engine.sessions().len(), 1);
    let sibling = network.authority.issue("eu-t2");
    let status = delete(Some(&sibling));
    assert_eq!(status, Some(200));
}

/// A transceiver does not pass on what another has passed on, and makes no sessions for it.
#[test]
fn one_hop_only() {
    let network = Network::new(2);
    let (one, two) = (network.start(1), network.start(2));
    let path = session(&two);
    let sibling = network.authority.issue("eu-t2");
    let ask = |method, path: &str| {
        peer_request(
            one.peer,
            &network.authority.pem(),
            Some(&sibling),
            method,
            path,
        )
    };
    assert_eq!(ask("DELETE", &path), Some(421));
    assert_eq!(ask("POST", "/whip"), Some(404));
    assert_eq!(two.engine.sessions().len(), 1);
    // A client cannot pretend to be passed on: the header changes nothing.
    let pretending = [("firsthop-forwarded", "eu-t2")];
    assert_eq!(http(one.whip, "DELETE", &path, &pretending, "").status, 200);
}

#[test]
fn sessions_of_other_regions_and_of_nodes_that_are_gone() {
    let mut network = Network::new(2);
    let (one, two) = (network.start(1), network.start(2));
    let path = session(&two);
    network.topology["regions"][0]["transceivers"]["nodes"]
        .as_array_mut()
        .unwrap()
        .pop();
    one.reload(&network, &network.authority.issue("eu-t1"));
    http(one.whip, "DELETE", &path, &[], "").is_problem(404);
    // The same node, in a region of another number.
    network.topology["regions"][0]["id"] = json!(7);
    one.reload(&network, &network.authority.issue("eu-t1"));
    http(one.whip, "DELETE", &path, &[], "").is_problem(421);
}

/// Session URLs pass between transceivers as long as their key lives; the owner knows its own for ever.
#[test]
fn keys_rotate() {
    let mut network = Network::new(2);
    let (node, other) = (network.start(1), network.start(2));
    let path = session(&node);
    let (first, second, third) = ("11".repeat(16), "22".repeat(16), "33".repeat(16));
    network.keys = format!("previous 1 {first}\ncurrent 2 {second}\nnext 3 {third}");
    node.reload(&network, &network.authority.issue("eu-t1"));
    let headers = [SDPFRAG, ("If-Match", "\"ice-1-1\"")];
    let trickle = || http(node.whip, "PATCH", &path, &headers, fragment("EsAw"));
    assert_eq!(trickle().status, 204);
    network.keys = format!("previous 2 {second}\ncurrent 3 {third}");
    node.reload(&network, &network.authority.issue("eu-t1"));
    other.reload(&network, &network.authority.issue("eu-t2"));
    // The key that sealed the route is gone: the owner still knows its session, nobody else can tell whose it is.
    assert_eq!(trickle().status, 204);
    http(other.whip, "PATCH", &path, &headers, fragment("EsAw")).is_problem(404);
}

/// A region moves to another authority node by node; a node that has not moved yet is not reached, and then is.
#[test]
fn the_authority_changes() {
    let mut network = Network::new(2);
    let (one, two) = (network.start(1), network.start(2));
    let path = session(&two);
    let headers = [SDPFRAG, ("If-Match", "*")];
    let trickle = || http(one.whip, "PATCH", &path, &headers, fragment("EsAw")).status;
    network.authority = Authority::new();
    two.reload(&network, &network.authority.issue("eu-t2"));
    assert_eq!(trickle(), 502);
    one.reload(&network, &network.authority.issue("eu-t1"));
    assert_eq!(trickle(), 204);
}

/// Connections to the owner are reused, and many requests at once are either passed on or told to wait.
#[test]
fn many_at_once() {
    let network = Network::new(2);
    let (one, two) = (network.start(1), network.start(2));
    let path = session(&two);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..32)
            .map(|_| {
                scope.spawn(|| {
                    let headers = [SDPFRAG, ("If-Match", "*")];
                    (0..10)
                        .map(|_| http(one.whip, "PATCH", &path, &headers, fragment("EsAw")).status)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    assert_eq!(statuses.len(), 320);
    assert!(statuses.iter().all(|status| *status == 204), "{statuses:?}");
}

fn session(node: &Node) -> String {
    let created: Response = http(node.whip, "POST", "/whip", &[SDP], OFFER);
    assert_eq!(created.status, 201);
    let location = created.header("location").unwrap();
    location.strip_prefix("/eu").unwrap().to_owned()
}

/// Speaks to a peer address with a certificate of the test's choice; `None` when there is no HTTP response.
fn peer_request(
    addr: SocketAddr,
    authority: &str,
    certificate: Option<&Certificate>,
    method: &str,
    path: &str,
) -> Option<u16> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match certificate {
        None => config.with_no_client_auth(),
        Some(Certificate { chain, key }) => {
            let leaf = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(vec![leaf], key).unwrap()
        }
    };
    let name = ServerName::try_from("eu-t1").unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(tls, TcpStream::connect(addr).unwrap());
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
    .ok()?;
    let mut answer = Vec::new();
    // A server that closes without a TLS goodbye is an error here; what came before counts.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}
