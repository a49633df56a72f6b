//! Splits a SQL script into statements. Their meaning is the engine's business.

use std::ops::Range;

/// The range of each statement, with the comments before it and without the semicolon. Blanks and comments alone are no
/// statement.
pub fn statements(script: &str) -> Vec<Range<usize>> {
    let bytes = script.as_bytes();
    let (mut found, mut start, mut has_token, mut at) = (Vec::new(), 0, false, 0);
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let (length, is_token) = match byte {
            b';' => {
                if has_token {
                    found.push(start..at);
                }
                (start, has_token) = (at + 1, false);
                (1, false)
            }
            b'\'' => (text_length(rest, is_escaped(bytes, at)), true),
            b'"' => (1 + find(&rest[1..], b"\"").map_or(rest.len(), |end| end + 1), true),
            b'-' if rest.starts_with(b"--") => (find(rest, b"\n").unwrap_or(rest.len()), false),
            b'/' if rest.starts_with(b"/*") => (comment_length(rest), false),
            b'$' => (dollar_length(bytes, at), true),
            _ => (1, !byte.is_ascii_whitespace()),
        };
        has_token |= is_token;
        at += length;
    }
    if has_token {
        found.push(start..script.len());
    }
    found
}

/// One statement with everything before it blanked, so that the engine's errors name the line in the script.
pub fn in_place(script: &str, statement: &Range<usize>) -> String {
    let blank = |letter: char| if letter == '\n' { '\n' } else { ' ' };
    let before = script.get(..statement.start).unwrap_or_default().chars().map(blank);
    before.chain(script.get(statement.clone()).unwrap_or_default().chars()).collect()
}

/// `LINE 3: SELECT x` with a caret below the error, as the engine shows it.
pub(super) fn error_position(sql: &str, position: usize) -> String {
    const BEFORE_MAX: usize = 40;
    const AFTER_MAX: usize = 30;
    let position = (0..=position.min(sql.len())).rev().find(|at| sql.is_char_boundary(*at)).unwrap_or(0);
    let (before, after) = sql.split_at(position);
    let line = before.matches('\n').count() + 1;
    let before = before.rsplit('\n').next().unwrap_or_default();
    let after = after.split('\n').next().unwrap_or_default();
    let skipped = before.chars().count().saturating_sub(BEFORE_MAX);
    let dots = if skipped > 0 { "..." } else { "" };
    let shown: String = before.chars().skip(skipped).map(|letter| if letter == '\t' { ' ' } else { letter }).collect();
    let more = if after.chars().count() > AFTER_MAX { "..." } else { "" };
    let after: String = after.chars().take(AFTER_MAX).collect();
    let head = format!("LINE {line}: {dots}{shown}");
    format!("{head}{after}{more}\n{}^", " ".repeat(head.chars().count()))
}

/// Returns true if the quote opens a text of the form E'...', in which a backslash escapes a quote.
fn is_escaped(bytes: &[u8], quote: usize) -> bool {
    let before = |back: usize| quote.checked_sub(back).and_then(|at| bytes.get(at)).copied();
    matches!(before(1), Some(b'e' | b'E')) && !before(2).is_some_and(is_of_name)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Length of a quoted text. A doubled quote ends one text and begins the next, with the same result.
fn text_length(rest: &[u8], is_escaped: bool) -> usize {
    let mut at = 1;
    while let Some(byte) = rest.get(at) {
        match byte {
            b'\\' if is_escaped => at += 2,
            b'\'' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a block comment, which may contain others.
fn comment_length(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while at < rest.len() {
        match rest.get(at..at + 2) {
            Some(b"/*") => (at, depth) = (at + 2, depth + 1),
            Some(b"*/") => {
                (at, depth) = (at + 2, depth.saturating_sub(1));
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a text between $tags$; 1 where the dollar begins none.
fn dollar_length(bytes: &[u8], at: usize) -> usize {
    if at.checked_sub(1).and_then(|before| bytes.get(before)).copied().is_some_and(is_of_name) {
        return 1;
    }
    let rest = &bytes[at..];
    let Some(tag) = find(&rest[1..], b"$").map(|end| &rest[..end + 2]) else { return 1 };
    let name = &tag[1..tag.len() - 1];
    if !name.iter().copied().all(is_of_name) || name.first().is_some_and(u8::is_ascii_digit) {
        return 1;
    }
    find(&rest[tag.len()..], tag).map_or(rest.len(), |end| tag.len() + end + tag.len())
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(script: &str) -> Vec<&str> {
        statements(script).into_iter().map(|range| script[range].trim()).collect()
    }

    #[test]
    fn statements_end_at_semicolons_outside_texts_and_comments() {
        assert_eq!(split("SELECT 1"), ["SELECT 1"]);
        assert_eq!(split(" ;; SELECT 1;\n-- no more; really\n/* nor; here */ ;"), ["SELECT 1"]);
        assert_eq!(split("-- why; how?\nSELECT 1; SELECT 2"), ["-- why; how?\nSELECT 1", "SELECT 2"]);
        for whole in [
            "SELECT ';', 'it''s; fine', \";\" FROM t",
            "SELECT E'\\';' AS one",
            "SELECT $$ ; $$, $tag$ ; $$ ; $tag$",
            "SELECT /* ; /* ; */ ; */ 1",
            "SELECT 'é;ß' -- ende;",
            "SELECT 'never closed; ",
            "SELECT $1, a$b FROM t",
        ] {
            assert_eq!(
                split(&format!("{whole}\n; SELECT 2")).len(),
                if whole.contains("never") { 1 } else { 2 },
                "{whole}"
            );
        }
        assert_eq!(split("SELECT 'a\\'; SELECT 2").len(), 2, "a backslash spares no quote of a plain text");
        assert_eq!(split("SELECT name'x' FROM t; SELECT $1; SELECT 3").len(), 3);
        assert_eq!(split("-- nothing"), Vec::<&str>::new());
    }

    #[test]
    fn a_statement_keeps_its_place_and_errors_show_it() {
        let script = "SELECT 1;\nSELECT é;";
        let second = in_place(script, &statements(script)[1]);
        assert_eq!(second, "         \nSELECT é");
        assert_eq!(error_position(&second, 17), "LINE 2: SELECT é\n               ^");
        assert_eq!(error_position("SELEKT 1", 0), "LINE 1: SELEKT 1\n        ^");
        let long = format!("SELECT {}, x y z", "a, ".repeat(60));
        let shown = error_position(&long, long.len() - 1);
        assert!(shown.lines().all(|line| line.chars().count() <= 80) && shown.contains("..."), "{shown}");
        assert_eq!(
            shown.lines().map(|line| line.chars().count()).collect::<Vec<_>>()[1],
            shown.lines().next().unwrap().len()
        );
    }
}
