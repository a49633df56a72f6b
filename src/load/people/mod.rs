//! Finds people in a warehouse, and takes them out. By the contracts alone: which columns identify somebody, which tables go with
//! which; so a new table needs nothing here. Whom identifiers belong to is decided by `erase`.

mod facts;
mod mentions;
mod receipts;
mod rows;
mod vanished;

pub use facts::Facts;
pub use mentions::{Mention, Searched};
pub use receipts::ErasureRecord;
pub use rows::PeopleFound;

pub(super) use facts::facts;
pub(super) use mentions::{redact, search};
pub(super) use receipts::{erasures, stage_erasures};
pub(super) use rows::{count, find};
pub(super) use vanished::{live_sessions, vanished_sessions};

use super::{Engine, LoadError, TimeBounds};
use crate::{
    model::{Identifier, IdentifierKind, email_names},
    schema::{ColumnType, Table, quote_identifier, quote_text},
};

/// The identifiers that are looked for.
const PERSON: &str = "work_person";
/// Identifiers that are staged at once.
const STAGED_AT_ONCE: usize = 500;

/// Puts the identifiers where SQL can compare with them.
fn stage(engine: &Engine, identifiers: &[Identifier]) -> Result<(), LoadError> {
    let action = "stage whom to look for";
    engine.execute(
        action,
        &format!("CREATE OR REPLACE TEMP TABLE {PERSON} (kind VARCHAR, value VARCHAR, number BIGINT)"),
    )?;
    for some in identifiers.chunks(STAGED_AT_ONCE) {
        let row = |identifier: &Identifier| {
            let number = match identifier.kind {
                IdentifierKind::VisitorId => identifier.value.clone(),
                _ => "NULL".to_owned(),
            };
            format!("({}, {}, {number})", quote_text(identifier.kind.name()), quote_text(&identifier.value))
        };
        let rows: Vec<String> = some.iter().map(row).collect();
        engine.execute(action, &format!("INSERT INTO {PERSON} VALUES {}", rows.join(", ")))?;
    }
    Ok(())
}

/// The condition under which a row `t` of the table carries a staged identifier; `None` if it has no column that could.
fn is_persons(table: &Table, identifiers: &[Identifier]) -> Option<String> {
    let has = |kind: IdentifierKind| identifiers.iter().any(|identifier| identifier.kind == kind);
    let mut conditions = Vec::new();
    for (column, kind) in crate::person::identifies(table) {
        let name = format!("t.{}", quote_identifier(&column.name));
        let staged = |kind: IdentifierKind, what: &str| {
            format!("(SELECT {what} FROM {PERSON} WHERE kind = {})", quote_text(kind.name()))
        };
        let is_one_of = |name: &str, kind: IdentifierKind| {
            let of_kind = identifiers.iter().filter(|identifier| identifier.kind == kind);
            let plain = plain_sql(name, of_kind.map(|identifier| identifier.value.as_str()));
            format!("{plain} IN {}", staged(kind, "lower(value)"))
        };
        let mut either = Vec::new();
        match (column.column_type, kind) {
            // What is in such a column has rows of its own in a child.
            (ColumnType::Json, _) => continue,
            (ColumnType::Bigint, _) if has(IdentifierKind::VisitorId) => {
                either.push(format!("{name} IN {}", staged(IdentifierKind::VisitorId, "number")));
            }
            (ColumnType::Bigint, _) => continue,
            (_, IdentifierKind::VisitorId | IdentifierKind::VisitorUuid) => {
                if has(IdentifierKind::VisitorUuid) {
                    either.push(is_one_of(&name, IdentifierKind::VisitorUuid));
                }
                if has(IdentifierKind::VisitorId) {
                    let numbers = staged(IdentifierKind::VisitorId, "value");
                    either.push(format!("{} IN {numbers}", number_sql(&name)));
                }
            }
            (_, IdentifierKind::UserId | IdentifierKind::AnonymousId) if has(kind) => {
                either.push(format!("{name} IN {}", staged(kind, "value")));
            }
            (_, _) if has(kind) => either.push(is_one_of(&name, kind)),
            _ => continue,
        }
        if either.is_empty() {
            continue;
        }
        let either = either.join(" OR ");
        conditions.push(match &column.named_by {
            Some(named_by) => format!("({} AND ({either}))", names_an_email_sql(named_by)),
            None => either,
        });
    }
    (!conditions.is_empty()).then(|| format!("({})", conditions.join(" OR ")))
}

