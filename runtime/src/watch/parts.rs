//! What a program cannot be without, and whether all of it moves. Without a clock: the caller's looks are the time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Cell, HEARTS_MAX};

/// Parts of one node.
#[derive(Default)]
pub(super) struct Parts {
    all: Vec<Part>,
}

struct Part {
    name: String,
    cell: Arc<Cell>,
    /// Its turns when all had moved last.
    turns: u64,
}

impl Parts {
    pub(super) fn add(&mut self, name: &str, cell: &Arc<Cell>) {
        if self.all.len() >= HEARTS_MAX {
            tracing::error!(
                max = HEARTS_MAX,
                part = name,
                "too many parts: nobody notices when this one stands still"
            );
            return;
        }
        self.all.push(Part {
            name: name.to_owned(),
            cell: Arc::clone(cell),
            turns: 0,
        });
    }

    /// See [`super::Watch::all_moved`].
    pub(super) fn all_moved(&mut self) -> Result<(), String> {
        self.all
            .retain(|part| !part.cell.ended.load(Ordering::Relaxed));
        let turns = |part: &Part| part.cell.turns.load(Ordering::Relaxed);
        if let Some(stands) = self.all.iter().find(|part| turns(part) == part.turns) {
            return Err(stands.name.clone());
        }
        for part in &mut self.all {
            part.turns = part.cell.turns.load(Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_have_moved_when_each_has_since_the_last_time() {
        let mut parts = Parts::default();
        assert_eq!(parts.all_moved(), Ok(()), "of none");
        let cells = ["control", "0"].map(|name| {
            let cell = Arc::new(Cell::default());
            parts.add(name, &cell);
            cell
        });
        let [control, worker] = &cells;
        let moves = |cell: &Cell| cell.turns.fetch_add(1, Ordering::Relaxed);
        assert_eq!(parts.all_moved(), Err("control".to_owned()));
        moves(control);
        assert_eq!(parts.all_moved(), Err("0".to_owned()), "it has not begun");
        moves(worker);
        assert_eq!(parts.all_moved(), Ok(()));
        moves(worker);
        assert_eq!(parts.all_moved(), Err("control".to_owned()));
        // One after the other will do, and a turn counts once.
        moves(control);
        assert_eq!(parts.all_moved(), Ok(()));
        assert_eq!(parts.all_moved(), Err("control".to_owned()));
        control.ended.store(true, Ordering::Relaxed);
        moves(worker);
        assert_eq!(parts.all_moved(), Ok(()), "what has ended is gone");
    }

    #[test]
    fn parts_are_bounded() {
        let mut parts = Parts::default();
        let cell = Arc::new(Cell::default());
        (0..=HEARTS_MAX).for_each(|_| parts.add("0", &cell));
        assert_eq!(parts.all.len(), HEARTS_MAX);
    }
}
