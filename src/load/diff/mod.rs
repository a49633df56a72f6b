//! Compares a staged scan with the warehouse and leaves what must change as relations (promises P1, P2, P4).
//!
//! All of it is SQL generated from the contracts, run by the in-memory engine. Nothing here writes to a warehouse, and nothing
//! here knows what a warehouse is made of: it reads through [`Targets`].
//!
//! A key is looked up where its creation time says that it is. Should the service ever move the creation time of a record from
//! one window to another, the record is new in the one and vanishes from the other. And records that share a key and lie in
//! different windows both have a row, until a scan meets both: see [`doubles`].

mod base;
mod carried;
mod children;
mod compare;
mod delta;
mod doubles;
mod events;
mod fill;
mod history;
mod logs;
mod repeats;
mod replace;
mod sessions;
mod snapshots;
mod sql;
mod surveys;
mod unchanged;
mod users;

pub(super) use carried::{carry_in, carry_out};
pub use compare::{Difference, Differences, Example, differences};
pub(super) use delta::delete_columns;
pub use delta::{Delta, DeltaRows, TableDelta, Targets, TimeBounds};
pub(super) use events::stage_events;
pub use fill::Fill;
pub(super) use logs::stage_runs;
pub(super) use replace::{put_in, take_leave};
pub(super) use sql::{bounds_of, equal_columns, timestamp_ms};
pub(super) use unchanged::take_at_once;

use super::{CommitOptions, LoadError, RowCounts, VanishPolicy, engine::Engine, pending::Pending, stage::Stage};
use crate::{
    model::{Scan, Stream},
    schema::{self, Column, Table, quote_identifier, quote_text},
};

/// What changes by a scan of whose window the warehouse holds nothing, if nothing about its rows is to be judged; `None`: it is for
/// [`diff`]. To be called once a stage: the rows are taken out of it. None of the rows that wait, in `pending`, is in its window.
pub(super) fn all_new(
    engine: &Engine,
    stage: &mut Stage,
    targets: &mut dyn Targets,
    pending: &Pending,
    options: &CommitOptions,
) -> Result<Option<Delta>, LoadError> {
    let Some(fills) = fill::take(engine, stage, targets, pending)? else { return Ok(None) };
    let base = stage.scan().scope.stream.name();
    let new = fills.iter().filter(|fill| fill.table.name == base).flat_map(|fill| &fill.rows);
    let inserted = new.map(|rows| rows.num_rows() as u64).sum();
    let counts = RowCounts { rows_read: stage.records(), inserted, ..RowCounts::default() };
    let mut delta = Delta { counts, fills, ..Delta::default() };
    if !delta.is_empty() || options.record_unchanged {
        delta.fills.push(logs::ledger_row(stage.scan(), &delta.counts, options.proof)?);
    }
    Ok(Some(delta))
}

/// Compares the staged scan with the warehouse. The cost is that of the scan and of the warehouse's rows in its window,
/// whatever else the warehouse holds. To be called once a stage: repeated records are taken out of it.
pub fn diff(
    engine: &Engine,
    stage: &mut Stage,
    targets: &mut dyn Targets,
    options: &CommitOptions,
) -> Result<Delta, LoadError> {
    let unchanged = unchanged::take(engine, stage, targets)?;
    if unchanged.is_none() || stage.has_waiting() {
        stage.complete(engine)?;
    }
    let mut comparison = Comparison::new(engine, stage, targets);
    match unchanged {
        Some(records) => {
            comparison.delta.counts.unchanged = records;
            snapshots::write(&mut comparison)?;
        }
        None => compare_all(&mut comparison, &options.vanish)?,
    }
    if !comparison.delta.is_empty() || options.record_unchanged {
        logs::write_ledger(&mut comparison, options.proof)?;
    }
    Ok(comparison.delta)
}

fn compare_all(comparison: &mut Comparison<'_>, vanish: &VanishPolicy) -> Result<(), LoadError> {
    let scan = comparison.scan;
    let base = contract(scan.scope.stream.name())?;
    repeats::take_out(comparison, base)?;
    let fates = base::compare(comparison, base, vanish)?;
    base::write(comparison, base, fates)?;
    children::write(comparison, base, fates)?;
    match scan.scope.stream {
        Stream::Responses => {
            history::write(comparison, base, fates)?;
            snapshots::write(comparison)?;
        }
        Stream::Surveys => surveys::write(comparison, base, fates)?,
        Stream::Themes => {}
        Stream::Users => users::write(comparison, fates)?,
    }
    logs::write_rejects(comparison, base)
}

