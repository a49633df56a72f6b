//! The views, compared with a second computation and with known numbers, in both warehouses and in several time zones.

mod changes;
mod changing_survey;
mod examples;
mod flows;
mod histories;
mod history;
mod planted;
mod recompute;
mod scales;
pub mod search;
mod segments;
mod time_zones;
mod trust;
mod truth;
mod versions;
mod warehouse;

use studysync_sandbox::{ChangeRequest, ListName, RowKey, Settings};

use self::{recompute::NpsCut, truth::Truth, warehouse::Warehouse};
use crate::harness::{Cell, DAY_MS, Place, Service, days_ago, expected::Expected, small};

/// The range that every night scans again, in days.
const DAYS: i64 = 28;

/// A service with hostile rows, many of them in one millisecond, and the planted set.
fn hostile_service() -> Service {
    let service = Service::start(Settings { hostile_share: 0.1, ties_per_ms: 3, ..small(9000, DAYS as u32) });
    planted::plant(&service);
    // Which of two records with one key wins is not tested here.
    for key in Expected::now(&service).collisions("responses") {
        let (group, question) = key.split_once(" / ").unwrap();
        service.control().remove_row(&RowKey { group: group.into(), question: question.into() });
    }
    service
}

/// Both warehouses after a backfill and a night of edits, deletions and purges, and their expected rows.
fn two_nights(service: &Service) -> (Place, Expected) {
    let place = Place::new(service);
    place.report(&["backfill", "--from", &days_ago(DAYS + 2)], 0);
    let first = Expected::now(service);
    service.advance_days(1);
    service.change(&ChangeRequest {
        edits: 60,
        soft_deletes: 40,
        vanish_visitors: 3,
        new_answers: 200,
        question_edits: 2,
        within_ms: Some(20 * DAY_MS),
        ..ChangeRequest::default()
    });
    place.report(&["sync"], 0);
    let expected = first.next_morning(Expected::now(service));
    assert!(expected.entities("responses").any(|(_, entity)| entity.has_vanished), "nothing vanished");
    assert!(expected.collisions("responses").is_empty(), "a key stands twice");
    (place, expected)
}

/// The expected rows of every view.
fn recomputed(truth: &Truth) -> Vec<(String, recompute::Rows)> {
    let mut views: Vec<(String, recompute::Rows)> = [
        ("questions", flows::questions(truth)),
        ("sessions", recompute::sessions(truth)),
        ("nps_per_question", recompute::nps_per_question(truth)),
        ("likert_distribution", recompute::likert_distribution(truth)),
        ("likert_top_two", recompute::likert_top_two(truth)),
        ("choice_share", recompute::choice_share(truth)),
        ("matrix_distribution", recompute::matrix_distribution(truth)),
        ("rank_summary", recompute::rank_summary(truth)),
        ("maxdiff_scores", recompute::maxdiff_scores(truth)),
        ("theme_trend", flows::theme_trend(truth)),
        ("survey_funnel", flows::survey_funnel(truth)),
        ("daily_breakdown", flows::daily_breakdown(truth)),
        ("skips", flows::skips(truth)),
        ("open_answers", flows::open_answers(truth)),
    ]
    .map(|(name, rows)| (name.to_owned(), rows))
    .to_vec();
    for period in ["day", "week", "month"] {
        for (per_question, latest) in [(false, false), (false, true), (true, false), (true, true)] {
            let suffixes = [(per_question, "_per_question"), (latest, "_latest")];
            let suffix: String = suffixes.iter().filter(|(is_so, _)| *is_so).map(|(_, suffix)| *suffix).collect();
            let rows = recompute::nps(truth, NpsCut { period, per_question, latest });
            views.push((format!("nps_by_{period}{suffix}"), rows));
        }
    }
    views
}

