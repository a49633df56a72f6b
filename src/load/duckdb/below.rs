//! A second session that fills tables on a thread of its own while a file is built anew: the children, the tables below others, and of the
//! answers those for which the first one finds it free. So neither waits for the other.
//!
//! Its transaction is its own, so a kill or an error could leave the one without the other, and the first session does not see its rows
//! before it is closed. The one is for a file alone of which nothing is kept then; the other is for the caller to ask about.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use super::{Engine, LoadError, apply};
use crate::{
    load::Fill,
    model::{Scan, Stream},
    schema::Table,
};

/// Fills that may wait: children of some MiB of rows, and once answers.
const WAITING_MAX: usize = 4;

/// The session, as the first one sees it.
pub(super) struct Below {
    /// `None` once it is being dropped.
    jobs: Option<SyncSender<Job>>,
    /// Fills that are not written yet.
    fills_left: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
    /// Those of which it has rows that the first session does not see.
    scans: Vec<Scan>,
}

enum Job {
    Fill(Vec<Fill>),
    Close(SyncSender<Result<(), LoadError>>),
}

impl Below {
    /// A session beside this one.
    pub(super) fn of(engine: &Engine, path: &Path) -> Result<Self, LoadError> {
        let (engine, file) = (engine.beside()?, path.to_owned());
        let (jobs, to_do) = sync_channel(WAITING_MAX);
        let fills_left = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&fills_left);
        let thread = thread::Builder::new().name("below".into()).spawn(move || work(&engine, &file, &to_do, &left));
        let thread = thread.map_err(|source| LoadError::io("start a thread for", path, source))?;
        Ok(Self { jobs: Some(jobs), fills_left, thread: Some(thread), scans: Vec::new() })
    }

    /// Whether it has rows that the first session does not see.
    pub(super) fn is_filled(&self) -> bool {
        !self.scans.is_empty()
    }

    /// Whether it may have such rows in the window of this scan.
    pub(super) fn touches(&self, scan: &Scan) -> bool {
        self.scans.iter().any(|held| held.meets(scan))
    }

    /// Takes what it may of the rows of these scans, and returns the others. An error while they are written comes with [`Below::close_beside`].
    pub(super) fn fill(&mut self, fills: Vec<Fill>, scans: impl Iterator<Item = Scan>) -> Result<Vec<Fill>, LoadError> {
        let is_free = self.fills_left.load(Ordering::Relaxed) == 0;
        let (taken, others): (Vec<Fill>, Vec<Fill>) = fills.into_iter().partition(|fill| may_take(fill.table, is_free));
        if !taken.is_empty() {
            self.scans.extend(scans);
            self.fills_left.fetch_add(1, Ordering::Relaxed);
            self.tell(Job::Fill(taken))?;
        }
        Ok(others)
    }

    /// Makes what it filled durable and visible, while the first session does something else. Both have ended when this returns; an error of
    /// this session is told before one of the other.
    pub(super) fn close_beside(&mut self, other: impl FnOnce() -> Result<(), LoadError>) -> Result<(), LoadError> {
        self.scans.clear();
        let (reply, closed) = sync_channel(1);
        self.tell(Job::Close(reply))?;
        let done = other();
        closed.recv().map_err(|_| died())?.and(done)
    }

    fn tell(&self, job: Job) -> Result<(), LoadError> {
        self.jobs.as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or_else(died)
    }
}

/// All children: the engine writes many rows of a table in one transaction straight into the file, and few of them twice. And answers, if it
/// is free: of what is read only within the window of a scan they are the most.
fn may_take(table: &Table, is_free: bool) -> bool {
    table.parent.is_some() || (is_free && table.name == Stream::Responses.name())
}

impl Drop for Below {
    fn drop(&mut self) {
        // As long as it lives, it has the file open.
        self.jobs = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn died() -> LoadError {
    LoadError::Contract("the thread that fills tables died".to_owned())
}

fn work(engine: &Engine, path: &Path, jobs: &Receiver<Job>, fills_left: &AtomicUsize) {
    let (mut is_open, mut outcome) = (false, Ok(()));
    for job in jobs {
        match job {
            Job::Fill(fills) => {
                if outcome.is_ok() && !is_open {
                    outcome = apply::open(engine);
                    is_open = outcome.is_ok();
                }
                outcome = outcome.and_then(|()| apply::fill(engine, path, &fills));
                fills_left.fetch_sub(1, Ordering::Relaxed);
            }
            Job::Close(reply) => {
                if std::mem::take(&mut is_open) {
                    outcome = outcome.and_then(|()| apply::close(engine, path)).inspect_err(|_| apply::abandon(engine));
                }
                // Whoever asked is gone only if it panicked.
                let _ = reply.send(std::mem::replace(&mut outcome, Ok(())));
            }
        }
    }
    if is_open {
        apply::abandon(engine);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::*;
    use crate::{
        load::{conformance::answers_scan, engine::tests::engine},
        schema::{children_of, table},
    };

    fn fills(tables: impl Iterator<Item = &'static Table>) -> Vec<Fill> {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values([1]));
        let rows = vec![RecordBatch::try_from_iter([("question_id", numbers)]).unwrap()];
        tables.map(|table| Fill { table, rows: rows.clone(), bounds: None }).collect()
    }

    /// Hands it rows of some tables, and returns the names of those that it left.
    fn fill(below: &mut Below, scan: &Scan) -> Vec<String> {
        let names = ["sync_windows", "visitor_snapshots", "responses"];
        let tables = names.into_iter().map(|name| table(name).unwrap()).chain(children_of("responses").take(1));
        let left = below.fill(fills(tables), std::iter::once(scan.clone())).unwrap();
        left.into_iter().map(|fill| fill.table.name.clone()).collect()
    }

    #[test]
    fn p2_an_error_while_it_fills_comes_when_it_is_closed() {
        let (folder, engine) = engine(1, 64 << 20);
        let mut below = Below::of(&engine, &folder.path().join("w.duckdb")).unwrap();
        // No file is attached. What is read across windows is left.
        assert_eq!(fill(&mut below, &answers_scan(1, 0, 3)), ["sync_windows", "visitor_snapshots"]);
        below.close_beside(|| Ok(())).unwrap_err();
        assert!(!below.is_filled());
        below.close_beside(|| Ok(())).unwrap();
    }

    #[test]
    fn p1_it_knows_the_windows_of_which_it_has_rows() {
        let (folder, engine) = engine(1, 64 << 20);
        let mut below = Below::of(&engine, &folder.path().join("w.duckdb")).unwrap();
        fill(&mut below, &answers_scan(1, 3, 6));
        assert!(below.touches(&answers_scan(2, 5, 9)) && !below.touches(&answers_scan(3, 6, 9)));
        below.close_beside(|| Ok(())).unwrap_err();
        assert!(!below.touches(&answers_scan(2, 5, 9)));
    }
}
