//! What happens to packets between devices, without a device, a clock or a thread: whose a packet is, what its direction does to it,
//! when it leaves, and what is counted.
//!
//! ```text
//! buffer ─► the caller reads a packet into it ─► accept(port, len, now) ─► in the air until due ─► deliver(now, send)
//! ```
//!
//! Packets in the air lie in buffers that are used again; there are [`PACKETS_MAX`] at most, and one too many is lost and counted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use serde::Serialize;

use super::lateness::Lateness;
use super::plan::{Direction, Plan, PlanError};
use super::routes::Routes;
use crate::sim::path::{Cause, Fate, Path};
use crate::sim::random::Random;

/// Packets in the air at most: half a second of 130,000 a second.
const PACKETS_MAX: usize = 1 << 16;
/// Packets that [`Emulator::deliver`] sends in one call, so that those that arrive do not wait for all of them.
const BURST_MAX: usize = 256;
/// Bytes a packet may have beyond the device's MTU: none has.
const SLACK_BYTES: usize = 64;

/// What one direction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that came.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that left, copies included.
    pub delivered: u64,
    /// Lost by chance.
    pub lost_by_chance: u64,
    /// Lost because the bottleneck's queue was full.
    pub lost_in_queue: u64,
    /// Lost because the way is cut.
    pub lost_to_cut: u64,
    /// Lost because they are longer than what passes.
    pub lost_too_long: u64,
    /// Lost for want of a buffer: the emulator's limit, not the plan's.
    pub lost_no_buffer: u64,
    /// Not taken by the device they were for.
    pub lost_at_device: u64,
}

/// One direction between two nodes.
pub(crate) struct Way {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) said: Direction,
    path: Path,
    pub(crate) counts: Counts,
}

/// A device: what is read from it, and what is written to it.
pub(crate) struct Port {
    pub(crate) node: String,
    pub(crate) device: String,
    leads: Leads,
}

enum Leads {
    /// To the other end of its link.
    Link { port: usize, way: usize },
    /// To members of a cloud.
    Cloud { cloud: usize, member: usize },
}

struct Clouds {
    routes: Routes,
    /// The first member's port, the way from it to itself, and how many members there are.
    port: usize,
    way: usize,
    members: usize,
}

/// A packet in the air; the earliest first, and in the order they came.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    due: Duration,
    number: u64,
    buffer: u32,
    len: u32,
    port: u32,
    way: u32,
}

/// See the module head.
pub struct Emulator {
    ports: Vec<Port>,
    ways: Vec<Way>,
    clouds: Vec<Clouds>,
    air: BinaryHeap<Reverse<Flight>>,
    buffers: Buffers,
    number: u64,
    lateness: Lateness,
    unrouted: u64,
}

impl Emulator {
    /// Everything a plan joins. Ports are numbered: the two ends of each link, then the members of each cloud.
    ///
    /// # Errors
    /// See [`PlanError`].
    pub fn new(plan: &Plan) -> Result<Self, PlanError> {
        let mut emulator = Self {
            ports: Vec::new(),
            ways: Vec::new(),
            clouds: Vec::new(),
            air: BinaryHeap::new(),
            buffers: Buffers::new(usize::from(plan.mtu_bytes) + SLACK_BYTES),
            number: 0,
            lateness: Lateness::default(),
            unrouted: 0,
        };
        for link in &plan.links {
            let [there, back] = plan.link_directions(link)?;
            let (a, b) = (&link.a, &link.b);
            let first = emulator.ports.len();
            for (own, other, peer, said) in [(a, b, first + 1, there), (b, a, first, back)] {
                let way = emulator.add_way(plan.seed, (&own.node, &other.node), said)?;
                emulator.ports.push(Port {
                    node: own.node.clone(),
                    device: own.device(other),
                    leads: Leads::Link { port: peer, way },
                });
            }
        }
        for cloud in &plan.clouds {
            emulator.add_cloud(plan, cloud)?;
        }
        Ok(emulator)
    }

