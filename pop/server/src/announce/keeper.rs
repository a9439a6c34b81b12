//! What a PoP that starts again must know of its falls, in a file of the state directory. The announce thread never waits for a disk:
//! it says what there is to keep, and a task on the control runtime writes it. Only at the end of the process it writes itself.
//!
//! What is not here: what a fall is, and what the file holds (`pop_proto::announce::History`).

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pop_proto::announce::{Announcer, HISTORY_BYTES_MAX, History};
use runtime::clock;
use runtime::files::{read_text, replace};
use runtime::metrics::{Counter, Registry};
use runtime::node::NodeContext;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking};

/// The announce thread's side.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    /// What was kept last.
    mark: (bool, u64),
    task: JoinHandle<()>,
}

struct Shared {
    file: PathBuf,
    latest: Mutex<History>,
    /// Held while the file is written, so that what was said last is written last.
    writing: Mutex<()>,
    bell: Notify,
    unwritten: Counter,
}

impl Keeper {
    /// With what was kept before, where the node has a state directory. What cannot be read is as if there were none.
    pub(super) fn open(context: &NodeContext) -> Option<(Self, History)> {
        let dir = context.state_dir.as_ref()?;
        let file = dir.join(format!("{}.falls", context.name));
        let troubles = Trouble::ALL.map(|trouble| trouble.counter(&context.metrics));
        let [unreadable, garbage, unwritten] = troubles;
        let history = match read(&file, clock::unix_s()) {
            Ok(history) => history,
            Err(trouble) => {
                let (counter, error) = match &trouble {
                    Unread::Unreadable(error) => (unreadable, error.to_string()),
                    Unread::Garbage(error) => (garbage, error.to_string()),
                };
                counter.add(1);
                let file = file.display();
                tracing::warn!(%file, error, "falls of the process before are not known");
                History::default()
            }
        };
        let shared = Arc::new(Shared {
            file,
            latest: Mutex::default(),
            writing: Mutex::default(),
            bell: Notify::new(),
            unwritten,
        });
        let task = context.control.spawn(write_again(Arc::clone(&shared)));
        let keeper = Self {
            shared,
            mark: (false, 0),
            task,
        };
        Some((keeper, history))
    }

    /// Has it kept what has changed, unless that is being read at this moment: then the next look does.
    pub(super) fn keep(&mut self, announcer: &Announcer, now: Instant) {
        let mark = announcer.history_mark();
        if mark == self.mark {
            return;
        }
        let Ok(mut latest) = self.shared.latest.try_lock() else {
            return;
        };
        *latest = announcer.history(now);
        self.mark = mark;
        self.shared.bell.notify_one();
    }

    /// The process ends as it was told: that is no fall.
    pub(super) fn end(self, announcer: &Announcer, now: Instant) {
        *self.shared.latest() = announcer.history(now).ended();
        self.shared.write();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write_again(shared: Arc<Shared>) {
    loop {
        shared.bell.notified().await;
        let own = Arc::clone(&shared);
        // It fails only when the runtime ends.
        let _ = spawn_blocking(move || own.write()).await;
    }
}

impl Shared {
    fn write(&self) {
        let writing = self.writing.lock();
        let latest = self.latest().clone();
        if let Err(error) = replace(&self.file, latest.text(clock::unix_s()).as_bytes()) {
            // Once in a life: falls are not that rare in trouble, and nothing else depends on it.
            if self.unwritten.total() == 0 {
                let file = self.file.display();
                tracing::warn!(%file, %error, "falls of this process are not kept");
            }
            self.unwritten.add(1);
        }
        drop(writing);
    }

    fn latest(&self) -> MutexGuard<'_, History> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What can go wrong with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Unreadable,
    Garbage,
    Unwritten,
}

impl Trouble {
    const ALL: [Self; 3] = [Self::Unreadable, Self::Garbage, Self::Unwritten];

    fn counter(self, registry: &Registry) -> Counter {
        let reason = match self {
            Self::Unreadable => "unreadable",
            Self::Garbage => "garbage",
            Self::Unwritten => "unwritten",
        };
        registry.counter(
            "pop.announce.history_troubles",
            "{file}",
            "How often the file of falls could not be read, was none, or could not be written.",
            &[("reason", reason)],
        )
    }
}

enum Unread {
    Unreadable(io::Error),
    Garbage(pop_proto::announce::HistoryError),
}

/// No file is no history.
fn read(file: &Path, now_unix_s: u64) -> Result<History, Unread> {
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(History::default()),
        Ok(_) | Err(_) => {}
    }
    let text = read_text(file, HISTORY_BYTES_MAX).map_err(Unread::Unreadable)?;
    History::parse(text.as_bytes(), now_unix_s).map_err(Unread::Garbage)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_764_533_400;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let name = format!("firsthop-falls-{}-{name}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn shared(file: &Path) -> Shared {
        Shared {
            file: file.to_owned(),
            latest: Mutex::default(),
            writing: Mutex::default(),
            bell: Notify::new(),
            unwritten: Trouble::Unwritten.counter(&Registry::new("pop", "p1")),
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_is_nothing() {
        let dir = Dir::new("round");
        let file = dir.0.join("p1.falls");
        assert!(read(&file, NOW_S).is_ok_and(|history| history == History::default()));
        let shared = shared(&file);
        let text = b"firsthop falls 1\nannounced\n";
        let history = History::parse(text, NOW_S).unwrap();
        *shared.latest() = history.clone();
        for _ in 0..2 {
            shared.write();
            assert_eq!(fs::read(&file).unwrap(), text);
        }
        assert_eq!(shared.unwritten.total(), 0);
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn what_is_no_history_is_told_apart_from_what_cannot_be_read() {
        let dir = Dir::new("garbage");
        let file = dir.0.join("p1.falls");
        fs::write(&file, "fell\n").unwrap();
        assert!(matches!(read(&file, NOW_S), Err(Unread::Garbage(_))));
        fs::write(&file, [b'1'; HISTORY_BYTES_MAX + 1]).unwrap();
        assert!(matches!(read(&file, NOW_S), Err(Unread::Unreadable(_))));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(matches!(read(&file, NOW_S), Err(Unread::Unreadable(_))));
        let shared = shared(&file);
        shared.write();
        assert_eq!(shared.unwritten.total(), 1, "a directory is in its place");
    }
}
