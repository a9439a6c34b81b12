//! An emulator with devices, a clock and a thread. The loop of the thread, in order of priority:
//!
//! 1. packets that are due;
//! 2. orders;
//! 3. packets that came, up to [`PER_DEVICE_MAX`] of each device that has some.
//!
//! Then it waits for a device, an order or the next packet that is due.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
use runtime::clock;
use runtime::poll::{Poller, Waker};
use runtime::thread::{run_first, spawn_worker};
use runtime::tun::Tun;
use serde_json::Value;

use super::awake::{Processors, Vigil};
use super::control::ORDER_BYTES_MAX;
use super::emulator::Emulator;
use super::namespaces::{self, Namespace};
use super::plan::Plan;

/// Packets taken from one device in a turn.
const PER_DEVICE_MAX: usize = 64;
/// Devices looked at in a turn; the others come next.
const READY_MAX: usize = 64;
/// Orders that wait at most; whoever gives one more waits, too.
const ORDERS_MAX: usize = 16;
/// Packets the kernel queues in front of a device.
const DEVICE_QUEUE_PACKETS: u32 = 2000;
/// Threads that close devices.
const CLOSERS: usize = 16;
/// How long whoever gives an order may take to say it.
const SAYING_MAX: Duration = Duration::from_secs(1);
/// A sleep this long lets the processor idle, and ends so much before the next packet is due.
const LONG: Duration = Duration::from_millis(2);
const EARLY: Duration = Duration::from_micros(200);
/// A turn without anything to do waits no longer.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// Devices in their namespaces, and an emulator that nobody turns yet.
pub struct Emulation {
    emulator: Emulator,
    devices: Vec<Tun>,
    real_time: bool,
    awake: Duration,
}

/// An order, and where its answer goes.
type Said = (String, SyncSender<Value>);

/// An emulator at work. It stops when this value goes; its namespaces stay until [`namespaces::remove`].
pub struct Running {
    orders: SyncSender<Said>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Emulation {
    /// Makes the namespaces of a plan, and in them the devices with their addresses.
    ///
    /// # Errors
    /// Not root, a namespace that exists already, or no TUN in the kernel. Namespaces it has made are removed again.
    pub fn open(plan: &Plan) -> anyhow::Result<Self> {
        let emulator = Emulator::new(plan)?;
        namespaces::create(plan)?;
        let devices = open_devices(plan, &emulator);
        if devices.is_err() {
            namespaces::remove(plan)?;
        }
        Ok(Self {
            devices: devices?,
            emulator,
            real_time: plan.real_time,
            awake: Duration::from_millis(u64::from(plan.awake_ms)),
        })
    }

    /// Begins to carry packets.
    ///
    /// # Errors
    /// The kernel gives no thread or descriptor.
    pub fn start(self) -> anyhow::Result<Running> {
        let (orders, said) = mpsc::sync_channel(ORDERS_MAX);
        let (waker, stop) = (Waker::new()?, Arc::new(AtomicBool::new(false)));
        let keeps = self.real_time && !self.awake.is_zero();
        let carrier = Carrier {
            vigil: Vigil::new(self.awake),
            processors: keeps.then(processors).flatten(),
            ready: watch(&self.devices)?,
            emulator: self.emulator,
            devices: self.devices,
            orders: said,
            waker: waker.clone(),
            stop: Arc::clone(&stop),
            epoch: clock::now(),
            woke_early: false,
        };
        let real_time = self.real_time;
        let thread = spawn_worker("wan", None, move || {
            if real_time && let Err(error) = run_first() {
                tracing::warn!(%error, "packets may be late while other threads run");
            }
            carrier.run();
        })?;
        let running = Running {
            orders,
            waker,
            stop,
            thread: Some(thread),
        };
        // Once it answers, the thread needs no privilege any more.
        running.order("lateness")?;
        Ok(running)
    }
}

impl Running {
    /// Gives an order, and waits for the answer.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn order(&self, line: &str) -> anyhow::Result<Value> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.orders
            .send((line.to_owned(), answer))
            .context("the emulator has stopped")?;
        self.waker.wake();
        answered.recv().context("the emulator has stopped")
    }

