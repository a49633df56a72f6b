//! The table `erasures`: one row an erasure, with nothing in it that says of whom.

use duckdb::Row;

use super::{Engine, LoadError};
use crate::{
    load::{
        TableDelta,
        diff::{delete_relation, delta_rows, timestamp_ms, upsert_relation},
    },
    model::RunId,
    schema::{self, Table, quote_identifier, quote_text},
};

/// A row of `erasures`. Times are epoch milliseconds; the texts of JSON are as [`crate::erase`] writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErasureRecord {
    pub erasure_id: String,
    pub kind: String,
    pub requested_ms: i64,
    pub finished_ms: i64,
    pub people: i64,
    pub identifiers: i64,
    pub not_followed: i64,
    pub purge_requests: String,
    pub delay_seconds: Option<i64>,
    pub suppressed_from_ms: Option<i64>,
    pub removed: String,
    pub searched: String,
    pub mentions: i64,
    pub redacted: i64,
    pub outcome: String,
    pub run_id: RunId,
}

/// The rows as a delta. Each takes the place of an earlier one of the same erasure. `None`: there is none.
pub(in super::super) fn stage_erasures(
    engine: &Engine,
    records: &[ErasureRecord],
) -> Result<Option<TableDelta>, LoadError> {
    let table = contract()?;
    let (upserts, deletes) = (upsert_relation(table), delete_relation(table));
    let rows: Vec<String> = records.iter().map(|record| format!("SELECT {}", row(table, record))).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let sql = format!(
        "CREATE OR REPLACE TEMP TABLE {upserts} AS {};
         CREATE OR REPLACE TEMP TABLE {deletes} AS SELECT erasure_id FROM {upserts}",
        rows.join(" UNION ALL ")
    );
    engine.execute("record an erasure", &sql)?;
    let deletes = delta_rows(engine, table, &deletes)?;
    Ok(Some(TableDelta { table, deletes, upserts: delta_rows(engine, table, &upserts)? }))
}

fn contract() -> Result<&'static Table, LoadError> {
    schema::table("erasures").ok_or_else(|| LoadError::Contract("no contract is called erasures".into()))
}

fn row(table: &Table, record: &ErasureRecord) -> String {
    let number = |value: i64| format!("({value})::BIGINT");
    let value = |name: &str| match name {
        "erasure_id" => quote_text(&record.erasure_id),
        "kind" => quote_text(&record.kind),
        "requested_at" => timestamp_ms(record.requested_ms),
        "finished_at" | "_synced_at" => timestamp_ms(record.finished_ms),
        "people" => number(record.people),
        "identifiers" => number(record.identifiers),
        "not_followed" => number(record.not_followed),
        "purge_requests" => quote_text(&record.purge_requests),
        "delay_seconds" => record.delay_seconds.map_or("NULL::BIGINT".to_owned(), number),
        "suppressed_from" => record.suppressed_from_ms.map_or("NULL::TIMESTAMP".to_owned(), timestamp_ms),
        "removed" => quote_text(&record.removed),
        "searched" => quote_text(&record.searched),
        "mentions" => number(record.mentions),
        "redacted" => number(record.redacted),
        "outcome" => quote_text(&record.outcome),
        "_run_id" => quote_text(&record.run_id.0),
        _ => "NULL".to_owned(),
    };
    let list: Vec<String> = (table.columns.iter())
        .map(|column| format!("{} AS {}", value(&column.name), quote_identifier(&column.name)))
        .collect();
    list.join(", ")
}

/// Every receipt of a warehouse. `erasures` is the SQL of the relation.
pub(in super::super) fn erasures(engine: &Engine, erasures: &str) -> Result<Vec<ErasureRecord>, LoadError> {
    let failed = |source| LoadError::engine("read the receipts", source);
    let sql = format!(
        "SELECT erasure_id, kind, epoch_ms(requested_at), epoch_ms(finished_at), people, identifiers, not_followed, purge_requests,
            delay_seconds, epoch_ms(suppressed_from), removed, searched, mentions, redacted, outcome, _run_id FROM {erasures}"
    );
    let mut statement = engine.connection().prepare(&sql).map_err(failed)?;
    let read = |row: &Row<'_>| {
        Ok(ErasureRecord {
            erasure_id: row.get(0)?,
            kind: row.get(1)?,
            requested_ms: row.get(2)?,
            finished_ms: row.get(3)?,
            people: row.get(4)?,
            identifiers: row.get(5)?,
            not_followed: row.get(6)?,
            purge_requests: row.get(7)?,
            delay_seconds: row.get(8)?,
            suppressed_from_ms: row.get(9)?,
            removed: row.get(10)?,
            searched: row.get(11)?,
            mentions: row.get(12)?,
            redacted: row.get(13)?,
            outcome: row.get(14)?,
            run_id: RunId(row.get(15)?),
        })
    };
    statement.query_map([], read).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
}
