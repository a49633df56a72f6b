//! `survey_history` (every version of every survey, the current one too) and `survey_status_changes`.

use super::{
    Comparison, LoadError,
    base::Fates,
    contract, delete_relation,
    sql::{select_list, timestamp_ms},
    upsert_relation,
};
use crate::schema::{Table, quote_identifier};

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
        comparison.execute(&format!("CREATE VIEW {upserts} AS SELECT {opened} FROM stage.{} s", base.name))?;
        return comparison.record(history, None, Some(&upserts));
    }
    let closed = select_list(history, |column| match column.name.as_str() {
        "valid_to" => started.clone(),
        "is_current" => "false".to_owned(),
        name => comparison.stamp(column).unwrap_or_else(|| format!("t.{}", quote_identifier(name))),
    });
    let stored = comparison.targets.relation(history, None)?;
    comparison.execute(&format!(
        "CREATE TABLE {upserts} AS
            SELECT {closed} FROM {stored} t SEMI JOIN (
                SELECT id FROM work.fate UNION ALL SELECT id FROM work.gone) c ON t.id = c.id
            WHERE t.is_current
            UNION ALL SELECT {opened} FROM stage.{} s SEMI JOIN work.fate f ON s._seq = f._seq;
         CREATE TABLE {deletes} AS SELECT id, valid_from FROM {upserts} WHERE NOT is_current",
        base.name
    ))?;
    comparison.record(history, Some(&deletes), Some(&upserts))
}

/// A survey that vanished has no status: it loses the one it had, and gets one again when it is back.
fn write_status_changes(comparison: &mut Comparison<'_>, base: &Table, fates: Fates) -> Result<(), LoadError> {
    let changes = contract("survey_status_changes")?;
    let relation = upsert_relation(changes);
    let seen_at = timestamp_ms(comparison.scan.started_ms);
    let source = match fates {
        Fates::Compared => format!(
            "SELECT f.id, CASE WHEN o._vanished_at IS NULL THEN o.status END AS old_status, s.status AS new_status
             FROM work.fate f JOIN stage.{} s ON s._seq = f._seq LEFT JOIN work.old o ON o.id = f.id
             UNION ALL SELECT o.id, o.status, NULL FROM work.old o SEMI JOIN work.gone g ON o.id = g.id",
            base.name
        ),
        // Typed: a bare NULL is an integer, and Parquet's parts would not go together.
        Fates::AllNew | Fates::Unchanged => format!("SELECT id, NULL::VARCHAR, status FROM stage.{}", base.name),
    };
    let row = select_list(changes, |column| match column.name.as_str() {
        "survey_id" => "c.id".to_owned(),
        "changed_at" => seen_at.clone(),
        "seen_by" => "'scan'".to_owned(),
        name => comparison.stamp(column).unwrap_or_else(|| format!("c.{}", quote_identifier(name))),
    });
    comparison.execute(&format!(
        "CREATE TABLE {relation} AS SELECT {row} FROM ({source}) c(id, old_status, new_status)
         WHERE c.old_status IS DISTINCT FROM c.new_status"
    ))?;
    comparison.record(changes, None, Some(&relation))
}
