//! The load client: many WebRTC sessions from one thread, each with its own UDP socket, 20 ms Opus both ways by echo.
//!
//! ```text
//! opening ──all answered or failed──► steady ──duration or stop──► draining ──nothing is missing, or 1 s──► closed
//!   media starts in each session as soon as it is connected, and stops with `steady`
//!
//! payload: counter u64 | µs since the load began u64 | filler that follows from the counter
//! ```
//!
//! The echo must be a payload that was sent, byte by byte. Signaling runs on a thread beside, so that an offer in
//! flight holds up no packet. It is not a benchmark of the client: a machine that cannot keep up shows as loss.

mod checks;
pub mod measured;
mod peer;
mod report;
mod session;
mod signaling;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use runtime::clock;

pub use measured::Call;
pub use report::Report;

use crate::wait;
use peer::Identity;
use session::Session;
use signaling::Signaling;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The WHIP endpoint; `?pop=NAME` chooses a PoP.
    pub whip: String,
    /// Concurrent sessions. 1..=[`SESSIONS_MAX`].
    pub sessions: usize,
    /// How long media flows once every session is connected.
    pub duration: Duration,
    /// Sessions opened a second.
    pub opened_per_s: u32,
    /// Whether each session has a data channel, which echoes one message.
    pub data_channels: bool,
    /// Token for WHIP.
    pub bearer: Option<String>,
    /// How the sessions end.
    pub farewell: Farewell,
    /// An advertised address, and the one clients send to instead: that of a path in between.
    pub instead: Option<(SocketAddr, SocketAddr)>,
    /// The only advertised address that clients use, if they do not choose among all.
    pub only: Option<SocketAddr>,
    /// Address of the clients.
    pub address: IpAddr,
    /// How often each client checks its path.
    pub check_interval: Duration,
    /// How soon it says a check again that was not answered.
    pub hurried_check: Option<Duration>,
    /// Who answers.
    pub far_end: FarEnd,
}

/// The voice of the transceivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarEnd {
    /// What was sent comes back.
    Echo,
    /// [`crate::meter`]: both directions are measured for themselves, and the report has a [`Call`] for each session.
    Meter,
}

/// How a client takes its leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// `DELETE`, then DTLS close: a page that hangs up.
    Proper,
    /// DTLS close only: a page that is closed.
    CloseOnly,
    /// Nothing: a device that loses power.
    Vanish,
}

/// Sessions at most: each is a descriptor and a DTLS handshake.
pub const SESSIONS_MAX: usize = 4000;
/// How long connecting all of them may take, beyond opening them.
const CONNECT_MAX: Duration = Duration::from_secs(20);
/// Checks of a path, as `rtc` makes them by itself.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How long the notes of the far end may take.
const REPORT_MAX: Duration = Duration::from_secs(6);
/// How long echoes may be missing after the last packet was sent.
const LINGER: Duration = Duration::from_secs(1);
/// The loop looks at its timers this often.
const TICK: Duration = Duration::from_millis(1);

/// An answer whose candidates at the first address lead to the second.
fn redirected(answer: String, instead: Option<(SocketAddr, SocketAddr)>) -> String {
    let Some((advertised, instead)) = instead else {
        return answer;
    };
    let at = |address: SocketAddr| format!(" {} {} ", address.ip(), address.port());
    answer.replace(&at(advertised), &at(instead))
}

/// An answer without candidates at other addresses.
fn narrowed(answer: String, only: Option<SocketAddr>) -> String {
    let Some(only) = only else {
        return answer;
    };
    let kept = format!(" {} {} ", only.ip(), only.port());
    let lines = answer.split_inclusive('\n');
    lines
        .filter(|line| !line.starts_with("a=candidate:") || line.contains(&kept))
        .collect()
}

