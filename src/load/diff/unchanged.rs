//! The short way for a scan that found what the warehouse holds: what its keys and hashes come to is held against those of the window,
//! and nothing is handed to the engine. Most scans of a nightly run are such.
//!
//! It finds for itself what [`super::base::compare`] would call `Unchanged`; whatever else there may be to say is for that.

use arrow::{
    array::{Array as _, AsArray as _, RecordBatch},
    datatypes::Int64Type,
    error::ArrowError,
};
use foldhash::HashSet;

use super::{
    super::stage::{Stage, column_of},
    Engine, LoadError, Targets,
    base::is_expected,
    contract,
    fill::{brings_snapshots, family, lists_records, plain_base},
    sessions,
    sql::{bounds_of, column_list, key_of},
};
use crate::{
    model::{Digest, Scan, key_hashes},
    schema::{ROW_HASH_COLUMN, Table},
};

/// Takes the rows of the base table and its children out of the stage if the warehouse holds just them, and says how many records
/// that were; `None`: nothing is taken. Snapshots of visitors stay, unless they change nothing either.
pub(super) fn take(engine: &Engine, stage: &mut Stage, targets: &mut dyn Targets) -> Result<Option<u64>, LoadError> {
    if stage.is_held() {
        return Ok(Some(stage.digest().records));
    }
    let Some(base) = plain_base(stage)? else { return Ok(None) };
    if !is_held(engine, targets, stage.scan(), base, stage.digest())? {
        return Ok(None);
    }
    let records = stage.digest().records;
    if brings_snapshots(stage.scan()) {
        let snapshots = contract("visitor_snapshots")?;
        if sessions::find(engine, stage, targets, snapshots, std::iter::empty())?.is_some_and(|new| new.is_empty()) {
            family(snapshots).for_each(|table| _ = stage.take_waiting(&table.name));
        }
    }
    family(base).for_each(|table| _ = stage.take_waiting(&table.name));
    Ok(Some(records))
}

/// Takes all records of a scan at once, of which no more is known than what they come to, and that so many came once more, if the warehouse
/// holds just them; whether it does.
pub(in super::super) fn take_at_once(
    engine: &Engine,
    stage: &mut Stage,
    targets: &mut dyn Targets,
    digest: Digest,
    repeated: u64,
) -> Result<bool, LoadError> {
    let scan = stage.scan();
    // Snapshots have a content of their own.
    if !lists_records(scan) || brings_snapshots(scan) || stage.records() > 0 {
        return Ok(false);
    }
    let base = contract(scan.scope.stream.name())?;
    let is_held = is_held(engine, targets, scan, base, digest)?;
    if is_held {
        stage.take_as_held(digest, repeated);
    }
    Ok(is_held)
}

/// Whether each record has one row, which is as the scan found it, and each row that the scan should have found has a record. Says no of
/// no records at all.
fn is_held(
    engine: &Engine,
    targets: &mut dyn Targets,
    scan: &Scan,
    base: &'static Table,
    found: Digest,
) -> Result<bool, LoadError> {
    if found.records == 0 {
        return Ok(false);
    }
    let mut held = Held::default();
    let mut take = |rows: &RecordBatch| held.take(base, rows);
    let (window, wanted) = (bounds_of(scan.window), held_sql(scan, base));
    match targets.kept(engine, base, window, &wanted)? {
        Some(rows) => rows.iter().try_for_each(take)?,
        None => {
            let (relation, inside) = (targets.relation(base, Some(window))?, window.condition("t.created_at"));
            let sql = format!("SELECT {wanted} FROM {relation} t WHERE {inside}");
            engine.each_batch("compare a scan with the warehouse", &sql, |batch| take(&batch))?;
        }
    }
    Ok(!held.is_otherwise && held.digest == found && !held.has_doubles())
}

/// The rows of the window.
#[derive(Default)]
struct Held {
    /// What those come to that the scan should have found. A row that it should not have found, and did, makes the scan come to more.
    digest: Digest,
    /// Whether one of those cannot be as it was found.
    is_otherwise: bool,
    /// The keys of those.
    expected: Vec<u128>,
    /// The keys of the others.
    others: HashSet<u128>,
}

impl Held {
    fn take(&mut self, base: &'static Table, rows: &RecordBatch) -> Result<(), LoadError> {
        let unfit = |error: ArrowError| LoadError::Contract(format!("{}: {error}", base.name));
        let hashes = column_of::<Int64Type>(rows, ROW_HASH_COLUMN)?;
        let column = |at: usize| rows.column(base.key.len() + at).as_boolean();
        let (is_expected, has_flags) = (column(1), column(2));
        for (at, key_hash) in key_hashes(&base.key_in_order(), rows).map_err(unfit)?.into_iter().enumerate() {
            if !is_expected.value(at) {
                self.others.insert(key_hash);
                continue;
            }
            self.is_otherwise |= !has_flags.value(at) || hashes.is_null(at);
            self.digest.add(key_hash, hashes.value(at));
            self.expected.push(key_hash);
        }
        Ok(())
    }

    /// Whether a key that the scan should have found has another row: that is to be judged.
    fn has_doubles(&self) -> bool {
        !self.others.is_empty() && self.expected.iter().any(|key| self.others.contains(key))
    }
}

/// Of each row of the window: the key, the hash, whether the scan should have found it, and whether it has the flags of the scan. Under
/// other flags equal hashes are not equal rows: what was sent unasked is hashed, and not stored.
fn held_sql(scan: &Scan, base: &'static Table) -> String {
    let keys = column_list("t", key_of(base));
    let has_flags = match base.column("_flags") {
        Some(_) => format!("coalesce(t._flags = {}, false)", scan.flags.bits()),
        None => "true".to_owned(),
    };
    let expected = is_expected(scan, base, None, "t");
    format!("{keys}, t.{ROW_HASH_COLUMN}, coalesce({expected}, false), {has_flags}")
}
