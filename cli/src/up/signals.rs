//! The signals that end `up`: SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal went away).

use anyhow::Context;
use runtime::control::Control;
use tokio::signal::unix::{SignalKind, signal};

use super::{Order, Orders};

/// Turns signals into orders from here on.
///
/// # Errors
/// When the handlers cannot be installed.
pub(super) fn stop_on_signals(control: &Control, orders: &Orders) -> anyhow::Result<()> {
    let _inside = control.handle().enter();
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ] {
        let mut signals = signal(kind).context("installing a signal handler")?;
        let orders = orders.clone();
        control.spawn(async move {
            while signals.recv().await.is_some() {
                // A full inbox is worked off within moments: the next signal gets through.
                let _full = orders.try_send(Order::Stop);
            }
        });
    }
    Ok(())
}
