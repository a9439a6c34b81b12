//! Orders to a running emulator: one line each, answered by one line of JSON.
//!
//! ```text
//! cut lon fra                      both directions; `lon>fra` one way, `*` for any node
//! heal lon>*
//! set lon>fra loss_ppm=10000 delay_ms=30 bursts={"enter_ppm":100,"leave_ppm":5000}
//! show                             what each direction is set to
//! stats                            what each direction did
//! lateness                         how late packets left; `lateness reset` forgets it afterwards
//! ```

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};

use super::emulator::Emulator;
use super::plan::Direction;

/// A line is no longer than this.
pub(crate) const ORDER_BYTES_MAX: u64 = 4096;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked of an emulator.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Nothing passes from here on, or everything does again.
    Cut(Ends, bool),
    /// Other conditions: fields of a direction and their values.
    Set(Ends, Vec<(String, Value)>),
    /// What each direction is set to.
    Show,
    /// What each direction did.
    Stats,
    /// How late packets left; whether to forget it afterwards.
    Lateness(bool),
}

/// Which directions an order is about. `None` is any node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    from: Option<String>,
    to: Option<String>,
    one_way: bool,
}

/// Why a line is no order.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// No such verb, or something is missing or too much.
    #[error("orders: cut, heal, set, show, stats, lateness")]
    Unknown,
    /// Not `key=value`.
    #[error("`{0}` is no key=value")]
    Pair(String),
}

impl Order {
    /// Reads a line.
    ///
    /// # Errors
    /// No such order, or not as it must be written; the text says which.
    pub fn parse(line: &str) -> Result<Self, OrderError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let order = match words.as_slice() {
            ["show"] => Self::Show,
            ["stats"] => Self::Stats,
            ["lateness"] => Self::Lateness(false),
            ["lateness", "reset"] => Self::Lateness(true),
            ["cut", ends @ ..] => Self::Cut(ends_of(ends)?.0, true),
            ["heal", ends @ ..] => Self::Cut(ends_of(ends)?.0, false),
            ["set", words @ ..] => {
                let (ends, words) = ends_of(words)?;
                let pairs = words.iter().map(|word| pair(word));
                Self::Set(ends, pairs.collect::<Result<_, _>>()?)
            }
            _ => return Err(OrderError::Unknown),
        };
        match (&order, words.len()) {
            (Self::Cut(ends, _), words) if words > if ends.one_way { 2 } else { 3 } => {
                Err(OrderError::Unknown)
            }
            _ => Ok(order),
        }
    }
}

/// `a>b` or `a b`, and the words after it.
fn ends_of<'a, 'b>(words: &'a [&'b str]) -> Result<(Ends, &'a [&'b str]), OrderError> {
    let node = |name: &str| (name != "*").then(|| name.to_owned());
    let (from, to, one_way, rest) = match words {
        [both, rest @ ..] if both.contains('>') => {
            let (from, to) = both.split_once('>').ok_or(OrderError::Unknown)?;
            (from, to, true, rest)
        }
        [from, to, rest @ ..] => (*from, *to, false, rest),
        _ => return Err(OrderError::Unknown),
    };
    let ends = Ends {
        from: node(from),
        to: node(to),
        one_way,
    };
    Ok((ends, rest))
}

fn pair(word: &str) -> Result<(String, Value), OrderError> {
    let broken = || OrderError::Pair(word.to_owned());
    let (key, value) = word.split_once('=').ok_or_else(broken)?;
    let value = serde_json::from_str(value).map_err(|_| broken())?;
    Ok((key.to_owned(), value))
}

impl Ends {
    fn hold(&self, from: &str, to: &str) -> bool {
        let is = |wanted: &Option<String>, node: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == node)
        };
        let there = is(&self.from, from) && is(&self.to, to);
        there || (!self.one_way && is(&self.from, to) && is(&self.to, from))
    }
}

impl Emulator {
    /// Carries out a line; the answer is one line of JSON, with `error` when it was none.
    pub fn obey(&mut self, line: &str) -> Value {
        let done = match Order::parse(line) {
            Ok(order) => self.carry_out(order),
            Err(error) => Err(error.to_string()),
        };
        done.unwrap_or_else(|error| json!({ "error": error }))
    }

    fn carry_out(&mut self, order: Order) -> Result<Value, String> {
        match order {
            Order::Cut(ends, cut) => {
                let fields = [("cut".to_owned(), Value::Bool(cut))];
                self.set(&ends, &fields)
            }
            Order::Set(ends, fields) => self.set(&ends, &fields),
            Order::Show => {
                let ways = self.ways().iter();
                let each =
                    ways.map(|way| json!({ "from": way.from, "to": way.to, "is": way.said }));
                Ok(Value::Array(each.collect()))
            }
            Order::Stats => {
                let counts = self.counts();
                let each = counts
                    .iter()
                    .map(|((from, to), counts)| json!({ "from": from, "to": to, "did": counts }));
                Ok(json!({ "ways": each.collect::<Vec<_>>(), "unrouted": self.unrouted() }))
            }
            Order::Lateness(forget) => {
                let summary = self.lateness().summary();
                if forget {
                    self.clear_lateness();
                }
                serde_json::to_value(summary).map_err(|error| error.to_string())
            }
        }
    }

