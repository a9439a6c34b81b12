//! The files of geolocation databases: read, looked at before they are used, followed while the node runs.
//!
//! ```text
//! every 5 s: another file behind the path? --read whole--> still the same file? --open, probe--> Databases, swapped
//!                                              |                |                    |
//!                                              +--- refused: counted by reason, the old one stays
//! ```
//!
//! A file is read into memory and never mapped, so whoever writes into it, cuts it off or renames another one over it harms nothing:
//! at worst a half-written file is refused, and looked at again when it has changed.
//!
//! What is not here: what a database knows and whether it is fit (`geodns_policy::databases`), and what is made of it (the keeper).

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use geodns_policy::databases::{
    DATABASE_BYTES_MAX, DATABASES_MAX, Database, DatabaseError, Databases, ProbeError, Survey,
    probe,
};
use runtime::clock;
use runtime::metrics::{Counter, Registry};
use runtime::node::{NodeContext, State};
use runtime::poll::{Poller, Waker};
use runtime::thread::spawn_worker;
use thiserror::Error;

/// Between two looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Between two log lines about one old database.
const ALARM_INTERVAL_S: u64 = 86_400;
const DAY_S: u64 = 86_400;

/// What databases know at the moment; replaced as a whole.
pub type Shelf = Arc<ArcSwap<Databases>>;

/// Why a file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It is absent, not a regular file, or cannot be read.
    #[error("it cannot be read")]
    Unreadable,
    /// It changed while it was read.
    #[error("it is being written")]
    Changing,
    /// It is no database.
    #[error(transparent)]
    Damaged(DatabaseError),
    /// It is a database that is not to be used.
    #[error(transparent)]
    Unfit(ProbeError),
}

impl Refusal {
    /// Every reason, as the metric names it.
    const REASONS: [&str; 4] = ["unreadable", "changing", "damaged", "unfit"];

    const fn index(self) -> usize {
        match self {
            Self::Unreadable => 0,
            Self::Changing => 1,
            Self::Damaged(_) => 2,
            Self::Unfit(_) => 3,
        }
    }
}

/// The files that flags name, in order of trust.
pub struct Files {
    files: Vec<Followed>,
    replaced: Counter,
    refused: Vec<Counter>,
}

/// One file and what was taken from it.
struct Followed {
    path: PathBuf,
    /// The file that was looked at last, used or refused.
    seen: Option<Identity>,
    database: Arc<Database>,
    /// When it was built, for the metric.
    built_unix_s: Arc<AtomicU64>,
    networks: Arc<AtomicU64>,
    alarmed_unix_s: u64,
}

/// What changes when a file is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Files {
    /// Reads all of them.
    ///
    /// # Errors
    /// One cannot be used; it is named.
    pub fn open(paths: &[PathBuf], registry: &Registry) -> anyhow::Result<Self> {
        anyhow::ensure!(
            paths.len() <= DATABASES_MAX,
            "more than {DATABASES_MAX} geolocation databases"
        );
        let files = paths.iter().map(|path| {
            let name = || format!("geolocation database {}", path.display());
            let followed = Followed::open(path).with_context(name)?;
            followed.observe(registry);
            Ok(followed)
        });
        let refused = Refusal::REASONS.into_iter().map(|reason| {
            registry.counter(
                "geodns.database.refused",
                "{file}",
                "Files of geolocation databases that were not taken, by reason; the one before stays.",
                &[("reason", reason)],
            )
        });
        Ok(Self {
            files: files.collect::<anyhow::Result<_>>()?,
            replaced: registry.counter(
                "geodns.database.replaced",
                "{file}",
                "Geolocation databases that were replaced while the node ran.",
                &[],
            ),
            refused: refused.collect(),
        })
    }

    /// What they know.
    #[must_use]
    pub fn databases(&self) -> Databases {
        let databases = self.files.iter().map(|file| Arc::clone(&file.database));
        Databases::new(databases)
    }

    /// Looks whether files have changed, and takes those that have. Whether any was taken.
    pub fn look(&mut self) -> bool {
        let mut taken = false;
        for file in &mut self.files {
            match file.look() {
                Ok(false) => {}
                Ok(true) => {
                    taken = true;
                    self.replaced.add(1);
                    let (file, about) = (file.path.display(), file.database.about());
                    tracing::info!(%file, kind = about.kind, built_unix_s = about.built_unix_s, "geolocation database replaced");
                }
                Err(refusal) => {
                    if let Some(counter) = self.refused.get(refusal.index()) {
                        counter.add(1);
                    }
                    let file = file.path.display();
                    tracing::error!(%file, reason = %refusal, "geolocation database not taken: the old one stays");
                }
            }
        }
        taken
    }

    /// Says once a day which databases are older than `age_max_days`. How many.
    pub fn alarm(&mut self, unix_s: u64, age_max_days: u32) -> usize {
        let age_max_s = u64::from(age_max_days) * DAY_S;
        let mut old = 0;
        for file in &mut self.files {
            let age_s = unix_s.saturating_sub(file.database.about().built_unix_s);
            if age_s <= age_max_s {
                continue;
            }
            old += 1;
            if unix_s >= file.alarmed_unix_s.saturating_add(ALARM_INTERVAL_S) {
                file.alarmed_unix_s = unix_s;
                let file = file.path.display();
                tracing::warn!(%file, age_days = age_s / DAY_S, age_max_days, "geolocation database is old");
            }
        }
        old
    }
}