#[test]
fn every_view_equals_a_second_computation_in_any_time_zone() {
    let service = hostile_service();
    let (place, expected) = two_nights(&service);
    let truth = Truth::of(&expected);
    let views = recomputed(&truth);
    let names: Vec<&str> = views.iter().map(|(name, _)| name.as_str()).collect();
    // Rows from webhooks are compared in `tests/serve`; versions and times in `versions.rs` and `changing_survey`.
    let elsewhere = [
        "nps_answers",
        "webhook_mismatches",
        "session_stages",
        "response_rates",
        "question_versions",
        "response_question_versions",
        "response_versions",
        "theme_versions",
        "survey_status_timeline",
        // Tested in `changing_survey`.
        "answer_versions",
        "question_scales",
        "survey_question_sets",
        "likert_values",
        "figures",
        "key_collisions",
        // Tested in `trust.rs`.
        "untrusted",
        // Tested in `time_zones.rs`.
        "time_zone_offsets",
    ];
    let is_row_by_row = |name: &&String| name.starts_with("current_") || elsewhere.contains(&name.as_str());
    for name in warehouse::view_names().iter().filter(|name| !is_row_by_row(name)) {
        assert!(names.contains(&name.as_str()), "{name} is not computed a second time");
    }
    let mut differences = Vec::new();
    let warehouses = Warehouse::all(&place);
    for warehouse in &warehouses {
        for (name, wanted) in &views {
            assert!(wanted.len() > 1, "{name}: the set does not fill it");
            let difference = warehouse::difference(wanted, &warehouse.rows(name));
            differences.extend(difference.map(|text| format!("{name}, {}: {text}", warehouse.name)));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    warehouses.iter().for_each(|warehouse| assert_row_by_row(warehouse, &truth));
}

/// Tests the views that only leave rows out.
fn assert_row_by_row(warehouse: &Warehouse, truth: &Truth) {
    let count = |sql: &str| warehouse.text(&format!("SELECT count(*) FROM {sql}")).unwrap().parse::<usize>().unwrap();
    assert_eq!(count("current_responses"), truth.answers.len(), "{}", warehouse.name);
    for (view, table) in [
        ("current_choices", "response_choices"),
        ("current_matrix_cells", "response_matrix_cells"),
        ("current_ranks", "response_ranks"),
        ("current_maxdiff_items", "response_maxdiff_items"),
    ] {
        let wanted = truth.answers.iter().flat_map(|answer| &answer.parts).filter(|(name, _)| *name == table).count();
        assert_eq!(count(view), wanted, "{view}, {}", warehouse.name);
    }
    assert_eq!(count("current_themes"), truth.themes.len(), "{}", warehouse.name);
    let mut wanted: Vec<Vec<Cell>> = (truth.answers.iter())
        .map(|answer| {
            let id = |name: &str| answer.row[name].clone().filter(|id| !id.is_empty());
            let json = answer.row["answer_json"].clone();
            vec![
                Some(answer.session.clone()),
                Some(answer.question_id.to_string()),
                id("external_user_id"),
                id("partner_anonymous_id"),
                json,
                Some(answer.created_us.to_string()),
            ]
        })
        .collect();
    let columns =
        "response_group_uid, question_id, external_user_id, partner_anonymous_id, answer_json, epoch_us(created_at)";
    let mut found = warehouse.query(&format!("SELECT {columns} FROM current_responses"));
    wanted.sort();
    found.sort();
    assert!(wanted == found, "current_responses of {}", warehouse.name);
}

#[test]
fn views_of_a_small_set_equal_hand_computed_numbers() {
    let service = Service::start(small(50, 20));
    planted::plant(&service);
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(40)], 0);
    for warehouse in Warehouse::all(&place) {
        let of_survey =
            |sql: &str| warehouse.query(&sql.replace("SURVEY", &format!("survey_id = {}", planted::SURVEY)));
        let assert = |sql: &str, wanted: &[&[&str]]| {
            let wanted: Vec<Vec<Cell>> = wanted
                .iter()
                .map(|row| row.iter().map(|text| (*text != "-").then(|| (*text).to_owned())).collect())
                .collect();
            warehouse::assert_same(&format!("{sql}, {}", warehouse.name), &wanted, &of_survey(sql));
        };
        // Sunday: 10 9 | 8 7 | 6 0, and 3 of the visitor who returns.
        // Mean -1/7, sum of squared deviations 5 - 1/7, error 100 sqrt(34/7/6/7).
        assert(
            "SELECT week, responses, promoters, passives, detractors, nps, standard_error, nps_low, nps_high, survey_name, question_text \
             FROM nps_by_week_per_question WHERE SURVEY",
            &[
                &[
                    "2026-01-12",
                    "7",
                    "2",
                    "2",
                    "3",
                    "-14.285714285714286",
                    "34.00680204068024",
                    "-80.93904628544756",
                    "52.367617714018984",
                    "Größe & \"more\"",
                    "Question 1",
                ],
                &[
                    "2026-01-19",
                    "6",
                    "2",
                    "2",
                    "2",
                    "0",
                    "36.51483716701107",
                    "-71.5690808473417",
                    "71.5690808473417",
                    "Größe & \"more\"",
                    "Question 1",
                ],
            ],
        );
        // Each visitor counts once: of 10 and 0 at the same time, the 0 of the greater session; of 9 and 1 of one UUID,
        // the 1.
        assert(
            "SELECT week, responses, promoters, passives, detractors, nps FROM nps_by_week_per_question_latest WHERE SURVEY AND week = '2026-01-19'",
            &[&["2026-01-19", "4", "0", "2", "2", "-50"]],
        );
        assert(
            "SELECT responses, promoters, detractors, nps, standard_error, nps_low FROM nps_by_day_per_question WHERE survey_id = 999999",
            &[&["1", "1", "0", "100", "-", "-"]],
        );
        assert(
            "SELECT question_id, answers, mean, top_two, top_two_share, bottom_two, scale_min, scale_max, scale_source FROM likert_top_two WHERE SURVEY",
            &[
                &["2", "7", "4", "3", "0.42857142857142855", "3", "1", "7", "options"],
                &["3", "3", "3.3333333333333335", "2", "0.6666666666666666", "1", "1", "5", "properties"],
                &["4", "5", "0.2", "2", "0.4", "2", "-2", "2", "options"],
                &["5", "4", "3.25", "2", "0.5", "1", "1", "5", "usual"],
            ],
        );
        assert(
            "SELECT value, answers, share FROM likert_distribution WHERE SURVEY AND question_id = 5",
            &[&["2", "1", "0.25"], &["3", "1", "0.25"], &["4", "2", "0.5"]],
        );
        // Four people answered; the empty list is no answer. One answer cannot be read, and one has only indexes.
        assert(
            "SELECT label, selected_index, chosen, answered, share FROM choice_share WHERE SURVEY AND question_id = 9",
            &[
                &["Größe", "-", "2", "4", "0.5"],
                &["日本語", "-", "1", "4", "0.25"],
                &["-", "4", "1", "4", "0.25"],
                &["-", "5", "1", "4", "0.25"],
            ],
        );
        // An index becomes an option if it is proven how indexes are counted. Each option is one row.
        assert(
            "SELECT question_id, label, selected_index, chosen, answered, share FROM choice_share WHERE SURVEY AND question_id >= 20",
            &[
                &["20", "Red", "-", "1", "3", "0.3333333333333333"],
                &["20", "Green, dark", "-", "1", "3", "0.3333333333333333"],
                &["20", "Blue", "-", "3", "3", "1"],
                &["21", "One", "-", "1", "1", "1"],
                &["21", "Three", "-", "1", "1", "1"],
                &["22", "Up", "-", "2", "2", "1"],
                &["22", "-", "1", "1", "2", "0.5"],
            ],
        );
        assert(
            "SELECT question_id, selected_index, label, label_source FROM current_choices WHERE SURVEY AND question_id IN (21, 22)",
            &[
                &["21", "1", "One", "options"],
                &["21", "3", "Three", "options"],
                &["22", "1", "-", "-"],
                &["22", "2", "Up", "other answers"],
                &["22", "2", "Up", "answer"],
            ],
        );
        // A: 1, 2, 1. B: 2, 1 (9 is no rank). C: 3. With three options, the first rank is worth 2 points and the last
        // rank none.
        assert(
            "SELECT option_label, answers, mean_rank, first_places, borda_points, borda_score FROM rank_summary WHERE SURVEY",
            &[
                &["A", "3", "1.3333333333333333", "2", "5", "0.8333333333333334"],
                &["B", "2", "1.5", "1", "3", "0.75"],
                &["C", "1", "3", "0", "0", "0"],
                &["only", "1", "1", "1", "0", "-"],
            ],
        );
        assert(
            "SELECT question_id, item, shown, chosen_left, chosen_right, best, worst, score FROM maxdiff_scores WHERE SURVEY AND item <> 'B'",
            &[
                &["6", "A", "3", "2", "0", "2", "0", "0.6666666666666666"],
                &["6", "C", "3", "0", "2", "0", "2", "-0.6666666666666666"],
                &["7", "A", "3", "2", "0", "-", "-", "-"],
                &["7", "C", "3", "0", "2", "-", "-", "-"],
                &["8", "A", "3", "2", "0", "-", "-", "-"],
                &["8", "C", "3", "0", "2", "-", "-", "-"],
            ],
        );
        assert(
            "SELECT row_label, column_label, column_number, answers, answered, share FROM matrix_distribution WHERE SURVEY",
            &[
                &["", "1", "1", "2", "2", "1"],
                &["Speed", "5 - good", "5", "1", "2", "0.5"],
                &["Speed", "bad", "-", "1", "2", "0.5"],
            ],
        );
        // Themes count by the time of the answer; if the answer is missing, by the time at which the theme was found.
        assert(
            "SELECT week, theme, answers, themed_answers, share FROM theme_trend WHERE SURVEY",
            &[
                &["2026-01-19", "Größe", "1", "1", "1"],
                &["2026-01-19", "Speed", "1", "1", "1"],
                &["2026-01-26", "Speed", "1", "1", "1"],
            ],
        );
        assert(
            "SELECT question_id, question_text, shown, answered, skipped, sent_null, sent_empty, sent_nothing FROM skips WHERE SURVEY AND question_id BETWEEN 12 AND 19",
            &[
                &["12", "Planted 12 é 😀", "4", "1", "3", "1", "1", "1"],
                &["14", "Planted 14 é 😀", "2", "2", "0", "0", "0", "0"],
            ],
        );
    }
}