    /// All of them or none.
    fn set(&mut self, ends: &Ends, fields: &[(String, Value)]) -> Result<Value, String> {
        let mut changes = Vec::new();
        for (index, way) in self.ways().iter().enumerate() {
            if way.from != way.to && ends.hold(&way.from, &way.to) {
                let said = changed(&way.said, fields)?;
                said.conditions().map_err(|error| error.to_string())?;
                changes.push((index, said));
            }
        }
        if changes.is_empty() {
            return Err("no such direction".to_owned());
        }
        let changed = changes.len();
        for (index, said) in changes {
            self.change(index, said)
                .map_err(|error| error.to_string())?;
        }
        Ok(json!({ "changed": changed }))
    }
}

fn changed(said: &Direction, fields: &[(String, Value)]) -> Result<Direction, String> {
    let wrong = |error: serde_json::Error| error.to_string();
    let mut map: Map<String, Value> =
        serde_json::from_value(serde_json::to_value(said).map_err(wrong)?).map_err(wrong)?;
    map.extend(fields.iter().cloned());
    serde_json::from_value(Value::Object(map)).map_err(wrong)
}

/// Gives a line to the emulator that listens at `socket`; returns its answer.
///
/// # Errors
/// Nobody listens, it does not answer, or it refuses.
pub fn ask(socket: &Path, line: &str) -> anyhow::Result<Value> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("connecting to {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE)).context("socket")?;
    writeln!(stream, "{line}").context("asking")?;
    stream.shutdown(Shutdown::Write).context("asking")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("the answer")?;
    let answer: Value = serde_json::from_str(&answer).context("the answer")?;
    if let Some(error) = answer.get("error") {
        bail!("{error}");
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wan::plan::Plan;

    const PLAN: &str = "
name: t
links:
  - { a: { node: a }, b: { node: b }, conditions: { delay_ms: 10 } }
  - { a: { node: a }, b: { node: c }, conditions: { delay_ms: 20 } }
  - { a: { node: b }, b: { node: c }, conditions: { delay_ms: 30 } }
";

    fn emulator() -> Emulator {
        Emulator::new(&Plan::parse(PLAN).unwrap()).unwrap()
    }

    /// Names of the directions that are cut.
    fn cut(emulator: &Emulator) -> Vec<String> {
        let cut = emulator.ways().iter().filter(|way| way.said.cut);
        cut.map(|way| format!("{}{}", way.from, way.to)).collect()
    }

    #[test]
    fn orders_reach_the_directions_they_name_and_no_other() {
        let cases: [(&str, &[&str]); 5] = [
            ("cut a b", &["ab", "ba"]),
            ("cut b>c", &["bc"]),
            ("cut *>a", &["ba", "ca"]),
            ("cut a *", &["ab", "ba", "ac", "ca"]),
            ("cut * *", &["ab", "ba", "ac", "ca", "bc", "cb"]),
        ];
        for (line, expected) in cases {
            let mut emulator = emulator();
            let answer = emulator.obey(line);
            assert_eq!(answer, json!({ "changed": expected.len() }), "{line}");
            assert_eq!(cut(&emulator), expected, "{line}");
            emulator.obey("heal * *");
            assert!(cut(&emulator).is_empty());
        }
    }

    #[test]
    fn a_field_is_set_and_the_others_stay() {
        let mut emulator = emulator();
        emulator.obey(r#"set a>b loss_ppm=0 bursts={"enter_ppm":5,"leave_ppm":9} jitter_ms=1.5"#);
        let said = &emulator.ways()[0].said;
        assert_eq!((said.delay_ms, said.jitter_ms), (Some(10.0), 1.5));
        assert_eq!(said.bursts.unwrap().leave_ppm, 9);
        let shown = emulator.obey("show");
        assert_eq!(shown[0]["is"]["jitter_ms"], json!(1.5));
        assert_eq!(shown[1]["is"]["jitter_ms"], json!(0.0));
    }

    #[test]
    fn what_is_no_order_changes_nothing_and_says_why() {
        let mut emulator = emulator();
        for (line, why) in [
            ("", "orders:"),
            ("burn a b", "orders:"),
            ("cut a", "orders:"),
            ("cut a b c", "orders:"),
            ("cut a d", "no such direction"),
            ("set a b loss", "`loss` is no key=value"),
            ("set a b los_ppm=1", "unknown field"),
            ("set a b loss_ppm=1000001", "out of range"),
            ("set * * delay_ms=-1", "out of range"),
        ] {
            let before = emulator.obey("show");
            let answer = emulator.obey(line);
            let error = answer["error"].as_str().unwrap();
            assert!(error.contains(why), "{line}: {error}");
            assert_eq!(emulator.obey("show"), before);
        }
    }

    #[test]
    fn figures_are_shown_and_lateness_can_be_forgotten() {
        let mut emulator = emulator();
        emulator.buffer()[..1].copy_from_slice(b"x");
        emulator.accept(0, 1, Duration::ZERO);
        emulator.deliver(Duration::from_millis(11), |_, _| true);
        let stats = emulator.obey("stats");
        assert_eq!(stats["ways"][0]["did"]["delivered"], json!(1));
        assert_eq!(emulator.obey("lateness reset")["count"], json!(1));
        assert_eq!(emulator.obey("lateness")["count"], json!(0));
    }
}
