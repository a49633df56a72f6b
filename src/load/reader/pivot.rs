//! Rewrites a PIVOT for the check of a query. A PIVOT without listed values makes two statements in the engine: the
//! first stores the values of the column as a temporary type, the second is the SELECT. The engine serializes only
//! SELECT statements, so the check reads the PIVOT with a listed value instead.

use super::script::{Token, TokenKind, tokens};

/// Words that end the list of columns after PIVOT ... ON.
const ENDS: &[&str] =
    &["using", "group", "order", "limit", "offset", "union", "except", "intersect", "where", "qualify", "having"];

/// Returns the statement with `IN (0)` after each column of a PIVOT for which no values are listed; `None` if the
/// statement has no such column. Every other word of the statement is kept.
pub(super) fn with_listed_values(sql: &str) -> Option<String> {
    let parts: Vec<Token> = tokens(sql).filter(|token| token.kind != TokenKind::Blank).collect();
    let pivots = parts.iter().enumerate().filter(|(_, token)| is_any(sql, token, &["pivot", "pivot_wider"]));
    let mut edits: Vec<Edit> = pivots.flat_map(|(at, _)| edits_of_pivot(sql, &parts[at + 1..])).collect();
    if edits.is_empty() {
        return None;
    }
    edits.sort_unstable();
    edits.dedup();
    let mut listed = sql.to_owned();
    for edit in edits.into_iter().rev() {
        match edit {
            Edit::Append(at) => listed.insert_str(at, " IN (0)"),
            Edit::Equal(at) => listed.replace_range(at..at + 2, "= "),
        }
    }
    Some(listed)
}

/// A change of the statement at a byte position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edit {
    /// Inserts a list of values.
    Append(usize),
    /// Replaces the word IN by an equals sign.
    Equal(usize),
}

/// Returns the changes of the PIVOT whose word PIVOT stands before `parts`.
fn edits_of_pivot(sql: &str, parts: &[Token]) -> Vec<Edit> {
    let mut edits = Vec::new();
    let (mut depth, mut is_list, mut entry) = (0_usize, false, 0);
    for (at, token) in parts.iter().enumerate() {
        let is_end = depth == 0
            && match token.kind {
                TokenKind::Sign(sign) => matches!(sign, b')' | b';'),
                _ => is_list && is_any(sql, token, ENDS),
            };
        if is_end || (depth == 0 && is_list && token.kind == TokenKind::Sign(b',')) {
            if is_list {
                edits.extend(edits_of_entry(sql, &parts[entry..at]));
            }
            entry = at + 1;
        }
        if is_end {
            return edits;
        }
        match token.kind {
            TokenKind::Sign(b'(') => depth += 1,
            TokenKind::Sign(b')') => depth -= 1,
            _ if depth == 0 && is_any(sql, token, &["on"]) => (is_list, entry) = (true, at + 1),
            _ => {}
        }
    }
    if is_list {
        edits.extend(edits_of_entry(sql, &parts[entry..]));
    }
    edits
}

/// Returns the changes of one column of a PIVOT: none if its values or an enum are listed.
fn edits_of_entry(sql: &str, entry: &[Token]) -> Vec<Edit> {
    let Some(last) = entry.last() else { return Vec::new() };
    let append = Edit::Append(last.range.end);
    let word_in = |at: Option<usize>| at.and_then(|at| entry.get(at)).filter(|token| is_any(sql, token, &["in"]));
    if last.kind != TokenKind::Sign(b')') {
        return if word_in(entry.len().checked_sub(2)).is_some() { Vec::new() } else { vec![append] };
    }
    let mut depth = 0_usize;
    let open = entry.iter().rposition(|token| {
        match token.kind {
            TokenKind::Sign(b')') => depth += 1,
            TokenKind::Sign(b'(') => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    let Some(word) = word_in(open.and_then(|open| open.checked_sub(1))) else { return vec![append] };
    // The engine runs a question in place of the values before the PIVOT, too.
    let is_question = open.and_then(|open| entry.get(open + 1)).is_some_and(|token| {
        is_any(sql, token, &["select", "from", "with", "values", "table"]) || token.kind == TokenKind::Sign(b'(')
    });
    if is_question { vec![Edit::Equal(word.range.start), append] } else { Vec::new() }
}

fn is_any(sql: &str, token: &Token, words: &[&str]) -> bool {
    let text = &sql[token.range.clone()];
    token.kind == TokenKind::Word && words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_of_a_pivot_gets_values() {
        for (sql, listed) in [
            ("PIVOT t ON a USING sum(v)", "PIVOT t ON a IN (0) USING sum(v)"),
            (
                "pivot t on a, b || 'x', f(a, b) group by c",
                "pivot t on a IN (0), b || 'x' IN (0), f(a, b) IN (0) group by c",
            ),
            ("PIVOT t ON a IN (1, 2), b", "PIVOT t ON a IN (1, 2), b IN (0)"),
            ("FROM (PIVOT t ON a) WHERE x IN (1)", "FROM (PIVOT t ON a IN (0)) WHERE x IN (1)"),
            (
                "PIVOT t ON CASE WHEN a IN (1) THEN 2 END -- why",
                "PIVOT t ON CASE WHEN a IN (1) THEN 2 END IN (0) -- why",
            ),
            ("PIVOT t ON a IN (SELECT 1) USING sum(v)", "PIVOT t ON a =  (SELECT 1) IN (0) USING sum(v)"),
            ("PIVOT (FROM t JOIN u ON x = y) ON a", "PIVOT (FROM t JOIN u ON x = y) ON a IN (0)"),
            (
                "WITH p AS (PIVOT t ON a) FROM p JOIN (PIVOT t ON b USING sum(v)) USING (c)",
                "WITH p AS (PIVOT t ON a IN (0)) FROM p JOIN (PIVOT t ON b IN (0) USING sum(v)) USING (c)",
            ),
        ] {
            assert_eq!(with_listed_values(sql).as_deref(), Some(listed), "{sql}");
        }
        for sql in
            ["SELECT 1", "SELECT 'PIVOT t ON a'", "PIVOT t ON a IN (1)", "PIVOT t ON a IN mood", "PIVOT t USING sum(v)"]
        {
            assert_eq!(with_listed_values(sql), None, "{sql}");
        }
    }
}
