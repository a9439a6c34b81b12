//! Configurations of the routers that are not ours: transit in every city, and ISPs. Text alone; PoPs get theirs from
//! `firsthop topo render bird`, as an operator would.
//!
//! Transit routers tell each other what their customers and their own networks announce, and nothing they heard from each other:
//! no path is longer than two of them, and a withdrawn route is gone without a search for another. Among equal routes of others
//! a router takes the one whose city is nearest, by preference: what the interior routing of one large network does.

use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::IpNet;

/// Preference of a customer's route, and of a peer's in no distance at all.
const CUSTOMER_PREF: u32 = 3_000_000;
const PEER_PREF: u32 = 2_000_000;
/// What a route that is to be avoided loses, and a customer's its advantage: below all others, and still nearest first.
const AVOIDED: u32 = 1_000_000;
/// Value of a transit network's community by which a customer asks for that, as `ASN:80` and `ASN:80:0`.
const AVOID: u32 = 80;
/// Hold time where nothing else is said.
const HOLD_S: u32 = 30;

/// A router to be.
#[derive(Clone, Debug)]
pub(super) struct Speaker {
    pub(super) router_id: u32,
    pub(super) asn: u32,
    pub(super) graceful_shutdown: bool,
    pub(super) statics: Vec<(IpNet, IpAddr)>,
    pub(super) neighbours: Vec<Neighbour>,
    pub(super) bfd: Option<Bfd>,
}

/// A session to be, of one family.
#[derive(Clone, Debug)]
pub(super) struct Neighbour {
    pub(super) node: String,
    pub(super) asn: u32,
    pub(super) local: IpAddr,
    pub(super) address: IpAddr,
    pub(super) is: Relation,
}

/// Who a neighbour is to a router.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Relation {
    /// A PoP: announces VIPs and wants to hear nothing. Sessions with it are watched as it watches them.
    Pop {
        /// Prefixes it may announce.
        prefixes: Vec<IpNet>,
        hold_s: u32,
        preferred: bool,
    },
    /// An access network that buys transit here.
    Isp,
    /// Another transit network, so far away.
    Peer { rtt_ms: f64, near_first: bool },
    /// Where an access network buys transit.
    Upstream,
}

/// How PoPs watch their neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bfd {
    pub(super) interval_ms: u32,
    pub(super) multiplier: u32,
}

impl Speaker {
    /// The whole `bird.conf`.
    pub(super) fn config(&self) -> String {
        let id = std::net::Ipv4Addr::from(self.router_id);
        let mut text =
            format!("log stderr all;\nrouter id {id};\nprotocol device {{ scan time 10; }}\n");
        if let Some(Bfd {
            interval_ms,
            multiplier,
        }) = self.bfd
        {
            let _ = writeln!(
                text,
                "protocol bfd {{ interface \"to-*\" {{ min rx interval {interval_ms} ms; min tx interval {interval_ms} ms; \
                 idle tx interval 1 s; multiplier {multiplier}; }}; }}"
            );
        }
        for family in [4, 6] {
            let _ = writeln!(
                text,
                "protocol kernel kernel{family} {{ scan time 10; ipv{family} {{ import none; export all; }}; }}"
            );
            self.statics(family, &mut text);
        }
        text += "filter of_customers { if source = RTS_STATIC || proto ~ \"c_*\" then accept; reject; }\n";
        for neighbour in &self.neighbours {
            self.session(neighbour, &mut text);
        }
        text
    }

    fn statics(&self, family: u8, text: &mut String) {
        let _ = writeln!(text, "protocol static static{family} {{ ipv{family};");
        let routes = self.statics.iter();
        for (net, via) in routes.filter(|(net, _)| family_of(net.addr()) == family) {
            let _ = writeln!(text, "  route {net} via {via};");
        }
        *text += "}\n";
    }

