//! What `up` tells its user: what runs where, how to reach it, who died.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::SocketAddr;

use topology::Topology;

use super::nodes::{Death, Nodes};
use super::plan::{Kind, Node};

const HEAD: [&str; 5] = ["", "NODE", "WHERE", "ADMIN", "RUNS AS"];

/// Prints the table and the URL of the page.
///
/// # Errors
/// When stdout refuses.
pub(super) fn print(
    topology: &Topology,
    plan: &[Node],
    nodes: &dyn Nodes,
    at: SocketAddr,
) -> io::Result<()> {
    let rows = rows(topology, plan, |name| nodes.place(name));
    let text = format!("{}\n{}\n", layout(&rows), closing(topology, at));
    io::stdout().write_all(text.as_bytes())?;
    io::stdout().flush()
}

/// Tells of a node that ended though nobody ended it.
///
/// # Errors
/// When stderr refuses.
pub(super) fn tell_death(node: Option<&Node>, death: &Death) -> io::Result<()> {
    let Death { name, how } = death;
    let kind = node.map_or("node", |node| node.kind.noun());
    let hint = match node.map(|node| node.kind) {
        Some(Kind::Pop) => "; the page can restart it",
        Some(Kind::CoreRelay | Kind::Transceiver | Kind::GeoDns) | None => "",
    };
    writeln!(
        io::stderr(),
        "firsthop up: {kind} {name} ended unexpectedly ({how}); the others go on{hint}"
    )
}

fn rows(topology: &Topology, plan: &[Node], place: impl Fn(&str) -> String) -> Vec<[String; 5]> {
    plan.iter()
        .rev()
        .map(|node| {
            [
                node.kind.noun().to_owned(),
                node.name.clone(),
                whereabouts(topology, node),
                format!("http://{}", node.admin),
                place(&node.name),
            ]
        })
        .collect()
}

/// What of a node others reach.
fn whereabouts(topology: &Topology, node: &Node) -> String {
    let found = match node.kind {
        Kind::Pop => topology.pop_named(&node.name).map(|pop| {
            let ingress: Vec<_> = pop.ingress.iter().map(ToString::to_string).collect();
            ingress.join(" ")
        }),
        Kind::CoreRelay => topology
            .core_relay_named(&node.name)
            .map(|(region, relay)| {
                format!(
                    "{}:{} region {}",
                    relay.address, relay.link_port, region.name
                )
            }),
        Kind::Transceiver => topology.transceiver_named(&node.name).map(|(region, one)| {
            format!(
                "{}:{} region {}",
                one.address, region.transceivers.port, region.name
            )
        }),
        Kind::GeoDns => topology.geodns_named(&node.name).map(|geodns| {
            let dns: Vec<_> = geodns.dns.iter().map(ToString::to_string).collect();
            dns.join(" ")
        }),
    };
    found.unwrap_or_default()
}

fn layout(rows: &[[String; 5]]) -> String {
    let head = HEAD.map(str::to_owned);
    let mut widths = [0; 5];
    for row in rows.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in [&head].into_iter().chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a String does not fail.
            let _infallible = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn closing(topology: &Topology, at: SocketAddr) -> String {
    let beyond_loopback = topology
        .pops
        .iter()
        .any(|pop| pop.ingress.iter().any(|at| !at.ip().is_loopback()));
    let browsers = if beyond_loopback {
        "in Chromium or Firefox"
    } else {
        "in Chromium (Firefox needs an address beyond loopback, and this machine has none)"
    };
    format!("Open http://{at} {browsers} and press Talk. Ctrl-C ends everything.")
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;

    #[test]
    fn the_table_says_what_runs_where() {
        let topology =
            topology::load(include_str!("../../../topology/samples/local.yaml"), "x").unwrap();
        let plan = plan::nodes(&topology);
        let text = layout(&rows(&topology, &plan, |_| "threads".to_owned()));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 12);
        assert_eq!(
            lines[0],
            "             NODE   WHERE                      ADMIN                   RUNS AS"
        );
        assert_eq!(
            lines[1],
            "PoP          sin    127.0.31.3:3478            http://127.0.31.3:9100  threads"
        );
        assert_eq!(
            lines[4],
            "transceiver  us-t1  127.0.12.1:5000 region us  http://127.0.12.1:9100  threads"
        );
    }
}
