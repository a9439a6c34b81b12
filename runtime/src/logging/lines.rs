//! Log lines on their way to a writer that may block: whoever logs never waits.
//!
//! ```text
//! any thread ─ one line, or dropped and counted ─► queue of LINES_MAX ─► thread `log` ─► stderr, which may be a full pipe
//! ```

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait at most.
pub(super) const LINES_MAX: usize = 4096;

/// The end where lines go in. Clones share it.
#[derive(Clone)]
pub(super) struct Lines {
    queue: SyncSender<Vec<u8>>,
    shared: Arc<Shared>,
}

struct Shared {
    dropped: AtomicU64,
    /// Lines taken into the queue and not written yet.
    waiting: Mutex<usize>,
    written: Condvar,
}

impl Lines {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub(super) fn start(writer: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, lines) = sync_channel(LINES_MAX);
        let shared = Arc::new(Shared {
            dropped: AtomicU64::new(0),
            waiting: Mutex::new(0),
            written: Condvar::new(),
        });
        let for_thread = Arc::clone(&shared);
        Builder::new()
            .name("log".to_owned())
            .spawn(move || write_all(&lines, writer, &for_thread))?;
        Ok(Self { queue, shared })
    }

    fn put(&self, line: &[u8]) {
        self.shared.count(|waiting| waiting + 1);
        if self.queue.try_send(line.to_vec()).is_err() {
            self.shared.count(|waiting| waiting.saturating_sub(1));
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that found no place.
    pub(super) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all lines so far are written, `limit` at most.
    pub(super) fn flush(&self, limit: Duration) {
        let waiting = self.shared.waiting.lock();
        let waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let _ = self
            .shared
            .written
            .wait_timeout_while(waiting, limit, |waiting| *waiting > 0);
    }
}

impl Shared {
    fn count(&self, change: impl FnOnce(usize) -> usize) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting = change(*waiting);
        if *waiting == 0 {
            self.written.notify_all();
        }
    }
}

fn write_all(lines: &Receiver<Vec<u8>>, mut writer: impl Write, shared: &Shared) {
    while let Ok(line) = lines.recv() {
        // Whoever read it has gone: there is nobody to tell.
        let _ = writer.write_all(&line);
        shared.count(|waiting| waiting.saturating_sub(1));
    }
}

/// The subscriber writes a line with one call.
impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe whose reader does not read until it is told to.
    struct Pipe {
        gate: Receiver<()>,
        open: bool,
        out: SyncSender<Vec<u8>>,
    }

    impl Write for Pipe {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            if !self.open {
                self.open = self.gate.recv().is_ok();
            }
            let _ = self.out.send(line.to_vec());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn whoever_logs_into_a_full_pipe_goes_on_and_what_is_lost_is_counted() {
        let (open, gate) = sync_channel(1);
        let (out, written) = sync_channel(2 * LINES_MAX);
        let pipe = Pipe {
            gate,
            open: false,
            out,
        };
        let lines = Lines::start(pipe).unwrap();
        let total = LINES_MAX + 1000;
        for number in 0..total {
            (&lines).write_all(&number.to_be_bytes()).unwrap();
        }
        // One line may be in the writer's hands.
        let dropped = lines.dropped();
        assert!((999..=1000).contains(&dropped), "{dropped}");
        lines.flush(Duration::from_millis(1));
        assert!(written.try_recv().is_err(), "flush does not wait for ever");
        open.send(()).unwrap();
        lines.flush(Duration::from_secs(10));
        let arrived: Vec<_> = written.try_iter().collect();
        assert_eq!(arrived.len() + usize::try_from(dropped).unwrap(), total);
        assert!(arrived.is_sorted(), "in order");
    }
}
