//! The flags of a node. What the topology says has no flag.

use std::path::PathBuf;

use clap::Args;

use crate::logging;

/// Flags of every node.
#[derive(Clone, Debug, Args)]
pub struct NodeArgs {
    /// The topology file
    #[arg(long, value_name = "FILE")]
    pub topology: PathBuf,
    /// Name of this node in the topology
    #[arg(long, value_name = "NAME")]
    pub node: String,
    /// Directory of ca.pem, cert.pem, key.pem, hint.keys, and optionally admin.token and whip.secret
    #[arg(long, value_name = "DIR", default_value = "/etc/firsthop/credentials")]
    pub credentials: PathBuf,
    /// Directory for what must outlive the process: the order to drain a PoP, and its falls. Without it they end with the process
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Check topology and credentials, start nothing
    #[arg(long)]
    pub check: bool,
    /// Print what the topology says about this node, with defaults filled in; start nothing
    #[arg(long)]
    pub print_config: bool,
    /// What to log: error, warn, info, debug or trace, also per module as in pop=debug,info
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// How log lines look
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: logging::Format,
}

/// Why the command line gives no flags.
#[derive(Debug)]
pub enum ArgsEnd {
    /// Asked for help or the version: text for stdout.
    Shown(String),
    /// One line for stderr.
    Wrong(String),
}

/// Reads the command line of a node, the program's name first: [`NodeArgs`], or flags that hold them and more.
///
/// # Errors
/// See [`ArgsEnd`].
pub fn parse<A: Args>(
    program: &'static str,
    command_line: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
) -> Result<A, ArgsEnd> {
    let command = clap::Command::new(program).version(env!("CARGO_PKG_VERSION"));
    A::augment_args(command)
        .try_get_matches_from(command_line)
        .and_then(|matches| A::from_arg_matches(&matches))
        .map_err(|error| {
            if error.use_stderr() {
                ArgsEnd::Wrong(first_paragraph(&error.to_string()))
            } else {
                ArgsEnd::Shown(error.to_string())
            }
        })
}

/// What clap says before it repeats the usage, on one line.
fn first_paragraph(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().map(str::trim);
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    format!("{} (see --help)", lines.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(line: &[&str]) -> String {
        match parse::<NodeArgs>("pop", line) {
            Err(ArgsEnd::Wrong(line)) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn errors_are_one_line() {
        assert_eq!(
            wrong(&["pop"]),
            "the following required arguments were not provided: --topology <FILE> --node <NAME> (see --help)"
        );
        assert_eq!(
            wrong(&["pop", "--topology", "t", "--node", "n", "--nood"]),
            "unexpected argument '--nood' found (see --help)"
        );
        assert_eq!(
            wrong(&[
                "pop",
                "--topology",
                "t",
                "--node",
                "n",
                "--log-format",
                "xml"
            ]),
            "invalid value 'xml' for '--log-format <FORMAT>' [possible values: text, json] (see --help)"
        );
    }

    #[test]
    fn defaults() {
        let args: NodeArgs = parse("pop", ["pop", "--topology", "t.yaml", "--node", "a"]).unwrap();
        assert_eq!(args.credentials, PathBuf::from("/etc/firsthop/credentials"));
        assert_eq!((args.log.as_str(), args.check), ("info", false));
    }

    #[test]
    fn help_is_not_an_error() {
        assert!(matches!(
            parse::<NodeArgs>("pop", ["pop", "--help"]),
            Err(ArgsEnd::Shown(text)) if text.contains("--print-config")
        ));
    }
}
