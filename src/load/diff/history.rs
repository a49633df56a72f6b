//! `response_history`: the versions that a scan ends, and the records that lost a collision.

use super::{
    Comparison, LoadError,
    base::Fates,
    contract,
    doubles::DOUBLES,
    repeats::LOSERS,
    sql::{equal_columns, hull, key_of, select_list, timestamp_ms},
    upsert_relation,
};
use crate::schema::{Column, Table, quote_identifier};

/// Puts the versions of `base` that the scan ends into the delta.
pub(super) fn write(comparison: &mut Comparison<'_>, base: &'static Table, fates: Fates) -> Result<(), LoadError> {
    let history = contract("response_history")?;
    let mut parts = Vec::new();
    if matches!(fates, Fates::Compared) {
        let same_key = equal_columns("o", "f", &key_of(base));
        let changed = ended_version(comparison, history, "CASE WHEN f.is_deleted THEN 'deleted' ELSE 'edited' END");
        let gone = ended_version(comparison, history, "'vanished'");
        parts.push(format!("SELECT {changed} FROM work_old o JOIN work_fate f ON {same_key} AND f.verdict = 'edited'"));
        parts.push(format!("SELECT {gone} FROM work_old o SEMI JOIN work_gone f ON {same_key}"));
    }
    let has_collisions = comparison.delta.counts.collisions > 0;
    if comparison.has_doubles {
        parts.push(ended_doubles(comparison, base, history, has_collisions));
    }
    if has_collisions {
        parts.push(lost_collisions(comparison, base, history, fates)?);
    }
    if parts.is_empty() {
        return Ok(());
    }
    let relation = upsert_relation(history);
    comparison.execute(&format!("CREATE TEMP TABLE {relation} AS {}", parts.join(" UNION ALL ")))?;
    if has_collisions {
        // Those that are known already must not call for a look again in every run.
        let new = format!("SELECT count(*) FROM {relation} WHERE reason = 'collision'");
        comparison.delta.counts.collisions = comparison.count(&new)?;
    }
    comparison.record(history, None, Some(&relation))
}

/// The row `o` of `work_old` as a version that ends with this scan.
fn ended_version(comparison: &Comparison<'_>, history: &Table, reason: &str) -> String {
    let ended = timestamp_ms(comparison.scan.started_ms);
    select_list(history, |column| match column.name.as_str() {
        "valid_from" => "o._synced_at".to_owned(),
        "valid_to" => ended.clone(),
        "reason" => reason.to_owned(),
        _ => stamped_or(comparison, column, "o"),
    })
}

/// Rows that give way to another of their key, but for what this scan found too: the row that stays, and losers of collisions.
fn ended_doubles(comparison: &Comparison<'_>, base: &'static Table, history: &Table, has_collisions: bool) -> String {
    let ended = ended_version(comparison, history, "'edited'");
    let found = |relation: &str| {
        let same_key = equal_columns("o", "s", &key_of(base));
        format!("EXISTS (SELECT 1 FROM {relation} s WHERE {same_key} AND s._row_hash = o._row_hash)")
    };
    let is_loser = if has_collisions { found(LOSERS) } else { "false".to_owned() };
    format!("SELECT {ended} FROM {DOUBLES} o WHERE NOT {} AND NOT {is_loser}", found(&format!("stage_{}", base.name)))
}

/// The losers of collisions that the history does not hold yet.
fn lost_collisions(
    comparison: &mut Comparison<'_>,
    base: &'static Table,
    history: &'static Table,
    fates: Fates,
) -> Result<String, LoadError> {
    let bounds = hull(comparison, base, LOSERS)?;
    let stored = comparison.targets.relation(history, bounds)?;
    let inside = bounds.map_or("true".to_owned(), |bounds| bounds.condition("t.created_at"));
    let seen = timestamp_ms(comparison.scan.started_ms);
    let row = select_list(history, |column| match column.name.as_str() {
        "valid_from" | "valid_to" => seen.clone(),
        "reason" => "'collision'".to_owned(),
        _ if !comparison.was_asked_for(column) => format!("NULL::{}", column.column_type.duckdb()),
        _ => stamped_or(comparison, column, "l"),
    });
    let held = equal_columns("t", "l", &key_of(base));
    let mut sql = format!(
        "SELECT {row} FROM {LOSERS} l WHERE NOT EXISTS (
            SELECT 1 FROM {stored} t WHERE {inside} AND {held} AND t._row_hash = l._row_hash AND t.reason = 'collision')"
    );
    if matches!(fates, Fates::Compared) {
        // A stored version that lost to a newer record of this scan is in the history as edited: once is enough.
        let ended = equal_columns("o", "l", &key_of(base));
        let same = equal_columns("o", "f", &key_of(base));
        sql.push_str(&format!(
            " AND NOT EXISTS (SELECT 1 FROM work_old o JOIN work_fate f ON {same} AND f.verdict = 'edited'
                WHERE {ended} AND o._row_hash = l._row_hash)"
        ));
    }
    Ok(sql)
}

fn stamped_or(comparison: &Comparison<'_>, column: &Column, alias: &str) -> String {
    comparison.stamp(column).unwrap_or_else(|| format!("{alias}.{}", quote_identifier(&column.name)))
}
