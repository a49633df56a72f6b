//! Random histories of a service and random scans, compared with a plain model of the warehouse.
//!
//! The model keeps the promises without SQL: it is a map of rows, and changes one record at a time.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{
    Lab,
    pages::{Answer, answer, day, page, scan},
};
use crate::{
    load::VanishPolicy,
    model::{Flag, FlagSet, Stream},
};

const STEPS: i64 = 24;
const DAYS: i64 = 4;
const PAGE_ROWS: usize = 5;

/// A row of the model.
#[derive(Clone, Debug)]
struct Row {
    record: Answer,
    /// The flags of the scan that wrote the row.
    flags: FlagSet,
    is_vanished: bool,
}

/// What the warehouse should contain.
#[derive(Default)]
struct Model {
    /// The rows by session.
    rows: BTreeMap<String, Row>,
    /// Number of ended versions by session and reason.
    history: BTreeMap<(String, &'static str), i64>,
}

impl Model {
    /// Applies a scan of the days from `first` to before `end` that returned the records `visible`.
    fn apply(&mut self, visible: &[Answer], flags: FlagSet, first: i64, end: i64) {
        for record in visible {
            match self.rows.get_mut(&record.group) {
                None => {
                    let row = Row { record: record.clone(), flags, is_vanished: false };
                    self.rows.insert(record.group.clone(), row);
                }
                Some(row) => {
                    let is_deleted = row.record.deleted_ms.is_none() && record.deleted_ms.is_some();
                    let new_url = flags.contains(Flag::WithUrls) && row.record.url != record.url;
                    let new_deletion =
                        flags.contains(Flag::WithDeletedResponses) && row.record.deleted_ms != record.deleted_ms;
                    let is_edited = is_deleted
                        || row.record.text != record.text
                        || (new_url && row.flags.contains(Flag::WithUrls))
                        || (new_deletion && row.flags.contains(Flag::WithDeletedResponses));
                    if is_edited {
                        let reason = if is_deleted { "deleted" } else { "edited" };
                        *self.history.entry((record.group.clone(), reason)).or_default() += 1;
                    }
                    if is_edited || new_url || new_deletion || row.is_vanished {
                        let kept = row.record.clone();
                        row.record = record.clone();
                        if !flags.contains(Flag::WithUrls) {
                            row.record.url = kept.url;
                        }
                        if !flags.contains(Flag::WithDeletedResponses) {
                            row.record.deleted_ms = kept.deleted_ms;
                        }
                        row.flags = flags;
                        row.is_vanished = false;
                    }
                }
            }
        }
        let found: BTreeSet<&String> = visible.iter().map(|record| &record.group).collect();
        for (group, row) in &mut self.rows {
            let is_inside = day(first) <= row.record.at_ms && row.record.at_ms < day(end);
            let is_expected = flags.contains(Flag::WithDeletedResponses) || row.record.deleted_ms.is_none();
            if is_inside && is_expected && !row.is_vanished && !found.contains(group) {
                row.is_vanished = true;
                *self.history.entry((group.clone(), "vanished")).or_default() += 1;
            }
        }
    }