/// Without this filter, a query for one survey would read the answers of all surveys.
#[test]
fn every_view_pushes_a_survey_filter_down_to_the_scan() {
    let service = Service::start(small(2000, 20));
    planted::plant(&service);
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(40)], 0);
    for warehouse in Warehouse::in_utc(&place) {
        let mut checked = 0;
        // These views compare webhooks with all answers.
        let webhooks = ["webhook_mismatches", "session_stages", "response_rates"];
        // A row can move to another survey, so all its versions are read.
        let versions = ["response_versions", "theme_versions"];
        let beside_all = [&webhooks[..], &versions].concat();
        for name in warehouse::view_names().into_iter().filter(|name| !beside_all.contains(&name.as_str())) {
            let has_survey =
                format!("SELECT count(*) FROM (DESCRIBE SELECT * FROM {name}) WHERE column_name = 'survey_id'");
            if warehouse.text(&has_survey).as_deref() == Some("1") {
                let scans = warehouse.scans(&format!("SELECT * FROM {name} WHERE survey_id = {}", planted::SURVEY));
                let what = format!("{name}, {}: {scans:?}", warehouse.name);
                let is_filtered = |scan: &[String; 2]| scan[1].contains("survey_id=900");
                // `theme_trend` reads the few rows of themes and definitions once for two uses.
                if name == "theme_trend" {
                    continue;
                }
                let reads_answers = scans.iter().any(|scan| scan[0].contains("response_group_uid"));
                assert!(!reads_answers || scans.iter().any(is_filtered), "{what}");
                let reads_all = |scan: &[String; 2]| {
                    ["survey_id", "response_group_uid"].iter().all(|column| scan[0].contains(column))
                };
                let is_late = scans.iter().any(|scan| reads_all(scan) && !is_filtered(scan));
                assert!(!is_late, "{what}");
                checked += 1;
            }
        }
        assert!(checked > 20, "{checked}");
    }
}

