//! The macros for segments and for text search, compared with a second computation on hostile data.

use std::collections::BTreeMap;

use serde_json::json;
use studysync_sandbox::ListName;

use super::{
    flows::folded,
    hostile_service,
    recompute::{Rows, by_question, cell, optional, parts, scale_of, score_cells},
    truth::{Answer, Truth, integer},
    two_nights,
    warehouse::{Warehouse, assert_same},
};
use crate::harness::{Cell, Place, Service, days_ago, expected::Expected, small};

const ANSWERS_MIN: usize = 5;

/// Returns the segment of each answer, in the order of the answers.
fn segments(truth: &Truth, expected: &Expected, segment: &str) -> Vec<Cell> {
    let snapshots: BTreeMap<&String, _> = expected.entities("visitor_snapshots").collect();
    let of = |answer: &Answer| -> Cell {
        if let Some(name) = segment.strip_prefix("attribute:") {
            let children = &snapshots.get(&answer.session)?.children;
            return children.iter().find(|(_, row)| row["name"].as_deref() == Some(name))?.1["value_text"].clone();
        }
        if let Some(key) = segment.strip_prefix("metadata:") {
            let is_key = |row: &crate::harness::Row| row["name"].as_deref() == Some(key);
            let mut metadata = answer.parts.iter().filter(|(table, _)| *table == "response_custom_metadata");
            return metadata.find(|(_, row)| is_key(row))?.1["value_text"].clone();
        }
        match segment {
            "triggering_event" => snapshots.get(&answer.session)?.row["triggering_event"].clone(),
            "url_path" => {
                let addresses = [&answer.row["url"], &answer.row["meta_href"]];
                addresses.into_iter().flatten().find_map(|address| path(address))
            }
            meta => answer.row[&format!("meta_{meta}")].clone(),
        }
    };
    truth.answers.iter().map(of).collect()
}

/// Returns the path of a URL with a host; `None` if the text is not such a URL.
fn path(text: &str) -> Option<String> {
    let (scheme, rest) = text.trim().split_once("//")?;
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "+.-".contains(letter);
    let name = scheme.strip_suffix(':').unwrap_or(scheme);
    let is_scheme = name.starts_with(|letter: char| letter.is_ascii_alphabetic()) && name.chars().all(is_letter);
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let is_host = !host.is_empty() && !host.contains(char::is_whitespace);
    let is_file = is_scheme && host.is_empty() && path.starts_with('/');
    let is_address = scheme.is_empty() || (is_scheme && scheme.len() > name.len());
    (is_address && (is_host || is_file))
        .then(|| path.split(['?', '#']).next().unwrap_or_default().trim_end().to_owned())
}

/// Groups the answers by segment.
fn groups<'t>(truth: &'t Truth, segments: &[Cell]) -> BTreeMap<Cell, Vec<&'t Answer>> {
    let mut groups: BTreeMap<Cell, Vec<&Answer>> = BTreeMap::new();
    for (answer, segment) in truth.answers.iter().zip(segments) {
        groups.entry(segment.clone()).or_default().push(answer);
    }
    groups
}

/// The columns before the figures in each row.
fn names(truth: &Truth, (survey_id, question_id): (Option<i64>, i64), segment: &Cell) -> Vec<Cell> {
    vec![optional(survey_id), cell(question_id), truth.survey_name(survey_id), segment.clone()]
}

fn nps(truth: &Truth, groups: &BTreeMap<Cell, Vec<&Answer>>) -> Rows {
    let mut rows = Vec::new();
    for (segment, answers) in groups {
        let is_score = |answer: &&&Answer| {
            answer.kind.as_deref() == Some("NPS")
                && answer.number.is_some_and(|number| number.fract() == 0.0 && (0.0..=10.0).contains(&number))
        };
        for (question, answers) in by_question(answers.iter().filter(is_score).copied()) {
            let scores: Vec<f64> = answers.iter().filter_map(|answer| answer.number).collect();
            let mut figures = score_cells(&scores);
            figures.truncate(6);
            if scores.len() < ANSWERS_MIN {
                figures.iter_mut().skip(1).for_each(|figure| *figure = None);
            }
            rows.push([names(truth, question, segment), figures].concat());
        }
    }
    rows
}

