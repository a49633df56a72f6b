//! The fate of each record of a base table: new, edited, unchanged, back, vanished.
//!
//! Steps, each a temporary table `work_*`: `held` (what the warehouse has of the window, narrow), `suspect` (what is not
//! plainly unchanged), `gone` (what the scan no longer found), `old` (the warehouse's full rows of both), `fate` (the verdict).

use super::{
    super::{VanishPolicy, stage::DISCARDED},
    Comparison, LoadError, TimeBounds, delete_relation,
    doubles::{self, DOUBLES},
    sql::{bounds_of, column_list, equal_columns, key_of, select_list, timestamp_ms},
    upsert_relation,
};
use crate::{
    model::{Flag, FlagSet, RejectReason, Scan},
    schema::{Column, Table, quote_identifier, quote_text},
};

/// What the comparison of a base table found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fates {
    /// The warehouse holds none of the window: every staged record is new, and there are no tables in `work`.
    AllNew,
    /// `work_old`, `work_gone` and `work_fate` say what changes.
    Compared,
    /// Nothing changes.
    Unchanged,
}

/// Finds the fate of each staged record, and counts it.
pub(super) fn compare(
    comparison: &mut Comparison<'_>,
    base: &'static Table,
    vanish: &VanishPolicy,
) -> Result<Fates, LoadError> {
    let window = base.partition.is_some().then(|| bounds_of(comparison.scan.window));
    let outside = count_outside(comparison, base, window)?;
    let staged = comparison.count(&format!("SELECT count(*) FROM stage_{}", base.name))?;
    comparison.delta.counts.outside_window = outside;
    collect_held(comparison, base, window, outside > 0)?;
    let keys = column_list("h", key_of(base));
    let [held, held_keys] =
        comparison.integers(&format!("SELECT count(*), count(DISTINCT ({keys})) FROM work_held h"))?;
    if held == 0 {
        comparison.delta.counts.inserted = staged;
        return Ok(if staged == 0 { Fates::Unchanged } else { Fates::AllNew });
    }
    if held > held_keys {
        doubles::set_aside(comparison, base)?;
    }

    collect_suspects(comparison, base)?;
    collect_gone(comparison, base, window, vanish)?;
    let [suspects, gone] =
        comparison.integers("SELECT (SELECT count(*) FROM work_suspect), (SELECT count(*) FROM work_gone)")?;
    if suspects == 0 && gone == 0 {
        comparison.delta.counts.unchanged = staged;
        return Ok(Fates::Unchanged);
    }
    collect_old(comparison, base)?;
    judge(comparison, base)?;

    let [inserted, updated, soft_deleted] = comparison.integers(
        "SELECT count(*) FILTER (WHERE verdict = 'new'), count(*) FILTER (WHERE verdict <> 'new'), count(*) FILTER (WHERE is_deleted)
         FROM work_fate",
    )?;
    let counts = &mut comparison.delta.counts;
    counts.inserted = inserted.unsigned_abs();
    counts.updated = updated.unsigned_abs();
    counts.soft_deleted = soft_deleted.unsigned_abs();
    counts.vanished = gone.unsigned_abs();
    counts.unchanged = staged.saturating_sub(counts.inserted + counts.updated);
    let changes = counts.inserted + counts.updated + counts.vanished > 0;
    Ok(if changes { Fates::Compared } else { Fates::Unchanged })
}

/// Counts staged records outside the window; their keys go to `work_outside` if there are any.
fn count_outside(
    comparison: &Comparison<'_>,
    base: &'static Table,
    window: Option<TimeBounds>,
) -> Result<u64, LoadError> {
    let Some(inside) = window.map(|bounds| bounds.condition("s.created_at")) else { return Ok(0) };
    let outside = comparison.count(&format!("SELECT count(*) FROM stage_{} s WHERE NOT {inside}", base.name))?;
    if outside > 0 {
        let keys = column_list("s", key_of(base));
        let sql =
            format!("CREATE TEMP TABLE work_outside AS SELECT {keys} FROM stage_{} s WHERE NOT {inside}", base.name);
        comparison.execute(&sql)?;
    }
    Ok(outside)
}

