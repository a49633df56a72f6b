//! Missed moments, retries, and hints that gather.

use super::*;
use crate::model::{DAY_MS, HOUR_MS};

/// 2026-01-30, midnight.
const MIDNIGHT_MS: i64 = 1_769_731_200_000;
const TWO_MS: i64 = MIDNIGHT_MS + 2 * HOUR_MS;

fn agenda(done_tick_ms: Option<i64>, now_ms: i64) -> Agenda {
    let schedule = Schedule::parse("0 2 * * *", "UTC").unwrap();
    let waits = (0, MINUTE_MS, 30_000);
    Agenda::new(Some(schedule), waits, Rng::seeded(1), done_tick_ms, now_ms)
}

fn sync(tick_ms: i64) -> Job {
    Job::Sync { tick_ms }
}

#[test]
fn a_new_schedule_begins_with_its_next_moment() {
    assert_eq!(agenda(None, TWO_MS + 1).next(TWO_MS + 1), Some((TWO_MS + DAY_MS, sync(TWO_MS + DAY_MS))));
}

#[test]
fn however_many_moments_were_missed_one_run_catches_them_up() {
    let now_ms = TWO_MS + 5 * DAY_MS + HOUR_MS;
    let mut agenda = agenda(Some(TWO_MS), now_ms);
    let missed = sync(TWO_MS + 5 * DAY_MS);
    assert_eq!(agenda.next(now_ms), Some((now_ms, missed.clone())));
    assert_eq!(agenda.ended(&missed, Ended::Done, now_ms + 1), Some(TWO_MS + 5 * DAY_MS));
    assert_eq!(agenda.next(now_ms + 1).unwrap().0, TWO_MS + 6 * DAY_MS);
}

#[test]
fn a_run_that_takes_longer_than_a_day_is_followed_by_one() {
    let mut agenda = agenda(Some(TWO_MS - DAY_MS), TWO_MS);
    let later_ms = TWO_MS + 2 * DAY_MS + 1;
    assert_eq!(agenda.ended(&sync(TWO_MS), Ended::Done, later_ms), Some(TWO_MS));
    assert_eq!(agenda.next(later_ms), Some((later_ms, sync(TWO_MS + 2 * DAY_MS))));
}

#[test]
fn a_failed_run_is_tried_again_and_not_for_ever() {
    let mut agenda = agenda(Some(TWO_MS - DAY_MS), TWO_MS);
    let (mut now_ms, mut tries) = (TWO_MS, 0);
    let done = loop {
        let (due_ms, job) = agenda.next(now_ms).unwrap();
        now_ms = due_ms.max(now_ms);
        tries += 1;
        if let Some(done) = agenda.ended(&job, Ended::Again { not_before_ms: None }, now_ms) {
            break done;
        }
    };
    assert_eq!((tries, done), (TRIES_MAX, TWO_MS));
    assert_eq!(agenda.next(now_ms).unwrap().0, TWO_MS + DAY_MS);
}

#[test]
fn p5_a_told_wait_is_not_cut_short_by_a_retry() {
    let mut agenda = agenda(Some(TWO_MS - DAY_MS), TWO_MS);
    let told_ms = TWO_MS + 7 * HOUR_MS;
    agenda.ended(&sync(TWO_MS), Ended::Again { not_before_ms: Some(told_ms) }, TWO_MS + 1);
    assert_eq!(agenda.next(TWO_MS + 2).unwrap().0, told_ms);
}

#[test]
fn p5_the_schedule_s_next_moment_tries_whatever_the_wait() {
    let mut agenda = agenda(Some(TWO_MS - DAY_MS), TWO_MS);
    let told_ms = TWO_MS + 3650 * DAY_MS;
    let done = agenda.ended(&sync(TWO_MS), Ended::Again { not_before_ms: Some(told_ms) }, TWO_MS + 1);
    assert_eq!(done, Some(TWO_MS), "the moment is done with");
    assert_eq!(agenda.next(TWO_MS + 2), Some((TWO_MS + DAY_MS, sync(TWO_MS + DAY_MS))));
}

#[test]
fn a_held_lease_is_tried_again_at_the_next_moment() {
    let mut agenda = agenda(Some(TWO_MS - DAY_MS), TWO_MS);
    agenda.ended(&sync(TWO_MS), Ended::LeftAlone, TWO_MS + 1);
    assert_eq!(agenda.next(TWO_MS + 2).unwrap().0, TWO_MS + DAY_MS);
}

#[test]
fn hints_gather_and_wait_until_there_is_something_to_read() {
    let mut agenda = agenda(None, MIDNIGHT_MS);
    let settle_ms = 10 * MINUTE_MS;
    agenda.hint(Stream::Responses, settle_ms, MIDNIGHT_MS);
    agenda.hint(Stream::Surveys, settle_ms, MIDNIGHT_MS + 1000);
    assert_eq!(agenda.next(MIDNIGHT_MS).unwrap().0, MIDNIGHT_MS + 1000 + MINUTE_MS, "a status can be read at once");
    agenda.ended(&Job::Wake { streams: vec![Stream::Surveys] }, Ended::Done, MIDNIGHT_MS + 2 * MINUTE_MS);
    let first_ms = MIDNIGHT_MS + 16 * MINUTE_MS;
    assert_eq!(agenda.next(MIDNIGHT_MS), Some((first_ms, Job::Wake { streams: vec![Stream::Responses] })));
    // Many more do not put it off, and the last of them has a look of its own.
    for minute in 1..=10 {
        agenda.hint(Stream::Responses, settle_ms, MIDNIGHT_MS + minute * MINUTE_MS);
    }
    assert_eq!(agenda.next(MIDNIGHT_MS).unwrap().0, first_ms);
    let job = agenda.next(first_ms).unwrap().1;
    agenda.ended(&job, Ended::Done, first_ms);
    assert_eq!(agenda.next(first_ms).unwrap().0, first_ms + 10 * MINUTE_MS);
    let job = agenda.next(first_ms + 10 * MINUTE_MS).unwrap().1;
    agenda.ended(&job, Ended::Done, first_ms + 10 * MINUTE_MS);
    assert_eq!(agenda.next(first_ms).unwrap().1, sync(TWO_MS));
}

#[test]
fn the_inbox_is_flushed_soon_and_again_while_it_cannot_be() {
    let mut agenda = agenda(None, MIDNIGHT_MS);
    agenda.delivered(MIDNIGHT_MS);
    agenda.delivered(MIDNIGHT_MS + 20_000);
    assert_eq!(agenda.next(MIDNIGHT_MS), Some((MIDNIGHT_MS + 30_000, Job::Flush)));
    agenda.ended(&Job::Flush, Ended::LeftAlone, MIDNIGHT_MS + 30_000);
    assert_eq!(agenda.next(MIDNIGHT_MS).unwrap().0, MIDNIGHT_MS + 60_000);
    agenda.ended(&Job::Flush, Ended::Done, MIDNIGHT_MS + 60_000);
    assert_eq!(agenda.next(MIDNIGHT_MS).unwrap().1, sync(TWO_MS));
}

#[test]
fn deliveries_do_not_wait_for_the_flush_of_earlier_ones() {
    let mut agenda = agenda(None, MIDNIGHT_MS);
    agenda.flush_at(MIDNIGHT_MS + 15 * MINUTE_MS);
    agenda.delivered(MIDNIGHT_MS);
    assert_eq!(agenda.next(MIDNIGHT_MS).unwrap().0, MIDNIGHT_MS + 30_000);
}