fn likert(truth: &Truth, groups: &BTreeMap<Cell, Vec<&Answer>>) -> Rows {
    let all = truth.answers.iter().filter(|answer| answer.kind.as_deref() == Some("LIKERT"));
    let scales: BTreeMap<_, _> = by_question(all)
        .into_iter()
        .filter_map(|(question, answers)| Some((question, scale_of(truth, question, &answers)?)))
        .collect();
    let mut rows = Vec::new();
    for (segment, answers) in groups {
        let likert = answers.iter().filter(|answer| answer.kind.as_deref() == Some("LIKERT")).copied();
        for (question, answers) in by_question(likert) {
            let Some(scale) = scales.get(&question) else { continue };
            let not_rated = answers.iter().filter(|answer| answer.number.is_none() && !answer.is_skipped).count();
            let is_inside =
                |number: &f64| number.fract() == 0.0 && (scale.low as f64..=scale.high as f64).contains(number);
            let values: Vec<f64> = answers.iter().filter_map(|answer| answer.number).filter(is_inside).collect();
            if values.is_empty() && not_rated == 0 {
                continue;
            }
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let is_enough = values.len() >= ANSWERS_MIN;
            let error = (values.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt());
            let top = values.iter().filter(|value| **value >= scale.high as f64 - 1.0).count() as f64 / n;
            let has_box = is_enough && scale.high - scale.low >= 2;
            let figures = vec![
                cell(values.len()),
                optional(is_enough.then_some(mean)),
                optional(error.filter(|_| is_enough)),
                optional(has_box.then_some(top)),
                optional(has_box.then(|| (top * (1.0 - top) / n).sqrt())),
                cell(scale.low),
                cell(scale.high),
                cell(not_rated),
            ];
            rows.push([names(truth, question, segment), figures].concat());
        }
    }
    rows
}

fn choices(truth: &Truth, groups: &BTreeMap<Cell, Vec<&Answer>>) -> Rows {
    let mut rows = Vec::new();
    for (segment, answers) in groups {
        for (question, answers) in by_question(answers.iter().copied()) {
            let is_choice = |answer: &&&Answer| {
                matches!(answer.kind.as_deref(), Some("MULTIPLECHOICE" | "MULTIPLESELECT")) && !answer.is_skipped
            };
            let answered = answers.iter().filter(is_choice).count();
            if answered < ANSWERS_MIN {
                continue;
            }
            let mut chosen: BTreeMap<(Cell, Cell), std::collections::BTreeSet<&str>> = BTreeMap::new();
            for (answer, part) in parts(&answers, "response_choices") {
                let known = || truth.label_of_index(question.0?, question.1, integer(part, "selected_index")?);
                let label = part["label"].clone().or_else(known);
                let index = if label.is_none() { part["selected_index"].clone() } else { None };
                chosen.entry((label, index)).or_default().insert(&answer.session);
            }
            for ((label, index), sessions) in chosen {
                let share = sessions.len() as f64 / answered as f64;
                let error = (share * (1.0 - share) / answered as f64).sqrt();
                let figures = vec![label, index, cell(sessions.len()), cell(answered), cell(share), cell(error)];
                rows.push([names(truth, question, segment), figures].concat());
            }
        }
    }
    rows
}

/// Returns the names, most frequent first.
fn frequent(names: impl Iterator<Item = Cell>) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    names.flatten().for_each(|name| *counts.entry(name).or_default() += 1);
    let mut names: Vec<(usize, String)> = counts.into_iter().map(|(name, count)| (count, name)).collect();
    names.sort();
    names.into_iter().rev().map(|(_, name)| name).collect()
}

