//! Several figures of one thing, under the same labels: declared as a list, published as a list.

use super::{Counter, Gauge, Registry};

/// What a figure is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Dotted name.
    pub name: &'static str,
    /// UCUM unit.
    pub unit: &'static str,
    /// One line.
    pub help: &'static str,
    /// Whether it only rises: a counter. Otherwise a gauge.
    pub rises: bool,
}

/// The cells of one thing.
#[derive(Clone, Debug)]
pub struct Group(Vec<Cell>);

#[derive(Clone, Debug)]
enum Cell {
    Total(Counter),
    Level(Gauge),
}

impl Registry {
    /// A cell for each figure, all with these labels.
    #[must_use]
    pub fn group(
        &self,
        figures: impl IntoIterator<Item = Figure>,
        labels: &[(&'static str, &str)],
    ) -> Group {
        let cell = |figure: Figure| {
            let Figure {
                name, unit, help, ..
            } = figure;
            match figure.rises {
                true => Cell::Total(self.counter(name, unit, help, labels)),
                false => Cell::Level(self.gauge(name, unit, help, labels)),
            }
        };
        Group(figures.into_iter().map(cell).collect())
    }
}

impl Group {
    /// Publishes a value for each figure, in the order they were declared.
    pub fn set(&self, values: impl IntoIterator<Item = u64>) {
        for (cell, value) in self.0.iter().zip(values) {
            match cell {
                Cell::Total(counter) => counter.set_total(value),
                Cell::Level(gauge) => gauge.set_count(value),
            }
        }
    }

    /// The thing is gone: its gauges show 0, its counters stay.
    pub fn retire(&self) {
        for cell in &self.0 {
            if let Cell::Level(gauge) = cell {
                gauge.set_count(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_published_in_order_and_a_retired_group_keeps_its_counters() {
        let registry = Registry::new("test", "n1");
        let figure = |name, rises| Figure {
            name,
            unit: "",
            help: "A figure.",
            rises,
        };
        let group = registry.group([figure("a.level", false), figure("a.total", true)], &[]);
        let shows = |name: &str, value: &str| {
            let shown = registry.prometheus();
            let is = |line: &str| line.starts_with(name) && line.ends_with(value);
            assert!(shown.lines().any(is), "{name}{value} in {shown}");
        };
        group.set([3, 4]);
        shows("firsthop_a_level", " 3");
        shows("firsthop_a_total", " 4");
        group.retire();
        shows("firsthop_a_level", " 0");
        shows("firsthop_a_total", " 4");
    }
}
