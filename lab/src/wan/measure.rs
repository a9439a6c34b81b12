//! How true an emulator is: one-way delays against those that were set, and how many packets one thread carries.
//!
//! All namespaces of a machine have one clock, so the delay of each packet is measured exactly. What the machine itself adds is
//! measured beside it: the same packets at the same pace over the loopback of one namespace.
//!
//! ```text
//! sender reads the clock ─► its TUN ─► emulator ─► the other TUN ─► socket ─► receiver reads the clock
//!                                                           to the host │      │ to the application
//!                                     the kernel's stamp (SO_TIMESTAMPNS)      and how long it took to wake
//! ```

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use runtime::clock;
use runtime::thread::run_first;
use runtime::udp::{BindOptions, RecvBatch, SendBatch};
use serde::Serialize;

use super::namespaces::{Namespace, remove};
use super::plan::Plan;
use super::shell::{Emulation, Running};
use crate::interrupt::{OnInterrupt, on_interrupt};
use crate::process::cpu_s;

/// A packet that is not there so long after the last one is lost.
const QUIET_MAX: Duration = Duration::from_millis(500);
/// Bytes of a packet of the delay measurement: a frame of voice with its headers.
const PACKET_LEN: usize = 200;
/// What a delay may differ from the one that was set.
pub const ERROR_MAX: Duration = Duration::from_micros(300);

/// Delays of the packets that arrived.
#[derive(Debug)]
pub struct Delays {
    /// Packets sent.
    pub sent: u32,
    /// One for each that arrived, until whoever receives it had it; the shortest first.
    pub delays: Vec<Duration>,
    /// The same until the kernel of the receiving node had it.
    pub to_host: Vec<Duration>,
}

impl Delays {
    /// The delay that so many of a thousand did not exceed.
    #[must_use]
    pub fn quantile(&self, per_mille: usize) -> Duration {
        quantile(&self.delays, per_mille)
    }

    /// Share of all packets sent that arrived within [`ERROR_MAX`] of `set`.
    #[must_use]
    pub fn share_true_to(&self, set: Duration) -> f64 {
        self.share(&self.delays, set)
    }

    /// The same of what arrived at the host.
    #[must_use]
    pub fn share_true_to_host(&self, set: Duration) -> f64 {
        self.share(&self.to_host, set)
    }

    fn share(&self, delays: &[Duration], set: Duration) -> f64 {
        let near = |delay: &&Duration| delay.abs_diff(set) <= ERROR_MAX;
        delays.iter().filter(near).count() as f64 / f64::from(self.sent.max(1))
    }
}

/// `delays` are sorted.
fn quantile(delays: &[Duration], per_mille: usize) -> Duration {
    let index = (delays.len() * per_mille / 1000).min(delays.len().saturating_sub(1));
    delays.get(index).copied().unwrap_or_default()
}

/// When a packet arrived.
struct Arrival {
    to_host: Duration,
    to_application: Duration,
}

/// Sends `packets` from one socket to the other at an even pace, and measures each.
///
/// # Errors
/// A socket fails.
pub fn delays(
    (from, to): (&UdpSocket, &UdpSocket),
    per_s: u32,
    packets: u32,
) -> anyhow::Result<Delays> {
    let address = to.local_addr().context("address of the receiver")?;
    to.set_read_timeout(Some(QUIET_MAX)).context("receiver")?;
    setsockopt(to, ReceiveTimestampns, &true).context("stamps of the kernel")?;
    let epoch = clock::now();
    let arrivals = std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            measure_truly();
            receive(to, epoch, packets)
        });
        let sender = scope.spawn(move || {
            measure_truly();
            send(from, address, epoch, (per_s, packets))
        });
        joined(sender)?;
        joined(receiver)
    })?;
    let sorted = |of: fn(&Arrival) -> Duration| {
        let mut delays: Vec<Duration> = arrivals.iter().map(of).collect();
        delays.sort_unstable();
        delays
    };
    Ok(Delays {
        sent: packets,
        delays: sorted(|arrival| arrival.to_application),
        to_host: sorted(|arrival| arrival.to_host),
    })
}