/// Follows the files on a thread of its own until the node has stopped.
///
/// # Errors
/// The kernel gives no thread or descriptor.
pub fn follow(context: &NodeContext, files: Files) -> anyhow::Result<Shelf> {
    let shelf: Shelf = Arc::new(ArcSwap::from_pointee(files.databases()));
    let waker = Waker::new().context("waker of the databases' thread")?;
    context.shutdown.register(&waker);
    let (context, told) = (context.clone(), Arc::clone(&shelf));
    spawn_worker("databases", None, move || {
        run(&context, files, &told, &waker);
    })
    .context("starting the databases' thread")?;
    Ok(shelf)
}

fn run(context: &NodeContext, mut files: Files, shelf: &Shelf, waker: &Waker) {
    let mut poller = Poller::new();
    loop {
        match context.shutdown.state() {
            State::Running | State::Draining { .. } => {}
            State::Stopped => return,
        }
        let steering = &context.config.load().topology.steering;
        files.alarm(clock::unix_s(), steering.database_age_max_days);
        if let Err(error) = poller.wait(&[waker.as_fd()], Some(LOOK_INTERVAL)) {
            tracing::warn!(%error, "waiting for databases");
        }
        waker.drain();
        if files.look() {
            shelf.store(Arc::new(files.databases()));
        }
    }
}

impl Followed {
    fn open(path: &Path) -> Result<Self, Refusal> {
        let (identity, database) = read(path, None)?;
        let followed = Self {
            path: path.to_owned(),
            seen: Some(identity),
            database: Arc::new(database),
            built_unix_s: Arc::default(),
            networks: Arc::default(),
            alarmed_unix_s: 0,
        };
        followed.tell();
        Ok(followed)
    }

    /// Takes the file behind the path if it is another one. Whether it was.
    fn look(&mut self) -> Result<bool, Refusal> {
        let found = std::fs::metadata(&self.path)
            .map(|metadata| Identity::of(&metadata))
            .ok();
        if found == self.seen {
            return Ok(false);
        }
        // A file that is refused for what it is is not read again until it changes.
        self.seen = found;
        match read(&self.path, Some(self.database.survey())) {
            Ok((identity, database)) => {
                self.seen = Some(identity);
                self.database = Arc::new(database);
                self.tell();
                Ok(true)
            }
            Err(refusal) => {
                if refusal == Refusal::Changing {
                    self.seen = None;
                }
                Err(refusal)
            }
        }
    }

    fn tell(&self) {
        let survey = self.database.survey();
        let built = self.database.about().built_unix_s;
        self.built_unix_s.store(built, Ordering::Relaxed);
        self.networks
            .store(survey.ipv4 + survey.ipv6, Ordering::Relaxed);
    }

