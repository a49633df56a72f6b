//! Files that several threads write side by side.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

use crate::load::LoadError;

/// Threads for these items, of so many that there may be.
pub(super) fn workers<I>(threads: u32, items: &[I]) -> usize {
    items.len().min(usize::try_from(threads).unwrap_or(1))
}

/// Does the same to each item, with a thread for each worker: whoever is free takes the next. After an error the others end with what they
/// are at, and the error of the first worker that has one is told.
pub(super) fn share_out<I: Sync, W: Send>(
    items: &[I],
    workers: Vec<W>,
    work: impl Fn(&W, &I) -> Result<(), LoadError> + Sync,
) -> Result<(), LoadError> {
    let left = Mutex::new(items.iter());
    let work_off = |worker: W| -> Result<(), LoadError> {
        loop {
            // What a thread that died leaves in it is whole: an iterator.
            let Some(item) = left.lock().unwrap_or_else(PoisonError::into_inner).next() else { return Ok(()) };
            if let Err(error) = work(&worker, item) {
                *left.lock().unwrap_or_else(PoisonError::into_inner) = [].iter();
                return Err(error);
            }
        }
    };
    let work_off = &work_off;
    thread::scope(|scope| {
        let threads: Vec<_> = workers.into_iter().map(|worker| scope.spawn(move || work_off(worker))).collect();
        let died = |_| Err(LoadError::Contract("a thread that writes files died".to_owned()));
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect();
        outcomes.into_iter().collect()
    })
}
