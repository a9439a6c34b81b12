//! Admin HTTP of the node: whether it can serve, its state, and explanations.

use std::net::SocketAddr;

use runtime::admin::{self, Admin, AdminError, AdminServer};
use runtime::clock;
use runtime::node::NodeContext;
use serde_json::json;

use crate::explain::databases;
use crate::steer;
use crate::world::{Current, World};

/// Serves it.
///
/// # Errors
/// See [`AdminError`].
pub(crate) fn serve(
    context: &NodeContext,
    address: SocketAddr,
    current: &Current,
) -> Result<AdminServer, AdminError> {
    let (node, shown, old) = (context.name.clone(), current.clone(), current.clone());
    let admin = Admin {
        // Every socket is bound and the first tables are made before this exists.
        ready: Box::new(move || Ok(amiss(&old.load()))),
        state: Box::new(move || state(&node, &shown.load())),
        routes: steer::explain_route(current),
    };
    admin::serve(context, address, admin)
}

/// Databases that are older than the topology wants them.
fn amiss(world: &World) -> String {
    let most = u64::from(world.config.topology.steering.database_age_max_days);
    let databases = databases(&world.databases, clock::unix_s());
    let old = databases.iter().filter(|shown| shown.age_days > most);
    old.map(|shown| format!("{} is {} days old\n", shown.kind, shown.age_days))
        .collect()
}

fn state(node: &str, world: &World) -> serde_json::Value {
    let plan = &world.snapshot.plan;
    let live = &world.snapshot.live;
    let regions = plan
        .regions()
        .map(|ix| json!({ "name": plan.region_name(ix), "condition": live.region(ix) }));
    let pops = plan.pops().map(|ix| {
        let backbone = plan.regions().filter_map(|region| {
            let (ms, cut) = (live.backbone_ms(ix, region), live.is_cut(ix, region));
            let is_told = ms.is_some() || cut;
            is_told.then(|| json!({ "region": plan.region_name(region), "rtt_ms": ms, "cut": cut }))
        });
        json!({
            "name": plan.pop_name(ix),
            "condition": live.pop(ix),
            "backbone": backbone.collect::<Vec<_>>(),
        })
    });
    json!({
        "node": node,
        "generation": world.config.generation,
        "databases": databases(&world.databases, clock::unix_s()),
        "lists": world.map.figures.lists,
        "groups_measured": world.snapshot.measured.len(),
        "state_age_s": world.heard_at.map(|at| clock::now().saturating_duration_since(at).as_secs()),
        "regions": regions.collect::<Vec<_>>(),
        "pops": pops.collect::<Vec<_>>(),
    })
}