    /// Returns the rows and the numbers of ended versions, in the form of the queries in [`histories`].
    fn lines(&self) -> Vec<String> {
        let text = |value: Option<String>| value.unwrap_or_else(|| "NULL".into());
        let row = |(group, row): (&String, &Row)| {
            let deleted = text(row.record.deleted_ms.map(|at_ms| at_ms.to_string()));
            let choices = row.record.choices.len();
            format!(
                "{group} | {} | {} | {deleted} | {} | {choices}",
                row.record.text,
                text(row.record.url.clone()),
                row.is_vanished
            )
        };
        let version = |((group, reason), count): (&(String, &str), &i64)| format!("{group} | {reason} | {count}");
        self.rows.iter().map(row).chain(self.history.iter().map(version)).collect()
    }
}

/// Makes one random change at the service: creates, edits, soft-deletes or purges a response, or does nothing.
fn change(service: &mut BTreeMap<String, Answer>, random: &mut StdRng, step: i64) {
    let number = random.random_range(0..30);
    let group = format!("g{number:02}");
    // A key keeps its creation time, also when it returns after a purge.
    let on_day = number % DAYS;
    match (random.random_range(0..10), service.get_mut(&group)) {
        (0..=4, None) => {
            let mut record = answer(&group, on_day, &format!("text {step}"));
            record.url = Some(format!("/{step}"));
            record.choices = vec!["choice".into(); random.random_range(0..3)];
            service.insert(group, record);
        }
        (0..=3, Some(record)) => {
            // The edit changes the answer and its children, and not `updated_at`.
            record.text = format!("text {step}");
            record.choices = vec!["choice".into(); random.random_range(0..3)];
        }
        (4..=5, Some(record)) => record.url = Some(format!("/{step}")),
        (6, Some(record)) => record.deleted_ms = record.deleted_ms.or(Some(day(DAYS + step))),
        (7, Some(_)) => drop(service.remove(&group)),
        _ => {}
    }
}

/// Returns the records that the service returns for a scan, and the same records as pages. Each page but the first
/// begins with the last record of the page before.
fn pages(service: &BTreeMap<String, Answer>, flags: FlagSet, first: i64, end: i64) -> (Vec<Answer>, Vec<Vec<Answer>>) {
    let is_asked_for = |record: &&Answer| {
        day(first) <= record.at_ms
            && record.at_ms < day(end)
            && (flags.contains(Flag::WithDeletedResponses) || record.deleted_ms.is_none())
    };
    let as_sent = |record: &Answer| {
        let mut record = record.clone();
        record.url = record.url.filter(|_| flags.contains(Flag::WithUrls));
        record
    };
    let visible: Vec<Answer> = service.values().filter(is_asked_for).map(as_sent).collect();
    let chunks = visible.chunks(PAGE_ROWS).enumerate().map(|(at, chunk)| {
        let edge = at.checked_sub(1).map(|before| visible[before * PAGE_ROWS + PAGE_ROWS - 1].clone());
        edge.into_iter().chain(chunk.iter().cloned()).collect()
    });
    let chunks = chunks.collect();
    (visible, chunks)
}

pub(in crate::load) fn p2_p4_random_histories_match_a_plain_model(lab: &mut Lab) {
    histories(lab, 20_260_301, 0.0);
}

pub(in crate::load) fn p2_p4_scans_that_are_sealed_together_match_a_plain_model(lab: &mut Lab) {
    histories(lab, 20_261_122, 0.8);
}

/// Applies random scans of a random service, and compares the warehouse with the model. A share of the scans is not
/// committed at once, but together with the next scan, and is checked only after that commit.
fn histories(lab: &mut Lab, seed: u64, uncommitted_share: f64) {
    const ROWS: &str = "SELECT response_group_uid, answer_text, url, epoch_ms(deleted_at), _vanished_at IS NOT NULL,
            (SELECT count(*) FROM response_choices c WHERE c.response_group_uid = r.response_group_uid)
        FROM responses r ORDER BY ALL";
    const VERSIONS: &str =
        "SELECT response_group_uid, reason, count(*) FROM response_history GROUP BY ALL ORDER BY ALL";
    let mut random = StdRng::seed_from_u64(seed);
    let (mut service, mut model) = (BTreeMap::new(), Model::default());
    lab.vanish = VanishPolicy::Accept;
    for step in 0..STEPS {
        (0..12).for_each(|_| change(&mut service, &mut random, step));
        let first = random.random_range(0..DAYS);
        let end = random.random_range(first + 1..=DAYS);
        let mut flags = FlagSet::EMPTY;
        if random.random_bool(0.6) {
            flags = flags.with(Flag::WithUrls);
        }
        if random.random_bool(0.7) {
            flags = flags.with(Flag::WithDeletedResponses);
        }
        let (visible, chunks) = pages(&service, flags, first, end);
        let pages: Vec<_> = chunks.iter().map(|chunk| page(chunk)).collect();
        let scan = scan(Stream::Responses, step, first, end, flags);
        model.apply(&visible, flags, first, end);
        if step + 1 < STEPS && random.random_bool(uncommitted_share) {
            lab.apply_uncommitted(&scan, &pages);
            continue;
        }
        lab.apply(&scan, &pages);
        let found: Vec<String> = lab.rows(ROWS).into_iter().chain(lab.rows(VERSIONS)).collect();
        assert_eq!(found, model.lines(), "after step {step}: days {first} to {end}, flags '{flags}'");
    }
    assert!(model.history.len() > 20, "the histories are rich enough to tell: {}", model.history.len());
}
