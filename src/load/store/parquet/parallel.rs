//! Files that several threads write side by side.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

use crate::load::LoadError;

/// Threads for these items, of so many that there may be.
pub(super) fn worker_count<I>(threads: u32, items: &[I]) -> usize {
    items.len().min(usize::try_from(threads).unwrap_or(1))
}

/// Does the same to each item, on so many threads: whoever is free takes the next item. After an error the other threads end with the item
/// that they are at, and the error of the first thread that has one is returned.
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
            // What a thread that panicked leaves in it is whole: an iterator.
            let Some(item) = remaining.lock().unwrap_or_else(PoisonError::into_inner).next() else { return Ok(()) };
            if let Err(error) = work(item) {
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
