//! A second session that fills the children, the tables below others, on a thread of its own while a file is built anew: a third of
//! the work at the file, for which the other two thirds need not wait.
//!
//! Its transaction is its own, so a kill could leave the one without the other, and the first session does not see its rows before
//! it is closed. The one is for a file alone of which nothing is kept then; the other is for the caller to ask about.

use std::{
    path::Path,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use super::{Engine, LoadError, apply};
use crate::load::Fill;

/// Fills that may wait, each of a few MiB.
const WAITING_MAX: usize = 4;

/// The session, as the first one sees it.
pub(super) struct Below {
    /// `None` once it is being dropped.
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    is_filled: bool,
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
        let thread = thread::Builder::new().name("below".into()).spawn(move || work(&engine, &file, &to_do));
        let thread = thread.map_err(|source| LoadError::io("start a thread for", path, source))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), is_filled: false })
    }

    /// Whether it has rows that the first session does not see.
    pub(super) fn is_filled(&self) -> bool {
        self.is_filled
    }

    /// Takes the rows of children, and returns the others. An error while they are written comes with [`Below::close`].
    pub(super) fn fill(&mut self, fills: Vec<Fill>) -> Result<Vec<Fill>, LoadError> {
        let (children, others): (Vec<Fill>, Vec<Fill>) =
            fills.into_iter().partition(|fill| fill.table.parent.is_some());
        if !children.is_empty() {
            self.is_filled = true;
            self.tell(Job::Fill(children))?;
        }
        Ok(others)
    }

    /// Waits for it, and makes what it filled durable and visible.
    pub(super) fn close(&mut self) -> Result<(), LoadError> {
        self.is_filled = false;
        let (reply, closed) = sync_channel(1);
        self.tell(Job::Close(reply))?;
        closed.recv().map_err(|_| died())?
    }

    fn tell(&self, job: Job) -> Result<(), LoadError> {
        self.jobs.as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or_else(died)
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        // As long as it lives, it has the file open.
        self.jobs = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn died() -> LoadError {
    LoadError::Contract("the thread that fills the children died".to_owned())
}

fn work(engine: &Engine, path: &Path, jobs: &Receiver<Job>) {
    let (mut is_open, mut outcome) = (false, Ok(()));
    for job in jobs {
        match job {
            Job::Fill(fills) if outcome.is_ok() => {
                if !is_open {
                    outcome = apply::open(engine);
                    is_open = outcome.is_ok();
                }
                outcome = outcome.and_then(|()| apply::fill(engine, path, &fills));
            }
            Job::Fill(_) => {}
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
        load::engine::tests::engine,
        schema::{children_of, table},
    };

    #[test]
    fn p2_an_error_while_children_are_filled_comes_when_they_are_asked_for() {
        let (folder, engine) = engine(1, 64 << 20);
        let mut below = Below::of(&engine, &folder.path().join("w.duckdb")).unwrap();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values([1]));
        let rows = vec![RecordBatch::try_from_iter([("question_id", numbers)]).unwrap()];
        let fill = |table| Fill { table, rows: rows.clone(), bounds: None };
        // No file is attached.
        let tables = vec![fill(table("responses").unwrap()), fill(children_of("responses").next().unwrap())];
        let left = below.fill(tables).unwrap();
        assert_eq!(left.iter().map(|fill| fill.table.name.as_str()).collect::<Vec<_>>(), ["responses"]);
        assert!(below.is_filled());
        below.close().unwrap_err();
        assert!(!below.is_filled());
        below.close().unwrap();
    }
}