    #[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
    fn observe(&self, registry: &Registry) {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let labels = [("file", name.as_ref())];
        let built = Arc::clone(&self.built_unix_s);
        registry.observe_gauge(
            "geodns.database.age_s",
            "s",
            "Time since a geolocation database was built.",
            &labels,
            move || clock::unix_s().saturating_sub(built.load(Ordering::Relaxed)) as f64,
        );
        let networks = Arc::clone(&self.networks);
        registry.observe_gauge(
            "geodns.database.networks",
            "{network}",
            "Networks a geolocation database knows something of.",
            &labels,
            move || networks.load(Ordering::Relaxed) as f64,
        );
    }
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Reads a file whole and takes what it knows.
fn read(path: &Path, before: Option<&Survey>) -> Result<(Identity, Database), Refusal> {
    let unreadable = |_| Refusal::Unreadable;
    // Opening a FIFO would wait for a writer.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Refusal::Unreadable);
    }
    let file = File::open(path).map_err(unreadable)?;
    let identity = Identity::of(&file.metadata().map_err(unreadable)?);
    let len = usize::try_from(identity.bytes).unwrap_or(usize::MAX);
    if len > DATABASE_BYTES_MAX {
        return Err(Refusal::Damaged(DatabaseError::TooLarge));
    }
    let mut bytes = Vec::with_capacity(len);
    (&file)
        .take(identity.bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    let after = Identity::of(&file.metadata().map_err(unreadable)?);
    if after != identity || bytes.len() != len {
        return Err(Refusal::Changing);
    }
    let database = Database::open(bytes).map_err(Refusal::Damaged)?;
    probe(&database, before).map_err(Refusal::Unfit)?;
    Ok((identity, database))
}

#[cfg(test)]
#[path = "../../policy/tests/support/mmdb.rs"]
#[expect(dead_code, reason = "not every test writes every kind of value")]
mod mmdb;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::IpAddr;
    use std::sync::atomic::{AtomicBool, AtomicU32};

    use super::mmdb::{Draft, map, text};
    use super::*;

