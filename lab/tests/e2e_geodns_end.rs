//! SIGTERM to a GeoDNS node that is asked: over UDP at a steady pace, and over connections that have a question in flight.

#![cfg(test)]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use lab::bench::geodns::ending::{self, Ending};
use lab::dns::{Answer, Query, framed};
use lab::net::{Network, Shape, namespace, programs_dir};
use lab::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtime::credentials::Credentials;
use runtime::peer_tls;
use rustls::{ClientConnection, StreamOwned};
use topology::{GeoDns, Topology};

/// Well below what a busy machine can ask and answer.
const RATE: u32 = 20_000;

#[test]
fn every_question_before_the_end_is_answered() {
    let dir = format!("geodns-end-{}", std::process::id());
    let dir: PathBuf = programs_dir().unwrap().join("e2e-runs").join(dir);
    std::fs::create_dir_all(&dir).unwrap();
    let found = namespace::run(|_| ending::run(RATE, &dir)).unwrap();
    println!("end under load: {found:?}, {} lost", found.lost());
    let Ending {
        asked,
        answered,
        refused_by_kernel,
        wrong,
    } = found;
    assert_eq!((found.lost(), wrong), (0, 0));
    assert!(asked > 2 * u64::from(RATE), "hardly any load");
    assert!(answered > asked / 2, "hardly any answers");
    assert!(refused_by_kernel > 0, "no question came after the end");
    std::fs::remove_dir_all(&dir).unwrap();
}

const NODE: &str = "ns1";
const ZONE: &str = "rtc.example.com";
const SOA: u16 = 6;
const SOON: Duration = Duration::from_secs(15);

fn adjust(topology: &mut Topology) {
    let IpAddr::V4(region) = topology.regions[0].signaling_addresses[0] else {
        panic!("the lab speaks IPv4");
    };
    let [_, octet, ..] = region.octets();
    let address = IpAddr::from([127, octet, 41, 1]);
    let at = |port| SocketAddr::new(address, port);
    let dns = serde_json::json!({
        "zone": ZONE,
        "hostmaster": "dns@example.com",
        "nameservers": [{ "name": format!("{NODE}.{ZONE}"), "addresses": [address] }],
    });
    topology.dns = Some(serde_json::from_value(dns).unwrap());
    topology.geodns = vec![GeoDns {
        name: NODE.to_owned(),
        dns: vec![at(53)],
        dot: vec![at(853)],
        doh: vec![],
        steer: at(8443),
        workers: 1,
        pin: false,
        admin: at(9100),
    }];
}

/// What is read and written.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// Connections to a node, one in the open and one over TLS.
fn connections(network: &Network) -> anyhow::Result<[Box<dyn Stream>; 2]> {
    let tcp = |port| -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(at(network, port)?)?;
        stream.set_read_timeout(Some(SOON))?;
        Ok(stream)
    };
    let credentials = Credentials::load(&network.credentials(NODE))?;
    let mut config = peer_tls::client(&credentials)?;
    config.alpn_protocols = vec![b"dot".to_vec()];
    let tls = ClientConnection::new(Arc::new(config), NODE.try_into()?)?;
    let mut both: [Box<dyn Stream>; 2] = [
        Box::new(tcp(53)?),
        Box::new(StreamOwned::new(tls, tcp(853)?)),
    ];
    for stream in &mut both {
        stream.write_all(&question())?;
        answer(stream)?;
    }
    Ok(both)
}

fn at(network: &Network, port: u16) -> anyhow::Result<SocketAddr> {
    let node = network.topology().geodns_named(NODE).context("the node")?;
    let address = node.dns.first().context("an address")?;
    Ok(SocketAddr::new(address.ip(), port))
}

fn question() -> Vec<u8> {
    framed(&Query::new(ZONE, SOA).bytes())
}

fn answer(stream: &mut dyn Stream) -> anyhow::Result<()> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).context("no answer")?;
    let mut message = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut message)?;
    let answer = Answer::read(&message)?;
    ensure!(answer.sections[0] == [SOA], "{answer:?}");
    Ok(())
}

#[test]
fn connections_with_a_question_in_flight_are_answered_before_the_end() {
    namespace::run(|_| {
        let mut network = Network::prepare(&Shape::default(), adjust)?;
        network.start_node(NODE)?;
        let mut whole = connections(&network)?;
        let mut half = connections(&network)?;
        let mut silent = connections(&network)?;
        let question = question();
        let (first, rest) = question.split_at(question.len() / 2);
        // While it stands still, what is sent and the signal wait for it together.
        let pid = Pid::from_raw(i32::try_from(network.pid(NODE)?)?);
        kill(pid, Signal::SIGSTOP)?;
        for stream in &mut whole {
            stream.write_all(&question)?;
        }
        for stream in &mut half {
            stream.write_all(first)?;
        }
        network.terminate(NODE)?;
        kill(pid, Signal::SIGCONT)?;
        for stream in &mut whole {
            answer(stream).context("asked before the end")?;
        }
        // It has drained, and takes no connection any more.
        let to = at(&network, 53)?;
        wait::until_true("the node to stop", SOON, || TcpStream::connect(to).is_err())?;
        for stream in &mut half {
            stream.write_all(rest)?;
            answer(stream).context("half asked before the end")?;
        }
        for stream in whole.iter_mut().chain(&mut half).chain(&mut silent) {
            ensure!(ends(stream), "a connection stays");
        }
        let status = network.wait_end(NODE)?;
        ensure!(status.success(), "{status}");
        Ok(())
    })
    .unwrap();
}

/// Without another byte.
fn ends(stream: &mut dyn Stream) -> bool {
    match stream.read(&mut [0]) {
        Ok(len) => len == 0,
        // TLS misses the word of farewell; a timeout would be no end.
        Err(error) => !matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        ),
    }
}
