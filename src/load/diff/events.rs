//! `webhook_events`, and the changes of status that webhooks tell, beside those that scans see.
//!
//! An event that the warehouse holds is left out, so the same deliveries can be applied any number of times. A change that a scan
//! and a webhook both saw is one row: see [`super::surveys`] for the other side.

use std::collections::BTreeMap;

use arrow::record_batch::RecordBatch;

use super::{
    super::stage::{Stage, append},
    Delta, Engine, LoadError, TableDelta, Targets, contract, delete_relation, delta_rows,
    sql::{select_list, timestamp_ms, timestamp_us},
    upsert_relation,
};
use crate::{
    load::{TimeBounds, destination::EventRows},
    model::{DAY_MS, EventKind},
    schema::{RECORD_COLUMN, quote_identifier, quote_text},
};

const EVENTS: &str = "webhook_events";
const CHANGES: &str = "survey_status_changes";
const ACTION: &str = "take in events";
/// An event that was told so long before is not looked for: it is stored once more.
const TOLD_BEFORE_US: i64 = 31 * DAY_MS * 1000;
/// A scan and a webhook that saw the same change saw it within this time.
const SAME_CHANGE_US: i64 = 7 * DAY_MS * 1000;

/// What the events change. The relations live in the engine until the next [`Stage::begin`] or [`Stage::clear`].
pub(in super::super) fn stage_events(
    engine: &Engine,
    targets: &mut dyn Targets,
    events: &EventRows,
) -> Result<Delta, LoadError> {
    Stage::clear(engine)?;
    let table = contract(EVENTS)?;
    let columns: Vec<String> = table
        .flat_columns()
        .map(|column| format!("{} {}, ", quote_identifier(&column.name), column.column_type.duckdb()))
        .collect();
    let staged = format!("stage_{EVENTS}");
    engine.execute(ACTION, &format!("CREATE TEMP TABLE {staged} ({}{RECORD_COLUMN} BIGINT)", columns.concat()))?;
    append(engine, EVENTS, std::slice::from_ref(&events.rows as &RecordBatch))?;
    let relation = upsert_relation(table);
    let [first_us, last_us] = engine.integers(
        ACTION,
        &format!(
            "SELECT coalesce(min(epoch_us(received_at)), 0), coalesce(max(epoch_us(received_at)), 0) FROM {staged}"
        ),
    )?;
    let bounds = TimeBounds { start_us: first_us - TOLD_BEFORE_US, end_us: last_us.saturating_add(1) };
    let row = select_list(table, |column| {
        stamp(events, &column.name).unwrap_or_else(|| format!("s.{}", quote_identifier(&column.name)))
    });
    let stored = targets.relation(table, Some(bounds))?;
    let inside = bounds.condition("t.received_at");
    engine.execute(
        ACTION,
        &format!(
            "CREATE TEMP TABLE {relation} AS SELECT {row} FROM {staged} s
             WHERE NOT EXISTS (SELECT 1 FROM {stored} t WHERE t.event_key = s.event_key AND {inside})
             QUALIFY row_number() OVER (PARTITION BY s.event_key ORDER BY s.{RECORD_COLUMN}) = 1"
        ),
    )?;
    let mut delta = Delta::default();
    if let Some(upserts) = delta_rows(engine, table, &relation)? {
        delta.counts.inserted = upserts.rows;
        delta.tables.push(TableDelta { table, deletes: None, upserts: Some(upserts) });
        delta.tables.extend(status_changes(engine, targets, events, &relation)?);
    }
    Ok(delta)
}

fn stamp(events: &EventRows, column: &str) -> Option<String> {
    match column {
        "_run_id" => Some(quote_text(&events.run_id.0)),
        "_synced_at" => Some(timestamp_ms(events.applied_ms)),
        _ => None,
    }
}

/// A row of `survey_status_changes`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    at_us: i64,
    old: Option<String>,
    new: Option<String>,
    seen_by: String,
}

/// What is known of one survey, in order of time, and what becomes of it.
#[derive(Debug, Default)]
struct Known {
    changes: Vec<Change>,
    gone: Vec<Change>,
    added: Vec<Change>,
}

impl Known {
    /// A webhook says that the status went from `old` to `new`.
    ///
    /// It counts where it follows from the last status that is known. Else it may be late, or something before it was lost: then
    /// it tells nothing sure, and the scan that it wakes sees what is there.
    fn take(&mut self, at_us: i64, old: &str, new: &str) {
        let is_same = |change: &&mut Change| {
            change.old.as_deref() == Some(old)
                && change.new.as_deref() == Some(new)
                && change.at_us.abs_diff(at_us) <= SAME_CHANGE_US.unsigned_abs()
        };
        let Some(last) = self.changes.last() else { return };
        if last.new.as_deref() == Some(old) && last.at_us < at_us {
            let change = Change { at_us, old: Some(old.into()), new: Some(new.into()), seen_by: "webhook".into() };
            self.changes.push(change.clone());
            self.added.push(change);
            return;
        }
        let Some(seen) = self.changes.iter_mut().rev().find(is_same).filter(|seen| seen.seen_by == "scan") else {
            return;
        };
        self.gone.push(seen.clone());
        (seen.at_us, seen.seen_by) = (seen.at_us.min(at_us), "both".into());
        self.added.push(seen.clone());
    }
}