impl Plan {
    /// `sessions` for `duration`, with data channels, opened at 50 a second.
    #[must_use]
    pub const fn new(whip: String, sessions: usize, duration: Duration) -> Self {
        Self {
            whip,
            sessions,
            duration,
            opened_per_s: 50,
            data_channels: true,
            bearer: None,
            farewell: Farewell::Proper,
            instead: None,
            only: None,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            check_interval: CHECK_INTERVAL,
            hurried_check: None,
            far_end: FarEnd::Echo,
        }
    }

    /// The same sessions with a meter at the far end, and checks as libwebrtc makes them (`p2p_constants.h`): a stable pair every
    /// 2.5 s, and 900 ms after one that was not answered. Sessions are opened so that their checks are spread over that time.
    #[must_use]
    pub fn measured(mut self) -> Self {
        let each_ms = 2500;
        self.far_end = FarEnd::Meter;
        self.check_interval = Duration::from_millis(each_ms);
        self.hurried_check = Some(Duration::from_millis(900));
        let sessions = u64::try_from(self.sessions).unwrap_or(u64::MAX);
        let per_s = sessions.saturating_mul(1000) / each_ms;
        self.opened_per_s = u32::try_from(per_s.max(1)).unwrap_or(u32::MAX);
        self
    }
}

/// How a running load is doing; for whoever breaks things meanwhile.
#[derive(Debug, Default)]
pub struct Progress {
    connected: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    stop: AtomicBool,
    closing: AtomicBool,
    moving: Mutex<Option<IpAddr>>,
}

impl Progress {
    /// Sessions that are or were connected.
    #[must_use]
    pub fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    /// Packets sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Echoes received so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Whether sessions are being closed.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Lets every session go on from another port of `address`.
    pub fn move_to(&self, address: IpAddr) {
        *self.moving.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }

    fn take_move(&self) -> Option<IpAddr> {
        let mut moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        moving.take()
    }

    /// Ends the steady phase before its time.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A load that runs beside the caller.
#[derive(Debug)]
pub struct Running {
    progress: Arc<Progress>,
    thread: JoinHandle<anyhow::Result<Report>>,
}

impl Running {
    /// Starts it.
    #[must_use]
    pub fn start(plan: Plan) -> Self {
        let progress = Arc::new(Progress::default());
        let shared = Arc::clone(&progress);
        let thread = thread::spawn(move || run(&plan, &shared));
        Self { progress, thread }
    }

    /// How it is doing.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Whether it has come to its end.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until this many sessions are connected.
    ///
    /// # Errors
    /// They are not within `deadline`.
    pub fn wait_connected(&self, sessions: u64, deadline: Duration) -> anyhow::Result<()> {
        wait::until_true("sessions to connect", deadline, || {
            self.progress.connected() >= sessions
        })
    }

    /// Waits until this many more echoes have come back.
    ///
    /// # Errors
    /// They have not within `deadline`.
    pub fn wait_received(&self, more: u64, deadline: Duration) -> anyhow::Result<()> {
        let goal = self.progress.received() + more;
        wait::until_true("media to flow", deadline, || {
            self.progress.received() >= goal
        })
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// See [`run`].
    pub fn finish(self) -> anyhow::Result<Report> {
        let ended = self.thread.join();
        ended.map_err(|_| anyhow::anyhow!("the load client panicked"))?
    }

    /// Stops sending and waits for its end.
    ///
    /// # Errors
    /// See [`run`].
    pub fn stop(self) -> anyhow::Result<Report> {
        self.progress.stop();
        self.finish()
    }
}

/// Runs the load to its end.
///
/// # Errors
/// The plan is out of range, or this machine refuses sockets. Sessions that fail are in the report.
pub fn run(plan: &Plan, progress: &Progress) -> anyhow::Result<Report> {
    anyhow::ensure!(
        (1..=SESSIONS_MAX).contains(&plan.sessions) && plan.opened_per_s > 0,
        "1..={SESSIONS_MAX} sessions at 1 or more a second, please"
    );
    let mut load = Load::new(plan, progress)?;
    load.run()?;
    load.gather()?;
    let mut report = report::of(plan, &load.sessions, &load.failures);
    report.calls = load.calls();
    report.started = Some(load.started);
    report.add_goodbyes(load.close());
    Ok(report)
}

/// Requests that failed: how many, and the first reasons.
#[derive(Debug, Default)]
struct Failures {
    count: usize,
    reasons: Vec<String>,
}

impl Failures {
    fn note(&mut self, error: &anyhow::Error) {
        self.count += 1;
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push(format!("{error:#}"));
        }
    }
}

/// Reasons of one kind that a report holds at most.
const REASONS_MAX: usize = 5;

struct Load<'a> {
    plan: &'a Plan,
    progress: &'a Progress,
    identity: Identity,
    signaling: Signaling,
    epoll: Epoll,
    sessions: Vec<Session>,
    failures: Failures,
    answered: usize,
    started: Instant,
}