/// The order of rows differs between warehouses and between the threads of an engine, so sums must not depend on it.
#[test]
fn both_warehouses_agree_to_the_last_digit() {
    let service = Service::start(small(4000, 20));
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(40)], 0);
    let warehouses = Warehouse::in_utc(&place);
    for name in
        ["rank_summary", "likert_top_two", "nps_by_week", "maxdiff_scores", "choice_share", "matrix_distribution"]
    {
        let [one, other] = [&warehouses[0], &warehouses[1]].map(|warehouse| {
            let mut rows = warehouse.rows(name);
            rows.sort();
            rows
        });
        assert!(one.len() > 1 && one == other, "{name}: {one:?}\n{other:?}");
    }
}

/// A question that its survey no longer defines still has the name of the survey.
#[test]
fn views_name_a_survey_whose_question_is_gone() {
    let service = Service::start(small(50, 20));
    planted::plant(&service);
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(40)], 0);
    let views =
        ["skips", "likert_distribution", "likert_top_two", "choice_share", "rank_summary", "matrix_distribution"];
    for warehouse in Warehouse::all(&place) {
        for view in views {
            let unnamed =
                format!("SELECT count(*) FROM {view} WHERE survey_id = {} AND survey_name IS NULL", planted::SURVEY);
            assert_eq!(warehouse.text(&unnamed).as_deref(), Some("0"), "{view}, {}", warehouse.name);
        }
    }
}

#[test]
fn the_service_lists_the_planted_answers() {
    let service = Service::start(small(50, 20));
    let before = service.truth(ListName::Responses).len();
    planted::plant(&service);
    assert!(service.truth(ListName::Responses).len() > before + 60);
}
