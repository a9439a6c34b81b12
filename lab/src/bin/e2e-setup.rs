//! Installs what the end-to-end tests need beside Debian packages. See `lab::tools`.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match lab::tools::install() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr is no reason to panic.
            let _ = writeln!(std::io::stderr(), "e2e-setup: {error:#}");
            ExitCode::FAILURE
        }
    }
}
