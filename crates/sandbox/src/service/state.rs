//! The state of the service, which all requests share: the world, the faults and how often they struck, and what
//! clients have upserted or asked to purge.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        clock::Clock,
        faults::{Faults, Latency, RateLimit, When},
        random::{Random, mix},
        request_log::RequestLog,
        settings::Settings,
        world::{ListName, VisitorSet, World},
    },
    page_token::IssuedTokens,
};

/// The state of the service, which all requests share.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) clock: Clock,
    pub(crate) log: RequestLog,
    pub(crate) stop: CancellationToken,
    pub(super) api_key: Mutex<String>,
    pub(super) world: RwLock<World>,
    pub(super) faults: Mutex<Arc<Faults>>,
    pub(super) strikes: Mutex<Strikes>,
    pub(super) bucket: Mutex<Bucket>,
    pub(super) tokens: Mutex<IssuedTokens>,
    pub(super) shuffles: Mutex<ShuffleCache>,
    pub(super) users: Mutex<UserTable>,
    pub(super) purges: Mutex<Vec<PendingPurge>>,
}

/// Locks a mutex, even if another thread panicked while it had the lock. Each change of the state is small, so the
/// state stays valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    pub(crate) fn new(settings: Settings, world: World) -> Self {
        Self {
            clock: Clock::new(settings.now_ms, settings.frozen_clock),
            log: RequestLog::new(settings.log_entries_max),
            stop: CancellationToken::new(),
            api_key: Mutex::new(settings.api_key),
            world: RwLock::new(world),
            faults: Mutex::new(Arc::new(settings.faults)),
            strikes: Mutex::default(),
            bucket: Mutex::default(),
            tokens: Mutex::default(),
            shuffles: Mutex::default(),
            users: Mutex::default(),
            purges: Mutex::default(),
        }
    }

    pub(crate) fn world(&self) -> RwLockReadGuard<'_, World> {
        self.world.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn world_mut(&self) -> RwLockWriteGuard<'_, World> {
        self.world.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn faults(&self) -> Arc<Faults> {
        lock(&self.faults).clone()
    }

    /// Replaces the faults. A schedule that differs from the old one counts from the beginning. A changed rate limit
    /// starts with a full bucket.
    pub(crate) fn set_faults(&self, mut faults: Faults) {
        let mut current = lock(&self.faults);
        lock(&self.strikes).forget_changed(Arc::make_mut(&mut current), &mut faults);
        lock(&self.bucket).reset_if_changed(&current.rate_limit, &faults.rate_limit);
        *current = Arc::new(faults);
    }

    /// Accepts this key instead of the current one.
    pub(crate) fn set_api_key(&self, key: &str) {
        *lock(&self.api_key) = key.to_owned();
    }

    /// Returns the number of purges whose delay has not passed.
    pub(crate) fn pending_purges(&self) -> usize {
        lock(&self.purges).len()
    }

    /// Returns all upserted users, in the order of their ids.
    pub(crate) fn upserted_users(&self) -> Vec<UpsertedUser> {
        let shown = |(user_id, user): (&String, &StoredUser)| UpsertedUser {
            user_id: user_id.clone(),
            upserts: user.upserts,
            email: user.email.clone(),
            attributes: user.attributes.clone(),
            events: user.events.iter().map(|(event, counted)| (event.clone(), counted.count)).collect(),
        };
        lock(&self.users).users.iter().map(shown).collect()
    }

    /// Waits for `wait_ms` of real time, or until the sandbox stops.
    pub(super) async fn pause(&self, wait_ms: u64) {
        if wait_ms > 0 {
            let _ = tokio::time::timeout(Duration::from_millis(wait_ms), self.stop.cancelled()).await;
        }
    }
}

/// What a shuffled order depends on: a list, a range of creation time, a survey, and the version of the list's rows.
type ShuffleKey = (ListName, Range<i64>, Option<i64>, u64);

/// The shuffled orders of the windows that were last requested.
#[derive(Debug, Default)]
pub(crate) struct ShuffleCache {
    pub(super) orders: Vec<(ShuffleKey, Arc<Vec<u32>>)>,
}

/// A purge whose delay has not passed.
#[derive(Debug)]
pub(crate) struct PendingPurge {
    pub(super) due_ms: i64,
    pub(super) visitors: VisitorSet,
    /// The ids of upserted users to purge.
    pub(super) user_ids: Vec<String>,
}

