//! How many tentative flows there may be: in all, and of one hint.
//!
//! Whoever knows one good ufrag can send it from any number of forged sources. What such packets have in common is the hint,
//! so a hint has few places: more than a client has addresses, far fewer than would crowd out others. Hints are
//! counted in a sketch of two rows of cells; two hints that share a cell in both rows count as one.

use std::hash::BuildHasher;

/// Of the flows of a table, the share tentative ones may take: one in this many.
const TENTATIVE_SHARE: u32 = 4;
/// Tentative flows of one hint at a time.
pub(crate) const PER_HINT_MAX: u16 = 16;
/// When the share of tentative flows is full of different hints, a cell of a row counts this many: too few to be taken for one.
const HINTS_PER_CELL: u32 = 4;
/// Cells of a row at least.
const CELLS_MIN: usize = 1024;

pub(crate) struct Admission {
    tentative_max: u32,
    hasher: foldhash::fast::FixedState,
    rows: [Box<[u16]>; 2],
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Tentative,
    Hint,
}

impl Admission {
    pub(crate) fn new(flows_max: u32, seed: u64) -> Self {
        let tentative_max = (flows_max / TENTATIVE_SHARE).max(1);
        let cells = (tentative_max / HINTS_PER_CELL).next_power_of_two() as usize;
        let cells = cells.max(CELLS_MIN);
        let row = || vec![0; cells].into_boxed_slice();
        Self {
            tentative_max,
            // Not the seed of the table: an address and a hint must not be weighed with the same secret.
            hasher: foldhash::fast::FixedState::with_seed(!seed),
            rows: [row(), row()],
        }
    }

    /// The name of a ufrag in a tentative flow.
    #[expect(clippy::cast_possible_truncation, reason = "32 bits tell hints apart")]
    pub(crate) fn hint(&self, ufrag: &[u8]) -> u32 {
        self.hasher.hash_one(ufrag) as u32
    }

    /// Takes a place, while there are `tentative` such flows.
    pub(crate) fn take(&mut self, hint: u32, tentative: u32) -> Result<(), Refusal> {
        if tentative >= self.tentative_max {
            return Err(Refusal::Tentative);
        }
        if self.of_hint(hint) >= PER_HINT_MAX {
            return Err(Refusal::Hint);
        }
        for cell in self.cells(hint).into_iter().flatten() {
            *cell = cell.saturating_add(1);
        }
        Ok(())
    }

    /// Gives a place back: the flow is gone or is tentative no more.
    pub(crate) fn release(&mut self, hint: u32) {
        for cell in self.cells(hint).into_iter().flatten() {
            *cell = cell.saturating_sub(1);
        }
    }

    fn of_hint(&mut self, hint: u32) -> u16 {
        let [one, two] = self.cells(hint).map(|cell| cell.map_or(0, |cell| *cell));
        one.min(two)
    }

    fn cells(&mut self, hint: u32) -> [Option<&mut u16>; 2] {
        let [one, two] = &mut self.rows;
        let mask = one.len() - 1;
        let other = hint.wrapping_mul(0x9e37_79b1).rotate_left(15) as usize;
        [one.get_mut(hint as usize & mask), two.get_mut(other & mask)]
    }

    /// Bytes taken from the allocator.
    pub(crate) fn bytes(&self) -> usize {
        self.rows
            .iter()
            .map(|row| row.len() * size_of::<u16>())
            .sum()
    }
}
