//! What can be done to a world while it runs. One line each, the same in a scenario, on the command line and on the lab's socket.
//!
//! ```text
//! kill NODE              kill -9 of its program; BIRD lives on
//! start NODE             starts it again
//! stop NODE              SIGSTOP: it stands still
//! cont NODE              SIGCONT
//! term NODE              SIGTERM: it ends as it was made to
//! kill-bird POP          kill -9 of BIRD: of a PoP, a router or an ISP
//! start-bird POP
//! power-off NODE         its wires are dead first, then all its processes: nobody hears of it
//! power-on NODE
//! withdraw POP           BIRD takes the VIPs back, and `pop` serves on
//! announce POP           and announces them again
//! drain POP              as `firsthop drain` does
//! undrain POP
//! cut A B, cut A>B       wires, see the WAN emulator: also `heal` and `set`
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// See the module head.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Fault {
    /// `kill -9`.
    Kill(String),
    /// Starts what was killed.
    Start(String),
    /// `SIGSTOP`.
    Stop(String),
    /// `SIGCONT`.
    Cont(String),
    /// `SIGTERM`.
    Term(String),
    /// `kill -9` of BIRD.
    KillBird(String),
    /// Starts BIRD.
    StartBird(String),
    /// Dead wires, then `kill -9` of everything.
    PowerOff(String),
    /// Live wires, then everything is started.
    PowerOn(String),
    /// BIRD takes the VIPs back.
    Withdraw(String),
    /// BIRD announces them again.
    Announce(String),
    /// `POST /v1/drain`.
    Drain(String),
    /// `POST /v1/undrain`.
    Undrain(String),
    /// An order to the WAN emulator.
    Wan(String),
}

/// A line that is no fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no fault: kill, start, stop, cont, term, kill-bird, start-bird, power-off, power-on, withdraw, announce, drain or \
     undrain, and a node; cut, heal or set, and wires"
)]
pub struct FaultError(String);

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(line: &str) -> Result<Self, FaultError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let fault = match words.as_slice() {
            ["cut" | "heal" | "set", _, ..] => Self::Wan(words.join(" ")),
            [verb, node] => {
                verb_of(verb).ok_or_else(|| FaultError(line.to_owned()))?((*node).to_owned())
            }
            _ => return Err(FaultError(line.to_owned())),
        };
        Ok(fault)
    }
}

/// A fault of the node of this name.
type Make = fn(String) -> Fault;

/// Verbs with a node.
const VERBS: &[(&str, Make)] = &[
    ("kill", Fault::Kill),
    ("start", Fault::Start),
    ("stop", Fault::Stop),
    ("cont", Fault::Cont),
    ("term", Fault::Term),
    ("kill-bird", Fault::KillBird),
    ("start-bird", Fault::StartBird),
    ("power-off", Fault::PowerOff),
    ("power-on", Fault::PowerOn),
    ("withdraw", Fault::Withdraw),
    ("announce", Fault::Announce),
    ("drain", Fault::Drain),
    ("undrain", Fault::Undrain),
];

fn verb_of(name: &str) -> Option<Make> {
    let mut verbs = VERBS.iter();
    verbs.find(|(verb, _)| *verb == name).map(|(_, make)| *make)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(node) => write!(f, "kill {node}"),
            Self::Start(node) => write!(f, "start {node}"),
            Self::Stop(node) => write!(f, "stop {node}"),
            Self::Cont(node) => write!(f, "cont {node}"),
            Self::Term(node) => write!(f, "term {node}"),
            Self::KillBird(node) => write!(f, "kill-bird {node}"),
            Self::StartBird(node) => write!(f, "start-bird {node}"),
            Self::PowerOff(node) => write!(f, "power-off {node}"),
            Self::PowerOn(node) => write!(f, "power-on {node}"),
            Self::Withdraw(node) => write!(f, "withdraw {node}"),
            Self::Announce(node) => write!(f, "announce {node}"),
            Self::Drain(node) => write!(f, "drain {node}"),
            Self::Undrain(node) => write!(f, "undrain {node}"),
            Self::Wan(order) => f.write_str(order),
        }
    }
}

impl TryFrom<String> for Fault {
    type Error = FaultError;

    fn try_from(line: String) -> Result<Self, FaultError> {
        line.parse()
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        fault.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_is_written() {
        for (verb, make) in VERBS {
            let line = format!("{verb} lon");
            let fault = make("lon".to_owned());
            assert_eq!(line.parse(), Ok(fault.clone()));
            assert_eq!(fault.to_string(), line);
        }
        let cut = "cut lon>r-lon".parse();
        assert_eq!(cut, Ok(Fault::Wan("cut lon>r-lon".to_owned())));
        for line in ["", "kill", "kill a b", "explode lon", "cut", "lon kill"] {
            assert!(line.parse::<Fault>().is_err(), "{line}");
        }
    }
}