    fn add_cloud(&mut self, plan: &Plan, cloud: &super::plan::Cloud) -> Result<(), PlanError> {
        let (index, way) = (self.clouds.len(), self.ways.len());
        for from in &cloud.members {
            for to in &cloud.members {
                let said = plan.cloud_direction(cloud, from, to)?;
                self.add_way(plan.seed, (&from.node, &to.node), said)?;
            }
        }
        let prefixes = cloud
            .members
            .iter()
            .enumerate()
            .flat_map(|(index, member)| {
                let own = member.addresses.iter().map(|net| net.addr().into());
                own.chain(member.prefixes.iter().copied())
                    .map(move |net| (net, index))
            });
        self.clouds.push(Clouds {
            routes: Routes::new(prefixes.collect()),
            port: self.ports.len(),
            way,
            members: cloud.members.len(),
        });
        for (member, own) in cloud.members.iter().enumerate() {
            self.ports.push(Port {
                node: own.node.clone(),
                device: cloud.name.clone(),
                leads: Leads::Cloud {
                    cloud: index,
                    member,
                },
            });
        }
        Ok(())
    }

    fn add_way(
        &mut self,
        seed: u64,
        (from, to): (&str, &str),
        said: Direction,
    ) -> Result<usize, PlanError> {
        let index = self.ways.len();
        let purpose = u64::try_from(index).unwrap_or(u64::MAX);
        let mut path = Path::new(Random::new(seed, purpose));
        path.conditions = said.conditions()?;
        self.ways.push(Way {
            from: from.to_owned(),
            to: to.to_owned(),
            said,
            path,
            counts: Counts::default(),
        });
        Ok(index)
    }

    /// A buffer for one packet; what is in it does not matter.
    pub fn buffer(&mut self) -> &mut [u8] {
        self.buffers.next()
    }

    /// The packet of `len` bytes that was put into [`Self::buffer`] came from `port` at `now`.
    pub fn accept(&mut self, port: usize, len: usize, now: Duration) {
        let Some((to, way)) = self.lead(port, len) else {
            self.unrouted += 1;
            return;
        };
        let Some(state) = self.ways.get_mut(way) else {
            return;
        };
        state.counts.packets += 1;
        state.counts.bytes += u64::try_from(len).unwrap_or_default();
        let (took, again) = match state.path.send(now, len) {
            Fate::Arrives(took, again) => (took, again),
            Fate::Lost(cause) => return state.counts.lost(cause),
        };
        if self.air.len() + 1 >= PACKETS_MAX {
            state.counts.lost_no_buffer += 1;
            return;
        }
        let copies = 1 + u32::from(again.is_some());
        let buffer = self.buffers.keep(copies);
        for took in [Some(took), again].into_iter().flatten() {
            self.number += 1;
            self.air.push(Reverse(Flight {
                due: now + took,
                number: self.number,
                buffer,
                len: u32::try_from(len).unwrap_or_default(),
                port: u32::try_from(to).unwrap_or(u32::MAX),
                way: u32::try_from(way).unwrap_or(u32::MAX),
            }));
        }
    }

    /// The port that the packet in the buffer goes to, and the way it takes.
    fn lead(&mut self, port: usize, len: usize) -> Option<(usize, usize)> {
        match self.ports.get(port)?.leads {
            Leads::Link { port, way } => Some((port, way)),
            Leads::Cloud { cloud, member } => {
                let packet = self.buffers.next().get(..len)?;
                let cloud = self.clouds.get(cloud)?;
                let to = cloud.routes.member(packet)?;
                // The kernel delivers to itself what is for itself.
                (to != member).then(|| (cloud.port + to, cloud.way + member * cloud.members + to))
            }
        }
    }

    /// Sends what is due, a burst of packets at most; `send` says whether the device of that number took it. Returns how many.
    pub fn deliver(&mut self, now: Duration, mut send: impl FnMut(usize, &[u8]) -> bool) -> usize {
        let mut sent = 0;
        while sent < BURST_MAX
            && let Some(Reverse(flight)) = self.air.peek()
            && flight.due <= now
        {
            let Some(Reverse(flight)) = self.air.pop() else {
                break;
            };
            sent += 1;
            self.lateness.add(now - flight.due);
            let index = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
            let packet = self.buffers.get(flight.buffer, index(flight.len));
            let taken = send(index(flight.port), packet);
            if let Some(way) = self.ways.get_mut(index(flight.way)) {
                way.counts.delivered += u64::from(taken);
                way.counts.lost_at_device += u64::from(!taken);
            }
            self.buffers.give_back(flight.buffer);
        }
        sent
    }