#[test]
fn segment_figures_equal_a_second_computation() {
    let service = hostile_service();
    let (place, expected) = two_nights(&service);
    let truth = Truth::of(&expected);
    let attributes = frequent(expected.rows("visitor_snapshot_attributes").into_iter().map(|row| row["name"].clone()));
    let keys = frequent(expected.rows("response_custom_metadata").into_iter().map(|row| row["name"].clone()));
    let mut cuts: Vec<String> =
        ["browser", "os", "language", "url_path", "triggering_event"].map(str::to_owned).to_vec();
    cuts.extend(attributes.iter().take(2).map(|name| format!("attribute:{name}")));
    cuts.extend(keys.iter().take(2).map(|key| format!("metadata:{key}")));
    cuts.push("attribute:nobody has it".to_owned());
    assert_eq!(cuts.len(), 10);
    // No result here depends on the time zone.
    let warehouses = Warehouse::in_utc(&place);
    let (mut with_figure, mut without) = (BTreeMap::new(), BTreeMap::new());
    for cut in &cuts {
        let segments = segments(&truth, &expected, cut);
        let groups = groups(&truth, &segments);
        assert!(groups.len() > 1 || cut.contains("nobody"), "{cut}: {} segments", groups.len());
        let quoted = cut.replace('\'', "''");
        let answers = truth.answers.iter().zip(&segments);
        let wanted: Rows = answers
            .map(|(answer, segment)| vec![cell(&answer.session), cell(answer.question_id), segment.clone()])
            .collect();
        for warehouse in &warehouses {
            let what = |name: &str| format!("{name}, {cut}, {}", warehouse.name);
            assert_same(
                &what("segments"),
                &wanted,
                &warehouse.query(&format!("SELECT * EXCLUDE (not_requested) FROM answer_segments('{quoted}')")),
            );
            for (name, wanted) in [
                ("nps_by_segment", nps(&truth, &groups)),
                ("likert_by_segment", likert(&truth, &groups)),
                ("choices_by_segment", choices(&truth, &groups)),
            ] {
                for row in &wanted {
                    let figure = if name == "choices_by_segment" { 8 } else { 5 };
                    let counts = if row[figure].is_some() { &mut with_figure } else { &mut without };
                    *counts.entry(name).or_insert(0) += 1;
                }
                let columns = if name == "nps_by_segment" { "* EXCLUDE (not_requested)" } else { "*" };
                let found = warehouse.query(&format!("SELECT {columns} FROM {name}('{quoted}')"));
                assert_same(&what(name), &wanted, &found);
            }
        }
    }
    assert!(with_figure.len() == 3 && with_figure.values().all(|rows| *rows > 20), "{with_figure:?}");
    // Small segments have no NPS and no mean.
    assert!(without["nps_by_segment"] > 10 && without["likert_by_segment"] > 10, "{without:?}");
    for warehouse in &warehouses {
        let all = "SELECT count(*) FROM nps_by_segment('os', answers_min := 1000000) WHERE nps IS NOT NULL";
        assert_eq!(warehouse.text(all).as_deref(), Some("0"));
        assert!(
            warehouse.fails("FROM answer_segments('browsers')").contains("none of browser, os"),
            "{}",
            warehouse.name
        );
    }
}

#[test]
fn the_text_search_treats_wildcards_as_plain_letters() {
    let service = hostile_service();
    let (place, expected) = two_nights(&service);
    let truth = Truth::of(&expected);
    let open = super::flows::open_answers(&truth);
    let words = ["e", "%", "_", "\\", "'", "THE", "ß", "SS", "σ", "", "no text has this"];
    for warehouse in &Warehouse::in_utc(&place) {
        for word in words {
            let holds = |row: &&Vec<Cell>| {
                row[8].as_deref() == Some("false")
                    && folded(row[6].as_deref().unwrap_or_default()).contains(&folded(word))
            };
            let wanted = open.iter().filter(holds).count();
            let sql = format!("SELECT count(*) FROM search_answers('{}')", word.replace('\'', "''"));
            assert_eq!(warehouse.text(&sql), cell(wanted), "{word}, {}", warehouse.name);
        }
    }
}

/// A url, a meta.href, and the path.
const PATHS: &[(&str, &str, Option<&str>)] = &[
    ("https://a.example/b/c?x=/y#z", "https://h.example/h", Some("/b/c")),
    ("https://a.example/", "https://h.example/h", Some("/")),
    ("https://a.example", "https://h.example/h", Some("")),
    ("https://a.example?next=//b.example/c", "", Some("")),
    ("//a.example/b", "", Some("/b")),
    ("app://screen/detail", "", Some("/detail")),
    ("file:///b/c", "", Some("/b/c")),
    (" https://a.example/b \n", "", Some("/b")),
    ("", "https://h.example/h?x", Some("/h")),
    ("   ", "https://h.example/h", Some("/h")),
    ("n/a", "https://h.example/h", Some("/h")),
    ("", "", None),
    ("n/a", "unknown", None),
    ("https://", "//", None),
    ("mailto:a@b.example", "about:blank", None),
    ("see https://a.example/b", "// a comment /b", None),
    ("a.example/b", "/b", None),
];

#[test]
fn a_text_that_is_no_address_has_no_path() {
    let service = Service::start(small(30, 3));
    for (number, (url, href, _)) in PATHS.iter().enumerate() {
        let record = json!({
            "createdAt": "2026-01-30T10:00:00Z", "updatedAt": "2026-01-30T10:00:00Z", "questionId": number, "questionType": "NPS",
            "response": 9, "responseGroupUid": "paths", "surveyId": 901, "visitorId": 1, "url": url, "meta": {"href": href},
        });
        service.control().plant(ListName::Responses, &record.to_string(), None).unwrap();
    }
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(3)], 0);
    for warehouse in &Warehouse::in_utc(&place) {
        let sql = "SELECT segment_value FROM answer_segments('url_path') WHERE response_group_uid = 'paths' ORDER BY question_id";
        let found: Vec<Cell> = warehouse.query(sql).into_iter().flatten().collect();
        for ((url, href, path), found) in PATHS.iter().zip(&found) {
            assert_eq!(found.as_deref(), *path, "{}: {url:?}, {href:?}", warehouse.name);
            let expected = self::path(url).or_else(|| self::path(href));
            assert_eq!(expected.as_deref(), *path, "the second computation: {url:?}, {href:?}");
        }
        assert_eq!(found.len(), PATHS.len());
    }
}

