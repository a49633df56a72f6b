//! The short way for a scan that found what the warehouse holds: its keys and hashes are held against those of the window, and
//! nothing is handed to the engine. Most scans of a nightly run are such.
//!
//! It finds for itself what [`super::base::compare`] would call `Unchanged`; whatever else there may be to say is for that.

use arrow::{
    array::{Array as _, ArrayRef, AsArray, RecordBatch},
    datatypes::Int64Type,
    error::ArrowError,
    row::{RowConverter, Rows, SortField},
};
use foldhash::{HashMap, HashMapExt};

use super::{
    super::stage::{ROW_HASH_COLUMN, Stage, column_of, key_columns},
    Engine, LoadError, Targets,
    base::is_expected,
    contract,
    fill::{brings_snapshots, family, plain_base},
    sessions,
    sql::{bounds_of, column_list, key_of},
};
use crate::{model::Scan, schema::Table};

/// What the scan found under a key.
struct Found {
    row_hash: i64,
    is_held: bool,
}

/// Takes the rows of the base table and its children out of the stage if the warehouse holds just them, and says how many records
/// that were; `None`: nothing is taken. Snapshots of visitors stay, unless they change nothing either.
pub(super) fn take(engine: &Engine, stage: &mut Stage, targets: &mut dyn Targets) -> Result<Option<u64>, LoadError> {
    let Some(base) = plain_base(stage)? else { return Ok(None) };
    let staged = stage.waiting(&base.name);
    if !is_held(engine, targets, stage.scan(), base, staged)? {
        return Ok(None);
    }
    let records = staged.iter().map(|rows| rows.num_rows() as u64).sum();
    if brings_snapshots(stage.scan()) {
        let snapshots = contract("visitor_snapshots")?;
        if sessions::find(engine, stage, targets, snapshots, std::iter::empty())?.is_some_and(|new| new.is_empty()) {
            family(snapshots).for_each(|table| _ = stage.take_waiting(&table.name));
        }
    }
    family(base).for_each(|table| _ = stage.take_waiting(&table.name));
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
    let sort_field = |column: &ArrayRef| SortField::new(column.data_type().clone());
    let converter =
        RowConverter::new(key_columns(base, first)?.columns().iter().map(sort_field).collect()).map_err(unfit)?;
    let keys_of = |batch: &RecordBatch| converter.convert_columns(key_columns(base, batch)?.columns()).map_err(unfit);

    let staged_keys: Vec<Rows> = staged.iter().map(keys_of).collect::<Result<_, _>>()?;
    let mut found: HashMap<&[u8], Found> = HashMap::with_capacity(staged_keys.iter().map(Rows::num_rows).sum());
    for (keys, batch) in staged_keys.iter().zip(staged) {
        let records = keys.iter().zip(column_of::<Int64Type>(batch, ROW_HASH_COLUMN)?.values());
        found.extend(records.map(|(key, hash)| (key.data(), Found { row_hash: *hash, is_held: false })));
    }

    let mut is_same = true;
    let mut hold = |batch: &RecordBatch| -> Result<(), LoadError> {
        let hashes = column_of::<Int64Type>(batch, ROW_HASH_COLUMN)?;
        let (is_alive, is_expected) =
            (batch.column(base.key.len() + 1).as_boolean(), batch.column(base.key.len() + 2).as_boolean());
        for (at, key) in keys_of(batch)?.iter().enumerate() {
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
    };
    let (window, wanted) = (bounds_of(scan.window), held_sql(scan, base));
    match targets.kept(engine, base, window, &wanted)? {
        Some(rows) => rows.iter().try_for_each(hold)?,
        None => {
            let (relation, inside) = (targets.relation(base, Some(window))?, window.condition("t.created_at"));
            let sql = format!("SELECT {wanted} FROM {relation} t WHERE {inside}");
            engine.each_batch("compare a scan with the warehouse", &sql, |batch| hold(&batch))?;
        }
    }
    Ok(is_same && found.values().all(|found| found.is_held))
}

/// Of each row of the window: the key, the hash, whether it is there under the flags of the scan, and whether the scan should have
/// found it. Under other flags equal hashes are not equal rows: what was sent unasked is hashed, and not stored.
fn held_sql(scan: &Scan, base: &'static Table) -> String {
    let keys = column_list("t", key_of(base));
    let same_flags = match base.column("_flags") {
        Some(_) => format!(" AND coalesce(t._flags = {}, false)", scan.flags.bits()),
        None => String::new(),
    };
    let expected = is_expected(scan, base, None, "t");
    format!("{keys}, t.{ROW_HASH_COLUMN}, t._vanished_at IS NULL{same_flags}, coalesce({expected}, false)")
}