    fn session(&self, neighbour: &Neighbour, text: &mut String) {
        let family = family_of(neighbour.address);
        let name = neighbour.protocol();
        let hold_s = match neighbour.is {
            Relation::Pop { hold_s, .. } => hold_s,
            Relation::Isp | Relation::Peer { .. } | Relation::Upstream => HOLD_S,
        };
        let bfd = match (&neighbour.is, self.bfd) {
            (Relation::Pop { .. }, Some(_)) => " bfd on;",
            (
                Relation::Pop { .. } | Relation::Isp | Relation::Peer { .. } | Relation::Upstream,
                _,
            ) => "",
        };
        let export = match neighbour.is {
            Relation::Pop { .. } => "none",
            Relation::Isp => "all",
            Relation::Peer { .. } => "filter of_customers",
            Relation::Upstream => "where source = RTS_STATIC",
        };
        let _ = writeln!(
            text,
            "filter from_{name} {{ {} }}",
            self.import(neighbour, family)
        );
        let _ = writeln!(
            text,
            "protocol bgp {name} {{ local {} as {}; neighbor {} as {}; hold time {hold_s}; connect retry time 2; \
             connect delay time 1; error wait time 1, 4;{bfd} graceful restart off; \
             ipv{family} {{ import filter from_{name}; export {export}; next hop self; }}; }}",
            neighbour.local, self.asn, neighbour.address, neighbour.asn
        );
    }

    fn import(&self, neighbour: &Neighbour, family: u8) -> String {
        let (pref, known) = match &neighbour.is {
            Relation::Pop {
                prefixes,
                preferred,
                ..
            } => (
                if *preferred { CUSTOMER_PREF } else { PEER_PREF },
                registered(prefixes, family),
            ),
            Relation::Isp => (CUSTOMER_PREF, String::new()),
            Relation::Peer {
                rtt_ms,
                near_first: true,
            } => (PEER_PREF - hundredths(*rtt_ms), String::new()),
            Relation::Peer {
                near_first: false, ..
            }
            | Relation::Upstream => (PEER_PREF, String::new()),
        };
        let avoided = pref.min(PEER_PREF) - AVOIDED;
        let mut filter = format!("{known}bgp_local_pref = {pref}; ");
        if self.graceful_shutdown {
            let _ = write!(
                filter,
                "if (65535, 0) ~ bgp_community then bgp_local_pref = {avoided}; "
            );
        }
        let asn = self.asn;
        if asn <= u32::from(u16::MAX) {
            let _ = write!(
                filter,
                "if ({asn}, {AVOID}) ~ bgp_community then bgp_local_pref = {avoided}; "
            );
        }
        let _ = write!(
            filter,
            "if ({asn}, {AVOID}, 0) ~ bgp_large_community then bgp_local_pref = {avoided}; "
        );
        filter + "accept;"
    }
}

impl Neighbour {
    /// Name of its protocol in BIRD. Of customers, it begins with `c_`.
    pub(super) fn protocol(&self) -> String {
        let kind = match self.is {
            Relation::Pop { .. } | Relation::Isp => 'c',
            Relation::Peer { .. } => 'p',
            Relation::Upstream => 'u',
        };
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let node: String = self.node.chars().map(plain).collect();
        format!("{kind}_{node}_{}", family_of(self.address))
    }
}

/// Refuses what is not registered for a customer.
fn registered(prefixes: &[IpNet], family: u8) -> String {
    let own = prefixes
        .iter()
        .filter(|net| family_of(net.addr()) == family);
    let own: Vec<String> = own.map(ToString::to_string).collect();
    if own.is_empty() {
        return "reject; ".to_owned();
    }
    format!("if net !~ [ {} ] then reject; ", own.join(", "))
}

/// Hundredths of a millisecond, below the distance between two preferences.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it lies in the range it is held to"
)]
fn hundredths(ms: f64) -> u32 {
    (ms * 100.0).round().clamp(0.0, 900_000.0) as u32
}

pub(super) const fn family_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 4,
        IpAddr::V6(_) => 6,
    }
}
