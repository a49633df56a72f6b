//! Reads a table in one thread and processes the batches of rows in worker threads.

use std::{
    num::NonZero,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
};

use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{BufferedStore, Filter, Take, project, removal_columns},
    },
    schema::Table,
};

/// Number of batches that are buffered for each worker, to limit the memory.
const BATCHES_PER_WORKER: usize = 2;

/// Returns the number of workers: one for each processor.
pub(super) fn workers() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Reads batches in this thread and processes them in worker threads. Each batch goes to one worker, which folds the
/// batch into its state with `fold`. Returns the states of all workers; `new` makes the first state of a worker.
///
/// # Errors
/// The error of a worker if one failed, or else the error of `read`. A panic of a worker is an error.
pub(super) fn fold_batches<S: Send>(
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

/// Returns the [`removal_columns`] of all rows of a table for which `is_selected` sets a bit. `is_selected` gets
/// batches with at least `columns`, and runs in several threads.
pub(super) fn removal_keys_where(
    store: &mut BufferedStore,
    table: &'static Table,
    columns: &[&str],
    is_selected: impl Fn(&RecordBatch) -> Result<BooleanArray, LoadError> + Sync,
) -> Result<Vec<RecordBatch>, LoadError> {
    let keys = removal_columns(table);
    let mut read: Vec<&str> = keys.clone();
    for column in columns {
        if !read.contains(column) {
            read.push(column);
        }
    }
    let found = fold_batches(
        workers(),
        |take| store.read(table, &read, &Filter::all(), take),
        Vec::new,
        |found: &mut Vec<RecordBatch>, rows| {
            let is_selected = is_selected(&rows)?;
            if is_selected.true_count() > 0 {
                found.push(project(&filter_record_batch(&rows, &is_selected).map_err(invalid_rows(table))?, &keys)?);
            }
            Ok(())
        },
    )?;
    Ok(found.into_iter().flatten().collect())
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
