//! Reads a value that requests show: at most one reading at a time, on another thread. A request gets an answer in
//! time, even if the file does not answer.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, task::JoinHandle, time::timeout};

/// How long a request waits for a reading. Together with everything else, a probe is answered within a second.
const WAIT: Duration = Duration::from_millis(800);
/// How long the last value stands in for a reading that does not end.
const STAND_IN_MAX: Duration = Duration::from_secs(60);

/// The last value, and the reading under way.
pub(super) struct TimelyRead<T>(Mutex<Cache<T>>);

struct Cache<T> {
    /// The last value, and when it was read.
    value: Option<(Instant, Arc<T>)>,
    /// When a request last got an answer without waiting for the reading under way.
    late_at: Option<Instant>,
    reading: Option<JoinHandle<T>>,
}

impl<T> Default for TimelyRead<T> {
    fn default() -> Self {
        TimelyRead(Mutex::new(Cache { value: None, late_at: None, reading: None }))
    }
}

impl<T> fmt::Debug for TimelyRead<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimelyRead")
    }
}

impl<T: Send + Sync + 'static> TimelyRead<T> {
    /// Returns the last value if `is_fresh` returns true for it and its age; otherwise the value of `read`. If the
    /// reading does not end in time, returns the last value or, if that is too old, the value of `late`.
    pub async fn get(
        &self,
        is_fresh: impl FnOnce(&T, Duration) -> bool,
        read: impl FnOnce() -> T + Send + 'static,
        late: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut cache = self.0.lock().await;
        let Cache { value, late_at, reading } = &mut *cache;
        if let Some((_, value)) = value.as_ref().filter(|(read, value)| is_fresh(value, read.elapsed())) {
            return Arc::clone(value);
        }
        let begun = Instant::now();
        let task = reading.get_or_insert_with(|| tokio::task::spawn_blocking(read));
        // Requests that waited for this one do not wait again.
        let wait = if late_at.is_some_and(|at| at.elapsed() < WAIT) { Duration::ZERO } else { WAIT };
        match timeout(wait, task).await {
            Ok(Ok(done)) => {
                (*reading, *late_at) = (None, None);
                let done = Arc::new(done);
                *value = Some((begun, Arc::clone(&done)));
                return done;
            }
            // The reading panicked; the next request reads again.
            Ok(Err(_)) => *reading = None,
            Err(_) => *late_at = Some(Instant::now()),
        }
        let stand_in = value.as_ref().filter(|(read, _)| read.elapsed() < STAND_IN_MAX);
        stand_in.map_or_else(|| Arc::new(late()), |(_, value)| Arc::clone(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_reading_that_hangs_is_begun_once_and_waited_for_shortly() {
        let cached = Arc::new(TimelyRead::default());
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        let begun = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let get = || {
            let (cached, held, begun) = (Arc::clone(&cached), Arc::clone(&held), Arc::clone(&begun));
            tokio::spawn(async move {
                let read = move || {
                    begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    held.lock().unwrap().recv().ok();
                    "read"
                };
                *cached.get(|_, _| false, read, || "late").await
            })
        };
        let started = Instant::now();
        for request in [get(), get(), get(), get()] {
            assert_eq!(request.await.unwrap(), "late");
        }
        assert!(started.elapsed() < 2 * WAIT, "each request waited: {:?}", started.elapsed());
        assert_eq!(begun.load(std::sync::atomic::Ordering::SeqCst), 1);
        release.send(()).unwrap();
        tokio::time::sleep(WAIT).await;
        assert_eq!(get().await.unwrap(), "read");
        assert_eq!(get().await.unwrap(), "read", "the last value stands in for a reading that hangs");
    }
}
