//! Keeps orders in files, off the control runtime: a disk that is full refuses, one that hangs is given up, and neither leaves an order
//! behind that nobody gave.
//!
//! What is not here: what is ordered, and when ([`super::orders`]).

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use runtime::files::{remove, replace};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long a disk may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// What the file holds; that it is there is what counts.
const TEXT: &str = "Ordered by `firsthop drain`. `firsthop undrain` removes this file.\n";

/// Why an order is not kept. What was before is.
#[derive(Debug)]
pub(super) enum Unkept {
    /// The file system refuses.
    Failed(io::Error),
    /// It does not answer. Should it do so later, the file is made what it was.
    Late,
}

/// Whoever has it may have a thread wait for a disk; `None` once the thread has it.
pub(super) type Desk = Option<OwnedSemaphorePermit>;

/// Makes `file` say `to` instead of `from`. The desk comes back when the last of it is over.
pub(super) async fn keep(
    file: PathBuf,
    (from, to): (bool, bool),
    desk: &mut Desk,
) -> Result<(), Unkept> {
    let write = move |drains: bool| {
        if drains {
            replace(&file, TEXT.as_bytes())
        } else {
            remove(&file)
        }
    };
    change(write, (from, to), desk, PATIENCE).await
}

async fn change(
    write: impl Fn(bool) -> io::Result<()> + Send + 'static,
    (from, to): (bool, bool),
    desk: &mut Desk,
    patience: Duration,
) -> Result<(), Unkept> {
    let (tell, mut told) = oneshot::channel();
    let own = desk.take();
    let undo = move |write: &dyn Fn(bool) -> io::Result<()>| {
        if let Err(error) = write(from) {
            tracing::warn!(%error, drains = from, "the file of an order that was not given cannot be made what it was");
        }
    };
    spawn_blocking(move || {
        let done = write(to);
        let failed = done.is_err();
        if failed {
            undo(&write);
        }
        if let Err((_done, own)) = tell.send((done, own)) {
            if !failed {
                undo(&write);
            }
            drop(own);
        }
    });
    let said = match timeout(patience, &mut told).await {
        // Nobody tells anything where the runtime ends.
        Ok(said) => said.ok(),
        Err(_) => {
            // It may have been told at the last moment; afterwards it cannot be.
            told.close();
            told.try_recv().ok()
        }
    };
    let (done, own) = said.ok_or(Unkept::Late)?;
    *desk = own;
    done.map_err(Unkept::Failed)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;
    use std::sync::{Arc, Mutex};

    use runtime::control::Control;
    use tokio::sync::Semaphore;

    use super::*;

    /// A hung disk is given up after so long here.
    const SHORT: Duration = Duration::from_millis(50);

    fn desk() -> (Arc<Semaphore>, Desk) {
        let desk = Arc::new(Semaphore::new(1));
        let taken = Arc::clone(&desk).try_acquire_owned().unwrap();
        (desk, Some(taken))
    }

    /// The order there is, and a disk that does something whenever it is told to.
    fn disk() -> (
        Arc<Mutex<bool>>,
        mpsc::SyncSender<bool>,
        impl Fn(bool) -> io::Result<()>,
    ) {
        let (go, going) = mpsc::sync_channel(1);
        let kept = Arc::new(Mutex::new(false));
        let own = Arc::clone(&kept);
        let going = Mutex::new(going);
        let write = move |drains| {
            let works = going.lock().unwrap().recv().unwrap_or(true);
            *own.lock().unwrap() = drains;
            if works {
                Ok(())
            } else {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
        };
        (kept, go, write)
    }

    #[test]
    fn a_disk_that_hangs_is_given_up_and_what_it_does_later_is_undone() {
        let control = Control::new().unwrap();
        let (kept, go, write) = disk();
        let (desk, mut taken) = desk();
        let done = control.block_on(change(write, (false, true), &mut taken, SHORT));
        assert!(matches!(done, Err(Unkept::Late)), "{done:?}");
        drop(taken);
        assert_eq!(desk.available_permits(), 0, "no second thread waits");
        go.send(true).unwrap();
        drop(go);
        // Free when the thread is through.
        let free = async {
            timeout(Duration::from_secs(10), desk.acquire())
                .await
                .is_ok()
        };
        assert!(control.block_on(free));
        assert!(!*kept.lock().unwrap(), "it was written, and undone");
    }

    #[test]
    fn a_disk_that_fails_after_it_has_begun_leaves_nothing() {
        let control = Control::new().unwrap();
        let (kept, go, write) = disk();
        go.send(false).unwrap();
        drop(go);
        let long = Duration::from_secs(10);
        let (_desk, mut taken) = desk();
        let done = control.block_on(change(write, (false, true), &mut taken, long));
        assert!(matches!(done, Err(Unkept::Failed(_))), "{done:?}");
        assert!(taken.is_some());
        assert!(!*kept.lock().unwrap());
    }

    #[test]
    fn an_order_is_kept_twice_given_and_taken_back() {
        let dir = std::env::temp_dir().join(format!("firsthop-orders-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let control = Control::new().unwrap();
        let file = dir.join("p1.drain");
        for (from, to) in [(false, true), (true, true), (true, false), (false, false)] {
            let (_desk, mut taken) = desk();
            let done = control.block_on(keep(file.clone(), (from, to), &mut taken));
            assert!(done.is_ok() && taken.is_some(), "{done:?}");
            assert_eq!(file.exists(), to);
        }
        std::fs::remove_dir_all(&dir).unwrap();
        let nowhere = Path::new("/no/such/directory/p1.drain").to_owned();
        let done = control.block_on(keep(nowhere, (false, true), &mut desk().1));
        assert!(matches!(done, Err(Unkept::Failed(_))), "{done:?}");
    }
}