/// What the parts of the comparison work on.
struct Comparison<'a> {
    engine: &'a Engine,
    stage: &'a Stage,
    scan: &'a Scan,
    targets: &'a mut dyn Targets,
    delta: Delta,
    /// Whether the warehouse holds a key of the scan more than once in the window: then they are in `doubles::DOUBLES`.
    has_doubles: bool,
}

impl<'a> Comparison<'a> {
    fn new(engine: &'a Engine, stage: &'a Stage, targets: &'a mut dyn Targets) -> Self {
        let counts = RowCounts { rows_read: stage.records(), ..RowCounts::default() };
        let delta = Delta { counts, ..Delta::default() };
        Self { engine, stage, scan: stage.scan(), targets, delta, has_doubles: false }
    }

    fn execute(&self, sql: &str) -> Result<(), LoadError> {
        self.engine.execute("compare a scan with the warehouse", sql)
    }

    fn integers<const N: usize>(&self, sql: &str) -> Result<[i64; N], LoadError> {
        self.engine.integers("compare a scan with the warehouse", sql)
    }

    /// A count of rows.
    fn count(&self, sql: &str) -> Result<u64, LoadError> {
        let [count] = self.integers(sql)?;
        Ok(count.unsigned_abs())
    }

    /// The value of a column that the loader fills the same way for every row of the scan.
    fn stamp(&self, column: &Column) -> Option<String> {
        match column.name.as_str() {
            "_run_id" => Some(quote_text(&self.scan.run_id.0)),
            "_synced_at" => Some(timestamp_ms(self.scan.started_ms)),
            "_flags" => Some(format!("{}::BIGINT", self.scan.flags.bits())),
            "_vanished_at" => Some("NULL::TIMESTAMP".to_owned()),
            _ => None,
        }
    }

    /// Whether the scan asked for the field behind the column.
    fn was_asked_for(&self, column: &Column) -> bool {
        column.flag.is_none_or(|flag| self.scan.flags.contains(flag))
    }

    /// Adds a table to the delta, from relations `delta_*`; relations without rows do not count.
    fn record(&mut self, table: &'static Table, deletes: Option<&str>, upserts: Option<&str>) -> Result<(), LoadError> {
        let deletes = deletes.map_or(Ok(None), |relation| self.delta_rows(table, relation))?;
        let upserts = upserts.map_or(Ok(None), |relation| self.delta_rows(table, relation))?;
        if deletes.is_some() || upserts.is_some() {
            self.delta.tables.push(TableDelta { table, deletes, upserts });
        }
        Ok(())
    }

    fn delta_rows(&self, table: &Table, relation: &str) -> Result<Option<DeltaRows>, LoadError> {
        delta_rows(self.engine, table, relation)
    }
}

/// Describes a relation `delta_*`; `None` if it has no rows.
pub(super) fn delta_rows(engine: &Engine, table: &Table, relation: &str) -> Result<Option<DeltaRows>, LoadError> {
    let at = table.partition.as_deref().map(quote_identifier);
    let ends = match &at {
        Some(at) => format!("coalesce(min(epoch_us({at})), 0), coalesce(max(epoch_us({at})), 0)"),
        None => "0, 0".to_owned(),
    };
    let sql = format!("SELECT count(*), {ends} FROM {relation}");
    let [rows, first_us, last_us] = engine.integers("compare a scan with the warehouse", &sql)?;
    let bounds = at.map(|_| TimeBounds { start_us: first_us, end_us: last_us.saturating_add(1) });
    let rows = rows.unsigned_abs();
    Ok((rows > 0).then(|| DeltaRows { relation: relation.to_owned(), rows, bounds }))
}

/// `delta_upsert_T`.
pub(super) fn upsert_relation(table: &Table) -> String {
    format!("delta_upsert_{}", table.name)
}

/// `delta_delete_T`.
pub(super) fn delete_relation(table: &Table) -> String {
    format!("delta_delete_{}", table.name)
}

/// The contract of a table that this program cannot do without.
fn contract(name: &str) -> Result<&'static Table, LoadError> {
    schema::table(name).ok_or_else(|| LoadError::Contract(format!("no contract is called {name}")))
}
