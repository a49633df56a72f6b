//! Reads a table in one thread and processes the batches of rows in worker threads.

use std::{
    num::NonZero,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use arrow::array::RecordBatch;

use super::rows::Take;
use crate::load::{LoadError, engine::Visit};

/// Number of batches that are buffered for each worker, to limit the memory.
const BATCHES_PER_WORKER: usize = 2;

/// Reads batches in this thread and passes the batches with rows to `visit` in worker threads, one for each processor.
/// The errors are those of [`fold_batches`].
pub(super) fn visit_batches(
    read: impl FnOnce(&mut Take<'_>) -> Result<(), LoadError>,
    visit: &Visit<'_>,
) -> Result<(), LoadError> {
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let visit_rows = |(): &mut (), rows: RecordBatch| if rows.num_rows() == 0 { Ok(()) } else { visit(rows) };
    fold_batches(workers, read, || (), visit_rows).map(drop)
}

/// Reads batches in this thread and processes them in worker threads. Each batch goes to one worker, which folds the
/// batch into its state with `fold`. Returns the states of all workers; `new` makes the first state of a worker.
///
/// # Errors
/// The error of a worker if one failed, or else the error of `read`. A panic of a worker is an error.
pub(in crate::load) fn fold_batches<S: Send>(
    workers: usize,
    read: impl FnOnce(&mut Take<'_>) -> Result<(), LoadError>,
    new: impl Fn() -> S + Sync,
    fold: impl Fn(&mut S, RecordBatch) -> Result<(), LoadError> + Sync,
) -> Result<Vec<S>, LoadError> {
    let workers = workers.max(1);
    let (sender, receiver) = mpsc::sync_channel(workers * BATCHES_PER_WORKER);
    let receiver = Arc::new(Mutex::new(receiver));
    let work = |receiver: Arc<Mutex<mpsc::Receiver<RecordBatch>>>| -> Result<S, LoadError> {
        let mut state = new();
        while let Some(batch) = next(&receiver) {
            fold(&mut state, batch)?;
        }
        Ok(state)
    };
    let work = &work;
    thread::scope(|scope| {
        let started: Vec<_> = (0..workers)
            .map(|_| {
                let receiver = Arc::clone(&receiver);
                scope.spawn(move || work(receiver))
            })
            .collect();
        // The workers have the only receivers, so that sending fails once every worker has stopped.
        drop(receiver);
        let read = read(&mut |batch| sender.send(batch).map_err(|_| stopped()));
        drop(sender);
        // All workers are joined before an error is returned, because the scope panics if a worker panicked and was not
        // joined.
        let results: Vec<_> =
            started.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err(stopped()))).collect();
        let states = results.into_iter().collect::<Result<Vec<S>, LoadError>>()?;
        read.map(|()| states)
    })
}

/// Waits for the next batch. Returns `None` when the reader is done.
fn next(receiver: &Mutex<mpsc::Receiver<RecordBatch>>) -> Option<RecordBatch> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Returns the error for a worker that stopped before the end, or panicked.
fn stopped() -> LoadError {
    LoadError::Bug("a thread that works on batches stopped".to_owned())
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{AsArray as _, Int64Array},
        datatypes::Int64Type,
    };

    use super::*;

    fn batches(count: i64) -> impl Iterator<Item = RecordBatch> {
        (0..count).map(|number| {
            let numbers = Arc::new(Int64Array::from_value(number, 1)) as _;
            RecordBatch::try_from_iter([("number", numbers)]).unwrap()
        })
    }

    fn number(batch: &RecordBatch) -> i64 {
        batch.column(0).as_primitive::<Int64Type>().value(0)
    }

    fn error(text: &str) -> LoadError {
        LoadError::Bug(text.to_owned())
    }

    #[test]
    fn every_batch_reaches_one_worker() {
        for workers in [0, 1, 3] {
            let read = |take: &mut Take<'_>| batches(100).try_for_each(take);
            let fold = |sum: &mut i64, batch: RecordBatch| {
                *sum += number(&batch);
                Ok(())
            };
            let sums = fold_batches(workers, read, || 0, fold).unwrap();
            assert_eq!((sums.len(), sums.iter().sum::<i64>()), (workers.max(1), 4950));
        }
    }

    #[test]
    fn an_error_of_reader_or_worker_ends_the_read() {
        for workers in [1, 3] {
            let read = |take: &mut Take<'_>| batches(100).try_for_each(take);
            let fold = |_: &mut (), batch: RecordBatch| if number(&batch) == 5 { Err(error("work")) } else { Ok(()) };
            let failed = fold_batches(workers, read, || (), fold).unwrap_err();
            assert!(failed.to_string().contains("work"), "{failed}");
            let read = |take: &mut Take<'_>| batches(3).try_for_each(take).and(Err(error("read")));
            let failed = fold_batches(workers, read, || (), |(), _| Ok(())).unwrap_err();
            assert!(failed.to_string().contains("read"), "{failed}");
        }
    }

    #[test]
    fn a_panic_of_a_worker_is_an_error() {
        let read = |take: &mut Take<'_>| batches(100).try_for_each(take);
        let failed = fold_batches(1, read, || (), |(), _| panic!("as the test wants"));
        assert!(failed.is_err());
    }
}