    /// Takes orders from a socket, one after the other, for ever.
    ///
    /// # Errors
    /// The socket fails, or the thread is gone.
    pub fn serve(&self, listener: &UnixListener) -> anyhow::Result<()> {
        for stream in listener.incoming() {
            let stream = stream.context("control socket")?;
            // Somebody who hangs up, or says nothing, harms nobody else.
            if let Some(line) = hear(&stream) {
                let answer = self.order(&line)?;
                let _ = writeln!(&stream, "{answer}");
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The order that somebody says on `stream`, in one line of bounded length and time.
pub(crate) fn hear(stream: &UnixStream) -> Option<String> {
    stream.set_read_timeout(Some(SAYING_MAX)).ok()?;
    stream.set_write_timeout(Some(SAYING_MAX)).ok()?;
    let mut line = String::new();
    let mut reader = BufReader::new(stream.take(ORDER_BYTES_MAX));
    reader.read_line(&mut line).ok()?;
    Some(line)
}

/// Listens for orders at `path`, where nothing may be but an earlier socket.
pub(crate) fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    // Whoever left it is gone, or its namespaces were found.
    let _ = std::fs::remove_file(path);
    UnixListener::bind(path).with_context(|| format!("listening at {}", path.display()))
}

/// Root is needed for namespaces, devices and real time alone: from here on the whole process is somebody else.
///
/// # Errors
/// Not root.
pub(crate) fn become_user(uid: u32) -> anyhow::Result<()> {
    setgroups(&[]).context("giving up groups")?;
    setgid(Gid::from_raw(uid)).context("giving up the group")?;
    setuid(Uid::from_raw(uid)).context("giving up root")
}

fn open_devices(plan: &Plan, emulator: &Emulator) -> anyhow::Result<Vec<Tun>> {
    let open = |node: &str, device: &str| {
        let created = || Tun::create(device).with_context(|| format!("{device} of {node}"));
        Namespace::of(plan, node).run(created)
    };
    let ports = emulator.ports().iter();
    let devices = ports.map(|port| open(&port.node, &port.device));
    let devices: Vec<Tun> = devices.collect::<Result<_, _>>()?;
    for node in plan.all_nodes() {
        Namespace::of(plan, node).ip(&plan.setup(node))?;
    }
    Ok(devices)
}

/// The machine's processors, if they can be told anything.
fn processors() -> Option<Processors> {
    let opened = Processors::open();
    if let Err(error) = &opened {
        tracing::info!(%error, "packets may be late where a processor idles");
    }
    opened.ok()
}

fn watch(devices: &[Tun]) -> anyhow::Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll")?;
    for (index, device) in (0..).zip(devices) {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, index);
        epoll.add(device, event).context("epoll")?;
    }
    Ok(epoll)
}

impl Plan {
    /// What `ip` is told inside a node's namespace.
    fn setup(&self, node: &str) -> String {
        let of_links = self.links.iter().flat_map(|link| {
            let (a, b) = (&link.a, &link.b);
            let ends = [(a, b), (b, a)].into_iter();
            ends.filter(|(own, _)| own.node == node)
                .map(|(own, other)| (own.device(other), &own.addresses))
        });
        let of_clouds = self.clouds.iter().flat_map(|cloud| {
            let members = cloud.members.iter().filter(|member| member.node == node);
            members.map(|member| (cloud.name.clone(), &member.addresses))
        });
        let mut lines = String::new();
        for (device, addresses) in of_links.chain(of_clouds) {
            let mtu = self.mtu_bytes;
            for address in addresses {
                let nodad = if address.addr().is_ipv6() {
                    " nodad"
                } else {
                    ""
                };
                lines += &format!("address add {address} dev {device}{nodad}\n");
            }
            // No address of its own making, so nothing is sent that nobody asked for.
            lines += &format!("link set {device} addrgenmode none\n");
            lines += &format!("link set {device} mtu {mtu} txqueuelen {DEVICE_QUEUE_PACKETS} up\n");
        }
        lines
    }
}

/// The kernel takes its time for the end of each device, and does several at once.
fn close(mut devices: Vec<Tun>) {
    std::thread::scope(|scope| {
        let share = devices.len().div_ceil(CLOSERS).max(1);
        while !devices.is_empty() {
            let share = devices.split_off(devices.len().saturating_sub(share));
            scope.spawn(move || drop(share));
        }
    });
}

/// What the thread owns.
struct Carrier {
    emulator: Emulator,
    devices: Vec<Tun>,
    ready: Epoll,
    orders: Receiver<Said>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    epoch: Instant,
    vigil: Vigil,
    /// Absent where they are left alone.
    processors: Option<Processors>,
    /// The last wait was to end before the next packet is due.
    woke_early: bool,
}

impl Carrier {
    fn run(mut self) {
        let mut poller = Poller::new();
        let mut events = [EpollEvent::empty(); READY_MAX];
        while !self.stop.load(Ordering::Relaxed) {
            // 1. packets that are due
            self.deliver();
            // 2. orders
            self.obey();
            // 3. packets that came
            if !self.take(&mut events) {
                self.wait(&mut poller);
            }
        }
        close(self.devices);
    }