/// `work_held`: what the warehouse holds in the window, and of the keys outside it, wherever that is.
pub(super) fn collect_held(
    comparison: &mut Comparison<'_>,
    base: &'static Table,
    window: Option<TimeBounds>,
    has_outside: bool,
) -> Result<(), LoadError> {
    let kept = |column: &&Column| {
        base.key.contains(&column.name)
            || base.partition.as_ref() == Some(&column.name)
            || matches!(column.name.as_str(), "survey_id" | "deleted_at" | "_row_hash" | "_flags" | "_vanished_at")
    };
    let columns = column_list("t", base.columns.iter().filter(kept).map(|column| column.name.as_str()));
    let relation = comparison.targets.relation(base, window)?;
    let inside = window.map_or("true".to_owned(), |bounds| bounds.condition("t.created_at"));
    let only_asked = comparison.only_asked();
    let mut sql =
        format!("CREATE TEMP TABLE work_held AS SELECT {columns} FROM {relation} t{only_asked} WHERE {inside}");
    if has_outside {
        let same_key = equal_columns("t", "o", &key_of(base));
        let keys = column_list("t", key_of(base));
        let everywhere = comparison.targets.relation(base, None)?;
        sql.push_str(&format!(
            " AND NOT EXISTS (SELECT 1 FROM work_outside o WHERE {same_key})
             UNION ALL SELECT {columns} FROM {everywhere} t SEMI JOIN work_outside o ON {same_key}
             QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY t._vanished_at DESC NULLS FIRST, t.created_at) = 1"
        ));
    }
    comparison.execute(&sql)
}

/// `work_suspect`: staged records that are new or may have changed.
fn collect_suspects(comparison: &Comparison<'_>, base: &'static Table) -> Result<(), LoadError> {
    let keys = column_list("s", key_of(base));
    let same_key = equal_columns("s", "h", &key_of(base));
    let held_at =
        base.partition.as_ref().map_or(String::new(), |at| format!(", h.{0} AS held_at", quote_identifier(at)));
    let other_flags = match base.column("_flags") {
        Some(_) => format!("h._flags <> {}", comparison.scan.flags.bits()),
        None => "false".to_owned(),
    };
    let is_doubled = comparison.is_doubled("s", base);
    comparison.execute(&format!(
        "CREATE TEMP TABLE work_suspect AS
         SELECT s._seq, {keys}{held_at}, {is_doubled} AS is_doubled, CASE
                WHEN h._row_hash IS NULL THEN 'new'
                WHEN {other_flags} THEN 'compare'
                WHEN h._row_hash <> s._row_hash THEN 'edited'
                WHEN h._vanished_at IS NOT NULL THEN 'back'
                ELSE 'doubled' END AS fate
         FROM stage_{} s LEFT JOIN work_held h ON {same_key}
         WHERE h._row_hash IS NULL OR {other_flags} OR h._row_hash <> s._row_hash OR h._vanished_at IS NOT NULL
            OR {is_doubled}",
        base.name
    ))
}

/// `work_gone`: rows of the window and scope that a complete scan no longer found, unless there are too many to believe it.
pub(super) fn collect_gone(
    comparison: &mut Comparison<'_>,
    base: &'static Table,
    window: Option<TimeBounds>,
    vanish: &VanishPolicy,
) -> Result<(), LoadError> {
    let in_scope = is_in_scope(comparison.scan, base, window, "h");
    let mut expected = is_expected(comparison.scan, base, window, "h");
    let keys = column_list("h", key_of(base));
    let held_at =
        base.partition.as_ref().map_or(String::new(), |at| format!(", h.{0} AS held_at", quote_identifier(at)));
    let same_key = equal_columns("h", "s", &key_of(base));
    if comparison.stage.rows(DISCARDED) > 0 {
        // The service has them; only their content is not wanted.
        let same_key = equal_columns("h", "d", &key_of(base));
        expected.push_str(&format!(" AND NOT EXISTS (SELECT 1 FROM stage_{DISCARDED} d WHERE {same_key})"));
    }
    if *vanish == VanishPolicy::Ignore {
        expected = "false".to_owned();
    }
    comparison.execute(&format!(
        "CREATE TEMP TABLE work_gone AS
         SELECT {keys}{held_at} FROM work_held h ANTI JOIN stage_{} s ON {same_key} WHERE {expected}",
        base.name
    ))?;
    let gone = comparison.count("SELECT count(*) FROM work_gone")?;
    let held = comparison.count(&format!("SELECT count(*) FROM work_held h WHERE {in_scope}"))?;
    let is_empty_answer = comparison.stage.records() == 0;
    // A record that is no JSON may be any of those that are not there.
    let may_be_broken = gone > 0 && *vanish != VanishPolicy::Accept && has_broken_records(comparison)?;
    if may_be_broken || vanish.withholds(gone, held, is_empty_answer) {
        comparison.delta.counts.withheld = gone;
        comparison.execute("TRUNCATE work_gone")?;
    }
    Ok(())
}

fn has_broken_records(comparison: &Comparison<'_>) -> Result<bool, LoadError> {
    if comparison.stage.rows("rejects") == 0 {
        return Ok(false);
    }
    let not_json = quote_text(&RejectReason::NotJson.to_string());
    Ok(comparison.count(&format!("SELECT count(*) FROM stage_rejects WHERE reason = {not_json}"))? > 0)
}

