//! The short way of a scan whose window the warehouse holds nothing of, as in a backfill: its rows go into the tables as they are,
//! and are not staged.
//!
//! Only where nothing about them is for the comparison to judge: no key came twice with other content, no record is a reject, and all
//! were created inside the window. Snapshots of visitors are compared as ever: a session may have begun in another window.

use std::sync::Arc;

use arrow::{
    array::{Array as _, ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray},
    compute::{max, min},
    datatypes::{Field, Schema, TimestampMicrosecondType},
};

use super::{
    super::stage::{Stage, column_of},
    Engine, LoadError, Targets, contract,
    sql::bounds_of,
};
use crate::{
    model::{Scan, Stream},
    schema::{Column, Origin, Table, children_of},
};

/// Rows to be appended to a table.
#[derive(Clone, Debug)]
pub struct Fill {
    pub table: &'static Table,
    /// Of equal columns, under the names of the table's; the table's others are NULL.
    pub batches: Vec<RecordBatch>,
    pub rows: u64,
}

/// Takes the rows of the base table and its children from the stage, if they can go this way; parents before children.
pub(super) fn take(
    engine: &Engine,
    stage: &mut Stage,
    targets: &mut dyn Targets,
) -> Result<Option<Vec<Fill>>, LoadError> {
    let scan = stage.scan().clone();
    let is_list_of_records = matches!(scan.scope.stream, Stream::Responses | Stream::Themes);
    if !is_list_of_records || !targets.takes_appends() || !stage.is_plain() {
        return Ok(None);
    }
    let base = contract(scan.scope.stream.name())?;
    if !is_inside(&scan, base, stage.waiting(&base.name))? || holds_any(engine, targets, &scan, base)? {
        return Ok(None);
    }
    let tables = std::iter::once(base).chain(children_of(&base.name));
    let fills: Result<Vec<Fill>, LoadError> = tables.map(|table| fill(stage, table, &scan)).collect();
    Ok(Some(fills?.into_iter().filter(|fill| fill.rows > 0).collect()))
}

/// Whether there are rows, all created inside the window.
fn is_inside(scan: &Scan, base: &Table, batches: &[RecordBatch]) -> Result<bool, LoadError> {
    let Some(at) = &base.partition else { return Ok(false) };
    let bounds = bounds_of(scan.window);
    for batch in batches {
        let created = column_of::<TimestampMicrosecondType>(batch, at)?;
        let (first, last) = (min(created), max(created));
        if created.null_count() > 0
            || first.is_some_and(|first| first < bounds.start_us)
            || last.is_some_and(|last| last >= bounds.end_us)
        {
            return Ok(false);
        }
    }
    Ok(batches.iter().any(|batch| batch.num_rows() > 0))
}

fn holds_any(engine: &Engine, targets: &mut dyn Targets, scan: &Scan, base: &'static Table) -> Result<bool, LoadError> {
    let bounds = bounds_of(scan.window);
    let (relation, inside) = (targets.relation(base, Some(bounds))?, bounds.condition("t.created_at"));
    let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {relation} t WHERE {inside} LIMIT 1)");
    let [held] = engine.integers("compare a scan with the warehouse", &sql)?;
    Ok(held > 0)
}

fn fill(stage: &mut Stage, table: &'static Table, scan: &Scan) -> Result<Fill, LoadError> {
    let waiting = stage.take_waiting(&table.name);
    let is_wanted = |column: &&Column| column.flag.is_none_or(|flag| scan.flags.contains(flag));
    let has_values = |column: &&Column| {
        let values =
            |batch: &RecordBatch| batch.column_by_name(&column.name).map(|values| values.len() - values.null_count());
        column.origin == Origin::Load || waiting.iter().any(|batch| values(batch).is_some_and(|values| values > 0))
    };
    let columns: Vec<&Column> = table.columns.iter().filter(is_wanted).filter(has_values).collect();
    let batches: Result<Vec<RecordBatch>, LoadError> =
        waiting.iter().map(|batch| full(batch, table, &columns, scan)).collect();
    let rows = waiting.iter().map(|batch| batch.num_rows() as u64).sum();
    Ok(Fill { table, batches: batches?, rows })
}

/// The batch with the columns that are filled the same way for every row of the scan.
fn full(batch: &RecordBatch, table: &Table, columns: &[&Column], scan: &Scan) -> Result<RecordBatch, LoadError> {
    let (mut fields, mut arrays) = (Vec::with_capacity(columns.len()), Vec::with_capacity(columns.len()));
    for column in columns {
        let array = match column.origin {
            Origin::Load => match stamp(column, scan, batch.num_rows())? {
                Some(stamp) => stamp,
                None => continue,
            },
            _ => Arc::clone(batch.column_by_name(&column.name).ok_or_else(|| unfit(table, column))?),
        };
        fields.push(Field::new(&column.name, array.data_type().clone(), true));
        arrays.push(array);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map_err(|error| LoadError::Contract(format!("{}: {error}", table.name)))
}

/// The same values as [`super::Comparison::stamp`] writes in SQL, and that of `_first_seen_at` in a new row; `None`: NULL.
fn stamp(column: &Column, scan: &Scan, rows: usize) -> Result<Option<ArrayRef>, LoadError> {
    let started = || Arc::new(TimestampMicrosecondArray::from_value(scan.started_ms.saturating_mul(1000), rows));
    Ok(match column.name.as_str() {
        "_run_id" => Some(Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&scan.run_id.0, rows)))),
        "_synced_at" | "_first_seen_at" => Some(started()),
        "_flags" => Some(Arc::new(Int64Array::from_value(scan.flags.bits().into(), rows))),
        "_vanished_at" => None,
        name => return Err(LoadError::Contract(format!("nothing is known of the column {name}"))),
    })
}

fn unfit(table: &Table, column: &Column) -> LoadError {
    LoadError::Contract(format!("a batch of {} without {}", table.name, column.name))
}
