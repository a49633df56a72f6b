//! Decides which job of `serve` is due next: a scheduled run, a wake-up by webhooks, or a flush of the inbox. Pure.
//!
//! A *tick* is one time of the schedule. A tick is done only when its run has ended, so the tick of a killed run is due
//! again. One run makes up for all missed ticks.

use std::collections::BTreeMap;

use crate::model::{MINUTE_MS, Rng, Stream};

use super::Schedule;

/// Delay before the first retry of a failed job; each further delay is twice as long, up to an hour.
const RETRY_MS: i64 = 5 * MINUTE_MS;
const RETRY_MS_MAX: i64 = 60 * MINUTE_MS;
/// Maximum attempts for a tick or a wake-up; a flush has no maximum. After the last attempt of a tick, the daemon waits
/// for the next tick.
const ATTEMPTS_MAX: u32 = 10;
/// The ends of new windows are multiples of this time, so it takes up to five minutes until a window contains a new
/// record.
const WINDOW_GRID_MS: i64 = 5 * MINUTE_MS;

/// A clock that goes back by less was only corrected; then nothing is planned anew.
const CORRECTION_MS_MAX: i64 = MINUTE_MS;

/// A job of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// The scheduled run of a tick.
    Sync { tick_ms: i64 },
    /// A run that reads new records of these streams.
    Wake { streams: Vec<Stream> },
    /// Writing stored deliveries to the warehouses.
    Flush,
}

/// How a job ended. The time of the next attempt depends on this outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    Finished,
    /// A retry is useful, but not before `not_before_ms` if a time is given.
    Retry {
        not_before_ms: Option<i64>,
    },
    /// A retry before the next tick is pointless: another process holds the lease, or a person has to act.
    Skipped,
}

/// The tick whose run is next: its time by the schedule, when the run is due, and the attempts so far.
#[derive(Clone, Copy, Debug)]
struct Tick {
    tick_ms: i64,
    due_ms: i64,
    attempts: u32,
}

/// A planned wake-up of a stream.
#[derive(Clone, Copy, Debug)]
struct Wake {
    due_ms: i64,
    /// When the wake-up for the newest hint is due. Later than `due_ms` if further hints came after the first.
    last_due_ms: i64,
    attempts: u32,
}

/// The delays that the configuration sets.
#[derive(Clone, Copy, Debug)]
pub struct JobDelays {
    /// The largest random delay of a scheduled run.
    pub jitter_ms: i64,
    /// Delay of a wake-up after the hinted record can be read; 0 disables wake-ups.
    pub wake_ms: i64,
    /// Delay from a delivery to the flush.
    pub flush_ms: i64,
}

/// The jobs that are due, and when.
#[derive(Debug)]
pub struct DueJobs {
    schedule: Option<Schedule>,
    delays: JobDelays,
    rng: Rng,
    tick: Option<Tick>,
    wakes: BTreeMap<Stream, Wake>,
    flush_due_ms: Option<i64>,
    /// The latest time since the clock was last set back.
    latest_ms: i64,
}

impl DueJobs {
    /// Plans the first tick. `done_tick_ms` is the last tick of this schedule that is done; `None` for a new schedule,
    /// which begins with its next tick.
    pub fn new(
        schedule: Option<Schedule>,
        delays: JobDelays,
        rng: Rng,
        done_tick_ms: Option<i64>,
        now_ms: i64,
    ) -> DueJobs {
        let (wakes, latest_ms) = (BTreeMap::new(), now_ms);
        let mut jobs = DueJobs { schedule, delays, rng, tick: None, wakes, flush_due_ms: None, latest_ms };
        jobs.tick = jobs.tick_after(done_tick_ms.unwrap_or(now_ms), now_ms);
        jobs
    }

    /// Returns the tick to do after `done_ms`, the last tick that is done. If ticks since then were missed, this is the
    /// newest missed tick, which is due now; otherwise it is the next tick. `None` without a schedule.
    fn tick_after(&self, done_ms: i64, now_ms: i64) -> Option<Tick> {
        let schedule = self.schedule.as_ref()?;
        // A tick of the future was done by a clock that was ahead. It moves no other tick.
        let done_ms = if done_ms > now_ms + CORRECTION_MS_MAX { now_ms } else { done_ms };
        if let Some(tick_ms) = schedule.last(now_ms).filter(|tick_ms| *tick_ms > done_ms) {
            return Some(Tick { tick_ms, due_ms: now_ms, attempts: 0 });
        }
        let tick_ms = schedule.next(now_ms.max(done_ms))?;
        let jitter_ms = (self.delays.jitter_ms as f64 * self.rng.fraction()) as i64;
        Some(Tick { tick_ms, due_ms: tick_ms + jitter_ms, attempts: 0 })
    }

    /// Returns when the next scheduled run begins, epoch milliseconds; `None` without a schedule.
    pub fn next_sync_ms(&self) -> Option<i64> {
        self.tick.map(|tick| tick.due_ms)
    }

    /// Returns the next job and when it is due; `None` if no job is planned. Of several due jobs a scheduled run comes
    /// first, because it includes the other jobs. If the clock was set back, plans anew before.
    pub fn next(&mut self, now_ms: i64) -> Option<(i64, Job)> {
        let back_ms = self.latest_ms.saturating_sub(now_ms);
        self.latest_ms = if back_ms > CORRECTION_MS_MAX { now_ms } else { self.latest_ms.max(now_ms) };
        if back_ms > CORRECTION_MS_MAX {
            self.set_back(back_ms, now_ms);
        }
        let sync = self.tick.map(|tick| (tick.due_ms, Job::Sync { tick_ms: tick.tick_ms }));
        let flush = self.flush_due_ms.map(|due_ms| (due_ms, Job::Flush));
        let wake_ms = self.wakes.values().map(|wake| wake.due_ms).min();
        let wake = wake_ms.map(|due_ms| {
            let until_ms = due_ms.max(now_ms);
            let streams = self.wakes.iter().filter(|(_, wake)| wake.due_ms <= until_ms).map(|(stream, _)| *stream);
            (due_ms, Job::Wake { streams: streams.collect() })
        });
        let all = [sync, flush, wake];
        let due = all.iter().flatten().find(|(due_ms, _)| *due_ms <= now_ms).cloned();
        due.or_else(|| all.into_iter().flatten().min_by_key(|(due_ms, _)| *due_ms))
    }

