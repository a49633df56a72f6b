//! Random histories of a service and random scans, compared with a plain model of the warehouse.
//!
//! The model keeps the promises without SQL: it is a map of rows, and changes one record at a time.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{
    Lab,
    pages::{Answer, answer, day, page, scan, survey_page, theme_page},
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
    /// True if a scan that does not return deleted records wrote the row, and an earlier scan had found it deleted.
    /// Whether the answer is deleted is not known until a scan returns deleted records.
    is_deletion_unclear: bool,
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
                    let row = Row { record: record.clone(), flags, is_vanished: false, is_deletion_unclear: false };
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
                    // A row that had vanished has no version for the time in which it was gone.
                    if is_edited && !row.is_vanished {
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
                        row.is_deletion_unclear =
                            !flags.contains(Flag::WithDeletedResponses) && row.record.deleted_ms.is_some();
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

    /// Returns the answers that are neither deleted nor vanished, in the form of [`as_of`].
    fn standing(&self) -> Vec<String> {
        let is_there = |row: &&Row| !row.is_vanished && row.record.deleted_ms.is_none();
        self.rows.values().filter(is_there).map(|row| format!("{} | {}", row.record.group, row.record.text)).collect()
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
    // What stood after each scan, by the start of the scan; only scans after which it is known.
    let mut nights: Vec<(i64, Vec<String>)> = Vec::new();
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
        if !model.rows.values().any(|row| row.is_deletion_unclear) {
            nights.push((scan.started_ms, model.standing()));
        }
        if step + 1 < STEPS && random.random_bool(uncommitted_share) {
            lab.apply_uncommitted(&scan, &pages);
            continue;
        }
        lab.apply(&scan, &pages);
        let found: Vec<String> = lab.rows(ROWS).into_iter().chain(lab.rows(VERSIONS)).collect();
        assert_eq!(found, model.lines(), "after step {step}: days {first} to {end}, flags '{flags}'");
    }
    assert!(model.history.len() > 20, "the histories are rich enough to tell: {}", model.history.len());
    assert!(nights.len() > 5, "only {} scans are clear", nights.len());
    assert_nights(lab, "response_group_uid, answer_text", "responses", &nights);
    assert!(lab.count("SELECT count(*) FROM response_versions WHERE begun_by = 'returned'") > 0);
    let counts: Vec<(i64, usize)> = nights.iter().map(|(started_ms, rows)| (*started_ms, rows.len())).collect();
    assert_changes_add_up(lab, "answers", "new_answers + returned - deleted - vanished", &counts);
}

/// Compares an `*_as_of` macro with what the nights had: at each night, half an hour later, and before the first night.
fn assert_nights(lab: &Lab, columns: &str, table: &str, nights: &[(i64, Vec<String>)]) {
    let later = nights
        .iter()
        .flat_map(|(started_ms, rows)| [*started_ms, started_ms + 1_800_000].map(|at_ms| (at_ms, rows.as_slice())));
    let moments: Vec<(i64, &[String])> = std::iter::once((nights[0].0 - 1, [].as_slice())).chain(later).collect();
    let query = |(at_ms, _): &(i64, _)| {
        format!("SELECT {at_ms} AS at_ms, {columns} FROM {table}_as_of(make_timestamp({at_ms}000))")
    };
    let query: Vec<String> = moments.iter().map(query).collect();
    let found = rows_of_parts(lab, &query);
    let expected = moments.iter().flat_map(|(at_ms, rows)| rows.iter().map(move |row| format!("{at_ms} | {row}")));
    assert_eq!(found, expected.collect::<Vec<_>>(), "{table}_as_of");
}

/// Returns the rows of these queries. The queries are in the order of their first columns. A union of all of them would
/// take minutes to plan.
fn rows_of_parts(lab: &Lab, queries: &[String]) -> Vec<String> {
    queries.chunks(4).flat_map(|part| lab.rows(&format!("{} ORDER BY ALL", part.join(" UNION ALL ")))).collect()
}

/// Asserts that `row_changes` counts the rows of two nights, and that the changes between add up. Compares each night
/// with the next one, and the first with the last one. `nights` have the start of each night and its number of rows,
/// and `changes` are the columns that lead from the rows before to the rows after.
fn assert_changes_add_up(lab: &Lab, rows: &str, changes: &str, nights: &[(i64, usize)]) {
    let pairs = nights.windows(2).map(|pair| (pair[0], pair[1]));
    let mut pairs: Vec<_> = pairs.chain([(nights[0], nights[nights.len() - 1])]).collect();
    pairs.sort_unstable();
    let query = |((earlier_ms, _), (later_ms, _)): &((i64, usize), (i64, usize))| {
        format!(
            "SELECT {earlier_ms}, {later_ms}, coalesce(sum({rows}_after - {rows}_before), 0),
                 coalesce(sum(abs({rows}_before + {changes} - {rows}_after)), 0)
             FROM row_changes(make_timestamp({earlier_ms}000), make_timestamp({later_ms}000))"
        )
    };
    let query: Vec<String> = pairs.iter().map(query).collect();
    let found = rows_of_parts(lab, &query);
    let expected = pairs.iter().map(|((earlier_ms, before), (later_ms, after))| {
        format!("{earlier_ms} | {later_ms} | {} | 0", *after as i64 - *before as i64)
    });
    assert_eq!(found, expected.collect::<Vec<_>>(), "{rows}");
}

