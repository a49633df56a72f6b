//! `survey_history` (every version of every survey, the current one too) and `survey_status_changes`.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array as _, ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, new_null_array},
    compute::concat_batches,
    datatypes::DataType,
};

use super::{
    records::rows_where,
    stamps::{column_of, moment, null, rows_of, stamp, text},
    write::Written,
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        error::invalid_rows,
        store::{
            BufferedStore, Filter, KeySet, TableChange, boolean_column, number_column, text_column, time_column,
            written_us,
        },
    },
    model::Scan,
    schema::Table,
};

/// The surveys that a scan changes.
struct Changed<'s> {
    scan: &'s Scan,
    /// New and changed ones, as the service has them.
    rows: RecordBatch,
    /// Of each of them, the status before; outer `None`: it was not there.
    before: Vec<Option<Option<String>>>,
    /// Those that vanished, with the status that they had.
    gone: BTreeMap<i64, Option<String>>,
}

/// Writes the versions and changes of status that the scan brings. `old` are stored surveys whole, `gone` those of them that vanished.
pub(super) fn write(
    store: &mut BufferedStore,
    scan: &Scan,
    base: &'static Table,
    written: &Written,
    old: &RecordBatch,
    gone: &RecordBatch,
) -> Result<(), LoadError> {
    let changed = changed(scan, base, written, old, gone)?;
    if changed.rows.num_rows() == 0 && changed.gone.is_empty() {
        return Ok(());
    }
    write_history(store, &changed)?;
    write_status_changes(store, &changed)
}

fn changed<'s>(
    scan: &'s Scan,
    base: &'static Table,
    written: &Written,
    old: &RecordBatch,
    gone: &RecordBatch,
) -> Result<Changed<'s>, LoadError> {
    let statuses = text_column(old, "status")?;
    let vanished = time_column(old, "_vanished_at")?;
    let status = |row: usize| {
        (row < old.num_rows() && vanished.is_null(row))
            .then(|| statuses.is_valid(row).then(|| statuses.value(row).to_owned()))
    };
    let before = written.changed.iter().flat_map(|(_, old)| old).map(|old| old.and_then(status)).collect();
    let batches: Vec<RecordBatch> = written.changed.iter().map(|(rows, _)| rows.clone()).collect();
    let rows = concat_batches(&base.flat_schema(), &batches).map_err(invalid_rows(base))?;
    let ids = number_column(gone, "id")?.values();
    let had = text_column(gone, "status")?.iter().map(|status| status.map(str::to_owned));
    Ok(Changed { scan, rows, before, gone: ids.iter().copied().zip(had).collect() })
}

impl Changed<'_> {
    /// The ids as a column of this name.
    fn keys(&self, column: &'static str) -> Result<KeySet, LoadError> {
        let changed = number_column(&self.rows, "id")?.values();
        let ids = changed.iter().chain(self.gone.keys()).copied();
        KeySet::of_values(column, Arc::new(Int64Array::from_iter_values(ids)))
    }
}

fn write_history(store: &mut BufferedStore, changed: &Changed<'_>) -> Result<(), LoadError> {
    let history = contract("survey_history")?;
    let (scan, started_ms) = (changed.scan, changed.scan.started_ms);
    let keys = changed.keys("id")?;
    let mut change = TableChange::new(history);
    for rows in store.full_rows(history, &Filter::all().with_keys(&keys))? {
        let is_current = boolean_column(&rows, "is_current")?;
        let ending = rows_where(history, &rows, |row| is_current.is_valid(row) && is_current.value(row))?;
        let count = ending.num_rows();
        change.remove(&ending)?;
        change.add(rows_of(history, count, |column| {
            Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
                (Some(stamp), _) => stamp,
                (None, "valid_to") => moment(started_ms, count),
                (None, "is_current") => Arc::new(BooleanArray::from(vec![false; count])),
                (None, name) => column_of(history, &ending, name)?,
            }))
        })?);
    }
    let count = changed.rows.num_rows();
    change.add(rows_of(history, count, |column| {
        Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
            (Some(stamp), _) => stamp,
            (None, "valid_from") => moment(started_ms, count),
            (None, "valid_to") => null(column, count),
            (None, "is_current") => Arc::new(BooleanArray::from(vec![true; count])),
            (None, name) => column_of(history, &changed.rows, name)?,
        }))
    })?);
    store.change(change)
}