    fn now(&self) -> Duration {
        clock::now().saturating_duration_since(self.epoch)
    }

    fn deliver(&mut self) {
        let (now, devices) = (self.now(), &self.devices);
        self.emulator.deliver(now, |port, packet| {
            let device = devices.get(port);
            device.is_some_and(|device| device.send(packet).is_ok())
        });
    }

    fn obey(&mut self) {
        self.waker.drain();
        while let Ok((line, answer)) = self.orders.try_recv() {
            // Whoever asked may have gone.
            let _ = answer.try_send(self.emulator.obey(&line));
        }
    }

    /// Whether a device had more than its share.
    fn take(&mut self, events: &mut [EpollEvent]) -> bool {
        let ready = self.ready.wait(events, EpollTimeout::ZERO);
        let ready = ready.unwrap_or_default();
        let mut more = ready == events.len();
        for event in events.iter().take(ready) {
            let port = usize::try_from(event.data()).unwrap_or(usize::MAX);
            more |= self.take_device(port);
        }
        more
    }

    /// Lets processors sleep, or keeps them from it.
    fn watch_over(&mut self, now: Duration) -> Option<Duration> {
        let processors = self.processors.as_ref()?;
        let packets = self.emulator.poll_timeout().is_some();
        if let Some(awake) = self.vigil.look(packets, now) {
            // Delays are less true then, and the figures say so.
            let _as_they_were = processors.keep_awake(awake);
        }
        self.vigil.poll_timeout()
    }

    fn take_device(&mut self, port: usize) -> bool {
        let Some(device) = self.devices.get(port) else {
            return false;
        };
        for _ in 0..PER_DEVICE_MAX {
            // A device that was taken down has nothing to say.
            let Ok(Some(len)) = device.recv(self.emulator.buffer()) else {
                return false;
            };
            let now = clock::now().saturating_duration_since(self.epoch);
            self.emulator.accept(port, len, now);
        }
        true
    }

    /// An idle processor takes long to come back. So a long sleep ends early, and the rest is spent awake.
    fn wait(&mut self, poller: &mut Poller) {
        let now = self.now();
        let looks = self.watch_over(now);
        let due = self.emulator.poll_timeout().or(looks);
        let rest = due.map_or(IDLE_MAX, |due| due.saturating_sub(now).min(IDLE_MAX));
        if self.woke_early && rest <= EARLY {
            return;
        }
        self.woke_early = rest > LONG;
        let rest = if self.woke_early { rest - EARLY } else { rest };
        let fds = [self.waker.as_fd(), self.ready.0.as_fd()];
        // A signal, or nothing: the next turn looks at everything.
        let _ = poller.wait(&fds, Some(rest));
    }
}