/// What is measured is the way of a packet, not how long its sender or its reader waits for a processor. As it is, if not root.
fn measure_truly() {
    let _ = run_first();
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn send(
    from: &UdpSocket,
    to: SocketAddr,
    epoch: Instant,
    (per_s, packets): (u32, u32),
) -> anyhow::Result<()> {
    let gap = Duration::from_secs(1) / per_s.max(1);
    let mut packet = [0; PACKET_LEN];
    for index in 0..packets {
        let at = epoch + gap * index;
        std::thread::sleep(at.saturating_duration_since(clock::now()));
        let sent = nanos(clock::now() - epoch).to_be_bytes();
        if let Some(head) = packet.first_chunk_mut::<8>() {
            *head = sent;
        }
        from.send_to(&packet, to).context("sending")?;
    }
    Ok(())
}

fn receive(to: &UdpSocket, epoch: Instant, packets: u32) -> anyhow::Result<Vec<Arrival>> {
    let mut arrivals = Vec::new();
    let mut packet = [0; PACKET_LEN];
    let mut control = cmsg_space!(TimeSpec);
    while arrivals.len() < usize::try_from(packets).unwrap_or(usize::MAX) {
        let stamp = match stamped(to, &mut packet, &mut control) {
            Ok(stamp) => stamp,
            Err(Errno::EAGAIN) => break,
            Err(error) => return Err(error).context("receiving"),
        };
        // The kernel's clock is another one. How long ago it was is the same by both.
        let waited = stamp.map_or(Duration::ZERO, |stamp| clock::unix().saturating_sub(stamp));
        let sent = packet
            .first_chunk::<8>()
            .map_or(0, |head| u64::from_be_bytes(*head));
        let took = (clock::now() - epoch).saturating_sub(Duration::from_nanos(sent));
        arrivals.push(Arrival {
            to_host: took.saturating_sub(waited),
            to_application: took,
        });
    }
    Ok(arrivals)
}

/// The next packet, and when the kernel had it, by the clock on the wall.
fn stamped(
    socket: &UdpSocket,
    packet: &mut [u8],
    control: &mut [u8],
) -> Result<Option<Duration>, Errno> {
    let mut parts = [IoSliceMut::new(packet)];
    let flags = MsgFlags::empty();
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(control), flags)?;
    let stamp = message.cmsgs()?.find_map(|message| {
        let ControlMessageOwned::ScmTimestampns(stamp) = message else {
            return None;
        };
        Some(Duration::from(stamp))
    });
    Ok(stamp)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What `lab bench wan` finds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Truth at each pace.
    pub paces: Vec<Truth>,
    /// Packets a second that arrived in a flood of 64-byte packets.
    pub flood_per_s: f64,
    /// Packets that the emulator's thread carries in a second of processor time.
    pub flood_per_processor_s: f64,
}

/// How true delays are at one pace.
#[derive(Clone, Debug, Serialize)]
pub struct Truth {
    /// Packets a second.
    pub per_s: u32,
    /// Share within 0.3 ms of the delay that was set, until whoever receives it has it.
    pub share_true: f64,
    /// The same without the wake-up of whoever receives: until the kernel of the receiving node has it.
    pub share_true_host: f64,
    /// The same over the loopback of a namespace, against no delay at all.
    pub share_true_loopback: f64,
    /// How much later than set, the median.
    pub error_us_p50: f64,
    /// How much later than set, 99 % of them.
    pub error_us_p99: f64,
    /// The same 99 % until the host had them.
    pub error_us_p99_host: f64,
    /// What the emulator says of itself: 99 % left no later than this after they were due.
    pub late_us_p99: u64,
}

/// Two nodes and a way of 10 ms between them, until dropped.
pub struct Pair {
    plan: Plan,
    /// Carries the packets.
    pub running: Running,
    _on_interrupt: OnInterrupt,
}

/// What is set between the two nodes of a [`Pair`], each way.
pub const PAIR_DELAY: Duration = Duration::from_millis(10);

impl Pair {
    /// Namespaces are named after this process and `tag`.
    ///
    /// # Errors
    /// Not root, or no TUN in the kernel.
    pub fn open(tag: &str) -> anyhow::Result<Self> {
        let name = format!("wan{}{tag}", std::process::id());
        let plan = format!(
            "
name: {name}
seed: 7
real_time: true
links:
  - a: {{ node: a, addresses: [10.254.0.0/31] }}
    b: {{ node: b, addresses: [10.254.0.1/31] }}
    conditions: {{ delay_ms: {} }}
",
            PAIR_DELAY.as_millis()
        );
        let plan = Plan::parse(&plan)?;
        let gone = plan.clone();
        let on_interrupt = on_interrupt(move || {
            let _left = remove(&gone);
        });
        let running = Emulation::open(&plan)?.start()?;
        Ok(Self {
            plan,
            running,
            _on_interrupt: on_interrupt,
        })
    }

    /// A socket of node `a` or `b`, at this address of its.
    ///
    /// # Errors
    /// The address is not the node's.
    pub fn socket(&self, node: &str, address: &str) -> anyhow::Result<UdpSocket> {
        Namespace::of(&self.plan, node).run(|| UdpSocket::bind((address, 0)).context("binding"))
    }

    /// The namespace of a node.
    #[must_use]
    pub fn namespace(&self, node: &str) -> Namespace {
        Namespace::of(&self.plan, node)
    }