/// Whether the row `alias` is there and belongs to what the scan asked for, as SQL.
fn is_in_scope(scan: &Scan, base: &Table, window: Option<TimeBounds>, alias: &str) -> String {
    let mut in_scope = window.map_or("true".to_owned(), |bounds| bounds.condition(&format!("{alias}.created_at")));
    if let Some(survey_id) = scan.scope.survey_id.filter(|_| base.column("survey_id").is_some()) {
        in_scope.push_str(&format!(" AND {alias}.survey_id = {survey_id}"));
    }
    in_scope.push_str(&format!(" AND {alias}._vanished_at IS NULL"));
    in_scope
}

/// Whether a complete scan finds the row `alias` unless it is gone, as SQL.
pub(super) fn is_expected(scan: &Scan, base: &Table, window: Option<TimeBounds>, alias: &str) -> String {
    let mut expected = is_in_scope(scan, base, window, alias);
    if base.column("deleted_at").is_some() && !scan.flags.contains(Flag::WithDeletedResponses) {
        // A deleted row is not there for a scan that did not ask for deleted rows.
        expected.push_str(&format!(" AND {alias}.deleted_at IS NULL"));
    }
    expected
}

/// `work_old`: the warehouse's full rows of the suspects that it holds, and of what is gone.
fn collect_old(comparison: &mut Comparison<'_>, base: &'static Table) -> Result<(), LoadError> {
    let keys = column_list("w", key_of(base));
    let same_key = equal_columns("t", "w", &key_of(base));
    let (held_at, same_moment) = match &base.partition {
        Some(at) => (", w.held_at", format!(" AND t.{} = w.held_at", quote_identifier(at))),
        None => ("", String::new()),
    };
    comparison.execute(&format!(
        "CREATE TEMP TABLE work_wanted AS SELECT {keys}{held_at} FROM work_suspect w WHERE w.fate <> 'new'
         UNION ALL SELECT {keys}{held_at} FROM work_gone w"
    ))?;
    let mut bounds = None;
    if base.partition.is_some() {
        let [first_us, last_us] = comparison.integers(
            "SELECT coalesce(min(epoch_us(held_at)), 0), coalesce(max(epoch_us(held_at)), 0) FROM work_wanted",
        )?;
        bounds = Some(TimeBounds { start_us: first_us, end_us: last_us.saturating_add(1) });
    }
    let relation = comparison.targets.relation(base, bounds)?;
    let inside = bounds.map_or("true".to_owned(), |bounds| bounds.condition("t.created_at"));
    let columns = column_list("t", base.columns.iter().map(|column| column.name.as_str()));
    // What is there twice at one moment is one row.
    let only_one = match comparison.has_doubles {
        true => format!(
            " QUALIFY row_number() OVER (PARTITION BY {}) = 1",
            column_list("t", super::delta::delete_columns(base))
        ),
        false => String::new(),
    };
    comparison.execute(&format!(
        "CREATE TEMP TABLE work_old AS
         SELECT {columns} FROM {relation} t SEMI JOIN work_wanted w ON {same_key}{same_moment} WHERE {inside}{only_one}"
    ))
}

/// `work_fate`: the verdict on each suspect. Those that turn out unchanged are left out.
fn judge(comparison: &Comparison<'_>, base: &'static Table) -> Result<(), LoadError> {
    let same_key = equal_columns("o", "f", &key_of(base));
    let keys = column_list("f", key_of(base));
    let asks_for_deleted =
        base.column("deleted_at").is_some() && comparison.scan.flags.contains(Flag::WithDeletedResponses);
    // Without the flag the service leaves deleted rows out: that a row was stored without a time of deletion means, under any
    // flags, that it was not deleted. So a deletion is news even where the columns' flags would call it mere enrichment.
    let is_deleted = match asks_for_deleted {
        true => "coalesce(f.fate <> 'new' AND o.deleted_at IS NULL AND s.deleted_at IS NOT NULL, false)",
        false => "false",
    };
    let (edited, enriched) = differences(comparison, base);
    comparison.execute(&format!(
        "CREATE TEMP TABLE work_fate AS
         SELECT f._seq, {keys}, CASE
                WHEN f.fate <> 'compare' THEN f.fate
                WHEN {is_deleted} OR {edited} THEN 'edited'
                WHEN {enriched} THEN 'enriched'
                WHEN o._vanished_at IS NOT NULL THEN 'back'
                WHEN f.is_doubled THEN 'doubled' END AS verdict, {is_deleted} AS is_deleted, f.is_doubled
         FROM work_suspect f JOIN stage_{} s ON s._seq = f._seq LEFT JOIN work_old o ON {same_key}
         WHERE verdict IS NOT NULL",
        base.name
    ))
}

