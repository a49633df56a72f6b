//! The short way of a scan whose window the warehouse holds nothing of, as in a backfill: its rows go into the tables as they are,
//! and are not staged.
//!
//! Only where nothing about them is for the comparison to judge: no key came twice with other content, no record is a reject, all
//! were created inside the window, and no snapshot of a visitor takes the place of one of another window.

use std::sync::Arc;

use arrow::{
    array::{Array as _, ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray},
    compute::{max, min},
    datatypes::{Field, Schema, TimestampMicrosecondType},
};

use super::{
    super::stage::{Stage, column_of},
    Engine, LoadError, Targets, TimeBounds, contract, sessions,
    sql::bounds_of,
};
use crate::{
    load::pending::Pending,
    model::{Flag, Scan, Stream},
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

/// Takes the rows out of the stage, if they can go this way; parents before children.
pub(super) fn take(
    engine: &Engine,
    stage: &mut Stage,
    targets: &mut dyn Targets,
    pending: &Pending,
) -> Result<Option<Vec<Fill>>, LoadError> {
    let scan = stage.scan().clone();
    let Some(base) = plain_base(stage)? else { return Ok(None) };
    if holds_any(engine, targets, base, bounds_of(scan.window))? {
        return Ok(None);
    }
    let mut fills = Vec::new();
    if brings_snapshots(&scan) {
        let table = contract("visitor_snapshots")?;
        let waiting = pending.rows(table);
        let Some(new) = sessions::find(engine, stage, targets, table, waiting)? else { return Ok(None) };
        for table in family(table) {
            fills.push(fill(new.rows(stage.take_waiting(&table.name))?, table, &scan)?);
        }
    }
    for table in family(base) {
        fills.push(fill(stage.take_waiting(&table.name), table, &scan)?);
    }
    fills.retain(|fill| !fill.rows.is_empty());
    Ok(Some(fills))
}

/// Whether visitors' snapshots come with the records.
pub(super) fn brings_snapshots(scan: &Scan) -> bool {
    scan.flags.contains(Flag::WithSnapshots) && scan.scope.stream == Stream::Responses
}

/// A table and its children.
pub(super) fn family(table: &'static Table) -> impl Iterator<Item = &'static Table> {
    std::iter::once(table).chain(children_of(&table.name))
}

/// Whether the scan goes through a list of records that each stand for themselves.
pub(super) fn lists_records(scan: &Scan) -> bool {
    matches!(scan.scope.stream, Stream::Responses | Stream::Themes)
}

/// The base table, if the scan goes through a list of records that each stand for themselves, all created inside its window, with
/// nothing about them to be judged.
pub(super) fn plain_base(stage: &Stage) -> Result<Option<&'static Table>, LoadError> {
    let scan = stage.scan();
    if !lists_records(scan) || !stage.is_plain() {
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
pub(super) fn bounds(table: &Table, batches: &[RecordBatch]) -> Result<Option<TimeBounds>, LoadError> {
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

fn holds_any(
    engine: &Engine,
    targets: &mut dyn Targets,
    base: &'static Table,
    bounds: TimeBounds,
) -> Result<bool, LoadError> {
    if let Some(is_held) = targets.is_known_to_hold(base, bounds)? {
        return Ok(is_held);
    }
    let (relation, inside) = (targets.relation(base, Some(bounds))?, bounds.condition("t.created_at"));
    let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {relation} t WHERE {inside} LIMIT 1)");
    let [held] = engine.integers("compare a scan with the warehouse", &sql)?;
    Ok(held > 0)
}

fn fill(rows: Vec<RecordBatch>, table: &'static Table, scan: &Scan) -> Result<Fill, LoadError> {
    let bounds = bounds(table, &rows)?;
    let is_wanted = |column: &&Column| column.flag.is_none_or(|flag| scan.flags.contains(flag));
    let columns: Vec<&Column> = table.columns.iter().filter(is_wanted).collect();
    let filled = rows.iter().filter(|batch| batch.num_rows() > 0).map(|batch| full(batch, table, &columns, scan));
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
