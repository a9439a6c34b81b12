//! The command line. What it means is in `command` and below.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};
use geodns::GeoDnsArgs;
use runtime::args::NodeArgs;

use crate::certs::{CA_DAYS, NODE_DAYS};
use crate::keys::ROTATE_HELP;

/// A network of points of presence for WebRTC voice.
#[derive(Debug, Parser)]
#[command(name = "firsthop", version, disable_help_subcommand = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a whole network on this machine, with a demo page to talk through it
    Up(UpArgs),
    /// Run one node
    #[command(subcommand)]
    Node(NodeCommand),
    /// Make certificates and credentials directories
    #[command(subcommand)]
    Certs(CertsCommand),
    /// Make and rotate hint keys; make the key of the DNS zone
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Check a topology file, print the format's schema, make configuration of other programs from it
    #[command(subcommand)]
    Topo(TopoCommand),
    /// Say why something is as it is
    #[command(subcommand)]
    Explain(ExplainCommand),
    /// A world on this machine, by the program `lab` beside this one: up, down, fault, status, exec ...; see `firsthop lab --help`
    #[command(disable_help_flag = true)]
    Lab {
        /// Arguments of `lab`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Hand the clients of a PoP over to others, and say how it goes; exit code 1 when packets were lost or still arrive
    Drain(DrainArgs),
    /// Let a drained PoP serve again
    Undrain(DrainArgs),
}

/// Arguments of `drain` and `undrain`. A PoP answers on its own host alone.
#[derive(Debug, ClapArgs)]
pub struct DrainArgs {
    /// Name of the PoP in the topology
    pub pop: String,
    /// The topology file
    #[arg(long, value_name = "FILE")]
    pub topology: PathBuf,
    /// File with the admin token of the PoP
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/firsthop/credentials/admin.token"
    )]
    pub token: PathBuf,
    /// Where the PoP's admin address is reached, if not where the topology says: the near end of a tunnel
    #[arg(long, value_name = "ADDRESS")]
    pub at: Option<SocketAddr>,
    /// Drain although fewer than `min_announced` other PoPs are up
    #[arg(long)]
    pub force: bool,
    /// Give the order, and do not wait for what becomes of it
    #[arg(long)]
    pub no_wait: bool,
}

/// Arguments of `up`.
#[derive(Debug, ClapArgs)]
pub struct UpArgs {
    /// Run every node as a process of its own
    #[arg(long)]
    pub processes: bool,
    /// Address of the demo page
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Network to run instead of the built-in one (3 PoPs, 2 regions on loopback addresses)
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,
    /// What to log, to stderr: a level, or targets with levels
    #[arg(long, value_name = "FILTER", default_value = "warn")]
    pub log: String,
}

/// The kinds of node.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// A PoP
    Pop(NodeRun),
    /// A core relay
    CoreRelay(NodeRun),
    /// A transceiver
    Transceiver(NodeRun),
    /// A GeoDNS node
    #[command(name = "geodns")]
    GeoDns(GeoDnsRun),
}

/// Arguments of `node geodns`.
#[derive(Debug, ClapArgs)]
pub struct GeoDnsRun {
    /// Those of the program.
    #[command(flatten)]
    pub geodns: GeoDnsArgs,
    /// As for the other nodes.
    #[arg(long, value_name = "PID", hide = true)]
    pub die_with: Option<i32>,
}

/// What can be explained.
#[derive(Debug, Subcommand)]
pub enum ExplainCommand {
    /// Which region and PoPs a client gets, and why
    Steer(ExplainSteer),
}

