//! What answers are made from. The keeper makes it, everybody reads it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use geodns_policy::compile::{Figures, Tables};
use geodns_policy::databases::Databases;
use geodns_policy::{Client, Decision, Measured, Request, Snapshot, decide, share_prefix};
use geodns_proto::Content;
use geodns_proto::select::{Locate, Place, Selection};
use runtime::node::Config;
use runtime::peer_tls::Gate;

/// Everything an answer is made from, consistent in itself. Immutable.
#[derive(Clone)]
pub struct World {
    /// Topology and credentials it was made from.
    pub config: Arc<Config>,
    /// What decisions rest on.
    pub snapshot: Snapshot,
    /// What is known of addresses.
    pub databases: Arc<Databases>,
    /// From addresses to lists.
    pub map: Arc<Map>,
    /// What each list is answered with.
    pub selection: Arc<Selection>,
    /// The zone and the records of each answer.
    pub content: Arc<Content>,
    /// When the state of the nodes was last read.
    pub(crate) heard_at: Option<Instant>,
    /// Lets the nodes of the topology ask for steering.
    pub(crate) gate: Arc<Gate>,
}

/// Compiled tables.
#[derive(Debug)]
pub struct Map {
    /// From addresses to lists.
    pub tables: Tables,
    /// What was seen while they were made.
    pub figures: Figures,
}

impl Locate for Map {
    #[inline]
    fn locate_v4(&self, address: u32) -> Place {
        self.tables.locate_v4(address)
    }

    #[inline]
    fn locate_v6(&self, address: u128) -> Place {
        self.tables.locate_v6(address)
    }

    #[inline]
    fn first_word(&self, address: IpAddr) -> &u32 {
        self.tables.first_word(address)
    }

    fn slot(&self, client: IpAddr) -> u8 {
        self.tables.slot(client)
    }
}

impl World {
    /// What decisions rest on.
    #[must_use]
    pub fn grounds(&self) -> Grounds<'_> {
        Grounds {
            snapshot: &self.snapshot,
            databases: &self.databases,
            tables: &self.map.tables,
        }
    }
}

/// What decisions rest on, whoever keeps it.
#[derive(Clone, Copy)]
pub struct Grounds<'a> {
    /// Topology, live state, measured round trips.
    pub snapshot: &'a Snapshot,
    /// What is known of addresses.
    pub databases: &'a Databases,
    /// What is compiled from them.
    pub tables: &'a Tables,
}

impl Grounds<'_> {
    /// Decides for the client at `address`.
    #[must_use]
    pub fn decide(&self, address: IpAddr, request: &Request) -> Decision {
        let client = Client::new(address, self.databases.facts(address));
        decide(&client, self.snapshot, request)
    }

    /// Length of the client's prefix that DNS tells resolvers its answer holds for.
    #[must_use]
    pub fn scope(&self, address: IpAddr, shared: bool) -> u8 {
        let scope = self.tables.lookup(address).scope;
        if shared {
            scope.max(share_prefix(address))
        } else {
            scope
        }
    }
}

/// The world of the moment. Clones share it.
#[derive(Clone)]
pub struct Current(Arc<ArcSwap<World>>);

impl Current {
    /// Starts with this one.
    #[must_use]
    pub(crate) fn new(world: World) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(world)))
    }

    /// The world, for the time of one answer.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<World>> {
        self.0.load()
    }

    /// The same world, heard of again.
    pub(crate) fn touch(&self, heard_at: Option<Instant>) {
        let world = World {
            heard_at,
            ..(**self.load()).clone()
        };
        self.store(world);
    }

    /// The same world with measurements that choose the same.
    pub(crate) fn measured(&self, measured: Arc<Measured>) {
        let mut world = (**self.load()).clone();
        world.snapshot.measured = measured;
        self.store(world);
    }

    /// Replaces it.
    pub(crate) fn store(&self, world: World) {
        self.0.store(Arc::new(world));
    }
}