/// Upserted users by their id.
#[derive(Debug, Default)]
pub(crate) struct UserTable {
    pub(super) users: BTreeMap<String, StoredUser>,
    /// The number of the next new user. A purge does not free a number, because the user's id is made from it.
    pub(super) next_number: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct StoredUser {
    pub(super) number: u64,
    pub(super) created_ms: i64,
    pub(super) email: Option<String>,
    pub(super) attributes: Map<String, Value>,
    pub(super) events: BTreeMap<String, EventCount>,
    /// When the user can be read, microseconds of real time.
    pub(super) visible_us: u64,
    /// Number of upserts of the user.
    pub(super) upserts: u64,
}

/// An upserted user: the result of all its upserts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpsertedUser {
    /// The user id.
    pub user_id: String,
    /// Number of upserts of the user.
    pub upserts: u64,
    /// The mail address, if one was sent.
    pub email: Option<String>,
    /// The last value of each attribute that was sent.
    pub attributes: Map<String, Value>,
    /// The number of times that each event was sent.
    pub events: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventCount {
    pub(super) count: u64,
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
}

impl UserTable {
    /// Returns the ids of the users with this mail address.
    pub(crate) fn ids_of_email(&self, email: &str) -> Vec<String> {
        self.users.iter().filter(|(_, user)| user.email.as_deref() == Some(email)).map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.users.contains_key(id)
    }

    pub(crate) fn remove(&mut self, ids: &[String]) {
        self.users.retain(|id, _| !ids.contains(id));
    }
}

/// The requests that the schedules have counted so far.
#[derive(Debug, Default)]
pub(crate) struct Strikes {
    /// For each fault by its name: the number of requests that `every` and `probability` have counted.
    seen: HashMap<&'static str, u64>,
    /// Number of requests whose latency was drawn. This number seeds the jitter.
    delayed: u64,
}

impl Strikes {
    /// Forgets the counts of schedules that differ in the new faults.
    pub(crate) fn forget_changed(&mut self, current: &mut Faults, new: &mut Faults) {
        for ((name, current), (_, new)) in current.schedules().into_iter().zip(new.schedules()) {
            if current != new {
                self.seen.remove(name);
            }
        }
    }

    /// Returns the latency of the next request with a random jitter, in milliseconds.
    pub(crate) fn latency_ms(&mut self, faults: &Faults) -> u64 {
        let Latency { ms, jitter_ms, .. } = faults.latency;
        self.delayed += 1;
        ms.saturating_add(Random::new(faults.seed, self.delayed).below(jitter_ms.saturating_add(1)))
    }

    /// Counts a request for the schedule of a fault. Returns true if the fault strikes the request, as every n-th
    /// request or by chance.
    pub(super) fn count_and_draw(&mut self, name: &'static str, when: &When, seed: u64) -> bool {
        let seen = self.seen.entry(name).or_default();
        *seen += 1;
        let by_turn = when.every > 0 && (*seen).is_multiple_of(when.every);
        let purpose = name.bytes().fold(seed, |sum, byte| mix(sum, u64::from(byte)));
        by_turn || (when.probability > 0.0 && Random::new(purpose, *seen).chance(when.probability))
    }
}

/// A token bucket that fills in real time.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    tokens: f64,
    /// When `tokens` was computed, in microseconds of real time.
    filled_us: u64,
    /// False until the first token is taken. Before that the bucket is full, whatever `tokens` says.
    is_used: bool,
}

impl Bucket {
    /// Takes a token; without a rate limit always succeeds. `Err` is the time until the next token, in microseconds.
    pub(crate) fn take(&mut self, limit: &RateLimit, now_us: u64) -> Result<(), u64> {
        if limit.per_second <= 0.0 {
            return Ok(());
        }
        let capacity = f64::from(limit.burst.max(1));
        if !self.is_used {
            (self.is_used, self.tokens, self.filled_us) = (true, capacity, now_us);
        }
        let elapsed_secs = now_us.saturating_sub(self.filled_us) as f64 / 1e6;
        self.tokens = (self.tokens + elapsed_secs * limit.per_second).min(capacity);
        self.filled_us = now_us;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(((1.0 - self.tokens) / limit.per_second * 1e6).ceil() as u64)
    }

    /// Fills the bucket if the rate limit changed.
    pub(crate) fn reset_if_changed(&mut self, current: &RateLimit, new: &RateLimit) {
        if current != new {
            *self = Bucket::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_in_real_time() {
        let limit = RateLimit { per_second: 10.0, burst: 2, ..RateLimit::default() };
        let mut bucket = Bucket::default();
        assert_eq!([bucket.take(&limit, 0), bucket.take(&limit, 0)], [Ok(()), Ok(())]);
        assert!(bucket.take(&limit, 0).is_err_and(|wait_us| wait_us.abs_diff(100_000) <= 1));
        assert!(bucket.take(&limit, 99_000).is_err_and(|wait_us| wait_us.abs_diff(1_000) <= 1));
        assert_eq!(bucket.take(&limit, 100_001), Ok(()));
        assert_eq!([bucket.take(&limit, 9_000_000), bucket.take(&limit, 9_000_000)], [Ok(()), Ok(())]);
        assert!(bucket.take(&limit, 9_000_000).is_err(), "the bucket holds no more than its burst");
    }
}
