//! YAML files of the lab: read into a type, or one line that says where and what. It is never longer than a person reads: what a
//! parser says of a wrong file may have all of it in.

use std::fmt;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde::de::DeserializeOwned;

/// Characters of a parser's words that are shown.
const SHOWN_MAX: usize = 400;

/// What is wrong, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Wrong {
    line: Option<usize>,
    what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// A text as a value.
///
/// # Errors
/// It is none.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Wrong> {
    serde_yaml::from_str(text).map_err(|error| {
        let at = error.location();
        let said = error.to_string();
        // It stands in front.
        let said = said
            .rsplit_once(" at line ")
            .map_or(&*said, |(what, _)| what);
        Wrong {
            line: at.map(|at| at.line()),
            what: short(said),
        }
    })
}

/// A file as a value.
///
/// # Errors
/// It is not there, or none; `FILE:LINE: what`.
pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let file = path.display();
    let text = std::fs::read_to_string(path).with_context(|| file.to_string())?;
    parse(&text).map_err(|wrong| anyhow!(wrong.at(&file.to_string())))
}

impl Wrong {
    /// What is wrong with the value of `key`, which `text` says somewhere.
    #[must_use]
    pub fn of_key(text: &str, key: &str, what: &str) -> Self {
        let says = |line: &str| {
            let code = line.split('#').next().unwrap_or_default();
            code.contains(&format!("{key}:"))
        };
        Self {
            line: text.lines().position(says).map(|before| before + 1),
            what: what.to_owned(),
        }
    }

    /// With the name of its file: `FILE:LINE: what`.
    #[must_use]
    pub fn at(&self, file: &str) -> String {
        let what = &self.what;
        match self.line {
            Some(line) => format!("{file}:{line}: {what}"),
            None => format!("{file}: {what}"),
        }
    }
}

/// The beginning and the end, in one line.
fn short(text: &str) -> String {
    let one: Vec<char> = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .collect();
    let half = SHOWN_MAX / 2;
    match (one.get(..half), one.get(one.len().saturating_sub(half)..)) {
        (Some(first), Some(last)) if one.len() > SHOWN_MAX => {
            let part = |part: &[char]| part.iter().collect::<String>();
            format!("{} ... {}", part(first), part(last))
        }
        _ => one.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Plain {
        #[serde(rename = "number")]
        _number: u32,
    }

    #[test]
    fn a_wrong_value_is_found_by_its_key() {
        let text = "# bfd_ms: of BFD\nnetwork:\n  bfd_ms: 1\n";
        let wrong = Wrong::of_key(text, "bfd_ms", "too short");
        assert_eq!(wrong.at("a.yaml"), "a.yaml:3: too short");
        let nowhere = Wrong::of_key(text, "hold_s", "too short");
        assert_eq!(nowhere.at("a.yaml"), "a.yaml: too short");
    }

    #[test]
    fn an_error_says_where_and_never_repeats_the_file() {
        let wrong = parse::<Plain>("\nnumber: 1\nnubmer: 2\n").unwrap_err();
        assert!(wrong.to_string().starts_with("line 3: "), "{wrong}");
        assert!(!wrong.to_string().contains("column"), "{wrong}");
        let prose = "a text that is no mapping ".repeat(1000);
        let wrong = parse::<Plain>(&prose).unwrap_err().to_string();
        assert!(
            wrong.len() < 500 && wrong.contains("expected struct Plain"),
            "{wrong}"
        );
    }
}
