//! Missed ticks, reattempts, and hints.

use super::*;
use crate::model::{DAY_MS, HOUR_MS};

/// 2026-01-30, midnight.
const MIDNIGHT_MS: i64 = 1_769_731_200_000;
const TWO_MS: i64 = MIDNIGHT_MS + 2 * HOUR_MS;

fn due_jobs(done_tick_ms: Option<i64>, now_ms: i64) -> DueJobs {
    let schedule = Schedule::parse("0 2 * * *", "UTC").unwrap();
    let delays = JobDelays { jitter_ms: 0, wake_ms: MINUTE_MS, flush_ms: 30_000 };
    DueJobs::new(Some(schedule), delays, Rng::seeded(1), done_tick_ms, now_ms)
}

fn sync(tick_ms: i64) -> Job {
    Job::Sync { tick_ms }
}

#[test]
fn a_new_schedule_begins_with_its_next_tick() {
    assert_eq!(due_jobs(None, TWO_MS + 1).next(TWO_MS + 1), Some((TWO_MS + DAY_MS, sync(TWO_MS + DAY_MS))));
}

#[test]
fn one_run_makes_up_for_all_missed_ticks() {
    let now_ms = TWO_MS + 5 * DAY_MS + HOUR_MS;
    let mut jobs = due_jobs(Some(TWO_MS), now_ms);
    let missed = sync(TWO_MS + 5 * DAY_MS);
    assert_eq!(jobs.next(now_ms), Some((now_ms, missed.clone())));
    assert_eq!(jobs.complete(&missed, JobOutcome::Finished, now_ms + 1), Some(TWO_MS + 5 * DAY_MS));
    assert_eq!(jobs.next(now_ms + 1).unwrap().0, TWO_MS + 6 * DAY_MS);
}

#[test]
fn a_run_that_takes_days_is_followed_by_one_run() {
    let mut jobs = due_jobs(Some(TWO_MS - DAY_MS), TWO_MS);
    let later_ms = TWO_MS + 2 * DAY_MS + 1;
    assert_eq!(jobs.complete(&sync(TWO_MS), JobOutcome::Finished, later_ms), Some(TWO_MS));
    assert_eq!(jobs.next(later_ms), Some((later_ms, sync(TWO_MS + 2 * DAY_MS))));
}

#[test]
fn a_failed_run_is_retried_a_limited_number_of_times() {
    let mut jobs = due_jobs(Some(TWO_MS - DAY_MS), TWO_MS);
    let (mut now_ms, mut attempts) = (TWO_MS, 0);
    let done = loop {
        let (due_ms, job) = jobs.next(now_ms).unwrap();
        now_ms = due_ms.max(now_ms);
        attempts += 1;
        if let Some(done) = jobs.complete(&job, JobOutcome::Retry { not_before_ms: None }, now_ms) {
            break done;
        }
    };
    assert_eq!((attempts, done), (ATTEMPTS_MAX, TWO_MS));
    assert_eq!(jobs.next(now_ms).unwrap().0, TWO_MS + DAY_MS);
}

#[test]
fn p5_a_retry_waits_for_the_end_of_retry_after() {
    let mut jobs = due_jobs(Some(TWO_MS - DAY_MS), TWO_MS);
    let retry_after_ms = TWO_MS + 7 * HOUR_MS;
    jobs.complete(&sync(TWO_MS), JobOutcome::Retry { not_before_ms: Some(retry_after_ms) }, TWO_MS + 1);
    assert_eq!(jobs.next(TWO_MS + 2).unwrap().0, retry_after_ms);
}

#[test]
fn p5_the_next_tick_starts_a_run_whatever_the_wait() {
    let mut jobs = due_jobs(Some(TWO_MS - DAY_MS), TWO_MS);
    let retry_after_ms = TWO_MS + 3650 * DAY_MS;
    let done = jobs.complete(&sync(TWO_MS), JobOutcome::Retry { not_before_ms: Some(retry_after_ms) }, TWO_MS + 1);
    assert_eq!(done, Some(TWO_MS), "the tick is done");
    assert_eq!(jobs.next(TWO_MS + 2), Some((TWO_MS + DAY_MS, sync(TWO_MS + DAY_MS))));
}

#[test]
fn a_taken_lease_is_retried_at_the_next_tick() {
    let mut jobs = due_jobs(Some(TWO_MS - DAY_MS), TWO_MS);
    jobs.complete(&sync(TWO_MS), JobOutcome::Skipped, TWO_MS + 1);
    assert_eq!(jobs.next(TWO_MS + 2).unwrap().0, TWO_MS + DAY_MS);
}