    /// When the next packet leaves.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.air.peek().map(|Reverse(flight)| flight.due)
    }

    pub(crate) fn ports(&self) -> &[Port] {
        &self.ports
    }

    pub(crate) fn ways(&self) -> &[Way] {
        &self.ways
    }

    /// Changes what a way does to packets from here on.
    pub(crate) fn change(&mut self, way: usize, said: Direction) -> Result<(), PlanError> {
        let conditions = said.conditions()?;
        if let Some(way) = self.ways.get_mut(way) {
            way.path.conditions = conditions;
            way.said = said;
        }
        Ok(())
    }

    /// How late packets left.
    #[must_use]
    pub const fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    pub(crate) fn clear_lateness(&mut self) {
        self.lateness.clear();
    }

    /// What each direction did, by its two nodes. Of several between the same two, the sum.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(&str, &str), Counts> {
        let mut all = BTreeMap::new();
        for way in self.ways.iter().filter(|way| way.from != way.to) {
            let counts: &mut Counts = all.entry((&*way.from, &*way.to)).or_default();
            counts.add(&way.counts);
        }
        all
    }

    /// Packets in clouds that were for nobody.
    #[must_use]
    pub const fn unrouted(&self) -> u64 {
        self.unrouted
    }
}

impl Counts {
    fn lost(&mut self, cause: Cause) {
        *match cause {
            Cause::Chance => &mut self.lost_by_chance,
            Cause::Queue => &mut self.lost_in_queue,
            Cause::Cut => &mut self.lost_to_cut,
            Cause::TooLong => &mut self.lost_too_long,
        } += 1;
    }

    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.delivered += other.delivered;
        self.lost_by_chance += other.lost_by_chance;
        self.lost_in_queue += other.lost_in_queue;
        self.lost_to_cut += other.lost_to_cut;
        self.lost_too_long += other.lost_too_long;
        self.lost_no_buffer += other.lost_no_buffer;
        self.lost_at_device += other.lost_at_device;
    }
}

/// Buffers of one size, made when first needed. The next free one is where the next packet is read into.
struct Buffers {
    bytes: usize,
    all: Vec<(Box<[u8]>, u32)>,
    free: Vec<u32>,
    next: u32,
}

impl Buffers {
    fn new(bytes: usize) -> Self {
        Self {
            bytes,
            all: vec![(vec![0; bytes].into(), 0)],
            free: Vec::new(),
            next: 0,
        }
    }

    fn next(&mut self) -> &mut [u8] {
        let next = usize::try_from(self.next).unwrap_or(usize::MAX);
        self.all.get_mut(next).map_or(&mut [], |(bytes, _)| bytes)
    }

    /// The packet in the next buffer stays until it was given back so often.
    fn keep(&mut self, times: u32) -> u32 {
        let kept = self.next;
        if let Some((_, uses)) = self
            .all
            .get_mut(usize::try_from(kept).unwrap_or(usize::MAX))
        {
            *uses = times;
        }
        self.next = self.free.pop().unwrap_or_else(|| {
            self.all.push((vec![0; self.bytes].into(), 0));
            u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
        });
        kept
    }

    fn get(&self, buffer: u32, len: usize) -> &[u8] {
        let buffer = usize::try_from(buffer).unwrap_or(usize::MAX);
        let bytes = self.all.get(buffer).and_then(|(bytes, _)| bytes.get(..len));
        bytes.unwrap_or_default()
    }

