//! What is due next: pure, and fed with the time. The scheduled run, wake-ups by webhooks, the flush of the inbox.
//!
//! A moment of the schedule is done when its run came to an end, and not before: killed in the middle, it is due again.
//! However many moments were missed, one run catches them up.

use std::collections::BTreeMap;

use crate::model::{MINUTE_MS, Rng, Stream};

use super::Schedule;

/// After a failed run the next try waits so long, then twice as long, up to an hour.
const RETRY_MS: i64 = 5 * MINUTE_MS;
const RETRY_MS_MAX: i64 = 60 * MINUTE_MS;
/// So many tries belong to one moment of the schedule; then the next moment is waited for.
const TRIES_MAX: u32 = 10;
/// New windows end on such a grid: an answer is in one only when this is over too.
const GRID_MS: i64 = 5 * MINUTE_MS;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// The run of a moment of the schedule.
    Sync { tick_ms: i64 },
    /// A look at what is new in these streams.
    Wake { streams: Vec<Stream> },
    /// Deliveries go to the warehouses.
    Flush,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// There is nothing left to do about it.
    Done,
    /// It did not come to its end, and it makes sense to try again, not before that time if one is named.
    Again { not_before_ms: Option<i64> },
    /// Another process is at work, or somebody has to look at it: nothing before the next moment.
    LeftAlone,
}

#[derive(Clone, Copy, Debug)]
struct Tick {
    tick_ms: i64,
    due_ms: i64,
    tries: u32,
}

#[derive(Clone, Copy, Debug)]
struct Wake {
    due_ms: i64,
    /// When the last hint is due, which may be later.
    last_due_ms: i64,
    tries: u32,
}

/// What is due, and when.
#[derive(Debug)]
pub struct Agenda {
    schedule: Option<Schedule>,
    jitter_ms: i64,
    wake_ms: i64,
    flush_ms: i64,
    rng: Rng,
    tick: Option<Tick>,
    wakes: BTreeMap<Stream, Wake>,
    flush_due_ms: Option<i64>,
}

impl Agenda {
    /// `done_tick_ms` is the last moment of this schedule that is done;
    /// `None` for a new schedule, which begins with its next moment.
    pub fn new(
        schedule: Option<Schedule>,
        (jitter_ms, wake_ms, flush_ms): (i64, i64, i64),
        rng: Rng,
        done_tick_ms: Option<i64>,
        now_ms: i64,
    ) -> Agenda {
        let (tick, wakes) = (None, BTreeMap::new());
        let mut agenda = Agenda { schedule, jitter_ms, wake_ms, flush_ms, rng, tick, wakes, flush_due_ms: None };
        agenda.tick = agenda.tick_after(done_tick_ms.unwrap_or(now_ms), now_ms);
        agenda
    }

    /// The next moment that is not done: one that was missed is due now.
    fn tick_after(&self, done_ms: i64, now_ms: i64) -> Option<Tick> {
        let schedule = self.schedule.as_ref()?;
        if let Some(tick_ms) = schedule.last(now_ms).filter(|tick_ms| *tick_ms > done_ms) {
            return Some(Tick { tick_ms, due_ms: now_ms, tries: 0 });
        }
        let tick_ms = schedule.next(now_ms.max(done_ms))?;
        let jitter_ms = (self.jitter_ms as f64 * self.rng.fraction()) as i64;
        Some(Tick { tick_ms, due_ms: tick_ms + jitter_ms, tries: 0 })
    }

    /// When the next scheduled run begins, epoch milliseconds.
    pub fn next_sync_ms(&self) -> Option<i64> {
        self.tick.map(|tick| tick.due_ms)
    }

    /// The most urgent job and when it is due. The scheduled run goes before what it does as well.
    pub fn next(&self, now_ms: i64) -> Option<(i64, Job)> {
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

    /// A delivery told of something in this stream. It can be read once `settle_ms` is over.
    pub fn hint(&mut self, stream: Stream, settle_ms: i64, now_ms: i64) {
        if self.wake_ms == 0 {
            return;
        }
        let readable_ms = if stream.is_windowed() { now_ms + settle_ms + GRID_MS } else { now_ms };
        let due_ms = readable_ms + self.wake_ms;
        let wake = self.wakes.entry(stream).or_insert(Wake { due_ms, last_due_ms: due_ms, tries: 0 });
        wake.last_due_ms = due_ms;
    }

    /// Something waits in the inbox.
    pub fn delivered(&mut self, now_ms: i64) {
        self.flush_at(now_ms + self.flush_ms);
    }

    /// What there is by then is brought to the warehouses, or shown to readers, at that time at the latest.
    pub fn flush_at(&mut self, due_ms: i64) {
        let due_ms = self.flush_due_ms.map_or(due_ms, |earlier_ms| earlier_ms.min(due_ms));
        self.flush_due_ms = Some(due_ms);
    }

    /// A job ended. Returns the moment of the schedule that is done by it.
    pub fn ended(&mut self, job: &Job, ended: Ended, now_ms: i64) -> Option<i64> {
        match job {
            Job::Sync { tick_ms } => self.sync_ended(*tick_ms, ended, now_ms),
            Job::Wake { streams } => {
                for stream in streams {
                    self.wake_ended(*stream, ended, now_ms);
                }
                None
            }
            Job::Flush => {
                self.flush_due_ms = (ended != Ended::Done).then_some(now_ms + self.flush_ms);
                None
            }
        }
    }

    fn sync_ended(&mut self, tick_ms: i64, ended: Ended, now_ms: i64) -> Option<i64> {
        let tries = self.tick.map_or(0, |tick| tick.tries) + 1;
        let next = self.tick_after(tick_ms, now_ms);
        if let Ended::Again { not_before_ms } = ended
            && tries < TRIES_MAX
        {
            let due_ms = (now_ms + retry_ms(tries)).max(not_before_ms.unwrap_or(i64::MIN));
            // The schedule's next moment always tries, however long the wait.
            if next.is_none_or(|next| due_ms < next.due_ms) {
                self.tick = Some(Tick { tick_ms, due_ms, tries });
                return None;
            }
        }
        self.tick = next;
        Some(tick_ms)
    }

    fn wake_ended(&mut self, stream: Stream, ended: Ended, now_ms: i64) {
        let Some(wake) = self.wakes.get_mut(&stream) else { return };
        wake.tries += 1;
        match ended {
            Ended::Again { not_before_ms } if wake.tries < TRIES_MAX => {
                wake.due_ms = (now_ms + retry_ms(wake.tries)).max(not_before_ms.unwrap_or(i64::MIN));
                wake.last_due_ms = wake.last_due_ms.max(wake.due_ms);
            }
            // What came too late for this look has one of its own.
            Ended::Done if wake.last_due_ms > now_ms => (wake.due_ms, wake.tries) = (wake.last_due_ms, 0),
            _ => drop(self.wakes.remove(&stream)),
        }
    }
}

fn retry_ms(tries: u32) -> i64 {
    RETRY_MS.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(RETRY_MS_MAX)
}

#[cfg(test)]
mod tests;
