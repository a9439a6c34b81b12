//! Credentials as TLS sees them: nodes of one network accept each other by name, and nobody else.

#![cfg(test)]

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use firsthop::certs::{self, Authority, NetworkValidity, Validity};
use firsthop::files::Existing;
use firsthop::tempdir::TempDir;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

const TOPOLOGY: &str = include_str!("../../topology/samples/local.yaml");

#[test]
fn nodes_of_a_network_accept_each_other_by_name() {
    let dir = network(now());
    let (relay, pop) = (dir.path().join("eu-r1"), dir.path().join("ams"));
    handshake(&pop, &relay, "eu-r1").unwrap();
    let error = handshake(&pop, &relay, "eu-r2").unwrap_err();
    assert!(error.contains("not valid for name"), "{error}");
}

#[test]
fn another_authority_is_refused_at_both_ends() {
    let (one, other) = (network(now()), network(now()));
    let (ours, theirs) = (one.path().join("ams"), other.path().join("eu-r1"));
    let error = handshake(&ours, &theirs, "eu-r1").unwrap_err();
    assert!(
        error.contains("UnknownIssuer") || error.contains("BadSignature"),
        "{error}"
    );
}

#[test]
fn an_expired_certificate_is_refused() {
    let year_s = 366 * 24 * 3600;
    let dir = network(now() - year_s);
    let error = handshake(&dir.path().join("ams"), &dir.path().join("eu-r1"), "eu-r1").unwrap_err();
    assert!(error.contains("expired"), "{error}");
}

#[test]
fn a_node_added_later_fits_the_network() {
    let dir = network(now());
    let authority = Authority::load(dir.path()).unwrap();
    let late = dir.path().join("late");
    let validity = Validity::days_from(now(), 1).unwrap();
    let files = authority.node_files("late", validity, &late).unwrap();
    firsthop::files::write_set(&files, Existing::Keep).unwrap();
    handshake(&dir.path().join("ams"), &late, "late").unwrap();
    handshake(&late, &dir.path().join("us-t1"), "us-t1").unwrap();
}

#[test]
fn every_node_has_its_own_token_and_the_same_hint_keys() {
    let dir = network(now());
    let topology = topology::load(TOPOLOGY, "local.yaml").unwrap();
    let read =
        |node: &str, name: &str| fs::read_to_string(dir.path().join(node).join(name)).unwrap();
    let nodes: Vec<_> = topology.node_names().collect();
    assert_eq!(nodes.len(), 11);
    let tokens: std::collections::BTreeSet<_> =
        nodes.iter().map(|node| read(node, "admin.token")).collect();
    assert_eq!(tokens.len(), nodes.len());
    for node in nodes {
        assert_eq!(read(node, "hint.keys"), read("ams", "hint.keys"));
        wire::hint::KeyRing::parse(&read(node, "hint.keys")).unwrap();
    }
}

fn network(unix_s: u64) -> TempDir {
    let dir = TempDir::create().unwrap();
    let topology = topology::load(TOPOLOGY, "local.yaml").unwrap();
    let validity = NetworkValidity::from_unix_s(unix_s).unwrap();
    certs::write_network(&topology, dir.path(), validity, Existing::Keep).unwrap();
    dir
}

fn now() -> u64 {
    runtime::clock::unix_s()
}

/// Mutual TLS 1.3 in memory: `client` dials `server` and expects it to be `name`. The error is TLS's.
fn handshake(client: &Path, server: &Path, name: &str) -> Result<(), String> {
    let (mut client, mut server) = ends(client, server, name);
    for _ in 0..10 {
        let sent = drain(&mut client);
        let mut sent = sent.as_slice();
        server.read_tls(&mut sent).map_err(text)?;
        server.process_new_packets().map_err(text)?;
        let sent = drain(&mut server);
        let mut sent = sent.as_slice();
        client.read_tls(&mut sent).map_err(text)?;
        client.process_new_packets().map_err(text)?;
    }
    let mut heard = [0; 5];
    server.reader().read_exact(&mut heard).map_err(text)?;
    assert_eq!(&heard, b"hello");
    Ok(())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What an end wants to send.
fn drain<Data>(end: &mut rustls::ConnectionCommon<Data>) -> Vec<u8> {
    let mut sent = Vec::new();
    while end.wants_write() {
        end.write_tls(&mut sent).unwrap();
    }
    sent
}

/// A client that has said hello, and a server.
fn ends(client: &Path, server: &Path, name: &str) -> (ClientConnection, ServerConnection) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (chain, key) = identity(client);
    let client_config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots(client))
        .with_client_auth_cert(chain, key)
        .unwrap();
    let trusted = Arc::new(roots(server));
    let verifier = WebPkiClientVerifier::builder_with_provider(trusted, Arc::clone(&provider))
        .build()
        .unwrap();
    let (chain, key) = identity(server);
    let server_config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client_config), name).unwrap();
    client.writer().write_all(b"hello").unwrap();
    let server = ServerConnection::new(Arc::new(server_config)).unwrap();
    (client, server)
}

fn identity(dir: &Path) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_file_iter(dir.join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(dir.join("key.pem")).unwrap();
    assert!(matches!(key, PrivateKeyDer::Pkcs8(_)));
    (chain.map(Result::unwrap).collect(), key)
}

fn roots(dir: &Path) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(dir.join("ca.pem")).unwrap())
        .unwrap();
    roots
}