/// Themes by id, and surveys by id with status and questions, at one night.
#[derive(Clone, Default)]
struct Night {
    themes: BTreeMap<i64, String>,
    surveys: BTreeMap<i64, (&'static str, Vec<String>)>,
}

impl Night {
    /// Makes one random change: creates, edits or removes a theme or a survey. What is removed may come back.
    fn change(&mut self, random: &mut StdRng, night: i64) {
        let id = random.random_range(1..9);
        let text = format!("night {}", if random.random_bool(0.5) { 0 } else { night });
        if random.random_bool(0.5) {
            match random.random_range(0..3) {
                0 => drop(self.themes.remove(&id)),
                _ => drop(self.themes.insert(id, text)),
            }
        } else {
            let statuses = ["DRAFT", "IN_PROGRESS", "PAUSED"];
            match (random.random_range(0..4), self.surveys.get_mut(&id)) {
                (0, _) => drop(self.surveys.remove(&id)),
                (1, Some(survey)) => survey.0 = statuses[random.random_range(0..3)],
                (2, Some(survey)) => survey.1[0] = text,
                (3, Some(survey)) if survey.1.len() < 4 => survey.1.insert(random.random_range(0..2), text),
                _ => drop(self.surveys.insert(id, ("DRAFT", vec![text]))),
            }
        }
    }

    /// Returns the results of the queries of `moments` at this night.
    fn rows(&self) -> [Vec<String>; 3] {
        let questions = self.surveys.iter().flat_map(|(id, (_, questions))| {
            questions.iter().zip(1..).map(move |(question, at)| format!("{id} | {at} | {question}"))
        });
        [
            self.themes.iter().map(|(id, theme)| format!("{id} | {theme}")).collect(),
            self.surveys.iter().map(|(id, (status, _))| format!("{id} | {status}")).collect(),
            questions.collect(),
        ]
    }
}

pub(in crate::load) fn p4_as_of_equals_a_model_at_every_moment(lab: &mut Lab) {
    let mut random = StdRng::seed_from_u64(20_261_127);
    lab.vanish = VanishPolicy::Accept;
    let (mut nights, mut tonight) = (Vec::new(), Night::default());
    for night in 0..13_i64 {
        (0..if night == 0 { 30 } else { 6 }).for_each(|_| tonight.change(&mut random, night));
        let themes: Vec<(i64, &str)> = tonight.themes.iter().map(|(id, theme)| (*id, theme.as_str())).collect();
        let questions: Vec<(i64, &str, Vec<&str>)> = (tonight.surveys.iter())
            .map(|(id, (status, questions))| (*id, *status, questions.iter().map(String::as_str).collect()))
            .collect();
        let surveys: Vec<(i64, &str, &[&str])> =
            questions.iter().map(|(id, status, questions)| (*id, *status, questions.as_slice())).collect();
        lab.apply(&scan(Stream::Themes, night * 24, 0, 1, FlagSet::EMPTY), &[theme_page(&themes)]);
        let surveys_scan = scan(Stream::Surveys, night * 24, -1000, 1000, FlagSet::EMPTY);
        lab.apply(&surveys_scan, &[survey_page(&surveys)]);
        nights.push((surveys_scan.started_ms, tonight.clone()));
    }
    let of = |which: usize| -> Vec<(i64, Vec<String>)> {
        nights.iter().map(|(started_ms, night)| (*started_ms, night.rows()[which].clone())).collect()
    };
    let [themes, surveys, questions] = [of(0), of(1), of(2)];
    assert_nights(lab, "id, theme", "themes", &themes);
    assert_nights(lab, "id, status", "surveys", &surveys);
    assert_nights(lab, "survey_id, question_ordinal, question_text", "questions", &questions);
    let counts = |rows: &[(i64, Vec<String>)]| -> Vec<(i64, usize)> {
        rows.iter().map(|(started_ms, rows)| (*started_ms, rows.len())).collect()
    };
    assert_changes_add_up(lab, "themes", "new_themes + returned_themes - vanished_themes", &counts(&themes));
    assert_changes_add_up(lab, "surveys", "new_surveys + returned_surveys - vanished_surveys", &counts(&surveys));
    for table in ["theme_history", "survey_history"] {
        let kinds = match table {
            "theme_history" => "SELECT count(DISTINCT begun_by || coalesce(ended_by, '')) FROM theme_versions",
            _ => "SELECT count(DISTINCT id) FROM survey_history WHERE NOT is_current",
        };
        assert!(lab.count(kinds) > 5, "{table} is rich enough to tell");
    }
}
