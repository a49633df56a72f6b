//! The short way for a scan that found what the warehouse holds: its keys and hashes are held against those of the window, and
//! nothing is handed to the engine. Most scans of a nightly run are such.
//!
//! It finds for itself what [`super::base::compare`] would call `Unchanged`; whatever else there may be to say is for that.

use std::collections::HashMap;

use arrow::{
    array::{Array as _, ArrayRef, AsArray, RecordBatch},
    datatypes::Int64Type,
    error::ArrowError,
    row::{RowConverter, Rows, SortField},
};

use super::{
    super::stage::Stage,
    Engine, LoadError, Targets,
    base::is_expected,
    contract,
    fill::{is_inside, is_list_of_records},
    sql::{bounds_of, column_list, key_of},
};
use crate::{
    model::Scan,
    schema::{Table, children_of},
};

/// What the scan found under a key.
struct Found {
    row_hash: i64,
    is_held: bool,
}

/// Takes the rows of the base table and its children out of the stage if the warehouse holds just them, and says how many records
/// that were; `None`: nothing is taken.
pub(super) fn take(engine: &Engine, stage: &mut Stage, targets: &mut dyn Targets) -> Result<Option<u64>, LoadError> {
    let scan = stage.scan().clone();
    if !is_list_of_records(&scan) || !stage.is_plain() {
        return Ok(None);
    }
    let base = contract(scan.scope.stream.name())?;
    let staged = stage.waiting(&base.name);
    if !is_inside(&scan, base, staged)? || !is_held(engine, targets, &scan, base, staged)? {
        return Ok(None);
    }
    let records = staged.iter().map(|rows| rows.num_rows() as u64).sum();
    for table in std::iter::once(base).chain(children_of(&base.name)) {
        stage.take_waiting(&table.name);
    }
    Ok(Some(records))
}

/// Whether each record has one row, which is as the scan found it, and each row that the scan should have found has a record.
fn is_held(
    engine: &Engine,
    targets: &mut dyn Targets,
    scan: &Scan,
    base: &'static Table,
    staged: &[RecordBatch],
) -> Result<bool, LoadError> {
    let Some(first) = staged.first() else { return Ok(false) };
    let unfit = |error: ArrowError| LoadError::Contract(format!("{}: {error}", base.name));
    let keys = key_of(base);
    let sort_fields = columns(first, &keys).map_err(unfit)?;
    let sort_fields = sort_fields.iter().map(|column| SortField::new(column.data_type().clone()));
    let converter = RowConverter::new(sort_fields.collect()).map_err(unfit)?;
    let converted = |batch: &RecordBatch| columns(batch, &keys).and_then(|columns| converter.convert_columns(&columns));

    let staged_keys: Vec<Rows> = staged.iter().map(converted).collect::<Result<_, _>>().map_err(unfit)?;
    let mut found: HashMap<&[u8], Found> = HashMap::with_capacity(staged_keys.iter().map(Rows::num_rows).sum());
    for (keys, batch) in staged_keys.iter().zip(staged) {
        let hashes = batch.column_by_name("_row_hash").and_then(|column| column.as_primitive_opt::<Int64Type>());
        let hashes = hashes.ok_or_else(|| LoadError::Contract(format!("{} without _row_hash", base.name)))?;
        let records = keys.iter().zip(hashes.values());
        found.extend(records.map(|(key, hash)| (key.data(), Found { row_hash: *hash, is_held: false })));
    }

    let mut is_same = true;
    engine.each_batch("compare a scan with the warehouse", &held_sql(targets, scan, base)?, |batch| {
        let (held_keys, width) = (converted(&batch).map_err(unfit)?, keys.len());
        let (hashes, is_alive, is_expected) = (
            batch.column(width).as_primitive::<Int64Type>(),
            batch.column(width + 1).as_boolean(),
            batch.column(width + 2).as_boolean(),
        );
        for (at, key) in held_keys.iter().enumerate() {
            is_same &= match found.get_mut(key.data()) {
                Some(found) => {
                    // A key with more than one row is to be judged.
                    let is_doubled = std::mem::replace(&mut found.is_held, true);
                    let is_as_found = hashes.is_valid(at) && hashes.value(at) == found.row_hash;
                    !is_doubled && is_as_found && is_alive.value(at)
                }
                None => !is_expected.value(at),
            };
        }
        Ok(())
    })?;
    Ok(is_same && found.values().all(|found| found.is_held))
}

/// Of each row of the window: the key, the hash, whether it is there under the flags of the scan, and whether the scan should have
/// found it. Under other flags equal hashes are not equal rows: what was sent unasked is hashed, and not stored.
fn held_sql(targets: &mut dyn Targets, scan: &Scan, base: &'static Table) -> Result<String, LoadError> {
    let window = bounds_of(scan.window);
    let relation = targets.relation(base, Some(window))?;
    let keys = column_list("t", key_of(base));
    let same_flags = match base.column("_flags") {
        Some(_) => format!(" AND coalesce(t._flags = {}, false)", scan.flags.bits()),
        None => String::new(),
    };
    let expected = is_expected(scan, base, Some(window), "t");
    let inside = window.condition("t.created_at");
    Ok(format!(
        "SELECT {keys}, t._row_hash, t._vanished_at IS NULL{same_flags}, coalesce({expected}, false) FROM {relation} t WHERE {inside}"
    ))
}

fn columns(batch: &RecordBatch, names: &[&str]) -> Result<Vec<ArrayRef>, ArrowError> {
    let places = names.iter().map(|name| batch.schema().index_of(name)).collect::<Result<Vec<_>, _>>()?;
    Ok(batch.project(&places)?.columns().to_vec())
}
