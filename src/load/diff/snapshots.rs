//! `visitor_snapshots`: one row a session, though each of its answers brings a copy.
//!
//! The snapshot of the session's earliest answer is kept, so that the result does not depend on the order in which windows
//! are scanned. A snapshot never vanishes: it says what was known when the survey was shown.

use super::{
    Comparison, LoadError, TimeBounds,
    children::{self, Sets, TakenOut},
    contract, delete_relation,
    fill::brings_snapshots,
    sql::{hull, select_list, timestamp_ms},
    upsert_relation,
};
use crate::{
    model::DAY_MS,
    schema::{Table, quote_identifier},
};

/// How far apart the answers of one session can be: a session may cross the edge of a window, and its row is looked up this far
/// around. A session that goes on for longer can get a second row, of another moment; the first one is then the session's.
const SESSION_MS_MAX: i64 = 7 * DAY_MS;

/// Puts the changes of `visitor_snapshots` and its children into the delta.
pub(super) fn write(comparison: &mut Comparison<'_>) -> Result<(), LoadError> {
    if !brings_snapshots(comparison.scan) {
        return Ok(());
    }
    let table = contract("visitor_snapshots")?;
    let Some(bounds) = reach(comparison, table)? else { return Ok(()) };
    if !find(comparison)? {
        return Ok(());
    }
    write_rows(comparison, table)?;
    let sets = Sets::Replaced {
        added: "work_snapshot_fate",
        taken_out: TakenOut {
            rows: "(SELECT response_group_uid, held_at AS created_at FROM work_snapshot_fate WHERE held_at IS NOT NULL)",
            same_moment: true,
            bounds: Some(bounds),
        },
    };
    children::replace(comparison, table, &sets)
}

/// Where the rows of the staged sessions can be; `None` if no snapshot is staged.
fn reach(comparison: &Comparison<'_>, table: &'static Table) -> Result<Option<TimeBounds>, LoadError> {
    if comparison.stage.rows(&table.name) == 0 {
        return Ok(None);
    }
    Ok(hull(comparison, table, "stage_visitor_snapshots")?.map(around))
}

/// Where the rows of sessions can be that answered within these bounds.
pub(super) fn around(staged: TimeBounds) -> TimeBounds {
    TimeBounds {
        start_us: staged.start_us.saturating_sub(SESSION_MS_MAX * 1000),
        end_us: staged.end_us.saturating_add(SESSION_MS_MAX * 1000),
    }
}

/// Fills `work_snapshot_fate`, and says whether there is anything in it; without a staged snapshot there is no such table.
pub(super) fn find(comparison: &mut Comparison<'_>) -> Result<bool, LoadError> {
    let table = contract("visitor_snapshots")?;
    let Some(bounds) = reach(comparison, table)? else { return Ok(false) };
    judge(comparison, table, bounds)?;
    Ok(comparison.count("SELECT count(*) FROM work_snapshot_fate")? > 0)
}

/// `work_snapshot_fate`: the earliest snapshot of each staged session, where it is new, earlier than the stored one, or of the
/// same answer with other content.
fn judge(comparison: &mut Comparison<'_>, table: &'static Table, bounds: TimeBounds) -> Result<(), LoadError> {
    let stored = comparison.targets.relation(table, Some(bounds))?;
    let inside = bounds.condition("t.created_at");
    // Answers of one session that were given in the same microsecond: any fixed choice will do, if it is always the same.
    comparison.execute(&format!(
        "CREATE TEMP TABLE work_snapshot_first AS
            SELECT _seq, response_group_uid, created_at, _row_hash FROM stage_visitor_snapshots
            QUALIFY row_number() OVER (PARTITION BY response_group_uid ORDER BY created_at, _row_hash, _seq) = 1;
         CREATE TEMP TABLE work_snapshot_fate AS
            SELECT s._seq, s.response_group_uid, h.created_at AS held_at, h._first_seen_at AS first_seen_at
            FROM work_snapshot_first s LEFT JOIN (
                SELECT t.response_group_uid, t.created_at, t._row_hash, t._first_seen_at FROM {stored} t WHERE {inside}
                QUALIFY row_number() OVER (PARTITION BY t.response_group_uid ORDER BY t.created_at, t._row_hash) = 1
            ) h ON h.response_group_uid = s.response_group_uid
            WHERE h.created_at IS NULL OR s.created_at < h.created_at
                OR (s.created_at = h.created_at AND s._row_hash <> h._row_hash)"
    ))
}

fn write_rows(comparison: &mut Comparison<'_>, table: &'static Table) -> Result<(), LoadError> {
    let (upserts, deletes) = (upsert_relation(table), delete_relation(table));
    let started = timestamp_ms(comparison.scan.started_ms);
    let row = select_list(table, |column| match comparison.stamp(column) {
        Some(stamp) => stamp,
        // Scans are committed in another order than they begin.
        None if column.name == "_first_seen_at" => format!("least(coalesce(f.first_seen_at, {started}), {started})"),
        None => format!("s.{}", quote_identifier(&column.name)),
    });
    comparison.execute(&format!(
        "CREATE TEMP TABLE {upserts} AS
            SELECT {row} FROM stage_visitor_snapshots s JOIN work_snapshot_fate f ON s._seq = f._seq;
         CREATE TEMP TABLE {deletes} AS
            SELECT response_group_uid, held_at AS created_at FROM work_snapshot_fate WHERE held_at IS NOT NULL"
    ))?;
    comparison.record(table, Some(&deletes), Some(&upserts))
}
