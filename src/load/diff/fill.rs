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
    Engine, LoadError, Targets, TimeBounds, contract,
    sql::bounds_of,
};
use crate::{
    model::{Scan, Stream},
    schema::{Column, Origin, Table, children_of},
};

/// Rows to be added to a table as they are.
#[derive(Clone, Debug)]
pub struct Fill {
    pub table: &'static Table,
    /// Columns of the table, in its order and by name; those that a batch lacks are NULL.
    pub rows: Vec<RecordBatch>,
    /// Range of the partition column over the rows; `None` for a table without one.
    pub bounds: Option<TimeBounds>,
}

/// Takes the rows of the base table and its children from the stage, if they can go this way; parents before children.
pub(super) fn take(
    engine: &Engine,
    stage: &mut Stage,
    targets: &mut dyn Targets,
) -> Result<Option<Vec<Fill>>, LoadError> {
    let scan = stage.scan().clone();
    let Some(base) = plain_base(stage)? else { return Ok(None) };
    if holds_any(engine, targets, &scan, base)? {
        return Ok(None);
    }
    let tables = std::iter::once(base).chain(children_of(&base.name));
    let fills: Result<Vec<Fill>, LoadError> = tables.map(|table| fill(stage, table, &scan)).collect();
    Ok(Some(fills?.into_iter().filter(|fill| !fill.rows.is_empty()).collect()))
}

/// The base table, if the scan goes through a list of records that each stand for themselves, all created inside its window, with
/// nothing about them to be judged.
pub(super) fn plain_base(stage: &Stage) -> Result<Option<&'static Table>, LoadError> {
    let scan = stage.scan();
    let is_list_of_records = matches!(scan.scope.stream, Stream::Responses | Stream::Themes);
    if !is_list_of_records || !stage.is_plain() {
        return Ok(None);
    }
    let base = contract(scan.scope.stream.name())?;
    Ok(is_inside(scan, base, stage.waiting(&base.name))?.then_some(base))
}

/// Whether all rows were created inside the window.
fn is_inside(scan: &Scan, base: &Table, batches: &[RecordBatch]) -> Result<bool, LoadError> {
    let window = bounds_of(scan.window);
    let is_within = |held: TimeBounds| held.start_us >= window.start_us && held.end_us <= window.end_us;
    Ok(base.partition.is_some() && bounds(base, batches)?.is_none_or(is_within))
}

/// The range of the partition column; `None` without one, and without rows.
fn bounds(table: &Table, batches: &[RecordBatch]) -> Result<Option<TimeBounds>, LoadError> {
    let Some(at) = &table.partition else { return Ok(None) };
    let mut held: Option<TimeBounds> = None;
    for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
        let moments = column_of::<TimestampMicrosecondType>(batch, at)?;
        let (Some(first), Some(last), 0) = (min(moments), max(moments), moments.null_count()) else {
            return Err(LoadError::Contract(format!("a row of {} without {at}", table.name)));
        };
        held = TimeBounds::hull(held, Some(TimeBounds { start_us: first, end_us: last.saturating_add(1) }));
    }
    Ok(held)
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
    let bounds = bounds(table, &waiting)?;
    let is_wanted = |column: &&Column| column.flag.is_none_or(|flag| scan.flags.contains(flag));
    let columns: Vec<&Column> = table.columns.iter().filter(is_wanted).collect();
    let filled = waiting.iter().filter(|batch| batch.num_rows() > 0).map(|batch| full(batch, table, &columns, scan));
    Ok(Fill { table, rows: filled.collect::<Result<_, _>>()?, bounds })
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