/// A text in lower case and without the spaces around it, as far as it may then be one of the values. Looking for spaces reads a text
/// character by character, and was most of what it took to find somebody: so only where a text has more bytes than the shortest
/// value has characters. One that is a value but for spaces has, in whatever case.
fn plain_sql<'a>(text: &str, values: impl Iterator<Item = &'a str>) -> String {
    let shortest = values.map(|value| value.chars().count()).min().unwrap_or(0);
    format!("CASE WHEN strlen({text}) > {shortest} THEN lower(trim({text})) ELSE lower({text}) END")
}

/// A text as far as it may be a number, without the spaces around it. What stands beside a visitor's number is nearly always a UUID.
fn number_sql(text: &str) -> String {
    format!("CASE WHEN {text} LIKE '%-%-%' THEN NULL ELSE trim({text}) END")
}

/// [`crate::model::names_an_email`] as SQL.
fn names_an_email_sql(column: &str) -> String {
    let names: Vec<String> = email_names().iter().map(|name| quote_text(name)).collect();
    let name = format!("t.{}", quote_identifier(column));
    format!("regexp_replace(lower({name}), '[^\\p{{L}}\\p{{N}}]', '', 'g') IN ({})", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::engine::tests::engine;

    /// What stands around a text, and what may stand in it: the last three have more or fewer bytes in the other case.
    const AROUND: [&str; 8] = ["", " ", "  ", "\t", "\u{a0}", "\u{2003}", "\u{202f}", "\u{3000}"];
    const WORDS: [&str; 12] =
        ["", "-7", "7", "1-2", "A b", "~", "\u{301}zoe", "名前", "698547A7-d566-4", "ȺȺ", "İ", "\u{212a}"];

    /// All words with all that may stand around them, as rows of `text`.
    fn texts() -> String {
        let list = |texts: &[&str]| texts.iter().map(|text| quote_text(text)).collect::<Vec<_>>().join(", ");
        let around = list(&AROUND);
        format!(
            "(SELECT before || word || after AS text FROM unnest([{around}]) a(before), unnest([{}]) w(word), unnest([{around}]) z(after))",
            list(&WORDS)
        )
    }

    #[test]
    fn p9_a_text_is_a_value_with_and_without_spaces_around_it() {
        let (_folder, engine) = engine(1, 64 << 20);
        for value in WORDS {
            let (plain, looked_for) = (plain_sql("text", [value].into_iter()), quote_text(value));
            let sql = format!(
                "SELECT count(*) FILTER (WHERE ({plain} = lower({looked_for})) <> (lower(trim(text)) = lower({looked_for}))),
                        count(*) FILTER (WHERE {plain} = lower({looked_for})) FROM {}",
                texts()
            );
            let [wrong, found] = engine.integers("read texts", &sql).unwrap();
            assert_eq!(wrong, 0, "{value:?}");
            // All that surrounds a text but the tabulator is a space to DuckDB, and a row for each.
            assert!(found >= 49, "{value:?}: {found}");
        }
    }

    #[test]
    fn p9_a_text_is_a_number_with_and_without_spaces_around_it() {
        let (_folder, engine) = engine(1, 64 << 20);
        let number = number_sql("text");
        let sql = format!(
            "SELECT count(*) FILTER (WHERE ({number} IS NULL) <> contains(text, 'd566')), count(*) FILTER (WHERE {number} IN ('7', '-7'))
             FROM {}",
            texts()
        );
        let [wrong, found] = engine.integers("read texts", &sql).unwrap();
        assert_eq!((wrong, found), (0, 98));
    }
}
