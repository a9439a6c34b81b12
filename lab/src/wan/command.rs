//! `lab wan`.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::control::ask;
use super::namespaces;
use super::plan::Plan;
use super::shell::{Emulation, become_user, listen};

/// A wide-area network of network namespaces.
#[derive(Debug, Subcommand)]
pub enum Wan {
    /// Makes the namespaces and devices of a plan, and carries their packets until killed; as root
    Up(Up),
    /// Gives an order to one that runs: cut, heal, set, show, stats, lateness
    Ctl(Ctl),
    /// Removes the namespaces of a plan, whatever became of the process
    Down(Down),
}

/// Arguments of `lab wan up`.
#[derive(Debug, Args)]
pub struct Up {
    /// The plan, YAML
    plan: PathBuf,
    /// Unix socket for orders
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Arguments of `lab wan ctl`.
#[derive(Debug, Args)]
pub struct Ctl {
    /// The socket of the one that runs
    socket: PathBuf,
    /// The order
    #[arg(required = true)]
    order: Vec<String>,
}

/// Arguments of `lab wan down`.
#[derive(Debug, Args)]
pub struct Down {
    /// The plan, YAML
    plan: PathBuf,
}

impl Wan {
    /// Carries it out.
    ///
    /// # Errors
    /// Not root, a plan that is none, or an order that is refused.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Up(up) => up.run(),
            Self::Ctl(ctl) => {
                let answer = ask(&ctl.socket, &ctl.order.join(" "))?;
                writeln!(std::io::stdout(), "{answer}").context("writing the answer")
            }
            Self::Down(down) => namespaces::remove(&read(&down.plan)?),
        }
    }
}

impl Up {
    fn run(&self) -> anyhow::Result<()> {
        let plan = read(&self.plan)?;
        let emulation = Emulation::open(&plan)?;
        let listener = self.socket.as_deref().map(listen).transpose()?;
        let running = emulation.start()?;
        if let Some(uid) = plan.become_uid {
            become_user(uid)?;
        }
        writeln!(std::io::stdout(), "up").context("saying so")?;
        if let Some(listener) = listener {
            return running.serve(&listener);
        }
        loop {
            std::thread::park();
        }
    }
}

fn read(path: &PathBuf) -> anyhow::Result<Plan> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Plan::parse(&text).with_context(|| path.display().to_string())
}
