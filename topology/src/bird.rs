//! The configuration of BIRD 2 on a PoP, as text. It runs nothing and writes no file.
//!
//! ```text
//! pop --route dev vip0, metric--> kernel table 1001 --learn--> tables vip4, vip6 --filter per session--> upstream routers
//!                                          static: the covers ------^
//! ```
//!
//! | route of a prefix | state | announced |
//! | --- | --- | --- |
//! | metric 100 | up | with the standing attributes |
//! | metric 200 | draining | with GRACEFUL_SHUTDOWN, more AS numbers, a higher MED and the drain communities beside |
//! | absent, or any other metric | withdrawn | not at all |
//!
//! Names of sessions are an operator's, and BIRD has keywords and names of its own: what is called after one begins with
//! [`PROTOCOL_PREFIX`] or `to_`, as no word of BIRD does, and no other name here.
//!
//! Exactly the prefixes and the covers leave, and nothing a neighbour says is used: both are filters here, so a route that
//! strays into the table stays on the PoP.

use std::fmt::{self, Write};
use std::net::Ipv4Addr;

use ipnet::IpNet;

use crate::anycast::{Anycast, BgpSession, Community, GRACEFUL_SHUTDOWN};
use crate::model::{Pop, Topology};

/// What the name of a session's protocol begins with: session `transit1` is `'bgp-transit1'` to `birdc`.
pub const PROTOCOL_PREFIX: &str = "bgp-";

/// Metric of a route whose prefix is announced.
pub const METRIC_UP: u32 = 100;
/// Metric of a route whose prefix is announced as draining.
pub const METRIC_DRAINING: u32 = 200;
/// Metric of a route that only shows that one can be made: BIRD rejects it.
pub const METRIC_PROOF: u32 = 9_000;

/// Added to MULTI_EXIT_DISC while draining: more than an operator's steps between sessions. The check leaves room for it.
pub(crate) const DRAIN_MED_ADDED: u32 = 1_000;

/// Seconds between scans of the kernel's table, should a message of it be lost.
const SCAN_S: u32 = 10;

/// Why there is no configuration for a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// Not a PoP of the topology.
    #[error("no PoP is named `{node}`")]
    NoPop {
        /// The name asked for.
        node: String,
    },
    /// Nothing to announce.
    #[error("`network.anycast` is missing: nothing is announced by BGP")]
    NoAnycast,
    /// Nothing to identify the PoP by. A loaded topology has it.
    #[error("PoP `{node}` has no router id")]
    NoRouterId {
        /// The PoP.
        node: String,
    },
    /// Nobody to announce it to.
    #[error("PoP `{node}` has no `bgp` sessions")]
    NoSession {
        /// The PoP.
        node: String,
    },
}

/// The complete bird.conf of the PoP named `node`.
///
/// # Errors
/// See [`RenderError`].
pub fn config(topology: &Topology, node: &str) -> Result<String, RenderError> {
    let name = || node.to_owned();
    let pop = topology
        .pop_named(node)
        .ok_or_else(|| RenderError::NoPop { node: name() })?;
    let anycast = topology.network.anycast.as_ref();
    let anycast = anycast.ok_or(RenderError::NoAnycast)?;
    if pop.bgp.is_empty() {
        return Err(RenderError::NoSession { node: name() });
    }
    let id = pop
        .bgp_id()
        .ok_or_else(|| RenderError::NoRouterId { node: name() })?;
    Ok(text(&topology.network.name, pop, id, anycast))
}

fn text(network: &str, pop: &Pop, id: Ipv4Addr, anycast: &Anycast) -> String {
    let mut out = String::new();
    head(&mut out, network, pop, id, anycast)
        .and_then(|()| tables(&mut out, anycast))
        .and_then(|()| sessions(&mut out, pop, anycast))
        .expect("a String takes any text");
    out
}

fn head(
    out: &mut String,
    network: &str,
    pop: &Pop,
    id: Ipv4Addr,
    anycast: &Anycast,
) -> fmt::Result {
    write!(
        out,
        "\
# bird.conf of PoP {name} in network {network}, for BIRD 2.
# Written by `firsthop topo render bird --node {name}` from the topology. Change it there.
#
# `pop` tells its state by the metric of a route for each prefix in kernel table {table}: {METRIC_UP} up,
# {METRIC_DRAINING} draining, no route: withdrawn. The route ends with the process.

log stderr {{ info, remote, warning, error, auth, fatal, bug }};
router id {id};

protocol device {{ scan time {SCAN_S}; }}

protocol bfd {{
  interface \"*\" {{ {bfd} }};
  multihop {{ {bfd} }};
}}
",
        name = pop.name,
        table = anycast.table,
        bfd = bfd(anycast),
    )
}

fn tables(out: &mut String, anycast: &Anycast) -> fmt::Result {
    for family in [Family::V4, Family::V6] {
        if let Some(prefixes) = family.set(&anycast.prefixes) {
            table(out, family, &prefixes, anycast)?;
        }
    }
    Ok(())
}

