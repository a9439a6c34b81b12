use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use axum::routing::{delete, get};

use super::*;
use crate::control::Control;
use crate::credentials::Credentials;
use crate::issue::{Ca, Dir, Leaf, TOKEN};
use crate::node::Config;

const LOCAL: &str = include_str!("../../../topology/samples/local.yaml");

fn context(dir: &Dir) -> NodeContext {
    let config = Config {
        topology: topology::load(LOCAL, "local.yaml").unwrap(),
        credentials: Credentials::load(dir.path()).unwrap(),
        generation: 1,
    };
    NodeContext::new("pop", "ams", config, Control::new().unwrap())
}

fn admin(ready: Result<(), &'static str>) -> Admin {
    Admin {
        ready: Box::new(move || {
            let ready = ready.map_err(str::to_owned);
            ready.map(|()| String::new())
        }),
        state: Box::new(|| serde_json::json!({ "flows": 3 })),
        routes: Router::new()
            .route("/sessions", get(|| async { "[]" }))
            .route(
                "/sessions/{id}",
                delete(|| async { StatusCode::NO_CONTENT }),
            ),
    }
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Status and the whole answer.
fn ask(server: &AdminServer, method: &str, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

fn get_body(server: &AdminServer, path: &str) -> (u16, String) {
    let (status, answer) = ask(server, "GET", path, "");
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[test]
fn reads_need_no_token() {
    let dir = Dir::with_credentials(&Ca::new(), &Leaf::of("ams"));
    let context = context(&dir);
    let server = serve(&context, any_port(), admin(Ok(()))).unwrap();
    assert_eq!(get_body(&server, "/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get_body(&server, "/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(
        get_body(&server, "/state"),
        (200, "{\"flows\":3}".to_owned())
    );
    assert_eq!(get_body(&server, "/sessions"), (200, "[]".to_owned()));
    assert_eq!(get_body(&server, "/nothing").0, 404);
    let (status, answer) = ask(&server, "GET", "/metrics", "");
    assert_eq!(status, 200);
    assert!(answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8"));
    assert!(
        answer.contains("firsthop_config_generation 1\n"),
        "{answer}"
    );
}

#[test]
fn changes_need_the_token() {
    let dir = Dir::with_credentials(&Ca::new(), &Leaf::of("ams"));
    let context = context(&dir);
    let server = serve(&context, any_port(), admin(Ok(()))).unwrap();
    let delete = |headers: &str| ask(&server, "DELETE", "/sessions/7", headers);
    let (status, answer) = delete("");
    assert_eq!(status, 401);
    assert!(answer.contains("www-authenticate: Bearer realm=\"firsthop admin\""));
    for wrong in [
        "Bearer 0123456789abcdef0124",
        "Bearer ",
        "Basic x",
        TOKEN,
        "Bearer\u{e9}x",
    ] {
        assert_eq!(
            delete(&format!("authorization: {wrong}\r\n")).0,
            401,
            "{wrong}"
        );
    }
    assert_eq!(delete(&format!("authorization: bearer {TOKEN}\r\n")).0, 204);
    // The token is asked for before it shows whether the route exists.
    assert_eq!(ask(&server, "POST", "/nothing", "").0, 401);
    dir.remove("admin.token");
    let topology = topology::load(LOCAL, "local.yaml").unwrap();
    context
        .config
        .publish(topology, Credentials::load(dir.path()).unwrap());
    let (status, answer) = delete(&format!("authorization: Bearer {TOKEN}\r\n"));
    assert_eq!(status, 403);
    assert!(answer.contains("this node has no admin.token"));
}

#[test]
fn a_node_that_cannot_serve_or_drains_is_not_ready() {
    let dir = Dir::with_credentials(&Ca::new(), &Leaf::of("ams"));
    let context = context(&dir);
    let down = serve(&context, any_port(), admin(Err("no link is up"))).unwrap();
    assert_eq!(
        get_body(&down, "/readyz"),
        (503, "no link is up\n".to_owned())
    );
    let up = serve(&context, any_port(), admin(Ok(()))).unwrap();
    context.shutdown.drain(Duration::from_secs(60));
    assert_eq!(get_body(&up, "/readyz"), (503, "draining\n".to_owned()));
    assert_eq!(get_body(&up, "/healthz").0, 200);
}

#[test]
fn only_loopback_is_served_and_a_taken_port_is_one_line() {
    let dir = Dir::with_credentials(&Ca::new(), &Leaf::of("ams"));
    let context = context(&dir);
    for address in [
        "0.0.0.0:0",
        "[::]:0",
        "192.0.2.1:9100",
        "[::ffff:192.0.2.1]:1",
    ] {
        let address: SocketAddr = address.parse().unwrap();
        let error = serve(&context, address, admin(Ok(()))).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("admin address {address} is not loopback")
        );
    }
    let server = serve(&context, any_port(), admin(Ok(()))).unwrap();
    let taken = server.address();
    let error = serve(&context, taken, admin(Ok(()))).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("admin address {taken}: Address already in use (os error 98)")
    );
}

#[test]
fn a_dropped_server_frees_its_address_at_once() {
    let dir = Dir::with_credentials(&Ca::new(), &Leaf::of("ams"));
    let context = context(&dir);
    let mut server = serve(&context, any_port(), admin(Ok(()))).unwrap();
    for _ in 0..20 {
        let address = server.address();
        assert_eq!(get_body(&server, "/healthz").0, 200);
        drop(server);
        server = serve(&context, address, admin(Ok(()))).unwrap();
    }
}

#[test]
fn stopping_the_node_ends_the_server() {
    let dir = Dir::with_credentials(&Ca::new(), &Leaf::of("ams"));
    let context = context(&dir);
    let server = serve(&context, any_port(), admin(Ok(()))).unwrap();
    assert_eq!(get_body(&server, "/healthz").0, 200);
    context.shutdown.stop();
    let deadline = crate::clock::now() + Duration::from_secs(5);
    while TcpStream::connect(server.address()).is_ok() {
        assert!(crate::clock::now() < deadline, "it still listens");
        std::thread::yield_now();
    }
}

#[test]
fn a_node_with_a_stalled_worker_is_not_ready_until_it_moves() {
    let dir = Dir::with_credentials(&Ca::new(), &Leaf::of("ams"));
    let context = context(&dir);
    let server = serve(&context, any_port(), admin(Ok(()))).unwrap();
    let mut heart = context.watch.heart("3");
    heart.beat();
    let until_ready = |expected: &(u16, String), turn: &mut dyn FnMut()| {
        let deadline = crate::clock::now() + Duration::from_secs(10);
        while get_body(&server, "/readyz") != *expected {
            assert!(crate::clock::now() < deadline, "not {expected:?}");
            turn();
        }
    };
    until_ready(&(503, "worker 3 is stalled\n".to_owned()), &mut || {});
    until_ready(&(200, "ready\n".to_owned()), &mut || heart.beat());
}

#[test]
fn connections_beyond_the_bound_wait_for_one_to_end() {
    let dir = Dir::with_credentials(&Ca::new(), &Leaf::of("ams"));
    let context = context(&dir);
    let server = serve(&context, any_port(), admin(Ok(()))).unwrap();
    let held: Vec<TcpStream> = (0..Limits::default().connections)
        .map(|_| TcpStream::connect(server.address()).unwrap())
        .collect();
    let mut late = TcpStream::connect(server.address()).unwrap();
    late.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .unwrap();
    late.set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    assert!(
        late.read(&mut [0]).is_err(),
        "it was served beyond the bound"
    );
    drop(held);
    late.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut answer = String::new();
    late.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"));
}

#[test]
fn only_names_of_this_machine_are_answered() {
    let local = [
        "localhost",
        "LOCALHOST:9100",
        "127.0.0.1",
        "127.0.11.1:9100",
        "[::1]:9100",
        "::1",
    ];
    for host in local {
        assert!(is_local_host(host.as_bytes()), "{host}");
    }
    let foreign = [
        "evil.example",
        "evil.example:9100",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "",
        "[::1",
        "x@127.0.0.1",
    ];
    for host in foreign {
        assert!(!is_local_host(host.as_bytes()), "{host}");
    }
    assert!(!is_local_host(&[0xff]));
}