fn status_changes(
    engine: &Engine,
    targets: &mut dyn Targets,
    events: &EventRows,
    new_events: &str,
) -> Result<Option<TableDelta>, LoadError> {
    let told = told(engine, new_events)?;
    if told.is_empty() {
        return Ok(None);
    }
    let table = contract(CHANGES)?;
    let stored = targets.relation(table, None)?;
    let mut known = known(engine, &stored, told.iter().map(|(survey, ..)| *survey))?;
    for (survey, at_us, old, new) in &told {
        if let Some(known) = known.get_mut(survey) {
            known.take(*at_us, old, new);
        }
    }
    let text = |text: &Option<String>| text.as_deref().map_or("NULL::VARCHAR".to_owned(), quote_text);
    let (mut gone, mut added) = (Vec::new(), Vec::new());
    for (survey, known) in &known {
        let key =
            |change: &Change| format!("({survey}::BIGINT, {}, {})", timestamp_us(change.at_us), text(&change.new));
        gone.extend(known.gone.iter().map(key));
        added.extend(known.added.iter().map(|change| {
            let row = select_list(table, |column| match column.name.as_str() {
                "survey_id" => format!("{survey}::BIGINT"),
                "changed_at" => timestamp_us(change.at_us),
                "old_status" => text(&change.old),
                "new_status" => text(&change.new),
                "seen_by" => quote_text(&change.seen_by),
                name => stamp(events, name).unwrap_or_else(|| "NULL".to_owned()),
            });
            format!("SELECT {row}")
        }));
    }
    if added.is_empty() {
        return Ok(None);
    }
    let (upserts, deletes) = (upsert_relation(table), delete_relation(table));
    engine.execute(ACTION, &format!("CREATE TEMP TABLE {upserts} AS {}", added.join(" UNION ALL ")))?;
    let deletes = match gone.is_empty() {
        true => None,
        false => {
            let sql = "(survey_id, changed_at, new_status)";
            let rows = gone.join(", ");
            engine.execute(ACTION, &format!("CREATE TEMP TABLE {deletes} AS SELECT * FROM (VALUES {rows}) v{sql}"))?;
            delta_rows(engine, table, &deletes)?
        }
    };
    Ok(Some(TableDelta { table, deletes, upserts: delta_rows(engine, table, &upserts)? }))
}

/// Survey, moment, old and new status of each change that new events tell, in order of time.
fn told(engine: &Engine, new_events: &str) -> Result<Vec<(i64, i64, String, String)>, LoadError> {
    let failed = |source| LoadError::engine(ACTION, source);
    let sql = format!(
        "SELECT survey_id, epoch_us(coalesce(occurred_at, received_at)) AS at_us, old_status, status FROM {new_events}
         WHERE kind = {} AND survey_id IS NOT NULL AND old_status <> status ORDER BY at_us, received_at",
        quote_text(EventKind::StudyStatusChanged.name())
    );
    let mut statement = engine.connection().prepare(&sql).map_err(failed)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
    rows.and_then(Iterator::collect).map_err(failed)
}

fn known(engine: &Engine, stored: &str, surveys: impl Iterator<Item = i64>) -> Result<BTreeMap<i64, Known>, LoadError> {
    let failed = |source| LoadError::engine(ACTION, source);
    let surveys: Vec<String> = surveys.map(|survey| survey.to_string()).collect();
    let sql = format!(
        "SELECT survey_id, epoch_us(changed_at), old_status, new_status, seen_by FROM {stored} t
         WHERE survey_id IN ({}) ORDER BY changed_at",
        surveys.join(", ")
    );
    let mut statement = engine.connection().prepare(&sql).map_err(failed)?;
    let rows = statement.query_map([], |row| {
        let change = Change { at_us: row.get(1)?, old: row.get(2)?, new: row.get(3)?, seen_by: row.get(4)? };
        Ok((row.get::<_, i64>(0)?, change))
    });
    let mut known: BTreeMap<i64, Known> = BTreeMap::new();
    for row in rows.map_err(failed)? {
        let (survey, change) = row.map_err(failed)?;
        known.entry(survey).or_default().changes.push(change);
    }
    Ok(known)
}
