//! From the command line to the exit code.

use std::future::Future;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::config::{self, Config};
use super::reload::{Files, Reloader};
use super::{NodeContext, Running, Shutdown, State};
use crate::args::{self, ArgsEnd, NodeArgs};
use crate::control::Control;
use crate::files;
use crate::logging;
use crate::metrics::Push;
use crate::service::Service;

/// Starts a node: binds every socket, then spawns its threads.
pub type Start = fn(NodeContext) -> anyhow::Result<Running>;

/// A node that cannot start the way it is set up: one line says what to change, and the exit code is that of wrong flags.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// How often files are looked at.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// How long threads may take to end once they are told to stop.
const STOP_MAX: Duration = Duration::from_secs(5);
/// How long the last push of metrics may take.
const LAST_PUSH_MAX: Duration = Duration::from_secs(2);

const FAILED: u8 = 1;
const REFUSED: u8 = 2;

/// `main` of a node's program.
pub fn main(program: &'static str, start: Start) -> ExitCode {
    main_of(program, |args: NodeArgs| main_with(program, start, args))
}

/// The same for a program with flags of its own: `run` goes on with what was read.
pub fn main_of<A: clap::Args>(program: &'static str, run: impl FnOnce(A) -> ExitCode) -> ExitCode {
    match args::parse(program, std::env::args_os()) {
        Ok(args) => run(args),
        Err(ArgsEnd::Shown(text)) => print(&text),
        Err(ArgsEnd::Wrong(line)) => refuse(program, &line),
    }
}

/// The same with flags that were read elsewhere.
pub fn main_with(
    program: &'static str,
    start: impl FnOnce(NodeContext) -> anyhow::Result<Running>,
    args: NodeArgs,
) -> ExitCode {
    let checks = Checks {
        start: |_: &Config| Ok(()),
        reload: |_| Ok(()),
    };
    main_checked(program, checks, start, args)
}

/// What a node looks at besides what holds for all nodes: each says in one line what is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Checks<C> {
    /// Before anything starts, and for `--check`: also of what the node reads besides topology and credentials.
    pub start: C,
    /// Before a reload is taken: what is refused here changes nothing of the node.
    pub reload: fn(&Config) -> Result<(), String>,
}

/// The same for a node with checks of its own.
pub fn main_checked(
    program: &'static str,
    checks: Checks<impl FnOnce(&Config) -> Result<(), String>>,
    start: impl FnOnce(NodeContext) -> anyhow::Result<Running>,
    args: NodeArgs,
) -> ExitCode {
    if let Err(error) = logging::start(&args.log, args.log_format) {
        return refuse(program, &error);
    }
    let files = Files::of(&args);
    let config = match config::load(program, &args) {
        Ok(config) => config,
        Err(error) => return refuse(program, &error),
    };
    if args.print_config {
        let yaml = config::rendered(&config.topology, &args.node);
        return print(&yaml.unwrap_or_default());
    }
    if let Err(line) = (checks.start)(&config) {
        return refuse(program, &line);
    }
    if let Some(dir) = &args.state_dir
        && let Err(error) = files::probe_dir(dir)
    {
        let dir = dir.display();
        let line = format!("--state-dir {dir}: nothing can be kept there: {error}");
        // What was kept can be read, and a node that does not start helps nobody: orders are refused while there is no room.
        if args.check || !is_full(&error) {
            return refuse(program, &line);
        }
        tracing::warn!("{line}");
    }
    if args.check {
        let (node, file) = (&args.node, args.topology.display());
        return print(&format!("ok: {program} {node} of {file}\n"));
    }
    let control = match Control::new() {
        Ok(control) => control,
        Err(error) => return fail(program, &error.into()),
    };
    let context = NodeContext::new(program, &args.node, config, control)
        .with_state_dir(args.state_dir.clone());
    let push = match Push::from_env(&context.metrics) {
        Ok(push) => push,
        Err(error) => return refuse(program, &error),
    };
    let reloader = Reloader::new(program, args, files, &context, checks.reload);
    let code = match run(start, &context, reloader, push) {
        Ok(code) => code,
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(refused) => refuse(program, refused),
            None => fail(program, &error),
        },
    };
    logging::flush();
    code
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn run(
    start: impl FnOnce(NodeContext) -> anyhow::Result<Running>,
    context: &NodeContext,
    reloader: Reloader,
    push: Option<Push>,
) -> anyhow::Result<ExitCode> {
    let control = &context.control;
    let signals = {
        let _guard = control.handle().enter();
        Signals::listen()?
    };
    let service = Service::of_process(&context.metrics);
    let running = start(context.clone())?;
    tracing::info!(node = context.name, "started");
    let ended = join_elsewhere(running)?;
    let (stop_push, pushed) = oneshot::channel();
    let push = push.map(|push| control.spawn(push.run(pushed)));
    service.ready(&context.watch)?;
    let code = control.block_on(supervise(context, &service, signals, reloader, ended));
    drop(stop_push);
    if let Some(push) = push {
        // A collector that does not answer holds up the exit no longer than this.
        let _ = control.block_on(async { timeout(LAST_PUSH_MAX, push).await });
    }
    tracing::info!(node = context.name, "ended");
    Ok(code)
}