    /// Plans anew after the clock was set back by `back_ms`: the ticks by the schedule, and all other jobs after the
    /// delay that remained.
    fn set_back(&mut self, back_ms: i64, now_ms: i64) {
        self.tick = match self.tick {
            // A retry keeps its delay.
            Some(Tick { due_ms, attempts, .. }) if attempts > 0 => {
                let tick_ms = self.schedule.as_ref().and_then(|schedule| schedule.last(now_ms)).unwrap_or(now_ms);
                Some(Tick { tick_ms, due_ms: due_ms.saturating_sub(back_ms), attempts })
            }
            _ => self.tick_after(now_ms, now_ms),
        };
        for wake in self.wakes.values_mut() {
            wake.due_ms = wake.due_ms.saturating_sub(back_ms);
            wake.last_due_ms = wake.last_due_ms.saturating_sub(back_ms);
        }
        self.flush_due_ms = self.flush_due_ms.map(|due_ms| due_ms.saturating_sub(back_ms));
    }

    /// Plans a wake-up, because a delivery mentioned a record of this stream. In a windowed stream, the record can be
    /// read after `settle_ms`. If a wake-up is planned already, only its `last_due_ms` changes. Does nothing if
    /// wake-ups are disabled.
    pub fn add_hint(&mut self, stream: Stream, settle_ms: i64, now_ms: i64) {
        if self.delays.wake_ms == 0 {
            return;
        }
        let readable_ms = if stream.is_windowed() { now_ms + settle_ms + WINDOW_GRID_MS } else { now_ms };
        let due_ms = readable_ms + self.delays.wake_ms;
        let wake = self.wakes.entry(stream).or_insert(Wake { due_ms, last_due_ms: due_ms, attempts: 0 });
        wake.last_due_ms = due_ms;
    }

    /// Plans a flush, because a delivery was stored.
    pub fn add_delivery(&mut self, now_ms: i64) {
        self.flush_by(now_ms + self.delays.flush_ms);
    }

    /// Plans a flush at this time, unless one is planned earlier.
    pub fn flush_by(&mut self, due_ms: i64) {
        let due_ms = self.flush_due_ms.map_or(due_ms, |earlier_ms| earlier_ms.min(due_ms));
        self.flush_due_ms = Some(due_ms);
    }

    /// Removes or postpones a job that has ended. Returns the tick of the job if this tick is done now.
    pub fn complete(&mut self, job: &Job, outcome: JobOutcome, now_ms: i64) -> Option<i64> {
        match job {
            Job::Sync { tick_ms } => self.complete_sync(*tick_ms, outcome, now_ms),
            Job::Wake { streams } => {
                for stream in streams {
                    self.complete_wake(*stream, outcome, now_ms);
                }
                None
            }
            Job::Flush => {
                self.flush_due_ms = (outcome != JobOutcome::Finished).then_some(now_ms + self.delays.flush_ms);
                None
            }
        }
    }

    /// Plans a retry of the tick, or the next tick. Returns the tick if it is done, which means that it is not retried.
    fn complete_sync(&mut self, tick_ms: i64, outcome: JobOutcome, now_ms: i64) -> Option<i64> {
        let attempts = self.tick.map_or(0, |tick| tick.attempts) + 1;
        let next = self.tick_after(tick_ms, now_ms);
        if let Some(due_ms) = retry_at(outcome, attempts, now_ms)
            // A retry that would be after the next tick is dropped: each tick starts a run, however long the service
            // asks to wait.
            && next.is_none_or(|next| due_ms < next.due_ms)
        {
            self.tick = Some(Tick { tick_ms, due_ms, attempts });
            return None;
        }
        self.tick = next;
        Some(tick_ms)
    }

    /// Plans a retry of a wake-up, or a further wake-up for hints that came during the run, or removes the wake-up.
    fn complete_wake(&mut self, stream: Stream, outcome: JobOutcome, now_ms: i64) {
        let Some(wake) = self.wakes.get_mut(&stream) else { return };
        wake.attempts += 1;
        if let Some(due_ms) = retry_at(outcome, wake.attempts, now_ms) {
            (wake.due_ms, wake.last_due_ms) = (due_ms, wake.last_due_ms.max(due_ms));
        } else if outcome == JobOutcome::Finished && wake.last_due_ms > now_ms {
            // The records of the last hints could not be read by this run, so another run is planned.
            (wake.due_ms, wake.attempts) = (wake.last_due_ms, 0);
        } else {
            self.wakes.remove(&stream);
        }
    }
}

/// Returns when a job is tried again after `attempts` attempts; `None` if it is not tried again.
fn retry_at(outcome: JobOutcome, attempts: u32, now_ms: i64) -> Option<i64> {
    let JobOutcome::Retry { not_before_ms } = outcome else { return None };
    let delay_ms = RETRY_MS.saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(RETRY_MS_MAX);
    (attempts < ATTEMPTS_MAX).then(|| (now_ms + delay_ms).max(not_before_ms.unwrap_or(i64::MIN)))
}

#[cfg(test)]
mod tests;
