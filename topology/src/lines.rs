//! Which line of a YAML text a field is on. Built only when an error must be placed (or an anchor refused), so its
//! parser has no say in what a valid file means.
//!
//! ```text
//! regions:              line 1   regions
//!   - name: eu          line 2   regions[0], regions[0].name
//!     id: 1             line 3   regions[0].id
//! ```

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser};

/// Bounds of the index; what lies beyond is placed at its nearest indexed parent. A topology nests 7 deep, its
/// longest path has about 60 bytes.
const DEPTH_MAX: usize = 16;
const PATH_BYTES_MAX: usize = 256;
const FIELDS_MAX: usize = 200_000;

/// Line of every field path, and what a deserialiser does not place well.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Lines {
    lines: BTreeMap<String, usize>,
    /// Keys given twice: path, first line, second line.
    pub(crate) duplicate_keys: Vec<(String, usize, usize)>,
    /// First anchor or alias.
    pub(crate) alias: Option<(String, usize)>,
    /// Where the second document starts.
    pub(crate) second_document: Option<usize>,
}

/// A collection that is open while the events pass by.
enum Open {
    Mapping {
        path: String,
        key: Key,
    },
    Sequence {
        path: String,
        next: usize,
    },
    /// Beyond the bounds, or a key: counted to stay in step, not indexed.
    Ignored,
}

/// What the next event of a mapping is.
enum Key {
    /// A key.
    Next,
    /// The value of the key with this path.
    Named(String),
    /// The value of a key that is not a scalar.
    Ignored,
}

impl Lines {
    /// Indexes as much of `text` as parses.
    pub(crate) fn of(text: &str) -> Self {
        let mut lines = Self::default();
        let mut open = Vec::new();
        let mut documents = 0_usize;
        for event in Parser::new_from_str(text) {
            let Ok((event, span)) = event else { break };
            if matches!(event, Event::DocumentStart(_)) {
                documents += 1;
            }
            if documents > 1 {
                lines.second_document = Some(span.start.line());
                break;
            }
            lines.take(&event, span.start.line(), &mut open);
        }
        lines
    }

    /// Whether there is nothing in the text: no key, no value.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The line of `path`, or of its nearest parent that is in the file.
    pub(crate) fn line(&self, path: &str) -> usize {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return *line;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = path.get(..end).unwrap_or_default(),
                None => return self.lines.get("").copied().unwrap_or(1),
            }
        }
    }

    fn take(&mut self, event: &Event<'_>, line: usize, open: &mut Vec<Open>) {
        match event {
            Event::Scalar(text, _, anchor, _) => {
                if let Some(Open::Mapping { path, key }) = open.last_mut()
                    && matches!(key, Key::Next)
                {
                    self.anchored(*anchor, path, line);
                    *key = child(path, text).map_or(Key::Ignored, |path| {
                        self.key(&path, line);
                        Key::Named(path)
                    });
                } else {
                    let path = self.place(line, open);
                    self.anchored(*anchor, &path.unwrap_or_default(), line);
                }
            }
            Event::Alias(anchor) => {
                let path = self.place(line, open);
                self.anchored((*anchor).max(1), &path.unwrap_or_default(), line);
            }
            Event::SequenceStart(anchor, _) => {
                let path = self.place(line, open);
                self.anchored(*anchor, path.as_deref().unwrap_or_default(), line);
                open.push(path.map_or(Open::Ignored, |path| Open::Sequence { path, next: 0 }));
            }
            Event::MappingStart(anchor, _) => {
                let path = self.place(line, open);
                self.anchored(*anchor, path.as_deref().unwrap_or_default(), line);
                open.push(path.map_or(Open::Ignored, |path| Open::Mapping {
                    path,
                    key: Key::Next,
                }));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {}
        }
    }

    /// The path of the value that starts here, recorded; `None` when it has none we index.
    fn place(&mut self, line: usize, open: &mut [Open]) -> Option<String> {
        let depth = open.len();
        let path = match open.last_mut() {
            None => String::new(),
            Some(Open::Mapping { key, .. }) => {
                let at_key = matches!(key, Key::Next);
                match std::mem::replace(key, if at_key { Key::Ignored } else { Key::Next }) {
                    Key::Named(path) => path,
                    Key::Next | Key::Ignored => return None,
                }
            }
            Some(Open::Sequence { path, next }) => {
                let path = format!("{path}[{next}]");
                *next += 1;
                path
            }
            Some(Open::Ignored) => return None,
        };
        let bounded =
            depth < DEPTH_MAX && path.len() <= PATH_BYTES_MAX && self.lines.len() < FIELDS_MAX;
        bounded.then(|| {
            self.lines.entry(path.clone()).or_insert(line);
            path
        })
    }

    fn key(&mut self, path: &str, line: usize) {
        if let Some(first) = self.lines.get(path) {
            self.duplicate_keys.push((path.to_owned(), *first, line));
        } else {
            self.lines.insert(path.to_owned(), line);
        }
    }

    fn anchored(&mut self, anchor: usize, path: &str, line: usize) {
        if anchor != 0 && self.alias.is_none() {
            self.alias = Some((path.to_owned(), line));
        }
    }
}

fn child(path: &str, key: &str) -> Option<String> {
    (path.len() + key.len() < PATH_BYTES_MAX).then(|| match path {
        "" => key.to_owned(),
        _ => format!("{path}.{key}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_line() {
        let lines = Lines::of("a: 1\nb:\n  - c: 2\n    d: [3,\n      4]\n  - c: 5\n");
        for (path, line) in [
            ("", 1),
            ("a", 1),
            ("b", 2),
            ("b[0]", 3),
            ("b[0].c", 3),
            ("b[0].d", 4),
            ("b[0].d[0]", 4),
            ("b[0].d[1]", 5),
            ("b[1].c", 6),
            ("b[1].absent", 6),
            ("b[7].c", 2),
            ("absent.too", 1),
        ] {
            assert_eq!(lines.line(path), line, "{path}");
        }
    }

    #[test]
    fn what_serde_places_badly_is_placed() {
        let lines = Lines::of("a: &x 1\nb: *x\na: 2\n---\nc: 3\n");
        assert_eq!(lines.duplicate_keys, [("a".to_owned(), 1, 3)]);
        assert_eq!(lines.alias, Some(("a".to_owned(), 1)));
        assert_eq!(lines.second_document, Some(4));
    }

    #[test]
    fn a_complex_key_does_not_shift_what_follows() {
        let lines = Lines::of("? [x, {y: 1}]\n: z\nb: 2\n");
        assert_eq!(lines.line("b"), 3);
    }
}
