//! The same work for many files, on several threads.

use std::{
    panic,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Calls `work` for each item, on at most this number of threads. Returns the results in the order of the items. After
/// an error, begins no further item and returns the error.
pub(super) fn map<I: Sync, T: Send, E: Send>(
    threads: usize,
    items: &[I],
    work: impl Fn(&I) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let work_through = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return Ok(results) };
            match work(item) {
                Ok(result) => results.push((index, result)),
                Err(error) => {
                    // The other threads find no further item, and end.
                    next.store(items.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    let mut results: Vec<(usize, T)> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads.min(items.len())).map(|_| scope.spawn(work_through)).collect();
        let ends = handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        ends.collect::<Result<Vec<_>, _>>()
    })?
    .into_iter()
    .flatten()
    .collect();
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