/// A change of status that a webhook told, and no scan has seen.
#[derive(Clone, Debug)]
struct Told {
    at_us: i64,
    status: Option<String>,
    is_unseen: bool,
    /// The row, whole.
    row: RecordBatch,
}

/// The last change of each of these surveys, where a webhook alone told it and the scan began after it.
fn told(
    store: &mut BufferedStore,
    changed: &Changed<'_>,
    table: &'static Table,
) -> Result<BTreeMap<i64, Told>, LoadError> {
    let keys = changed.keys("survey_id")?;
    let started_us = written_us(changed.scan.started_ms.saturating_mul(1000));
    let mut last: BTreeMap<i64, Told> = BTreeMap::new();
    for rows in store.full_rows(table, &Filter::all().with_keys(&keys))? {
        let (surveys, moments) = (number_column(&rows, "survey_id")?, time_column(&rows, "changed_at")?);
        let (statuses, seen_by) = (text_column(&rows, "new_status")?, text_column(&rows, "seen_by")?);
        for row in 0..rows.num_rows() {
            let found = Told {
                at_us: moments.value(row),
                status: statuses.is_valid(row).then(|| statuses.value(row).to_owned()),
                is_unseen: seen_by.is_valid(row) && seen_by.value(row) == "webhook",
                row: rows.slice(row, 1),
            };
            let held = last.entry(surveys.value(row)).or_insert_with(|| found.clone());
            if found.at_us > held.at_us {
                *held = found;
            }
        }
    }
    last.retain(|_, told| told.is_unseen && told.at_us <= started_us);
    Ok(last)
}

/// A survey that vanished has no status: it loses the one it had, and gets one again when it is back. What a webhook told since the last
/// scan is known, and is the status before; what the scan sees too is seen by both: one row, at the time of the webhook.
fn write_status_changes(store: &mut BufferedStore, changed: &Changed<'_>) -> Result<(), LoadError> {
    let table = contract("survey_status_changes")?;
    let told = told(store, changed, table)?;
    let mut change = TableChange::new(table);
    let ids = number_column(&changed.rows, "id")?.values();
    let statuses = text_column(&changed.rows, "status")?.iter().map(|status| status.map(str::to_owned));
    let (mut surveys, mut from, mut to) = (Vec::new(), Vec::new(), Vec::new());
    let mut put = |survey: i64, before: Option<String>, after: Option<String>| {
        if before != after {
            surveys.push(survey);
            from.push(before);
            to.push(after);
        }
    };
    for ((survey, status), before) in ids.iter().zip(statuses).zip(&changed.before) {
        let told = told.get(survey);
        if let Some(told) = told.filter(|told| told.status == status) {
            change.remove(&told.row)?;
            change.add(confirmed(table, changed.scan, &told.row)?);
        }
        put(*survey, told.map_or_else(|| before.clone().flatten(), |told| told.status.clone()), status);
    }
    for (survey, status) in &changed.gone {
        put(*survey, told.get(survey).and_then(|told| told.status.clone()).or_else(|| status.clone()), None);
    }
    let count = surveys.len();
    let texts = |texts: &[Option<String>]| -> ArrayRef {
        Arc::new(texts.iter().map(Option::as_deref).collect::<StringArray>())
    };
    change.add(rows_of(table, count, |column| {
        Ok(Some(match (stamp(changed.scan, column, count), column.name.as_str()) {
            (Some(stamp), _) => stamp,
            (None, "survey_id") => Arc::new(Int64Array::from(surveys.clone())),
            (None, "changed_at") => moment(changed.scan.started_ms, count),
            (None, "old_status") => texts(&from),
            (None, "new_status") => texts(&to),
            (None, "seen_by") => text("scan", count),
            (None, _) => new_null_array(&DataType::Utf8, count),
        }))
    })?);
    store.change(change)
}

fn confirmed(table: &Table, scan: &Scan, row: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let count = row.num_rows();
    rows_of(table, count, |column| {
        Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
            (Some(stamp), _) => stamp,
            (None, "seen_by") => text("both", count),
            (None, name) => column_of(table, row, name)?,
        }))
    })
}
