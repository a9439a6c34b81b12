//! The log subscriber: the only state that is global to a process.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why logging did not start.
#[derive(Debug, thiserror::Error)]
#[error("--log {filter}: {reason}")]
pub struct FilterError {
    filter: String,
    reason: String,
}

/// Sends log lines that pass `filter` (`info`, `pop=debug,info`, ..) to stderr. A second call in one process changes
/// nothing.
///
/// # Errors
/// The filter cannot be read.
pub fn start(filter: &str, format: Format) -> Result<(), FilterError> {
    let parsed = EnvFilter::builder()
        .parse(filter)
        .map_err(|error| FilterError {
            filter: filter.to_owned(),
            reason: error.to_string(),
        })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // An error says that a subscriber is set, which is what we want.
    let _ = match format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}
