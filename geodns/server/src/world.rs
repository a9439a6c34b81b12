//! What answers are made from. The keeper makes it, everybody reads it.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use runtime::node::Config;
use runtime::peer_tls::Gate;

/// Everything an answer is made from, consistent in itself. Immutable.
pub struct World {
    /// Topology and credentials it was made from.
    pub config: Arc<Config>,
    /// Lets the nodes of the topology ask for steering.
    pub(crate) gate: Arc<Gate>,
}

impl World {
    /// Makes one.
    ///
    /// # Errors
    /// Certificates or key that do not fit.
    pub(crate) fn new(config: Arc<Config>) -> anyhow::Result<Self> {
        let names = config.topology.node_names().map(str::to_owned).collect();
        let gate = Arc::new(Gate::new(&config.credentials, names)?);
        Ok(Self { config, gate })
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

    /// Replaces it.
    pub(crate) fn store(&self, world: World) {
        self.0.store(Arc::new(world));
    }
}