fn join_elsewhere(running: Running) -> io::Result<oneshot::Receiver<()>> {
    let (tell, ended) = oneshot::channel();
    thread::Builder::new()
        .name("join".to_owned())
        .spawn(move || {
            running.join();
            // Nobody listens when the node did not end in time.
            let _ = tell.send(());
        })?;
    Ok(ended)
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

/// Serves signals and watches files until the node has ended.
///
/// 1. The node has ended. 2. SIGTERM, SIGINT. 3. The drain deadline, and after it the stop deadline. 4. SIGHUP.
/// 5. Changed files.
async fn supervise(
    context: &NodeContext,
    service: &Service,
    mut signals: Signals,
    mut reloader: Reloader,
    mut ended: oneshot::Receiver<()>,
) -> ExitCode {
    let shutdown = &context.shutdown;
    let mut watch = interval(WATCH_INTERVAL);
    watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop_by = None;
    loop {
        tokio::select! {
            biased;
            _ = &mut ended => return verdict(shutdown),
            _ = signals.terminate.recv() => end(context, service),
            _ = signals.interrupt.recv() => end(context, service),
            () = deadline(shutdown, stop_by) => {
                if stop_by.is_some() {
                    tracing::error!("threads did not end in time: leaving them");
                    return ExitCode::from(FAILED);
                }
                shutdown.stop();
            }
            _ = signals.hangup.recv() => reloader.reload(),
            _ = watch.tick() => reloader.poll(),
        }
        if shutdown.state() == State::Stopped && stop_by.is_none() {
            stop_by = Some(Instant::from_std(crate::clock::now() + STOP_MAX));
        }
    }
}

/// The first request to end drains, the second stops.
fn end(context: &NodeContext, service: &Service) {
    service.stopping();
    match context.shutdown.state() {
        State::Running => {
            let config = context.config.load();
            let drain_max_s = config.topology.drain_max_s_of(&context.name);
            tracing::info!(drain_max_s, "draining; a second signal stops at once");
            context
                .shutdown
                .drain(Duration::from_secs(drain_max_s.into()));
        }
        State::Draining { .. } | State::Stopped => {
            tracing::info!("stopping");
            context.shutdown.stop();
        }
    }
}

fn deadline(shutdown: &Shutdown, stop_by: Option<Instant>) -> impl Future<Output = ()> + use<> {
    let at = match shutdown.state() {
        State::Running => None,
        State::Draining { deadline } => Some(Instant::from_std(deadline)),
        State::Stopped => stop_by,
    };
    async move {
        match at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

fn verdict(shutdown: &Shutdown) -> ExitCode {
    if shutdown.state() == State::Running {
        tracing::error!("every thread ended, though nobody asked for it");
        return ExitCode::from(FAILED);
    }
    ExitCode::SUCCESS
}

fn refuse(program: &str, reason: &dyn std::fmt::Display) -> ExitCode {
    complain(program, &reason.to_string());
    ExitCode::from(REFUSED)
}

fn fail(program: &str, error: &anyhow::Error) -> ExitCode {
    complain(program, &format!("{error:#}"));
    ExitCode::from(FAILED)
}

/// One line, whatever the reason holds.
fn complain(program: &str, reason: &str) {
    let line: Vec<&str> = reason.split_whitespace().collect();
    let _ = writeln!(io::stderr(), "{program}: {}", line.join(" "));
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read it has gone.
        Err(_) => ExitCode::from(FAILED),
    }
}
