//! How large a world is, and the topology, certificates and keys that come of it.

use std::fmt::Write as _;
use std::time::Duration;

use core_relay_link::Congestion;
use topology::Topology;
use wire::hint::KeyRing;

/// 20 ms of Opus with its headers.
const PACKET_LEN: usize = 160;

/// How large a world is. A test says what matters to it and takes the rest from [`Plan::new`].
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of everything that happens by chance.
    pub seed: u64,
    /// Clients, spread over PoPs and transceivers.
    pub clients: usize,
    /// PoPs; each has links to every region.
    pub pops: usize,
    /// Regions.
    pub regions: usize,
    /// Core relays of each region.
    pub relays: usize,
    /// Transceivers of each region.
    pub transceivers: usize,
    /// One-way delay of every path between a PoP and a core relay.
    pub delay: Duration,
    /// `network.link.mtu_bytes`.
    pub mtu_bytes: u16,
    /// `network.link.rate_mbps`.
    pub rate_mbps: u32,
    /// `network.link.rtt_ms`.
    pub rtt_ms: u32,
    /// Controller of every link.
    pub congestion: Congestion,
    /// Bytes of every check and answer, and of every media packet unless they vary: at least 80. Long ones are told apart from
    /// acknowledgements of a path that reorders and loses much.
    pub packet_len: usize,
    /// Whether media packets have any length there may be, instead of one.
    pub any_length: bool,
}

impl Plan {
    /// One PoP, one region of one core relay and one transceiver, 80 ms apart; seven clients.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            clients: 7,
            pops: 1,
            regions: 1,
            relays: 1,
            transceivers: 1,
            delay: Duration::from_millis(40),
            mtu_bytes: 1452,
            rate_mbps: 1000,
            rtt_ms: 200,
            congestion: Congestion::ConstantWindow,
            packet_len: PACKET_LEN,
            any_length: false,
        }
    }

    /// The topology file of this world, as loaded.
    ///
    /// # Panics
    /// The plan is impossible.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let text = self.yaml().expect("writing to a string");
        topology::load(&text, "simulation").unwrap_or_else(|errors| panic!("{errors}\n{text}"))
    }

    fn yaml(&self) -> Result<String, std::fmt::Error> {
        let Self {
            mtu_bytes,
            rate_mbps,
            rtt_ms,
            ..
        } = self;
        let mut yaml = String::from("version: 1\nnetwork:\n  name: simulation\n");
        writeln!(
            yaml,
            "  link: {{ mtu_bytes: {mtu_bytes}, rate_mbps: {rate_mbps}, rtt_ms: {rtt_ms} }}\nregions:"
        )?;
        for region in 1..=self.regions {
            writeln!(yaml, "  - name: region{region}\n    id: {region}")?;
            writeln!(
                yaml,
                "    signaling_url: http://10.9.{region}.1:8080/whip\n    core_relays:"
            )?;
            for relay in 1..=self.relays {
                writeln!(
                    yaml,
                    "      - {{ name: r{region}-{relay}, address: 10.1.{region}.{relay} }}"
                )?;
            }
            writeln!(
                yaml,
                "    transceivers:\n      cidr: 10.2.{region}.0/24\n      port: 5000\n      nodes:"
            )?;
            for node in 1..=self.transceivers {
                let ip = format!("10.2.{region}.{node}");
                writeln!(
                    yaml,
                    "        - {{ name: t{region}-{node}, address: {ip}, whip: \"{ip}:8080\", peer: \"{ip}:8443\" }}"
                )?;
            }
        }
        writeln!(yaml, "pops:")?;
        for pop in 1..=self.pops {
            writeln!(
                yaml,
                "  - {{ name: p{pop}, id: {pop}, ingress: [\"192.0.2.{pop}:3478\"], backbone: 10.3.0.{pop}, flows_max: 65536 }}"
            )?;
        }
        Ok(yaml)
    }
}

/// The live hint keys after some rotations: each rotation makes the next key current.
///
/// # Panics
/// More than 13 rotations.
#[must_use]
pub fn keys(rotations: u8) -> KeyRing {
    let key = |id: u8| format!("{id} {:032x}", u128::from(id) + 1);
    let (current, next) = (key(rotations + 1), key(rotations + 2));
    let text = format!(
        "previous {}\ncurrent {current}\nnext {next}\n",
        key(rotations)
    );
    KeyRing::parse(&text).expect("three keys with ids up to 15")
}