fn sessions(out: &mut String, pop: &Pop, anycast: &Anycast) -> fmt::Result {
    pop.bgp.iter().try_for_each(|of| {
        filter(out, of, anycast)?;
        session(out, of, anycast)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn digit(self) -> char {
        match self {
            Self::V4 => '4',
            Self::V6 => '6',
        }
    }

    const fn of(session: &BgpSession) -> Self {
        match session.address.is_ipv4() {
            true => Self::V4,
            false => Self::V6,
        }
    }

    const fn has(self, prefix: IpNet) -> bool {
        match prefix {
            IpNet::V4(_) => matches!(self, Self::V4),
            IpNet::V6(_) => matches!(self, Self::V6),
        }
    }

    /// A set of BIRD with exactly these of `prefixes` that are of this family; `None` when there are none, because BIRD has no empty set.
    fn set(self, prefixes: &[IpNet]) -> Option<String> {
        let own = prefixes.iter().filter(|prefix| self.has(**prefix));
        let own: Vec<String> = own.map(IpNet::to_string).collect();
        (!own.is_empty()).then(|| format!("[ {} ]", own.join(", ")))
    }
}

fn bfd(anycast: &Anycast) -> String {
    let (interval, multiplier) = (anycast.bfd.interval_ms, anycast.bfd.multiplier);
    format!("interval {interval} ms; multiplier {multiplier};")
}

/// The table of a family: what `pop` says, and the covers.
fn table(out: &mut String, family: Family, prefixes: &str, anycast: &Anycast) -> fmt::Result {
    let digit = family.digit();
    write!(
        out,
        "
ipv{digit} table vip{digit};

protocol kernel kernel_vip{digit} {{
  kernel table {table};
  learn;
  scan time {SCAN_S};
  ipv{digit} {{
    table vip{digit};
    import filter {{
      if net ~ {prefixes} && (krt_metric = {METRIC_UP} || krt_metric = {METRIC_DRAINING}) then accept;
      reject;
    }};
    export none;
  }};
}}
",
        table = anycast.table,
    )?;
    if family.set(&anycast.cover).is_none() {
        return Ok(());
    }
    write!(
        out,
        "
# Last resort: as long as BIRD lives, so that packets reach somebody when every PoP has withdrawn.
protocol static cover_vip{digit} {{
  ipv{digit} {{ table vip{digit}; }};
"
    )?;
    for cover in anycast.cover.iter().filter(|cover| family.has(**cover)) {
        writeln!(out, "  route {cover} blackhole;")?;
    }
    out.write_str("}\n")
}

/// What one neighbour is told.
fn filter(out: &mut String, session: &BgpSession, anycast: &Anycast) -> fmt::Result {
    let family = Family::of(session);
    let prefixes = family.set(&anycast.prefixes).unwrap_or_default();
    write!(
        out,
        "
filter 'to_{name}' {{
  if source = RTS_INHERIT && net ~ {prefixes} then {{
    if krt_metric = {METRIC_DRAINING} then {{
",
        name = session.name
    )?;
    let drain = std::iter::once(&GRACEFUL_SHUTDOWN).chain(&session.drain_communities);
    for community in drain {
        add(out, 6, *community)?;
    }
    prepend(out, 6, anycast.asn, anycast.drain_prepend)?;
    let med = session
        .med
        .unwrap_or_default()
        .saturating_add(DRAIN_MED_ADDED);
    write!(out, "      bgp_med = {med};\n    }}")?;
    if let Some(med) = session.med {
        write!(out, " else {{\n      bgp_med = {med};\n    }}")?;
    }
    out.write_str("\n  }\n")?;
    match family.set(&anycast.cover) {
        Some(covers) => writeln!(
            out,
            "  else if !(source = RTS_STATIC && net ~ {covers}) then reject;"
        )?,
        None => out.write_str("  else reject;\n")?,
    }
    for community in &session.communities {
        add(out, 2, *community)?;
    }
    prepend(out, 2, anycast.asn, session.prepend)?;
    out.write_str("  accept;\n}\n")
}

fn add(out: &mut String, indent: usize, community: Community) -> fmt::Result {
    match community {
        Community::Standard(a, b) => {
            writeln!(out, "{:indent$}bgp_community.add(({a}, {b}));", "")
        }
        Community::Large(a, b, c) => {
            writeln!(
                out,
                "{:indent$}bgp_large_community.add(({a}, {b}, {c}));",
                ""
            )
        }
    }
}

fn prepend(out: &mut String, indent: usize, asn: u32, times: u8) -> fmt::Result {
    (0..times).try_for_each(|_| writeln!(out, "{:indent$}bgp_path.prepend({asn});", ""))
}

fn session(out: &mut String, session: &BgpSession, anycast: &Anycast) -> fmt::Result {
    let digit = Family::of(session).digit();
    let name = &session.name;
    write!(
        out,
        "
protocol bgp '{PROTOCOL_PREFIX}{name}' {{
  local {local} as {asn};
  neighbor {address} as {neighbour};
  hold time {hold};
  keepalive time {keepalive};
  connect delay time 1;
  connect retry time 2;
  error wait time 1, 4;
  graceful restart off;
  bfd {bfd};
",
        local = session.local,
        asn = anycast.asn,
        address = session.address,
        neighbour = session.asn,
        hold = anycast.hold_s,
        keepalive = (anycast.hold_s / 3).max(1),
        bfd = if session.bfd { "on" } else { "off" },
    )?;
    if let Some(hops) = session.multihop {
        writeln!(out, "  multihop {hops};")?;
    }
    if let Some(file) = &session.password_file {
        // The lexer of BIRD takes `include` only at the beginning of a line.
        writeln!(out, "include \"{file}\";")?;
    }
    write!(
        out,
        "  ipv{digit} {{
    table vip{digit};
    import none;
    import keep filtered;
    receive limit {limit} action block;
    export filter 'to_{name}';
    next hop self;
  }};
}}
",
        limit = session.max_prefixes,
    )
}