/// Arguments of `explain steer`.
#[derive(Debug, ClapArgs)]
pub struct ExplainSteer {
    /// Address of the client
    #[arg(long, value_name = "ADDRESS")]
    pub client: IpAddr,
    /// Admin address of a running GeoDNS node (http://...), or a file with what its /state said; else all nodes are well and idle
    #[arg(long, value_name = "URL|FILE")]
    pub at: Option<String>,
    /// The topology file, unless a running node is asked
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,
    /// Geolocation database, as of `geodns`
    #[arg(long = "geo-db", value_name = "FILE")]
    pub geo_db: Vec<PathBuf>,
    /// Region that is fixed
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// Residency that is demanded
    #[arg(long, value_name = "NAME")]
    pub residency: Option<String>,
    /// Print the whole explanation as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `node KIND`.
#[derive(Debug, ClapArgs)]
pub struct NodeRun {
    /// Those of the program.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Process whose end this node must not outlive: how `up --processes` leaves nothing behind.
    #[arg(long, value_name = "PID", hide = true)]
    pub die_with: Option<i32>,
}

/// Making certificates.
#[derive(Debug, Subcommand)]
pub enum CertsCommand {
    /// Make a certificate authority: DIR/ca.pem and DIR/ca.key.pem
    Ca {
        /// Directory of the authority
        dir: PathBuf,
        /// Name of the network, for people who read the certificate
        #[arg(long, default_value = "firsthop")]
        network: String,
        /// Days it is good for
        #[arg(long, default_value_t = CA_DAYS)]
        days: u32,
        /// Replace existing files
        #[arg(long)]
        force: bool,
    },
    /// Make a node's certificate: OUT/ca.pem, OUT/cert.pem and OUT/key.pem
    Node {
        /// Directory of the authority, as `certs ca` made it
        #[arg(long, value_name = "DIR")]
        ca: PathBuf,
        /// The node's name in the topology
        #[arg(long)]
        name: String,
        /// Credentials directory of the node
        out: PathBuf,
        /// Days it is good for
        #[arg(long, default_value_t = NODE_DAYS)]
        days: u32,
        /// Replace existing files
        #[arg(long)]
        force: bool,
    },
    /// Make an authority and the credentials of every node of a topology: DIR/ca.pem, DIR/ca.key.pem, DIR/NODE/...
    All {
        /// The topology
        #[arg(long, value_name = "FILE")]
        topology: PathBuf,
        /// Directory to make them in; each node gets its subdirectory as `--credentials`
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Days the nodes' certificates are good for
        #[arg(long, default_value_t = NODE_DAYS)]
        days: u32,
        /// Days the authority is good for
        #[arg(long, default_value_t = CA_DAYS)]
        ca_days: u32,
        /// Replace existing files
        #[arg(long)]
        force: bool,
    },
}

/// Hint keys, and the keys of the DNS zone.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key file with a current and a next key
    New {
        /// The file, `hint.keys` in a credentials directory
        file: PathBuf,
        /// Replace an existing file
        #[arg(long)]
        force: bool,
    },
    /// Make a key that signs the DNS zone
    Dnssec {
        /// The file, `dnssec.pem` in the credentials directory of every GeoDNS node
        file: PathBuf,
        /// Replace an existing file
        #[arg(long)]
        force: bool,
    },
    /// Print the DS records that the parent of the DNS zone needs
    Ds {
        /// The file with the keys of the zone
        file: PathBuf,
        /// Topology that names the zone
        #[arg(long)]
        topology: PathBuf,
    },
    /// Move every key one role on and add a fresh next key
    #[command(long_about = ROTATE_HELP)]
    Rotate {
        /// The file
        file: PathBuf,
    },
}

/// Topology files.
#[derive(Debug, Subcommand)]
pub enum TopoCommand {
    /// Check topology files; errors as FILE:LINE: field: message, exit code 2
    Check {
        /// The files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the JSON Schema of topology files
    Schema,
    /// Print the configuration of another program, made from a topology
    #[command(subcommand)]
    Render(RenderCommand),
}

/// Programs whose configuration is in the topology.
#[derive(Debug, Subcommand)]
pub enum RenderCommand {
    /// BIRD 2 on a PoP, which announces the VIPs: the complete bird.conf
    Bird {
        /// The topology
        #[arg(long, value_name = "FILE")]
        topology: PathBuf,
        /// The PoP's name in the topology
        #[arg(long, value_name = "POP")]
        node: String,
    },
}