/// Conditions under which a row that was stored under other flags is edited (a column that both flag sets ask for differs) or
/// merely enriched (a column that this scan asks for differs).
fn differences(comparison: &Comparison<'_>, base: &'static Table) -> (String, String) {
    let mut edited = vec!["false".to_owned()];
    let mut enriched = vec!["false".to_owned()];
    for column in base.content_columns().filter(|column| comparison.was_asked_for(column)) {
        let name = quote_identifier(&column.name);
        let differs = format!("s.{name} IS DISTINCT FROM o.{name}");
        if let Some(flag) = column.flag {
            let bit = FlagSet::EMPTY.with(flag).bits();
            edited.push(format!("((o._flags & {bit}) <> 0 AND {differs})"));
        } else {
            edited.push(differs.clone());
        }
        enriched.push(differs);
    }
    (format!("({})", edited.join(" OR ")), format!("({})", enriched.join(" OR ")))
}

/// Puts the base table's changes into the delta.
pub(super) fn write(comparison: &mut Comparison<'_>, base: &'static Table, fates: Fates) -> Result<(), LoadError> {
    let (upserts, deletes) = (upsert_relation(base), delete_relation(base));
    let started = timestamp_ms(comparison.scan.started_ms);
    match fates {
        Fates::Unchanged => Ok(()),
        Fates::AllNew => {
            let row = select_list(base, |column| match comparison.stamp(column) {
                Some(stamp) => stamp,
                None if column.name == "_first_seen_at" => started.clone(),
                None if !comparison.was_asked_for(column) => format!("NULL::{}", column.column_type.duckdb()),
                None => format!("s.{}", quote_identifier(&column.name)),
            });
            comparison.execute(&format!("CREATE TEMP VIEW {upserts} AS SELECT {row} FROM stage_{} s", base.name))?;
            comparison.record(base, None, Some(&upserts))
        }
        Fates::Compared => {
            let same_key = equal_columns("o", "f", &key_of(base));
            // What the scan did not ask for stays as it was stored: it is never blanked.
            let changed = select_list(base, |column| match comparison.stamp(column) {
                Some(stamp) => stamp,
                // Scans are committed in another order than they begin.
                None if column.name == "_first_seen_at" => {
                    format!("least(coalesce(o._first_seen_at, {started}), {started})")
                }
                None if !comparison.was_asked_for(column) => format!("o.{}", quote_identifier(&column.name)),
                None => format!("s.{}", quote_identifier(&column.name)),
            });
            let gone = select_list(base, |column| match column.name.as_str() {
                "_vanished_at" => started.clone(),
                "_run_id" | "_synced_at" => comparison.stamp(column).unwrap_or_default(),
                name => format!("o.{}", quote_identifier(name)),
            });
            let taken_out = column_list("o", super::delta::delete_columns(base));
            let doubles = match comparison.has_doubles {
                true => format!(" UNION ALL SELECT {taken_out} FROM {DOUBLES} o"),
                false => String::new(),
            };
            comparison.execute(&format!(
                "CREATE TEMP TABLE {upserts} AS
                    SELECT {changed} FROM work_fate f JOIN stage_{name} s ON s._seq = f._seq LEFT JOIN work_old o ON {same_key}
                    UNION ALL SELECT {gone} FROM work_old o SEMI JOIN work_gone f ON {same_key};
                 CREATE TEMP TABLE {deletes} AS
                    SELECT {taken_out} FROM work_old o SEMI JOIN work_fate f ON {same_key}
                    UNION ALL SELECT {taken_out} FROM work_old o SEMI JOIN work_gone f ON {same_key}{doubles}",
                name = base.name
            ))?;
            comparison.record(base, Some(&deletes), Some(&upserts))
        }
    }
}

/// Rows that an empty answer may take: as many as one person may have given in one sitting.
const GONE_AT_ONCE_MAX: u64 = 6;

impl VanishPolicy {
    /// Whether so many rows gone, of those held, are too many to believe. A scan that found nothing at all is believed less:
    /// it looks the same as a service that has lost its way for a night.
    fn withholds(self, gone: u64, held: u64, is_empty_answer: bool) -> bool {
        match self {
            VanishPolicy::Accept | VanishPolicy::Ignore => false,
            // Counts of rows are far below 2^53: exact as f64.
            VanishPolicy::Guarded { .. } if is_empty_answer => gone > GONE_AT_ONCE_MAX,
            VanishPolicy::Guarded { share_max, rows_max } => gone > rows_max && gone as f64 > share_max * held as f64,
        }
    }
}
