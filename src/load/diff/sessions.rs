//! The short way of `visitor_snapshots`: the first snapshot of each session, where no row has to give way to one.
//!
//! Only the names of the sessions are handed to the engine. What is found here is what [`super::snapshots`] would find.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray as _, BooleanArray, RecordBatch, StringArray},
    compute::filter_record_batch,
    datatypes::{Int64Type, TimestampMicrosecondType},
};
use foldhash::{HashMap, HashMapExt, HashSet};

use super::{
    super::stage::{SEQUENCE_COLUMN, Stage, append, column_of},
    Engine, LoadError, Targets, TimeBounds,
    fill::bounds,
    snapshots::around,
};
use crate::schema::{ROW_HASH_COLUMN, Table};

const SESSION_COLUMN: &str = "response_group_uid";
const MOMENT_COLUMN: &str = "created_at";

/// When the answer was given that brought a snapshot, and the hash of its content.
type Version = (i64, i64);

/// The staged snapshot that a session is to have: the least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct First {
    version: Version,
    place: i64,
    is_held: bool,
}

/// The sessions of a scan of which no row is held.
#[derive(Debug, Default)]
pub(super) struct NewSessions {
    /// [`SEQUENCE_COLUMN`] of the snapshots to be added.
    places: HashSet<i64>,
}

impl NewSessions {
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The rows that belong to these snapshots: the snapshots themselves, or those of a child.
    pub fn rows(&self, batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, LoadError> {
        let is_theirs = |place: &i64| Some(self.places.contains(place));
        let theirs = |batch: &RecordBatch| {
            let kept: BooleanArray =
                column_of::<Int64Type>(batch, SEQUENCE_COLUMN)?.values().iter().map(is_theirs).collect();
            filter_record_batch(batch, &kept).map_err(|error| LoadError::Contract(format!("snapshots: {error}")))
        };
        batches.iter().map(theirs).collect()
    }
}

/// The staged sessions that are new, if each of the others has the row that it is to have; `None`: some row is to be replaced. Rows
/// that wait to be written are no part of what `targets` shows.
pub(super) fn find<'a>(
    engine: &Engine,
    stage: &Stage,
    targets: &mut dyn Targets,
    table: &'static Table,
    mut waiting: impl Iterator<Item = &'a RecordBatch>,
) -> Result<Option<NewSessions>, LoadError> {
    let staged = stage.waiting(&table.name);
    let Some(reach) = bounds(table, staged)?.map(around) else { return Ok(Some(NewSessions::default())) };
    let mut firsts: HashMap<&str, First> = HashMap::new();
    for batch in staged {
        let places = column_of::<Int64Type>(batch, SEQUENCE_COLUMN)?.values();
        for ((session, version), place) in versions(batch)?.zip(places) {
            let found = First { version, place: *place, is_held: false };
            let first = firsts.entry(session).or_insert(found);
            *first = found.min(*first);
        }
    }
    let sessions = StringArray::from_iter_values(firsts.keys());
    let mut gives_way = false;
    let mut hold = |held: &RecordBatch| {
        for (session, held) in versions(held)? {
            if let Some(first) = firsts.get_mut(session) {
                let (moment, hash) = first.version;
                gives_way |= moment < held.0 || (moment == held.0 && hash != held.1);
                first.is_held = true;
            }
        }
        Ok(())
    };
    waiting.try_for_each(&mut hold)?;
    let sql = held_sql(engine, targets, table, sessions, reach)?;
    engine.each_batch("compare a scan with the warehouse", &sql, |batch| hold(&batch))?;
    let places = firsts.into_values().filter(|first| !first.is_held).map(|first| first.place).collect();
    Ok((!gives_way).then_some(NewSessions { places }))
}

/// What is held of these sessions, in the columns that [`versions`] reads.
fn held_sql(
    engine: &Engine,
    targets: &mut dyn Targets,
    table: &'static Table,
    sessions: StringArray,
    reach: TimeBounds,
) -> Result<String, LoadError> {
    engine.execute(
        "compare a scan with the warehouse",
        &format!("CREATE OR REPLACE TEMP TABLE stage_sessions ({SESSION_COLUMN} VARCHAR)"),
    )?;
    let named = RecordBatch::try_from_iter([(SESSION_COLUMN, Arc::new(sessions) as ArrayRef)])
        .map_err(|error| LoadError::Contract(format!("sessions: {error}")))?;
    append(engine, "sessions", &[named])?;
    let stored = targets.relation(table, Some(reach))?;
    let inside = reach.condition(&format!("t.{MOMENT_COLUMN}"));
    Ok(format!(
        "SELECT t.{SESSION_COLUMN}, t.{MOMENT_COLUMN}, t.{ROW_HASH_COLUMN} FROM {stored} t
         SEMI JOIN stage_sessions s ON s.{SESSION_COLUMN} = t.{SESSION_COLUMN} WHERE {inside}"
    ))
}

/// The session and the version of each row.
fn versions(batch: &RecordBatch) -> Result<impl Iterator<Item = (&str, Version)>, LoadError> {
    let sessions = batch.column_by_name(SESSION_COLUMN).and_then(|column| column.as_string_opt::<i32>());
    let sessions = sessions.ok_or_else(|| LoadError::Contract(format!("a batch without {SESSION_COLUMN}")))?;
    let moments = column_of::<TimestampMicrosecondType>(batch, MOMENT_COLUMN)?.values();
    let hashes = column_of::<Int64Type>(batch, ROW_HASH_COLUMN)?.values();
    let sessions = (0..batch.num_rows()).map(|at| sessions.value(at));
    Ok(sessions.zip(moments.iter().copied().zip(hashes.iter().copied())))
}