    fn give_back(&mut self, buffer: u32) {
        let index = usize::try_from(buffer).unwrap_or(usize::MAX);
        if let Some((_, uses)) = self.all.get_mut(index) {
            *uses = uses.saturating_sub(1);
            if *uses == 0 {
                self.free.push(buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    const PLAN: &str = "
name: t
rtt_ms: { lon: { fra: 20, wdc: 80 }, fra: { wdc: 90 } }
links:
  - { a: { node: a }, b: { node: b }, conditions: { delay_ms: 10 }, back: { delay_ms: 5, duplicates_ppm: 1000000 } }
clouds:
  - name: bb
    members:
      - { node: x, city: lon, addresses: [10.200.1.1/16] }
      - { node: y, city: fra, addresses: [10.200.2.1/16], prefixes: [10.2.0.0/16] }
      - { node: z, city: wdc, addresses: [10.200.3.1/16] }
";

    fn emulator(plan: &str) -> Emulator {
        Emulator::new(&Plan::parse(plan).unwrap()).unwrap()
    }

    fn put(emulator: &mut Emulator, port: usize, packet: &[u8], now: Duration) {
        emulator.buffer()[..packet.len()].copy_from_slice(packet);
        emulator.accept(port, packet.len(), now);
    }

    /// Port and packet of all that leave by `now`.
    fn out(emulator: &mut Emulator, now: Duration) -> Vec<(usize, Vec<u8>)> {
        let mut all = Vec::new();
        while emulator.deliver(now, |port, packet| {
            all.push((port, packet.to_vec()));
            true
        }) > 0
        {}
        all
    }

    fn to(host: [u8; 4]) -> Vec<u8> {
        [&[0x45; 16], host.as_slice(), &[7; 20]].concat()
    }

    #[test]
    fn a_link_delays_each_way_as_it_was_said() {
        let mut emulator = emulator(PLAN);
        put(&mut emulator, 0, b"there", MS);
        put(&mut emulator, 1, b"back", MS);
        assert_eq!(emulator.poll_timeout(), Some(6 * MS));
        assert_eq!(out(&mut emulator, 5 * MS), []);
        let twice = [(0, b"back".to_vec()), (0, b"back".to_vec())];
        assert_eq!(out(&mut emulator, 6 * MS), twice);
        assert_eq!(out(&mut emulator, 12 * MS), [(1, b"there".to_vec())]);
        assert_eq!(emulator.poll_timeout(), None);
        assert_eq!(emulator.lateness().quantile(1000), MS + MS / 100);
        assert_eq!(emulator.counts()[&("b", "a")].delivered, 2);
    }

    #[test]
    fn a_cloud_finds_the_member_and_its_delay() {
        let mut emulator = emulator(PLAN);
        // Ports of the cloud: 2, 3, 4.
        put(&mut emulator, 2, &to([10, 2, 9, 9]), Duration::ZERO);
        put(&mut emulator, 2, &to([10, 200, 3, 1]), Duration::ZERO);
        put(&mut emulator, 2, &to([10, 200, 1, 1]), Duration::ZERO);
        put(&mut emulator, 2, &to([10, 200, 9, 9]), Duration::ZERO);
        assert_eq!(out(&mut emulator, 10 * MS), [(3, to([10, 2, 9, 9]))]);
        assert_eq!(out(&mut emulator, 39 * MS), []);
        assert_eq!(out(&mut emulator, 40 * MS), [(4, to([10, 200, 3, 1]))]);
        assert_eq!(emulator.unrouted(), 2, "to itself, and to nobody");
    }

    #[test]
    fn packets_keep_their_bytes_while_buffers_are_used_again() {
        let mut emulator = emulator(PLAN);
        for round in 0..1000_u32 {
            let now = MS * round;
            put(&mut emulator, 0, &round.to_be_bytes(), now);
            put(&mut emulator, 1, &round.to_be_bytes(), now);
            for (port, packet) in out(&mut emulator, now) {
                let took = if port == 1 { 10 } else { 5 };
                assert_eq!(packet, (round - took).to_be_bytes());
            }
        }
        assert!(
            emulator.buffers.all.len() <= 20,
            "as many as are in the air"
        );
    }

    #[test]
    fn what_finds_no_buffer_is_lost_and_counted_and_a_burst_is_bounded() {
        let mut emulator = emulator(PLAN);
        for _ in 0..PACKETS_MAX + 100 {
            put(&mut emulator, 0, b"x", Duration::ZERO);
        }
        let counts = emulator.counts()[&("a", "b")];
        assert_eq!(counts.lost_no_buffer, 101);
        assert_eq!(emulator.deliver(10 * MS, |_, _| false), BURST_MAX);
        let refused = emulator.counts()[&("a", "b")].lost_at_device;
        assert_eq!(refused, BURST_MAX as u64);
    }

    #[test]
    fn a_change_holds_for_the_next_packet() {
        let mut emulator = emulator(PLAN);
        let cut = Direction {
            cut: true,
            ..emulator.ways[0].said.clone()
        };
        emulator.change(0, cut.clone()).unwrap();
        put(&mut emulator, 0, b"x", Duration::ZERO);
        assert_eq!(emulator.counts()[&("a", "b")].lost_to_cut, 1);
        let nonsense = Direction {
            loss_ppm: 2_000_000,
            ..cut.clone()
        };
        assert!(emulator.change(0, nonsense).is_err());
        assert_eq!(emulator.ways[0].said, cut, "stays as it was");
    }
}
