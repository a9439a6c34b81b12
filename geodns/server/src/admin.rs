//! Admin HTTP of the node: whether it can serve, and its state.

use std::net::SocketAddr;

use runtime::admin::{self, Admin, AdminError, AdminServer};
use runtime::node::NodeContext;
use serde_json::json;

use crate::world::Current;

/// Serves it.
///
/// # Errors
/// See [`AdminError`].
pub(crate) fn serve(
    context: &NodeContext,
    address: SocketAddr,
    current: &Current,
) -> Result<AdminServer, AdminError> {
    let (node, shown) = (context.name.clone(), current.clone());
    let admin = Admin {
        ready: Box::new(|| Ok(String::new())),
        state: Box::new(move || {
            let world = shown.load();
            json!({ "node": node, "generation": world.config.generation })
        }),
        routes: axum::Router::new(),
    };
    admin::serve(context, address, admin)
}
