//! The flags of the program.

use std::path::PathBuf;

use runtime::args::NodeArgs;

/// Flags of `geodns`.
#[derive(Clone, Debug, clap::Args)]
pub struct GeoDnsArgs {
    /// Those of every node.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Geolocation database (.mmdb); several are asked in this order, each for what the ones before it do not say
    #[arg(long = "geo-db", value_name = "FILE")]
    pub geo_db: Vec<PathBuf>,
}
