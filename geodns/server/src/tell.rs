//! What this node tells the state store of itself, as every node does: that it answers, or that it ends. Nobody is steered by it; it is for
//! whoever looks at the whole network.

use runtime::node::{NodeContext, Shutdown, State};
use runtime::store::{GeoDnsState, Publication, Role, Tell, Told, publish};

/// Begins to tell.
///
/// # Errors
/// No random number is left.
pub(crate) fn begin(context: &NodeContext) -> anyhow::Result<Publication> {
    publish(context, Own(context.shutdown.clone()))
}

struct Own(Shutdown);

impl Tell for Own {
    /// Every socket is bound and the first tables are made before this exists.
    fn state(&mut self) -> Told {
        Told {
            ready: true,
            draining: match self.0.state() {
                State::Running => false,
                State::Draining { .. } | State::Stopped => true,
            },
            role: Role::GeoDns(GeoDnsState {}),
        }
    }
}
