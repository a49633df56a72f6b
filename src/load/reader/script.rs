//! Splits a SQL script into statements. Knows only texts, quoted names and comments; the engine parses the statements.

use std::ops::Range;

/// A part of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub kind: TokenKind,
    /// The bytes of the token in the script.
    pub range: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// White space, or a comment.
    Blank,
    /// A keyword, an unquoted name or a number.
    Word,
    /// A text in quotes, or a quoted name.
    Quoted,
    /// A semicolon, a parenthesis or another sign: one byte.
    Sign(u8),
}

/// Splits a script into tokens, which cover it completely.
pub(super) fn tokens(script: &str) -> impl Iterator<Item = Token> + '_ {
    let bytes = script.as_bytes();
    let mut position = 0;
    std::iter::from_fn(move || {
        let &byte = bytes.get(position)?;
        let rest = &bytes[position..];
        let run = |is_part: fn(u8) -> bool| rest.iter().take_while(|byte| is_part(**byte)).count();
        let (length, kind) = match byte {
            b'\'' => (text_length(rest, has_escapes(bytes, position)), TokenKind::Quoted),
            b'"' => (1 + find(&rest[1..], b"\"").map_or(rest.len(), |end| end + 1), TokenKind::Quoted),
            b'-' if rest.starts_with(b"--") => (find(rest, b"\n").unwrap_or(rest.len()), TokenKind::Blank),
            b'/' if rest.starts_with(b"/*") => (comment_length(rest), TokenKind::Blank),
            b'$' => match dollar_length(bytes, position) {
                1 => (1, TokenKind::Sign(b'$')),
                length => (length, TokenKind::Quoted),
            },
            _ if byte.is_ascii_whitespace() => (run(|byte| byte.is_ascii_whitespace()), TokenKind::Blank),
            _ if can_be_in_name(byte) => (run(can_be_in_name), TokenKind::Word),
            _ => (1, TokenKind::Sign(byte)),
        };
        let start = position;
        position = (position + length).min(bytes.len());
        Some(Token { kind, range: start..position })
    })
}

/// Returns the byte range of each statement in the script. A range includes the comments before the statement and
/// excludes its semicolon. Blanks and comments without a statement are left out.
pub fn statements(script: &str) -> Vec<Range<usize>> {
    let (mut ranges, mut start, mut has_token) = (Vec::new(), 0, false);
    for token in tokens(script) {
        match token.kind {
            TokenKind::Sign(b';') => {
                if has_token {
                    ranges.push(start..token.range.start);
                }
                (start, has_token) = (token.range.end, false);
            }
            kind => has_token |= kind != TokenKind::Blank,
        }
    }
    if has_token {
        ranges.push(start..script.len());
    }
    ranges
}

/// Returns one statement, preceded by blanks and line breaks in place of the script before it. So the line numbers in
/// the engine's errors are those of the script.
pub fn in_place(script: &str, statement: &Range<usize>) -> String {
    let blank = |letter: char| if letter == '\n' { '\n' } else { ' ' };
    let before = script.get(..statement.start).unwrap_or_default().chars().map(blank);
    before.chain(script.get(statement.clone()).unwrap_or_default().chars()).collect()
}

/// Formats the position of an error as the engine does: `LINE 3: SELECT x`, and in the next line a caret below the
/// error. `position` is the byte of the error in `sql`. Long lines are shortened around the position.
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

/// Returns true if the quote at this position opens a text of the form E'...', in which a backslash escapes a quote.
fn has_escapes(bytes: &[u8], quote: usize) -> bool {
    let before = |distance: usize| quote.checked_sub(distance).and_then(|position| bytes.get(position)).copied();
    matches!(before(1), Some(b'e' | b'E')) && !before(2).is_some_and(can_be_in_name)
}

fn can_be_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Returns the length of the quoted text with which `rest` begins. A doubled quote stands for one quote, but is treated
/// as the end of one text and the begin of the next. The statement ends at the same place either way. A text that is
/// never closed extends to the end of the script.
fn text_length(rest: &[u8], has_escapes: bool) -> usize {
    let mut at = 1;
    while let Some(byte) = rest.get(at) {
        match byte {
            b'\\' if has_escapes => at += 2,
            b'\'' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Returns the length of the block comment with which `rest` begins. Block comments can be nested. A comment that is
/// never closed extends to the end of the script.
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

/// Returns the length of the text in dollar quotes (`$tag$...$tag$`) that begins at the position `dollar`. Returns 1 if
/// no text in dollar quotes begins at this position, as for `$1` or `a$b`.
fn dollar_length(bytes: &[u8], dollar: usize) -> usize {
    if dollar.checked_sub(1).and_then(|before| bytes.get(before)).copied().is_some_and(can_be_in_name) {
        return 1;
    }
    let rest = &bytes[dollar..];
    let Some(tag) = find(&rest[1..], b"$").map(|end| &rest[..end + 2]) else { return 1 };
    let name = &tag[1..tag.len() - 1];
    if !name.iter().copied().all(can_be_in_name) || name.first().is_some_and(u8::is_ascii_digit) {
        return 1;
    }
    find(&rest[tag.len()..], tag).map_or(rest.len(), |end| tag.len() + end + tag.len())
}

/// Returns the position of the first occurrence of `pattern`, or `None` if there is none.
fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
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
