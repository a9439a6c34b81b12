//! Reads Prometheus text, as far as tests need it.

use std::collections::BTreeMap;

/// One scrape.
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Scrape {
    /// Of `/metrics`; lines that are no samples are skipped.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let samples = text.lines().filter_map(sample).collect();
        Self { samples }
    }

    /// Sum over all samples of this name that carry all of `labels`; 0 when there is none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.of(name)
            .filter(|sample| {
                labels
                    .iter()
                    .all(|(key, value)| sample.labels.get(*key).is_some_and(|own| own == value))
            })
            .map(|sample| sample.value)
            .sum()
    }

    /// Sum by the value of one label.
    #[must_use]
    pub fn by_label(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for sample in self.of(name) {
            if let Some(value) = sample.labels.get(label) {
                *sums.entry(value.clone()).or_insert(0.0) += sample.value;
            }
        }
        sums
    }

    /// Whether there is any sample of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.of(name).next().is_some()
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples
            .iter()
            .filter(move |sample| sample.name == name)
    }
}

fn sample(line: &str) -> Option<Sample> {
    if line.starts_with('#') {
        return None;
    }
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (series, ""),
    };
    let labels = labels
        .split("\",")
        .filter_map(|label| label.split_once("=\""))
        .map(|(key, value)| (key.to_owned(), value.trim_end_matches('"').to_owned()))
        .collect();
    Some(Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_by_name_and_label() {
        let scrape = Scrape::parse(
            "# TYPE drops counter\ndrops{reason=\"a\",worker=\"0\"} 3\ndrops{reason=\"a\",worker=\"1\"} 4\ndrops{reason=\"b\"} 1\nup 1\n",
        );
        assert_eq!(scrape.sum("drops", &[("reason", "a")]), 7.0);
        assert_eq!(scrape.sum("drops", &[]), 8.0);
        assert_eq!(scrape.by_label("drops", "reason").get("b"), Some(&1.0));
        assert!(scrape.has("up") && !scrape.has("down"));
    }
}
