//! Runs work on several threads.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

use crate::load::LoadError;

/// Returns the number of threads for these items: one for each item, at most `threads`.
pub(super) fn worker_count<I>(threads: u32, items: &[I]) -> usize {
    items.len().min(usize::try_from(threads).unwrap_or(1))
}

/// Calls `work` with each item on `workers` threads; with one worker, in the caller's thread. After an error no further
/// item is begun; items in work are finished, and one of the errors is returned. A panic in one of several threads
/// becomes the error [`LoadError::Bug`].
pub(super) fn run_parallel<I: Sync>(
    items: &[I],
    workers: usize,
    work: impl Fn(&I) -> Result<(), LoadError> + Sync,
) -> Result<(), LoadError> {
    if workers <= 1 {
        return items.iter().try_for_each(work);
    }
    let remaining = Mutex::new(items.iter());
    let worker = || -> Result<(), LoadError> {
        loop {
            // The lock is also used after a panic of another thread, because a panic cannot break the iterator.
            let Some(item) = remaining.lock().unwrap_or_else(PoisonError::into_inner).next() else { return Ok(()) };
            if let Err(error) = work(item) {
                // The empty iterator makes the other threads stop after their items.
                *remaining.lock().unwrap_or_else(PoisonError::into_inner) = [].iter();
                return Err(error);
            }
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        let panicked = |_| Err(LoadError::Bug("a thread that writes files panicked".to_owned()));
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect();
        outcomes.into_iter().collect()
    })
}
