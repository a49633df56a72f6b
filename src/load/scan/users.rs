//! `user_attributes`: a value that changed is closed, the one in its place is opened, and what stayed is left alone.
//!
//! A person whom the service no longer knows has no attributes any more; one who is back has those that were found.

use std::sync::Arc;

use arrow::array::{Array as _, BooleanArray, RecordBatch};
use foldhash::HashSet;

use super::{
    records::rows_where,
    stamps::{column_of, moment, null, rows_of, stamp},
    values::value_hashes,
    write::Written,
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        store::{BufferedStore, Filter, KeySet, TableChange, boolean_column, time_column, written_us},
    },
    model::Scan,
    schema::Table,
};

/// Whose attributes they are.
const PERSON: [&str; 1] = ["external_user_id"];
/// What makes two values of an attribute the same.
const SAME_VALUE: [&str; 6] = ["external_user_id", "name", "json_type", "value_text", "value_number", "value_bool"];

/// Writes the changes of attributes. `gone` are the people whom the service no longer knows.
pub(super) fn write(
    store: &mut BufferedStore,
    scan: &Scan,
    written: &Written,
    gone: &RecordBatch,
) -> Result<(), LoadError> {
    let table = contract("user_attributes")?;
    let mut people = KeySet::new(PERSON.to_vec());
    people.add(gone)?;
    written.changed.iter().try_for_each(|(rows, _)| people.add(rows))?;
    let mut found: HashSet<u128> = HashSet::default();
    for rows in &written.parts {
        found.extend(value_hashes(&SAME_VALUE, rows)?);
    }
    let mut held: HashSet<u128> = HashSet::default();
    let mut change = TableChange::new(table);
    for rows in store.full_rows(table, &Filter::all().with_keys(&people))? {
        let is_current = boolean_column(&rows, "is_current")?;
        let rows = rows_where(table, &rows, |row| is_current.is_valid(row) && is_current.value(row))?;
        let values = value_hashes(&SAME_VALUE, &rows)?;
        held.extend(&values);
        let ended = rows_where(table, &rows, |row| values.get(row).is_some_and(|value| !found.contains(value)))?;
        change.remove(&ended)?;
        change.add(closed(table, scan, &ended)?);
    }
    for rows in &written.parts {
        let values = value_hashes(&SAME_VALUE, rows)?;
        let new = rows_where(table, rows, |row| values.get(row).is_some_and(|value| !held.contains(value)))?;
        change.add(opened(table, scan, &new)?);
    }
    store.change(change)
}

/// Rows of a page as present values.
fn opened(table: &Table, scan: &Scan, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let count = rows.num_rows();
    rows_of(table, count, |column| {
        Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
            (Some(stamp), _) => stamp,
            (None, "valid_from") => moment(scan.started_ms, count),
            (None, "valid_to") => null(column, count),
            (None, "is_current") => Arc::new(BooleanArray::from(vec![true; count])),
            (None, name) => column_of(table, rows, name)?,
        }))
    })
}

/// Stored rows as values of the past; but one that was opened in the same instant stood for no time at all.
fn closed(table: &Table, scan: &Scan, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let (opened, started_us) = (time_column(rows, "valid_from")?, written_us(scan.started_ms.saturating_mul(1000)));
    let rows = rows_where(table, rows, |row| opened.is_valid(row) && opened.value(row) < started_us)?;
    let count = rows.num_rows();
    rows_of(table, count, |column| {
        Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
            (Some(stamp), _) => stamp,
            (None, "valid_to") => moment(scan.started_ms, count),
            (None, "is_current") => Arc::new(BooleanArray::from(vec![false; count])),
            (None, name) => column_of(table, &rows, name)?,
        }))
    })
}