    /// A folder of its own, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("firsthop-databases-{}-{next}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn client() -> IpAddr {
        "81.2.69.142".parse().unwrap()
    }

    /// A database that has the client in one country, and others elsewhere.
    fn draft(country: &str) -> Draft {
        let of = |code: &str| map([("country_code", text(code))]);
        let others = (20..60).map(|i| (format!("{i}.0.0.0/8").parse().unwrap(), of("US")));
        let client = ("81.2.69.0/24".parse().unwrap(), of(country));
        Draft::new(others.chain([client]).collect())
    }

    fn country(files: &Files) -> String {
        let facts = files.databases().facts(client());
        facts
            .country
            .map(|country| country.code().to_owned())
            .unwrap_or_default()
    }

    fn opened(path: &Path) -> (Files, Registry) {
        let registry = Registry::new("test", "node");
        let files = Files::open(&[path.to_owned()], &registry).unwrap();
        (files, registry)
    }

    fn refused(files: &Files) -> Vec<u64> {
        files.refused.iter().map(Counter::total).collect()
    }

    #[test]
    fn another_file_is_taken_and_an_equal_one_is_not_read_again() {
        let folder = Folder::new();
        let path = folder.path("db.mmdb");
        fs::write(&path, draft("GB").write()).unwrap();
        let (mut files, registry) = opened(&path);
        assert_eq!(country(&files), "GB");
        assert!(!files.look());
        fs::write(folder.path("new"), draft("FR").write()).unwrap();
        fs::rename(folder.path("new"), &path).unwrap();
        assert!(files.look());
        assert_eq!(
            (country(&files), files.replaced.total()),
            ("FR".to_owned(), 1)
        );
        let metrics = registry.prometheus();
        assert!(metrics.contains("geodns_database_age_s{"), "{metrics}");
        assert!(metrics.contains(r#"file="db.mmdb""#), "{metrics}");
    }

    /// Every reason, and after each the old database still answers; a good file is taken at last.
    #[test]
    fn what_cannot_be_used_is_refused_counted_and_harmless() {
        let folder = Folder::new();
        let path = folder.path("db.mmdb");
        let good = draft("GB").write();
        fs::write(&path, &good).unwrap();
        let (mut files, _registry) = opened(&path);
        let replace = |bytes: &[u8]| {
            fs::write(folder.path("new"), bytes).unwrap();
            fs::rename(folder.path("new"), &path).unwrap();
        };
        let mut small = draft("GB");
        small.networks.drain(..30);
        let cases: [(&dyn Fn(), [u64; 4]); 4] = [
            (&|| fs::remove_file(&path).unwrap(), [1, 0, 0, 0]),
            (&|| replace(b"no database"), [1, 0, 1, 0]),
            (&|| replace(&good[..good.len() / 2]), [1, 0, 2, 0]),
            (&|| replace(&small.write()), [1, 0, 2, 1]),
        ];
        for (spoil, expected) in cases {
            spoil();
            assert!(!files.look());
            assert_eq!(refused(&files), expected);
            assert!(!files.look(), "it has not changed since");
            assert_eq!(refused(&files), expected, "and is not counted again");
            assert_eq!(country(&files), "GB");
        }
        replace(&draft("FR").write());
        assert!(files.look());
        assert_eq!(country(&files), "FR");
    }

    #[test]
    fn what_is_no_database_does_not_start() {
        let folder = Folder::new();
        let registry = Registry::new("test", "node");
        let open = |path: PathBuf| Files::open(&[path], &registry).map(|_| ());
        let absent = open(folder.path("absent")).unwrap_err();
        assert!(format!("{absent:#}").contains("absent"), "{absent:#}");
        assert!(open(folder.0.clone()).is_err());
        fs::write(folder.path("text"), "no database").unwrap();
        let text = open(folder.path("text")).unwrap_err();
        assert!(
            format!("{text:#}").contains("MaxMind DB format"),
            "{text:#}"
        );
        assert!(Files::open(&vec![folder.path("text"); DATABASES_MAX + 1], &registry).is_err());
    }

    #[test]
    fn an_old_database_is_told_once_a_day() {
        let folder = Folder::new();
        let path = folder.path("db.mmdb");
        let draft = draft("GB");
        fs::write(&path, draft.write()).unwrap();
        let (mut files, _registry) = opened(&path);
        let built = draft.built_unix_s;
        assert_eq!(files.alarm(built + 45 * DAY_S, 45), 0);
        assert_eq!(files.alarm(built + 46 * DAY_S, 45), 1);
        let told = files.files[0].alarmed_unix_s;
        assert_eq!(files.alarm(built + 46 * DAY_S + 10, 45), 1);
        assert_eq!(files.files[0].alarmed_unix_s, told, "not again so soon");
        files.alarm(built + 47 * DAY_S, 45);
        assert!(files.files[0].alarmed_unix_s > told);
    }

    /// A writer rewrites the file in place, cuts it off and renames over it, all the time; readers ask all the time.
    #[test]
    fn a_file_that_is_rewritten_all_the_time_harms_nobody() {
        let folder = Folder::new();
        let path = folder.path("db.mmdb");
        let drafts = [draft("GB").write(), draft("FR").write()];
        fs::write(&path, &drafts[0]).unwrap();
        let (mut files, _registry) = opened(&path);
        let shelf: Shelf = Arc::new(ArcSwap::from_pointee(files.databases()));
        let (stop, looks) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in (0..drafts.len()).cycle() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let bytes = &drafts[round];
                    let (first, rest) = bytes.split_at(bytes.len() / 3);
                    fs::write(&path, first).unwrap();
                    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
                    std::io::Write::write_all(&mut file, rest).unwrap();
                    fs::write(folder.path("new"), bytes).unwrap();
                    fs::rename(folder.path("new"), &path).unwrap();
                    // Long enough for a look to begin; it may well end in the middle of the next round.
                    let begun = looks.load(Ordering::Relaxed);
                    while looks.load(Ordering::Relaxed) == begun && !stop.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                }
            });
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let facts = shelf.load().facts(client());
                    let code = facts.country.map(|country| country.code().to_owned());
                    assert!(matches!(code.as_deref(), Some("GB" | "FR")), "{code:?}");
                }
            });
            let mut taken = 0;
            let deadline = clock::now() + Duration::from_secs(30);
            while taken < 20 && clock::now() < deadline {
                looks.fetch_add(1, Ordering::Relaxed);
                if files.look() {
                    shelf.store(Arc::new(files.databases()));
                    taken += 1;
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(taken >= 20, "only {taken}");
        });
    }
}
