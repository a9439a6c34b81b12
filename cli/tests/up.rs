//! `firsthop up` as a user runs it: both modes, the page and its API, restarts, deaths, and what is left at the end.
//!
//! Networks of these tests share addresses with each other and with any other `up` on this machine: one at a time,
//! by a lock on [`network::LOCK`].

#![cfg(test)]

#[path = "up/http.rs"]
mod http;
#[path = "up/network.rs"]
mod network;

use std::net::TcpListener;
use std::time::Duration;

use network::{Machine, Up, eventually};
use rustix::process::Signal;

/// Nodes of the built-in network.
const NODES: usize = 11;

#[test]
fn the_network_runs_in_one_process() {
    let machine = Machine::lock();
    let mut up = Up::start(&machine, &[]);
    assert_eq!(up.children().len(), 0);
    page_and_api(&up, false);
    signaling(&up);
    restart(&up);
    only_this_machine_may_restart(&up);
    up.end(Signal::INT);
}

#[test]
fn the_network_runs_as_processes() {
    let machine = Machine::lock();
    let mut up = Up::start(&machine, &["--processes"]);
    let before = up.children();
    assert_eq!(before.len(), NODES);
    page_and_api(&up, true);
    signaling(&up);
    restart(&up);
    let after = up.children();
    assert_eq!(after.len(), NODES);
    let kept = after.iter().filter(|pid| before.contains(pid)).count();
    assert_eq!(kept, NODES - 1, "one process is another one");
    up.end(Signal::TERM);
}

#[test]
fn a_node_that_dies_is_named() {
    let machine = Machine::lock();
    let mut up = Up::start(&machine, &["--processes"]);
    up.kill_node("us-r2");
    up.expect_stderr(
        "firsthop up: core relay us-r2 ended unexpectedly (signal: 9 (SIGKILL)); the others go on",
    );
    assert_eq!(up.get("/api/network").status, 200);
    up.end(Signal::INT);
}

#[test]
fn children_do_not_outlive_a_killed_parent() {
    let machine = Machine::lock();
    let mut up = Up::start(&machine, &["--processes"]);
    let children = up.children();
    up.kill();
    eventually("every child is gone", Duration::from_secs(10), || {
        children.iter().all(|pid| !network::is_alive(*pid))
    });
    // The directory of the killed one goes when the next one starts.
    assert_eq!(machine.files_left(), 1);
    let mut next = Up::start(&machine, &[]);
    next.end(Signal::INT);
}

#[test]
fn ending_while_starting_leaves_nothing() {
    let machine = Machine::lock();
    let mut up = Up::spawn(&machine, &["--processes"]);
    eventually("the first node is there", Duration::from_secs(20), || {
        !up.children().is_empty()
    });
    up.end(Signal::INT);
}

#[test]
fn a_taken_port_is_one_line() {
    let machine = Machine::lock();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let (code, out, err) = Up::refused(&machine, &["--listen", &at]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert_eq!(
        err,
        format!(
            "firsthop up: {at} is in use by another program; choose another address with --listen\n"
        )
    );
    assert_eq!(machine.files_left(), 0);
}

#[test]
fn a_second_network_is_one_line() {
    let machine = Machine::lock();
    let mut up = Up::start(&machine, &[]);
    let (code, _, err) = Up::refused(&machine, &["--listen", "127.0.0.1:0"]);
    assert_eq!((code, err.lines().count()), (2, 1), "{err}");
    assert!(
        err.ends_with("is another `firsthop up` running?\n"),
        "{err}"
    );
    up.end(Signal::INT);
}

fn page_and_api(up: &Up<'_>, processes: bool) {
    let page = up.get("/");
    assert_eq!(page.status, 200);
    assert!(page.body.contains("<title>firsthop"));
    assert!(page.header("content-security-policy").is_some());
    assert_eq!(up.get("/nothing").status, 404);

    let network = up.get("/api/network").json();
    assert_eq!(network["processes"], processes);
    let names = |list: &serde_json::Value| -> Vec<String> {
        let nodes = list.as_array().unwrap().iter();
        nodes
            .map(|node| {
                assert_eq!(node["ready"], true, "{node}");
                node["name"].as_str().unwrap().to_owned()
            })
            .collect()
    };
    assert_eq!(names(&network["pops"]), ["ams", "nyc", "sin"]);
    let eu = &network["regions"][0];
    assert_eq!(names(&eu["core_relays"]), ["eu-r1", "eu-r2"]);
    assert_eq!(names(&eu["transceivers"]), ["eu-t1", "eu-t2"]);
    assert_eq!(up.get("/api/call/eu-t1/12345").status, 404);
    assert_eq!(up.get("/api/call/nobody/1").status, 404);
}

fn signaling(up: &Up<'_>) {
    let sdp = [("content-type", "application/sdp")];
    let answer = up.send("POST", "/whip", &sdp, "hello");
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert_eq!(
        answer.header("content-type").as_deref(),
        Some("application/problem+json")
    );
    assert_eq!(answer.body.trim_end().lines().count(), 1);
    let answer = up.send("POST", "/whip?region=mars", &sdp, "hello");
    assert_eq!(answer.status, 400);
    let answer = up.send("DELETE", "/whip/nothing", &[], "");
    assert_eq!(answer.status, 404, "{}", answer.body);
}

fn restart(up: &Up<'_>) {
    let answer = up.send("POST", "/api/pops/ams/restart", &[], "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    assert_eq!(answer["pop"], "ams");
    assert!(answer["down_ms"].as_u64().unwrap() < 5000, "{answer}");
    assert_eq!(
        up.send("POST", "/api/pops/eu-r1/restart", &[], "").status,
        404
    );
    eventually("everything is ready again", Duration::from_secs(20), || {
        let network = up.get("/api/network").json();
        network["pops"]
            .as_array()
            .unwrap()
            .iter()
            .all(|pop| pop["ready"] == true)
    });
}

fn only_this_machine_may_restart(up: &Up<'_>) {
    let path = "/api/pops/ams/restart";
    for header in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("host", "evil.example"),
        ("host", "192.0.2.1:8080"),
    ] {
        assert_eq!(
            up.send("POST", path, &[header], "").status,
            403,
            "{header:?}"
        );
    }
    let own = format!("http://{}", up.at());
    assert_eq!(up.send("POST", path, &[("origin", &own)], "").status, 200);
    assert_eq!(
        up.send("GET", "/", &[("host", "evil.example")], "").status,
        403
    );
}
