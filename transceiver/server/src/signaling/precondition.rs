//! `If-Match` (RFC 9110 §13.1.1) as WHIP uses it (RFC 9725 §4.3.1).

use crate::engine::handle::Precondition;

/// Entity tags in one request at most; a session has only one that matches.
pub const ENTITY_TAGS_MAX: usize = 4;

/// Why `If-Match` is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IfMatchError {
    /// There is none: 428 (RFC 6585 §3).
    #[error("missing")]
    Missing,
    /// Not `*` and not a list of entity tags: 400.
    #[error("malformed")]
    Malformed,
}

/// Parses the values of all `If-Match` field lines: `*` alone, or entity tags.
///
/// The examples of RFC 9725 §4.3.3 write `If-Match: "*"`, quoted, and clients copy them; that is taken as `*` too,
/// since no entity tag of ours is a star. Weak tags never match (strong comparison, RFC 9110 §8.8.3.2), so they are dropped.
///
/// # Errors
/// See [`IfMatchError`].
pub fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Precondition>, IfMatchError> {
    let mut tags = Vec::new();
    let mut any_line = false;
    for line in lines {
        any_line = true;
        let line = std::str::from_utf8(line).map_err(|_| IfMatchError::Malformed)?;
        parse_line(line, &mut tags)?;
    }
    if any_line {
        Ok(tags)
    } else {
        Err(IfMatchError::Missing)
    }
}

fn parse_line(line: &str, tags: &mut Vec<Precondition>) -> Result<(), IfMatchError> {
    let mut rest = line.trim_matches([' ', '\t']);
    if rest.is_empty() {
        return Err(IfMatchError::Malformed);
    }
    loop {
        let (tag, after) = first_tag(rest).ok_or(IfMatchError::Malformed)?;
        if let Some(tag) = tag {
            if tags.len() == ENTITY_TAGS_MAX {
                return Err(IfMatchError::Malformed);
            }
            tags.push(tag);
        }
        let after = after.trim_start_matches([' ', '\t']);
        if after.is_empty() {
            return Ok(());
        }
        rest = after
            .strip_prefix(',')
            .ok_or(IfMatchError::Malformed)?
            .trim_start_matches([' ', '\t']);
    }
}

/// The first entity tag (`None` in it for a weak one) and what follows it.
fn first_tag(text: &str) -> Option<(Option<Precondition>, &str)> {
    if let Some(after) = text.strip_prefix('*') {
        return Some((Some(Precondition::Any), after));
    }
    let (weak, opaque) = match text.strip_prefix("W/") {
        Some(opaque) => (true, opaque),
        None => (false, text),
    };
    let (tag, after) = opaque.strip_prefix('"')?.split_once('"')?;
    let etagc = |b: u8| b == 0x21 || (0x23..=0x7e).contains(&b) || b >= 0x80;
    if !tag.bytes().all(etagc) {
        return None;
    }
    let precondition = match (weak, tag) {
        (true, _) => None,
        (false, "*") => Some(Precondition::Any),
        (false, tag) => Some(Precondition::Etag(tag.to_owned())),
    };
    Some((precondition, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        use IfMatchError::{Malformed, Missing};
        let etag = |tag: &str| Precondition::Etag(tag.to_owned());
        let any = Precondition::Any;
        for (lines, expected) in [
            (&[][..], Err(Missing)),
            (&["*"], Ok(vec![any.clone()])),
            (&["\"*\""], Ok(vec![any.clone()])),
            (&["\"abc\""], Ok(vec![etag("abc")])),
            (&["  \"abc\"\t"], Ok(vec![etag("abc")])),
            (
                &["\"a\", \"b\" ,\"c\""],
                Ok(vec![etag("a"), etag("b"), etag("c")]),
            ),
            (&["\"a\"", "\"b\""], Ok(vec![etag("a"), etag("b")])),
            (&["\"a,b\""], Ok(vec![etag("a,b")])),
            (&["\"\""], Ok(vec![etag("")])),
            (&["W/\"abc\""], Ok(vec![])),
            (&["W/\"abc\", \"abc\""], Ok(vec![etag("abc")])),
            (&[""], Err(Malformed)),
            (&["abc"], Err(Malformed)),
            (&["\"abc"], Err(Malformed)),
            (&["\"a\" \"b\""], Err(Malformed)),
            (&["\"a\","], Err(Malformed)),
            (&["\"a b\""], Err(Malformed)),
            (&["\"1\",\"2\",\"3\",\"4\",\"5\""], Err(Malformed)),
        ] {
            let parsed = parse(lines.iter().map(|line| line.as_bytes()));
            assert_eq!(parsed, expected, "{lines:?}");
        }
        assert_eq!(parse([&b"\"\xff\""[..]].into_iter()), Err(Malformed));
    }
}
