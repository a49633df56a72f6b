//! Versions of surveys and themes each night, the version that an answer belongs to, and times in each status: each
//! compared with a second computation.

use std::collections::{BTreeMap, BTreeSet};

use studysync_sandbox::{ChangeRequest, Settings};

use super::{recompute::Rows, warehouse::Warehouse};
use crate::harness::{Cell, DAY_MS, NOW_MS, Place, Service, days_ago, small};

const NIGHTS: i64 = 3;
const QUESTION: &str = "survey_id, question_ordinal, question_id, question_type, question_text, left_label, options, \
                        options_properties, routing_options";
const THEME: &str = "id, response_group_uid, question_id, theme, theme_description, response";

/// A time after a night as SQL. Each night begins a day after the one before.
fn moment(night: i64) -> String {
    format!("make_timestamp({} + 3600000000)", (NOW_MS + night * DAY_MS) * 1000)
}

/// The present questions and themes of each warehouse.
fn today(place: &Place) -> Vec<[Rows; 2]> {
    let questions = format!(
        "SELECT {QUESTION} FROM survey_questions
         WHERE survey_id IN (SELECT id FROM surveys WHERE _vanished_at IS NULL) ORDER BY ALL"
    );
    let themes = format!("SELECT {THEME} FROM themes WHERE _vanished_at IS NULL ORDER BY ALL");
    Warehouse::all(place).iter().map(|warehouse| [warehouse.query(&questions), warehouse.query(&themes)]).collect()
}

/// A place after several nights in which wordings, themes and statuses changed, and its results on each night.
fn nights() -> (Service, Place, Vec<Vec<[Rows; 2]>>) {
    let service = Service::start(Settings { hostile_share: 0.05, ..small(900, 20) });
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(22)], 0);
    let mut nights = vec![today(&place)];
    for seed in 1..=NIGHTS as u64 {
        service.advance_days(1);
        service.change(&ChangeRequest {
            seed,
            question_edits: 15,
            theme_edits: 2,
            new_themes: 5,
            status_changes: 3,
            new_answers: 60,
            vanish_visitors: 1,
            ..ChangeRequest::default()
        });
        place.report(&["sync"], 0);
        nights.push(today(&place));
    }
    (service, place, nights)
}

#[test]
fn p4_versions_of_surveys_and_themes_are_known_each_night() {
    let (_service, place, nights) = nights();
    let warehouses = Warehouse::all(&place);
    for (night, said) in nights.iter().enumerate() {
        let moment = moment(night as i64);
        for (warehouse, [questions, themes]) in warehouses.iter().zip(said) {
            let known = warehouse.query(&format!("SELECT {QUESTION} FROM questions_as_of({moment}) ORDER BY ALL"));
            assert!(&known == questions, "night {night}, {}: questions", warehouse.name);
            let known = warehouse.query(&format!("SELECT {THEME} FROM themes_as_of({moment}) ORDER BY ALL"));
            assert!(&known == themes, "night {night}, {}: themes", warehouse.name);
        }
    }
    for pair in nights.windows(2) {
        assert!(pair[0][0][0] != pair[1][0][0] && pair[0][0][1] != pair[1][0][1], "the nights differ");
    }
    for warehouse in &warehouses {
        let before = moment(-1);
        for known in ["questions_as_of", "themes_as_of"] {
            assert_eq!(warehouse.text(&format!("SELECT count(*) FROM {known}({before})")).as_deref(), Some("0"));
        }
        // A night without a change adds no version.
        let versions = "SELECT count(*) FROM (SELECT * EXCLUDE (valid_from, valid_to, is_current, _run_id, _synced_at)
                        FROM survey_question_history GROUP BY ALL HAVING count(*) > 1)";
        assert_eq!(warehouse.text(versions).as_deref(), Some("0"), "{}", warehouse.name);
    }
}

/// A version of a question.
#[derive(Debug)]
struct Version {
    number: i64,
    wording: Cell,
    valid_from: i64,
}

fn number(cell: &Cell) -> i64 {
    cell.as_deref().unwrap().parse().unwrap()
}

/// The versions of each question, in order. Of rows with the same time, the row with the first position counts.
fn versions(warehouse: &Warehouse) -> BTreeMap<(i64, i64), Vec<Version>> {
    let sql = "SELECT survey_id, question_id, epoch_us(valid_from), question_ordinal, question_text
               FROM survey_question_history WHERE question_id IS NOT NULL";
    let mut rows: Vec<([i64; 4], Cell)> = (warehouse.query(sql).iter())
        .map(|row| ([number(&row[0]), number(&row[1]), number(&row[2]), number(&row[3])], row[4].clone()))
        .collect();
    rows.sort();
    let mut versions: BTreeMap<(i64, i64), Vec<Version>> = BTreeMap::new();
    for ([survey, question, valid_from, _], wording) in rows {
        let of = versions.entry((survey, question)).or_default();
        if of.last().is_none_or(|last| last.valid_from < valid_from) {
            of.push(Version { number: of.len() as i64 + 1, wording, valid_from });
        }
    }
    versions
}