#[test]
fn weeks_of_segments_add_up_and_missing_flags_are_named() {
    let service = Service::start(small(1500, 28));
    let bare = Place::new(&service).with_config("[streams.responses]\nflags = []\n[streams.users]\nenabled = false\n");
    bare.report(&["backfill", "--from", &days_ago(28)], 0);
    for (segment, missing) in [
        ("browser", "with_meta"),
        ("url_path", "with_urls"),
        ("attribute:plan", "with_snapshots"),
        ("metadata:campaign", "with_custom_metadata"),
        ("user:plan", "users"),
    ] {
        let sql = format!("SELECT DISTINCT segment_value, not_requested FROM nps_by_segment('{segment}')");
        for warehouse in Warehouse::in_utc(&bare) {
            let wanted = vec![vec![None, Some(missing.to_owned())]];
            assert_same(&format!("{segment}, {}", warehouse.name), &wanted, &warehouse.query(&sql));
        }
        let said = bare.run(&["query", &sql]).expect(0).stderr;
        let hint = if missing == "users" { "[streams.users]" } else { missing };
        assert!(said.starts_with("hint: no ") && said.contains(hint), "{segment}: {said}");
    }
    let rates = bare.run(&["query", "FROM response_rates"]).expect(0).stderr;
    assert!(rates.contains("hint: response_rates is empty because no webhook was received"), "{rates}");
    let schema =
        crate::harness::Done::from(bare.bare(&["schema", "--format", "md", "response_rates"]).output().unwrap())
            .expect(0)
            .stdout;
    assert!(schema.contains("Without webhooks the view is empty: `studysync serve` receives them."), "{schema}");

    let place = Place::new(&service).with_config(&crate::users::with_people());
    place.report(&["backfill", "--from", &days_ago(28)], 0);
    let name = "SELECT name FROM current_user_attributes GROUP BY name ORDER BY count(DISTINCT value_text) BETWEEN 2 AND 9 DESC, count(*) DESC, name";
    for warehouse in Warehouse::in_utc(&place) {
        let name = warehouse.text(name).unwrap();
        let wanted = warehouse.query(&format!(
            "SELECT nps.response_group_uid, nps.question_id, attribute.value_text FROM current_responses AS nps
             LEFT JOIN current_user_attributes AS attribute ON attribute.external_user_id = nps.external_user_id AND attribute.name = '{name}'"
        ));
        let segments = format!("SELECT * EXCLUDE (not_requested) FROM answer_segments('user:{name}')");
        assert_same(&format!("user:{name}, {}", warehouse.name), &wanted, &warehouse.query(&segments));
        assert!(wanted.iter().filter(|row| row[2].is_some()).count() > 50, "{name}");
        for segment in [format!("user:{name}"), "browser".to_owned()] {
            let by_segment = warehouse.query(&format!(
                "SELECT survey_id, question_id, segment_value, responses, promoters, passives, detractors, not_requested
                 FROM nps_by_segment('{segment}', answers_min := 1)"
            ));
            let by_week = warehouse.query(&format!(
                "SELECT survey_id, question_id, segment_value, sum(responses)::BIGINT, sum(promoters)::BIGINT, sum(passives)::BIGINT,
                     sum(detractors)::BIGINT, any_value(not_requested)
                 FROM nps_by_week_and_segment('{segment}', answers_min := 1) GROUP BY survey_id, question_id, segment_value"
            ));
            assert_same(&format!("weeks, {segment}, {}", warehouse.name), &by_segment, &by_week);
        }
        let weeks = "SELECT week, sum(responses)::BIGINT FROM nps_by_week_and_segment('browser') GROUP BY week";
        let all = warehouse.query("SELECT week, responses FROM nps_by_week");
        assert_same(&format!("all weeks, {}", warehouse.name), &all, &warehouse.query(weeks));
    }
    assert_eq!(place.run(&["query", "FROM nps_by_segment('browser')"]).expect(0).stderr, "", "nothing is missing");
}