#[test]
fn hints_wait_until_their_records_can_be_read() {
    let mut jobs = due_jobs(None, MIDNIGHT_MS);
    let settle_ms = 10 * MINUTE_MS;
    jobs.add_hint(Stream::Responses, settle_ms, MIDNIGHT_MS);
    jobs.add_hint(Stream::Surveys, settle_ms, MIDNIGHT_MS + 1000);
    assert_eq!(jobs.next(MIDNIGHT_MS).unwrap().0, MIDNIGHT_MS + 1000 + MINUTE_MS, "a status needs no settling");
    jobs.complete(&Job::Wake { streams: vec![Stream::Surveys] }, JobOutcome::Finished, MIDNIGHT_MS + 2 * MINUTE_MS);
    let first_ms = MIDNIGHT_MS + 16 * MINUTE_MS;
    assert_eq!(jobs.next(MIDNIGHT_MS), Some((first_ms, Job::Wake { streams: vec![Stream::Responses] })));
    // More hints do not postpone the run, and the last of them gets a run of its own.
    for minute in 1..=10 {
        jobs.add_hint(Stream::Responses, settle_ms, MIDNIGHT_MS + minute * MINUTE_MS);
    }
    assert_eq!(jobs.next(MIDNIGHT_MS).unwrap().0, first_ms);
    let job = jobs.next(first_ms).unwrap().1;
    jobs.complete(&job, JobOutcome::Finished, first_ms);
    assert_eq!(jobs.next(first_ms).unwrap().0, first_ms + 10 * MINUTE_MS);
    let job = jobs.next(first_ms + 10 * MINUTE_MS).unwrap().1;
    jobs.complete(&job, JobOutcome::Finished, first_ms + 10 * MINUTE_MS);
    assert_eq!(jobs.next(first_ms + 10 * MINUTE_MS).unwrap().1, sync(TWO_MS));
}

#[test]
fn a_failed_flush_is_retried() {
    let mut jobs = due_jobs(None, MIDNIGHT_MS);
    jobs.add_delivery(MIDNIGHT_MS);
    jobs.add_delivery(MIDNIGHT_MS + 20_000);
    assert_eq!(jobs.next(MIDNIGHT_MS), Some((MIDNIGHT_MS + 30_000, Job::Flush)));
    jobs.complete(&Job::Flush, JobOutcome::Skipped, MIDNIGHT_MS + 30_000);
    assert_eq!(jobs.next(MIDNIGHT_MS).unwrap().0, MIDNIGHT_MS + 60_000);
    jobs.complete(&Job::Flush, JobOutcome::Finished, MIDNIGHT_MS + 60_000);
    assert_eq!(jobs.next(MIDNIGHT_MS).unwrap().1, sync(TWO_MS));
}

#[test]
fn a_delivery_is_flushed_before_a_later_planned_flush() {
    let mut jobs = due_jobs(None, MIDNIGHT_MS);
    jobs.flush_by(MIDNIGHT_MS + 15 * MINUTE_MS);
    jobs.add_delivery(MIDNIGHT_MS);
    assert_eq!(jobs.next(MIDNIGHT_MS).unwrap().0, MIDNIGHT_MS + 30_000);
}

#[test]
fn a_tick_that_a_clock_ahead_has_done_moves_no_other_tick() {
    let years_ms = 3650 * DAY_MS;
    // The process starts with a tick in the future that is done.
    let mut jobs = due_jobs(Some(TWO_MS + years_ms), TWO_MS - HOUR_MS);
    assert_eq!(jobs.next(TWO_MS - HOUR_MS), Some((TWO_MS, sync(TWO_MS))));
    // The clock goes back while the process sleeps, and while a run is under way.
    for is_in_run in [false, true] {
        let mut jobs = due_jobs(Some(TWO_MS + years_ms - DAY_MS), TWO_MS + years_ms - HOUR_MS);
        let (due_ms, job) = jobs.next(TWO_MS + years_ms - HOUR_MS).unwrap();
        assert_eq!(due_ms, TWO_MS + years_ms);
        let now_ms = TWO_MS + HOUR_MS;
        if is_in_run {
            jobs.next(TWO_MS + years_ms).unwrap();
            jobs.complete(&job, JobOutcome::Finished, now_ms);
        }
        assert_eq!(jobs.next(now_ms), Some((TWO_MS + DAY_MS, sync(TWO_MS + DAY_MS))), "in a run: {is_in_run}");
    }
}

#[test]
fn a_clock_that_is_set_back_keeps_the_delays_of_other_jobs() {
    let ahead_ms = TWO_MS + 3650 * DAY_MS;
    let mut jobs = due_jobs(Some(ahead_ms), ahead_ms);
    jobs.add_delivery(ahead_ms);
    jobs.add_hint(Stream::Surveys, 0, ahead_ms);
    let now_ms = TWO_MS + 10_000;
    // Ten seconds of the wait are over by neither clock, so the complete delay remains.
    assert_eq!(jobs.next(now_ms), Some((now_ms + 30_000, Job::Flush)));
    jobs.complete(&Job::Flush, JobOutcome::Finished, now_ms + 30_000);
    assert_eq!(jobs.next(now_ms + 30_000), Some((now_ms + MINUTE_MS, Job::Wake { streams: vec![Stream::Surveys] })));
    // A retry keeps its delay too, and its attempts.
    let mut jobs = due_jobs(Some(ahead_ms - DAY_MS), ahead_ms);
    assert_eq!(jobs.complete(&sync(ahead_ms), JobOutcome::Retry { not_before_ms: None }, ahead_ms), None);
    assert_eq!(jobs.next(now_ms), Some((now_ms + RETRY_MS, sync(TWO_MS))));
    // A correction of some seconds changes nothing.
    let mut jobs = due_jobs(Some(TWO_MS), TWO_MS + 1);
    assert_eq!(jobs.next(TWO_MS - 1000), Some((TWO_MS + DAY_MS, sync(TWO_MS + DAY_MS))));
}