    /// How true the delay is at a pace, over `seconds`.
    ///
    /// # Errors
    /// A socket fails.
    pub fn truth(&self, per_s: u32, seconds: u32) -> anyhow::Result<Truth> {
        let (from, to) = (
            self.socket("a", "10.254.0.0")?,
            self.socket("b", "10.254.0.1")?,
        );
        let near = (
            self.socket("a", "127.0.0.1")?,
            self.socket("a", "127.0.0.1")?,
        );
        let packets = per_s * seconds;
        let loopback = delays((&near.0, &near.1), per_s, packets)?;
        self.running.order("lateness reset")?;
        let found = delays((&from, &to), per_s, packets)?;
        let late = self.running.order("lateness")?;
        let error = |delays: &[Duration], per_mille| {
            let late = quantile(delays, per_mille).saturating_sub(PAIR_DELAY);
            late.as_secs_f64() * 1e6
        };
        Ok(Truth {
            per_s,
            share_true: found.share_true_to(PAIR_DELAY),
            share_true_host: found.share_true_to_host(PAIR_DELAY),
            share_true_loopback: loopback.share_true_to(Duration::ZERO),
            error_us_p50: error(&found.delays, 500),
            error_us_p99: error(&found.delays, 990),
            error_us_p99_host: error(&found.to_host, 990),
            late_us_p99: late
                .get("p99_us")
                .and_then(serde_json::Value::as_u64)
                .unwrap_or(u64::MAX),
        })
    }

    /// As many small packets as one thread sends, for `time`: those a second that arrived, and those that one second of the
    /// emulator's processor time carries.
    ///
    /// # Errors
    /// A socket fails.
    pub fn flood(&self, time: Duration) -> anyhow::Result<(f64, f64)> {
        let bind = |node: &str, address: [u8; 4]| {
            let bind = || {
                let options = BindOptions::default();
                let socket = runtime::udp::UdpSocket::bind((address, 0).into(), &options);
                socket.context("binding")
            };
            self.namespace(node).run(bind)
        };
        let (from, to) = (bind("a", [10, 254, 0, 0])?, bind("b", [10, 254, 0, 1])?);
        let before = processor_time()?;
        let arrived = std::thread::scope(|scope| {
            let end = clock::now() + time;
            let address = to.local_addr();
            scope.spawn(move || {
                let mut batch = SendBatch::new(64, 64);
                while clock::now() < end {
                    while batch.push(address, &[0; 36]) {}
                    batch.flush(&from);
                }
            });
            let mut batch = RecvBatch::new(64, 64);
            let mut arrived = 0;
            while clock::now() < end {
                match batch.recv(&to).context("receiving")? {
                    0 => std::thread::sleep(Duration::from_micros(200)),
                    some => arrived += some,
                }
            }
            Ok::<_, anyhow::Error>(arrived as f64)
        })?;
        let spent = processor_time()?.saturating_sub(before);
        Ok((
            arrived / time.as_secs_f64(),
            arrived / spent.as_secs_f64().max(1e-9),
        ))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // The kernel removes devices with the namespaces; a failure leaves them for `lab wan down`.
        let _ = remove(&self.plan);
    }
}

/// Processor time of the emulator's thread in this process.
fn processor_time() -> anyhow::Result<Duration> {
    let mut spent = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task").context("threads")? {
        let path = task.context("threads")?.path();
        // A thread may end meanwhile.
        let read = |name| std::fs::read_to_string(path.join(name)).unwrap_or_default();
        if read("comm").trim() == "wan" {
            spent += Duration::from_secs_f64(cpu_s(&read("stat")).unwrap_or(0.0));
        }
    }
    Ok(spent)
}

/// Everything.
///
/// # Errors
/// See [`Pair::open`].
pub fn run() -> anyhow::Result<Report> {
    let pair = Pair::open("")?;
    let paces = [50, 1000, 10_000, 50_000];
    let paces = paces.map(|per_s| pair.truth(per_s, 4));
    let (flood_per_s, flood_per_processor_s) = pair.flood(Duration::from_secs(3))?;
    Ok(Report {
        paces: paces.into_iter().collect::<Result<_, _>>()?,
        flood_per_s,
        flood_per_processor_s,
    })
}

impl Report {
    /// Lines for people.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut lines = String::from(
            "packets/s   within 0.3 ms   to the host   loopback   error p50   p99      host p99   emulator late p99\n",
        );
        for truth in &self.paces {
            lines += &format!(
                "{:>9}   {:>11.2} %   {:>9.2} %   {:>6.2} %   {:>6.0} µs   {:>5.0} µs   {:>5.0} µs   {:>5} µs\n",
                truth.per_s,
                truth.share_true * 100.0,
                truth.share_true_host * 100.0,
                truth.share_true_loopback * 100.0,
                truth.error_us_p50,
                truth.error_us_p99,
                truth.error_us_p99_host,
                truth.late_us_p99
            );
        }
        lines += &format!(
            "flood of 64-byte packets: {:.0} k/s arrive; one processor carries {:.0} k/s\n",
            self.flood_per_s / 1e3,
            self.flood_per_processor_s / 1e3
        );
        lines
    }
}