impl<'a> Load<'a> {
    fn new(plan: &'a Plan, progress: &'a Progress) -> anyhow::Result<Self> {
        Ok(Self {
            plan,
            progress,
            identity: Identity::new()?,
            signaling: Signaling::start(plan),
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("making an epoll")?,
            sessions: Vec::with_capacity(plan.sessions),
            failures: Failures::default(),
            answered: 0,
            started: clock::now(),
        })
    }

    /// The loop. Per turn: 1 offers and answers, 2 packets that came, 3 timers and media, 4 whether a phase is over.
    fn run(&mut self) -> anyhow::Result<()> {
        let opening_s = self.plan.sessions as f64 / f64::from(self.plan.opened_per_s);
        let connect_by = self.started + Duration::from_secs_f64(opening_s) + CONNECT_MAX;
        let mut events = vec![EpollEvent::empty(); self.plan.sessions];
        let mut steady_until = None;
        let mut linger_until = None;
        loop {
            let now = clock::now();
            self.follow_moves()?;
            self.open_due(now)?;
            self.take_answers(now);
            self.receive(&mut events)?;
            let now = clock::now();
            let sending = linger_until.is_none();
            for session in &mut self.sessions {
                session.handle_time(now, self.started, sending);
            }
            self.publish();
            let complete = self.connected() + self.failures.count == self.plan.sessions;
            if steady_until.is_none() && (complete || now > connect_by) {
                steady_until = Some(now + self.plan.duration);
                self.sessions.iter_mut().for_each(Session::restart_sampling);
            }
            let stopped = self.progress.stop.load(Ordering::Relaxed);
            if sending && (stopped || steady_until.is_some_and(|end| now > end)) {
                linger_until = Some(now + LINGER);
            }
            let measured = self.plan.far_end == FarEnd::Meter;
            if linger_until.is_some_and(|end| now > end || !(measured || self.is_missing_echoes()))
            {
                return Ok(());
            }
        }
    }

    /// Opens as many sessions as the rate allows by `now`.
    fn open_due(&mut self, now: Instant) -> anyhow::Result<()> {
        let elapsed_s = (now - self.started).as_secs_f64();
        let index = self.sessions.len();
        let due = index as f64 <= elapsed_s * f64::from(self.plan.opened_per_s);
        if index >= self.plan.sessions || !due {
            return Ok(());
        }
        let session = Session::new(&self.identity, self.plan, index, now)?;
        let offer = session.offer();
        self.epoll
            .add(
                session.socket().as_fd(),
                EpollEvent::new(EpollFlags::EPOLLIN, index as u64),
            )
            .context("watching a socket")?;
        self.sessions.push(session);
        self.signaling.offer(index, offer);
        Ok(())
    }

