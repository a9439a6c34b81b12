//! From text to a [`Topology`] that cannot be wrong. The only file that imports the YAML deserialiser.
//!
//! It reads no file: the caller has the text. Shape errors come from the deserialiser, one at a time; meaning errors
//! from `check`, all at once.

use serde::Serialize;

use crate::check;
use crate::error::{LoadError, LoadErrors, Problem};
use crate::lines::Lines;
use crate::model::Topology;

/// Longest text that is read, in bytes: some ten thousand nodes.
pub const TEXT_BYTES_MAX: usize = 2 << 20;

/// Longest line that is read, in bytes.
pub const LINE_BYTES_MAX: usize = 4096;

/// Brackets that may be open at once, those in comments and strings included. A topology needs 4.
const BRACKETS_MAX: usize = 64;

/// Reads and checks a topology. `file_name` is only for the errors.
///
/// # Errors
/// The first shape error, or all meaning errors (bounded), each with file, line and field.
pub fn load(text: &str, file_name: &str) -> Result<Topology, LoadErrors> {
    // The parsers put the end of the text, and breaks that editors do not know, on lines of their own.
    let place = |line: usize, field: &str, problem| LoadError {
        file_name: file_name.to_owned(),
        line: line.min(text.lines().count()).max(1),
        field: field_or_root(field),
        problem,
    };
    let refuse = |error| Err(LoadErrors::new(vec![error]));

    if let Some((line, problem)) = out_of_bounds(text) {
        return refuse(place(line, "", problem));
    }
    // An alias makes a small text a large tree. Without an anchor there is none, and no need to look.
    if text.contains('&')
        && let Some((field, line)) = Lines::of(text).alias
    {
        return refuse(place(line, &field, Problem::Alias));
    }
    let topology = match serde_yaml::from_str::<Topology>(text) {
        Ok(topology) => topology,
        Err(error) => {
            let (line, field, problem) = shape_error(&error, &Lines::of(text));
            return refuse(place(line, &field, problem));
        }
    };
    let findings = check::check(&topology);
    if findings.is_empty() {
        return Ok(topology);
    }
    let lines = Lines::of(text);
    Err(LoadErrors::new(
        findings
            .into_iter()
            .map(|finding| place(lines.line(&finding.field), &finding.field, finding.problem))
            .collect(),
    ))
}

/// YAML parsers take quadratic time for deep nesting, so depth is bounded before one sees the text: depth needs
/// brackets, a long line (`- - - -`), or indentation, which makes lines long.
fn out_of_bounds(text: &str) -> Option<(usize, Problem)> {
    if text.len() > TEXT_BYTES_MAX {
        let (found, max) = (text.len(), TEXT_BYTES_MAX);
        return Some((1, Problem::TooLarge { found, max }));
    }
    let mut open = 0_usize;
    for (i, line) in text.lines().enumerate() {
        let (found, max) = (line.len(), LINE_BYTES_MAX);
        if found > max {
            return Some((i + 1, Problem::LongLine { found, max }));
        }
        for byte in line.bytes() {
            open = match byte {
                b'[' | b'{' => open + 1,
                b']' | b'}' => open.saturating_sub(1),
                _ => open,
            };
            if open > BRACKETS_MAX {
                return Some((i + 1, Problem::TooDeep { max: BRACKETS_MAX }));
            }
        }
    }
    None
}

/// `value` as YAML, for people: what `--print-config` shows. `None` when YAML has no form for it, which does not
/// happen to types of this crate.
#[must_use]
pub fn to_yaml<T: Serialize>(value: &T) -> Option<String> {
    serde_yaml::to_string(value).ok()
}

fn field_or_root(field: &str) -> String {
    if field.is_empty() { "topology" } else { field }.to_owned()
}

/// Line, field and kind of what the deserialiser said. It says it as text: `path: message at line L column C`.
fn shape_error(error: &serde_yaml::Error, lines: &Lines) -> (usize, String, Problem) {
    if let Some(line) = lines.second_document {
        return (line, String::new(), Problem::SecondDocument);
    }
    let location = error.location();
    let whole = error.to_string();
    let text = location.as_ref().map_or(whole.as_str(), |location| {
        let suffix = format!(" at line {} column {}", location.line(), location.column());
        whole.strip_suffix(&suffix).unwrap_or(&whole)
    });
    let (parent, message) = split_path(text);
    let line = location.map_or_else(|| lines.line(parent), |location| location.line());

    if let Some((key, expected)) = quoted_after(message, "unknown field `") {
        let expected = expected.trim_start_matches(", expected ").replace('`', "");
        let field = join(parent, key);
        return (line, field, Problem::UnknownKey { expected });
    }
    if let Some((key, _)) = quoted_after(message, "missing field `") {
        let nothing = parent.is_empty() && lines.is_empty();
        return match nothing {
            true => (1, String::new(), Problem::Empty),
            false => (line, join(parent, key), Problem::MissingKey),
        };
    }
    if let Some((key, _)) = quoted_after(message, "duplicate field `") {
        return duplicate_key(join(parent, key), line, lines);
    }
    let message = message.to_owned();
    if parent.is_empty() && !is_typed(&message) {
        (line, String::new(), Problem::Syntax { message })
    } else {
        (line, parent.to_owned(), Problem::BadValue { message })
    }
}

fn duplicate_key(field: String, line: usize, lines: &Lines) -> (usize, String, Problem) {
    let found = lines
        .duplicate_keys
        .iter()
        .find(|(path, ..)| *path == field);
    let (first_line, line) = found.map_or((line, line), |(_, first, second)| (*first, *second));
    (line, field, Problem::DuplicateKey { first_line })
}

/// Messages of serde about a value, as opposed to those of the YAML parser about the text.
fn is_typed(message: &str) -> bool {
    message.starts_with("invalid ")
}

/// Splits `regions[0].id: message`; the path is empty at the root.
fn split_path(text: &str) -> (&str, &str) {
    let is_path = |path: &str| {
        path.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.[]?".contains(&byte))
    };
    match text.split_once(": ") {
        Some((path, message)) if is_path(path) => (path.trim_end_matches(".?"), message),
        Some(_) | None => ("", text),
    }
}

/// The text up to the next backquote behind `prefix`, and the rest.
fn quoted_after<'a>(message: &'a str, prefix: &str) -> Option<(&'a str, &'a str)> {
    message.strip_prefix(prefix)?.split_once('`')
}

fn join(parent: &str, key: &str) -> String {
    if parent.is_empty() {
        key.to_owned()
    } else {
        format!("{parent}.{key}")
    }
}