#[test]
fn an_answer_belongs_to_the_version_with_its_wording() {
    let (_service, place, _) = nights();
    for warehouse in Warehouse::all(&place) {
        let versions = versions(&warehouse);
        let found = warehouse.query(
            "SELECT survey_id, question_id, version, question_text, epoch_us(valid_from), epoch_us(shown_from),
                epoch_us(shown_until), is_current FROM question_versions ORDER BY survey_id, question_id, version",
        );
        let mut wanted = Vec::new();
        for ((survey, question), of) in &versions {
            for (at, version) in of.iter().enumerate() {
                let begins = (at > 0).then_some(version.valid_from);
                let ends = of.get(at + 1).map(|next| next.valid_from);
                let text = |moment: Option<i64>| moment.map(|moment| moment.to_string());
                wanted.push(vec![
                    Some(survey.to_string()),
                    Some(question.to_string()),
                    Some(version.number.to_string()),
                    version.wording.clone(),
                    text(Some(version.valid_from)),
                    text(begins),
                    text(ends),
                    Some((at + 1 == of.len()).to_string()),
                ]);
            }
        }
        assert!(wanted == found, "{}: {} and {} versions", warehouse.name, wanted.len(), found.len());
        assert!(versions.values().any(|of| of.len() > 2), "no question changed twice");

        let answers = warehouse.query(
            "SELECT survey_id, question_id, question_text, epoch_us(created_at), response_group_uid FROM current_responses
             WHERE survey_id IS NOT NULL ORDER BY ALL",
        );
        let (mut wanted, mut met) = (Vec::new(), BTreeSet::new());
        for answer in &answers {
            let (key, created) = ((number(&answer[0]), number(&answer[1])), number(&answer[3]));
            let Some(of) = versions.get(&key) else { continue };
            let stood = |among: &[&Version]| {
                let begun = among.iter().rfind(|version| version.valid_from <= created);
                begun.or(among.first()).map(|version| version.number)
            };
            let worded: Vec<&Version> =
                of.iter().filter(|version| version.wording.is_some() && version.wording == answer[2]).collect();
            let is_shown = !worded.is_empty();
            let version = stood(&worded).or_else(|| stood(&of.iter().collect::<Vec<_>>())).unwrap();
            met.insert((is_shown, version > 1));
            wanted.push(vec![
                answer[4].clone(),
                answer[1].clone(),
                Some(version.to_string()),
                Some(is_shown.to_string()),
            ]);
        }
        let mut found = warehouse
            .query("SELECT response_group_uid, question_id, version, is_wording_shown FROM response_question_versions");
        wanted.sort();
        found.sort();
        assert!(wanted == found, "{}: {} and {} answers", warehouse.name, wanted.len(), found.len());
        assert!(met.contains(&(true, false)) && met.contains(&(true, true)), "{met:?}");
    }
}

#[test]
fn times_in_a_status_equal_a_second_computation() {
    let (_service, place, _) = nights();
    for warehouse in Warehouse::all(&place) {
        let until: i64 = warehouse
            .text("SELECT epoch_us(max(window_end)) FROM sync_windows WHERE stream = 'responses'")
            .unwrap()
            .parse()
            .unwrap();
        let changes = warehouse.query(
            "SELECT survey_id, epoch_us(changed_at), new_status, seen_by FROM survey_status_changes
             ORDER BY survey_id, changed_at",
        );
        let answers = warehouse.query(
            "SELECT survey_id, epoch_us(created_at) FROM current_responses WHERE NOT is_skipped AND survey_id IS NOT NULL",
        );
        let answers: Vec<(i64, i64)> = answers.iter().map(|row| (number(&row[0]), number(&row[1]))).collect();
        let mut wanted: Rows = Vec::new();
        for (at, change) in changes.iter().enumerate().filter(|(_, change)| change[2].is_some()) {
            let (survey, since) = (number(&change[0]), number(&change[1]));
            let next = changes.get(at + 1).filter(|next| next[0] == change[0]).map(|next| number(&next[1]));
            let ends = next.unwrap_or(until).max(since);
            let within = |(of, at): &&(i64, i64)| *of == survey && (since..ends).contains(at);
            let count = answers.iter().filter(within).count();
            let days = (ends - since) as f64 / 86_400e6;
            wanted.push(vec![
                change[0].clone(),
                change[2].clone(),
                Some(since.to_string()),
                next.map(|next| next.to_string()),
                change[3].clone(),
                Some(days.to_string()),
                Some(count.to_string()),
                (days > 0.0).then(|| (count as f64 / days).to_string()),
            ]);
        }
        let found = warehouse.query(
            "SELECT survey_id, status, epoch_us(since), epoch_us(until), seen_by, days, answers, answers_per_day
             FROM survey_status_timeline",
        );
        super::warehouse::assert_same(&warehouse.name, &wanted, &found);
        assert!(wanted.iter().any(|row| row[3].is_some()) && wanted.iter().any(|row| row[6] != Some("0".into())));
    }
}
