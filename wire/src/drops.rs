//! The closed list of reasons a program drops packets for, and their counts. Each program declares its own list once.

/// Declares `DropReason`, the label of a program's one drop counter, and `Drops`, a total for each reason.
///
/// ```
/// wire::drop_reasons! {
///     /// A packet without a byte in it.
///     Empty = "empty",
/// }
/// let mut drops = Drops::default();
/// drops.count(DropReason::Empty);
/// assert_eq!((drops.get(DropReason::Empty), DropReason::Empty.as_str()), (1, "empty"));
/// drops.add(DropReason::Empty, u64::MAX);
/// assert_eq!(drops.total(), u64::MAX, "a total never wraps");
/// ```
#[macro_export]
macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)+) => {
        /// Why a packet was dropped: the label of the program's one drop counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DropReason {
            $($(#[$doc])* $name,)+
        }

        impl DropReason {
            /// Every reason, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The metric label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)+
                }
            }
        }

        /// Drops counted by reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Drops([u64; DropReason::ALL.len()]);

        impl Default for Drops {
            fn default() -> Self {
                Self([0; DropReason::ALL.len()])
            }
        }

        impl Drops {
            /// Counts one.
            pub fn count(&mut self, reason: DropReason) {
                self.add(reason, 1);
            }

            /// Counts several.
            pub fn add(&mut self, reason: DropReason, packets: u64) {
                if let Some(cell) = self.0.get_mut(reason as usize) {
                    *cell = cell.saturating_add(packets);
                }
            }

            /// Total of one reason.
            #[must_use]
            pub fn get(&self, reason: DropReason) -> u64 {
                self.0.get(reason as usize).copied().unwrap_or(0)
            }

            /// Total of all reasons.
            #[must_use]
            pub fn total(&self) -> u64 {
                self.0.iter().sum()
            }
        }
    };
}
