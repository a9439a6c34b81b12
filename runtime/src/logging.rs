//! The log subscriber: the only state that is global to a process. A line is handed to a thread of its own, so that a full pipe
//! behind stderr holds up nobody else.

mod lines;

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use self::lines::Lines;

/// How long a process that ends waits for its last lines.
const FLUSH_MAX: Duration = Duration::from_millis(500);

/// Where lines go once logging has started.
static LINES: OnceLock<Lines> = OnceLock::new();

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
pub enum LogError {
    /// The filter cannot be read.
    #[error("--log {filter}: {reason}")]
    Filter {
        /// The filter.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The kernel gives no thread.
    #[error("no thread for log lines: {0}")]
    Thread(#[from] std::io::Error),
}

/// Sends log lines that pass `filter` (`info`, `pop=debug,info`, ..) to stderr. A second call in one process changes
/// nothing.
///
/// # Errors
/// See [`LogError`].
pub fn start(filter: &str, format: Format) -> Result<(), LogError> {
    let parsed = EnvFilter::builder()
        .parse(filter)
        .map_err(|error| LogError::Filter {
            filter: filter.to_owned(),
            reason: error.to_string(),
        })?;
    let lines = match LINES.get() {
        Some(lines) => lines,
        None => {
            let lines = Lines::start(std::io::stderr())?;
            LINES.get_or_init(|| lines)
        }
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(lines.clone())
        .with_ansi(std::io::stderr().is_terminal());
    // An error says that a subscriber is set, which is what we want.
    let _ = match format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}

/// Waits for the last lines, half a second at most. Whoever ends the process calls it.
pub fn flush() {
    if let Some(lines) = LINES.get() {
        lines.flush(FLUSH_MAX);
    }
}

/// Lines of this process that were dropped because whoever reads stderr does not.
#[must_use]
pub fn dropped() -> u64 {
    LINES.get().map_or(0, Lines::dropped)
}