    fn follow_moves(&mut self) -> anyhow::Result<()> {
        let Some(address) = self.progress.take_move() else {
            return Ok(());
        };
        for (index, session) in (0..).zip(&mut self.sessions) {
            session.move_to(address)?;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, index);
            let watched = self.epoll.add(session.socket().as_fd(), event);
            watched.context("watching a socket")?;
        }
        Ok(())
    }

    /// Has the far end of every session say what it noted.
    fn gather(&mut self) -> anyhow::Result<()> {
        if self.plan.far_end != FarEnd::Meter {
            return Ok(());
        }
        let start = clock::now();
        for session in &mut self.sessions {
            session.ask_report(start, self.started);
        }
        let mut events = vec![EpollEvent::empty(); self.plan.sessions];
        let told = |session: &Session| session.measured().is_none_or(|found| found.is_complete());
        while !self.sessions.iter().all(told) && clock::now() < start + REPORT_MAX {
            self.receive(&mut events)?;
            let now = clock::now();
            for session in &mut self.sessions {
                session.handle_time(now, self.started, false);
            }
        }
        Ok(())
    }

    /// What the sessions and their far ends measured.
    fn calls(&self) -> Vec<Call> {
        let now = clock::now();
        let call = |session: &Session| {
            let lost = session.is_lost(now, REPORT_MAX + LINGER);
            session.measured().map(|measured| measured.call(lost))
        };
        self.sessions.iter().filter_map(call).collect()
    }

    fn take_answers(&mut self, now: Instant) {
        while let Some((index, outcome)) = self.signaling.next_answer() {
            self.answered += 1;
            let Some(session) = self.sessions.get_mut(index) else {
                continue;
            };
            let instead = self.plan.instead;
            let only = self.plan.only;
            let answered =
                outcome.map(|(answer, name)| (narrowed(redirected(answer, instead), only), name));
            let taken = answered.and_then(|answer| session.answer(answer, now));
            if let Err(error) = taken {
                session.give_up();
                self.failures.note(&error);
            }
        }
    }

    fn receive(&mut self, events: &mut [EpollEvent]) -> anyhow::Result<()> {
        let timeout = EpollTimeout::try_from(TICK).unwrap_or(EpollTimeout::ZERO);
        let ready = match self.epoll.wait(events, timeout) {
            Ok(ready) => ready,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error).context("waiting for packets"),
        };
        let now = clock::now();
        for event in events.iter().take(ready) {
            let index = usize::try_from(event.data()).unwrap_or(usize::MAX);
            if let Some(session) = self.sessions.get_mut(index) {
                session.receive(now, self.started);
            }
        }
        Ok(())
    }

    fn connected(&self) -> usize {
        let connected = self
            .sessions
            .iter()
            .filter(|session| session.was_connected());
        connected.count()
    }

    fn is_missing_echoes(&self) -> bool {
        let mut sessions = self.sessions.iter();
        sessions.any(|session| session.figures().received < session.figures().sent)
    }

    fn publish(&self) {
        let sum = |figure: fn(&session::Figures) -> u64| {
            let figures = self.sessions.iter().map(Session::figures);
            figures.map(figure).sum()
        };
        let progress = self.progress;
        progress
            .connected
            .store(self.connected() as u64, Ordering::Relaxed);
        progress
            .sent
            .store(sum(|figures| figures.sent), Ordering::Relaxed);
        progress
            .received
            .store(sum(|figures| figures.received), Ordering::Relaxed);
    }

    /// Returns what went wrong with it: a session that the network has ended already is not there to be deleted.
    fn close(&mut self) -> Failures {
        self.progress.closing.store(true, Ordering::Relaxed);
        let farewell = self.plan.farewell;
        // DELETE first: a session whose client has closed DTLS is gone before the request comes.
        let ended = self.signaling.end(farewell == Farewell::Proper);
        let now = clock::now();
        if matches!(farewell, Farewell::Proper | Farewell::CloseOnly) {
            self.sessions
                .iter_mut()
                .for_each(|session| session.close(now));
        }
        ended
    }
}
