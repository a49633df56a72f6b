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
        let mut either = Vec::new();
        match (column.column_type, kind) {
            // What is in such a column has rows of its own in a child.
            (ColumnType::Json, _) => continue,
            (ColumnType::Bigint, _) if has(IdentifierKind::VisitorId) => {
                either.push(format!("{name} IN {}", staged(IdentifierKind::VisitorId, "number")));
            }
            (ColumnType::Bigint, _) => continue,
            (_, IdentifierKind::VisitorId | IdentifierKind::VisitorUuid) => {
                for kind in [IdentifierKind::VisitorUuid, IdentifierKind::VisitorId] {
                    if has(kind) {
                        either.push(format!("lower(trim({name})) IN {}", staged(kind, "value")));
                    }
                }
            }
            (_, IdentifierKind::UserId | IdentifierKind::AnonymousId) if has(kind) => {
                either.push(format!("{name} IN {}", staged(kind, "value")));
            }
            (_, _) if has(kind) => either.push(format!("lower(trim({name})) IN {}", staged(kind, "lower(value)"))),
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

/// [`crate::model::names_an_email`] as SQL.
fn names_an_email_sql(column: &str) -> String {
    let names: Vec<String> = email_names().iter().map(|name| quote_text(name)).collect();
    let name = format!("t.{}", quote_identifier(column));
    format!("regexp_replace(lower({name}), '[^\\p{{L}}\\p{{N}}]', '', 'g') IN ({})", names.join(", "))
}
