//! `survey_history` (every version of every survey, the current one too) and `survey_status_changes`.

use super::{
    Comparison, LoadError,
    base::Fates,
    contract, delete_relation,
    sql::{select_list, timestamp_ms},
    upsert_relation,
};
use crate::schema::{Table, quote_identifier};

/// Where the changes are that webhooks told since the last scan.
const TOLD: &str = "work_told";

/// Puts the changes of the surveys' history into the delta.
pub(super) fn write(comparison: &mut Comparison<'_>, base: &'static Table, fates: Fates) -> Result<(), LoadError> {
    if matches!(fates, Fates::Unchanged) {
        return Ok(());
    }
    write_history(comparison, base, fates)?;
    write_status_changes(comparison, base, fates)
}

fn write_history(comparison: &mut Comparison<'_>, base: &Table, fates: Fates) -> Result<(), LoadError> {
    let history = contract("survey_history")?;
    let (upserts, deletes) = (upsert_relation(history), delete_relation(history));
    let started = timestamp_ms(comparison.scan.started_ms);
    let opened = select_list(history, |column| match column.name.as_str() {
        "valid_from" => started.clone(),
        "valid_to" => "NULL::TIMESTAMP".to_owned(),
        "is_current" => "true".to_owned(),
        name => comparison.stamp(column).unwrap_or_else(|| format!("s.{}", quote_identifier(name))),
    });
    if matches!(fates, Fates::AllNew) {
        comparison.execute(&format!("CREATE TEMP VIEW {upserts} AS SELECT {opened} FROM stage_{} s", base.name))?;
        return comparison.record(history, None, Some(&upserts));
    }
    let closed = select_list(history, |column| match column.name.as_str() {
        "valid_to" => started.clone(),
        "is_current" => "false".to_owned(),
        name => comparison.stamp(column).unwrap_or_else(|| format!("t.{}", quote_identifier(name))),
    });
    let stored = comparison.targets.relation(history, None)?;
    comparison.execute(&format!(
        "CREATE TEMP TABLE {upserts} AS
            SELECT {closed} FROM {stored} t SEMI JOIN (
                SELECT id FROM work_fate UNION ALL SELECT id FROM work_gone) c ON t.id = c.id
            WHERE t.is_current
            UNION ALL SELECT {opened} FROM stage_{} s SEMI JOIN work_fate f ON s._seq = f._seq;
         CREATE TEMP TABLE {deletes} AS SELECT id, valid_from FROM {upserts} WHERE NOT is_current",
        base.name
    ))?;
    comparison.record(history, Some(&deletes), Some(&upserts))
}

/// A survey that vanished has no status: it loses the one it had, and gets one again when it is back.
fn write_status_changes(comparison: &mut Comparison<'_>, base: &Table, fates: Fates) -> Result<(), LoadError> {
    let changes = contract("survey_status_changes")?;
    let relation = upsert_relation(changes);
    let seen_at = timestamp_ms(comparison.scan.started_ms);
    if matches!(fates, Fates::Compared) {
        find_told(comparison, changes, &seen_at)?;
    }
    let source = match fates {
        // What a webhook told since the last scan is known, and is the status before.
        Fates::Compared => format!(
            "SELECT f.id, CASE WHEN w.survey_id IS NOT NULL THEN w.new_status WHEN o._vanished_at IS NULL THEN o.status END
                AS old_status, s.status AS new_status
             FROM work_fate f JOIN stage_{} s ON s._seq = f._seq LEFT JOIN work_old o ON o.id = f.id
             LEFT JOIN {TOLD} w ON w.survey_id = f.id
             UNION ALL SELECT o.id, coalesce(w.new_status, o.status), NULL FROM work_old o SEMI JOIN work_gone g ON o.id = g.id
             LEFT JOIN {TOLD} w ON w.survey_id = o.id",
            base.name
        ),
        // Typed: a bare NULL is an integer, and Parquet's parts would not go together.
        Fates::AllNew | Fates::Unchanged => format!("SELECT id, NULL::VARCHAR, status FROM stage_{}", base.name),
    };
    let row = select_list(changes, |column| match column.name.as_str() {
        "survey_id" => "c.id".to_owned(),
        "changed_at" => seen_at.clone(),
        "seen_by" => "'scan'".to_owned(),
        name => comparison.stamp(column).unwrap_or_else(|| format!("c.{}", quote_identifier(name))),
    });
    comparison.execute(&format!(
        "CREATE TEMP TABLE {relation} AS SELECT {row} FROM ({source}) c(id, old_status, new_status)
         WHERE c.old_status IS DISTINCT FROM c.new_status"
    ))?;
    if !matches!(fates, Fates::Compared) {
        return comparison.record(changes, None, Some(&relation));
    }
    // What the scan sees too is seen by both: one row, at the time of the webhook.
    let confirmed = select_list(changes, |column| match column.name.as_str() {
        "seen_by" => "'both'".to_owned(),
        name => comparison.stamp(column).unwrap_or_else(|| format!("w.{}", quote_identifier(name))),
    });
    let deletes = delete_relation(changes);
    comparison.execute(&format!(
        "INSERT INTO {relation} SELECT {confirmed} FROM {TOLD} w JOIN work_fate f ON f.id = w.survey_id
            JOIN stage_{} s ON s._seq = f._seq WHERE s.status = w.new_status;
         CREATE TEMP TABLE {deletes} AS SELECT survey_id, changed_at, new_status FROM {relation} WHERE seen_by = 'both'",
        base.name
    ))?;
    comparison.record(changes, Some(&deletes), Some(&relation))
}

/// The last change of each survey, where a webhook alone told it and the scan began after it.
fn find_told(comparison: &mut Comparison<'_>, changes: &'static Table, seen_at: &str) -> Result<(), LoadError> {
    let stored = comparison.targets.relation(changes, None)?;
    comparison.execute(&format!(
        "CREATE TEMP TABLE {TOLD} AS SELECT * FROM (
            SELECT t.* FROM {stored} t QUALIFY row_number() OVER (PARTITION BY t.survey_id ORDER BY t.changed_at DESC) = 1)
         WHERE seen_by = 'webhook' AND changed_at <= {seen_at}"
    ))
}
