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
pub(super) use mentions::{TheirTable, redact, search};
pub(super) use receipts::{erasures, stage_erasures};
pub(super) use rows::{count, find};
pub(super) use vanished::{live_sessions, vanished_sessions};

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, RecordBatch, StringArray},
    datatypes::DataType,
};
use duckdb::{
    Connection,
    vscalar::{ArrowFunctionSignature, VArrowScalar},
};

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
            format!("SELECT {what} FROM {PERSON} WHERE kind = {}", quote_text(kind.name()))
        };
        // A visitor's column may hold the number or the UUID.
        let kinds = match kind {
            IdentifierKind::VisitorId | IdentifierKind::VisitorUuid => {
                vec![IdentifierKind::VisitorId, IdentifierKind::VisitorUuid]
            }
            kind => vec![kind],
        };
        let (what, value) = match column.column_type {
            // What is in such a column has rows of its own in a child.
            ColumnType::Json => continue,
            ColumnType::Bigint => ("number", name),
            _ => ("value", identifier_sql(&name, kind)),
        };
        let is_number = column.column_type == ColumnType::Bigint;
        let kinds = kinds.into_iter().filter(|kind| has(*kind) && (!is_number || *kind == IdentifierKind::VisitorId));
        let staged: Vec<String> = kinds.map(|kind| staged(kind, what)).collect();
        if staged.is_empty() {
            continue;
        }
        let is_one = format!("{value} IN ({})", staged.join(" UNION ALL "));
        conditions.push(match &column.named_by {
            Some(named_by) => format!("({} AND {is_one})", names_an_email_sql(named_by)),
            None => is_one,
        });
    }
    (!conditions.is_empty()).then(|| format!("({})", conditions.join(" OR ")))
}

/// The text in the form in which identifiers of the kind are compared; NULL if it names nobody. What nearly all texts are is told by the
/// engine itself; what can be written in several ways is read by [`Identifier::read`].
fn identifier_sql(text: &str, kind: IdentifierKind) -> String {
    let (is_usual, usual) = match kind {
        IdentifierKind::UserId | IdentifierKind::AnonymousId => {
            (format!("strlen({text}) = length({text})"), text.to_owned())
        }
        IdentifierKind::Email => {
            let is_ascii = format!("strlen({text}) = length({text})");
            let holds = |what: &str| format!("contains({text}, {what})");
            let is_odd = [
                holds("' '"),
                holds("chr(9)"),
                format!("contains(lower({text}), 'xn--')"),
                format!("suffix({text}, '.')"),
            ];
            (format!("{is_ascii} AND NOT ({})", is_odd.join(" OR ")), format!("lower({text})"))
        }
        // Of nearly all visitors and sessions there is nothing but the UUID.
        _ => {
            let has_length = format!("strlen({text}) = {UUID_BYTES} AND length({text}) = {UUID_BYTES}");
            (format!("{has_length} AND NOT contains({text}, ' ')"), format!("lower({text})"))
        }
    };
    format!("CASE WHEN {is_usual} THEN {usual} ELSE {READ}({}, {text}) END", quote_text(kind.name()))
}

/// Bytes of a UUID with its hyphens.
const UUID_BYTES: usize = 36;
/// The name of [`ReadIdentifier`] in SQL.
const READ: &str = "studysync_identifier";

/// [`Identifier::read`] as a function of SQL: of the name of a kind and a text.
struct ReadIdentifier;

impl VArrowScalar for ReadIdentifier {
    type State = ();

    fn invoke((): &(), input: RecordBatch) -> Result<Arc<dyn Array>, Box<dyn std::error::Error>> {
        let texts = |at: usize| input.columns().get(at).and_then(|column| column.as_string_opt::<i32>());
        let (kinds, texts) = texts(0).zip(texts(1)).ok_or("a kind and a text are wanted")?;
        let read = |(kind, text): (Option<&str>, Option<&str>)| {
            Identifier::read(IdentifierKind::from_name(kind?)?, text?).map(|identifier| identifier.value)
        };
        Ok(Arc::new(kinds.iter().zip(texts).map(read).collect::<StringArray>()))
    }

    fn signatures() -> Vec<ArrowFunctionSignature> {
        vec![ArrowFunctionSignature::exact(vec![DataType::Utf8, DataType::Utf8], DataType::Utf8)]
    }
}

/// Teaches an engine, and all its sessions, what the SQL of this module calls.
pub(super) fn register(connection: &Connection) -> Result<(), duckdb::Error> {
    connection.register_scalar_function::<ReadIdentifier>(READ)
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

    /// What stands around a text, and what may stand in it.
    const AROUND: [&str; 8] = ["", " ", "  ", "\t", "\u{a0}", "\u{2003}", "\u{202f}", "\u{3000}"];
    const WORDS: [&str; 26] = [
        "",
        "-7",
        "7",
        "007",
        "1-2",
        "A b",
        "~",
        "\u{301}zoe",
        "zo\u{eb}",
        "Zoe\u{308}",
        "名前",
        "698547A7-d566-4",
        "698547A7-d566-4C55-9a40-1d2e3f405162",
        "698547A7d5664C559a401d2e3f405162",
        "{698547A7-d566-4C55-9a40-1d2e3f405162}",
        "ȺȺ",
        "İ",
        "\u{212a}",
        "n/a",
        "on file",
        "Anna@Example.com",
        "anna@example.com.",
        "anna@ｅｘａｍｐｌｅ．com",
        "JU\u{308}RGEN@xn--exmple-cua.de",
        "jürgen@Exämple.DE",
        "redacted@",
    ];

    #[test]
    fn p9_sql_reads_an_identifier_as_the_rest_of_the_program_does() {
        let (_folder, engine) = engine(1, 64 << 20);
        let texts: Vec<String> = (AROUND.iter())
            .flat_map(|before| WORDS.iter().map(move |word| format!("{before}{word}")))
            .flat_map(|text| AROUND.iter().map(move |after| format!("{text}{after}")))
            .collect();
        let list: Vec<String> = texts.iter().map(|text| quote_text(text)).collect();
        engine
            .execute(
                "fill a table",
                &format!("CREATE TEMP TABLE texts AS SELECT unnest([{}]) AS text", list.join(", ")),
            )
            .unwrap();
        for kind in IdentifierKind::ALL {
            let sql = format!("SELECT text, {} FROM texts", identifier_sql("text", kind));
            let mut statement = engine.connection().prepare(&sql).unwrap();
            let read = |row: &duckdb::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?));
            let rows: Vec<(String, Option<String>)> =
                statement.query_map([], read).unwrap().collect::<Result<_, _>>().unwrap();
            assert_eq!(rows.len(), texts.len());
            for (text, found) in rows {
                let expected = Identifier::read(kind, &text).map(|identifier| identifier.value);
                // What names nobody is no identifier that could be looked for.
                assert!(found == expected || expected.is_none(), "{kind} {text:?}: {found:?} and not {expected:?}");
            }
        }
    }
}
