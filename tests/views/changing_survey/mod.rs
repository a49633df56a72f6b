//! Random histories of a survey that changes while people answer it. Every night both warehouses must agree with a
//! second computation, and their results for an earlier time must not change.

mod model;
mod world;

use std::collections::BTreeMap;

use self::{
    model::{Known, row},
    world::{SURVEY, World, night_ms},
};
use super::{
    recompute::{Rows, cell, optional},
    warehouse::{Warehouse, assert_same},
};
use crate::harness::{Place, Service, days_ago, small};

const NIGHTS: i64 = 5;
/// The columns of `figures` that the test compares.
const FIGURE: &str = "survey_id, question_id, figure, label, selected_index, answers, value, standard_error";
/// Rows of the survey that changes, and of answers that name no survey.
const OURS: &str = "(survey_id = 900 OR survey_id IS NULL)";

/// The time an hour after the scan of a night, as SQL.
fn moment(night: i64) -> String {
    format!("make_timestamp({} + 3600000000)", night_ms(night) * 1000)
}

/// Plays a history, and compares after every night. With `is_quick`, compares one warehouse per night, and both at the
/// end.
fn play(seed: u64, is_quick: bool) {
    let mut world = World::new(Service::start(small(20, 6)), seed);
    let place = Place::new(world.service());
    place.report(&["backfill", "--from", &days_ago(7)], 0);
    let mut known = Known { answers: Vec::new(), definitions: Vec::new() };
    let mut figures: Vec<Rows> = Vec::new();
    for night in 0..=NIGHTS {
        if night > 0 {
            world.next_day();
            place.report(&["sync"], 0);
        }
        known.definitions.push(world.definition().clone());
        known.answers = world.answers.values().filter(|answer| !answer.is_deleted).cloned().collect();
        figures.push(known.figures().iter().map(row).collect());
        let warehouses = match night % 2 {
            _ if !is_quick || night == NIGHTS => Warehouse::in_utc(&place),
            0 => vec![Warehouse::duckdb(&place)],
            _ => vec![Warehouse::parquet(&place)],
        };
        for warehouse in &warehouses {
            let what = |name: &str| format!("seed {seed}, night {night}, {}: {name}", warehouse.name);
            for (name, sql, wanted) in wanted(&known) {
                assert_same(&what(name), &wanted, &warehouse.query(&sql.replace("OURS", OURS)));
            }
            if night >= NIGHTS - 1 {
                assert_wordings(&known, warehouse, night, &what);
            }
            assert_moments(&figures, warehouse, &what);
        }
        assert_judged_by_what_people_saw(&known);
    }
}

/// The expected rows of the views: name, query, rows.
fn wanted(known: &Known) -> Vec<(&'static str, &'static str, Rows)> {
    let versions = (known.answers.iter())
        .map(|answer| {
            let version = known.judged(answer);
            let scale = version.and_then(|(_, question)| question.scale);
            vec![
                cell(&answer.session),
                cell(answer.saw.id),
                optional(version.map(|(number, _)| number)),
                optional(scale.map(|(low, ..)| low)),
                optional(scale.map(|(_, high, _)| high)),
                optional(scale.map(|(.., others)| format!("{others:?}"))),
            ]
        })
        .collect();
    let choices = (known.choices().into_iter())
        .map(|(answer, place, index, label)| {
            vec![cell(&answer.session), cell(answer.saw.id), cell(place), optional(index), label]
        })
        .collect();
    let likert = (known.likert().into_iter())
        .map(|((survey, id), [answers, sum, top, boxed, others])| {
            let mean = sum as f64 / answers as f64;
            let (top, all) = (optional((boxed > 0).then_some(top)), optional((boxed > 0).then_some(boxed)));
            vec![optional(survey), cell(id), cell(answers), cell(mean), top, all, cell(others)]
        })
        .collect::<Rows>();
    let by_segment = likert.iter().map(|row| [&row[..3], &row[6..]].concat()).collect();
    let shares = (known.figures().iter())
        .filter(|((_, _, name, ..), _)| *name == "choice_share")
        .map(|((survey, id, _, label, index), (answers, share, _))| {
            vec![optional(*survey), cell(id), label.clone(), optional(*index), cell(answers), cell(share)]
        })
        .collect::<Rows>();
    vec![
        (
            "answer_versions",
            "SELECT response_group_uid, question_id, version, scale_min, scale_max, not_rated_values
             FROM answer_versions WHERE OURS",
            versions,
        ),
        (
            "current_choices",
            "SELECT response_group_uid, question_id, choice_ordinal, selected_index, label FROM current_choices WHERE OURS",
            choices,
        ),
        (
            "likert_top_two",
            "SELECT survey_id, question_id, answers, mean, top_two, nullif(boxed, 0), not_rated FROM likert_top_two WHERE OURS",
            likert,
        ),
        (
            "likert_by_segment",
            "SELECT survey_id, question_id, sum(answers), sum(not_rated)
             FROM likert_by_segment('os', answers_min := 0) WHERE OURS GROUP BY ALL HAVING sum(answers) > 0",
            by_segment,
        ),
        (
            "choice_share",
            "SELECT survey_id, question_id, label, selected_index, answered, share FROM choice_share WHERE OURS",
            shares.clone(),
        ),
        (
            "choices_by_segment",
            "SELECT survey_id, question_id, label, selected_index, answered, share
             FROM choices_by_segment('os', answers_min := 0) WHERE OURS",
            shares,
        ),
        (
            "figures",
            "SELECT survey_id, question_id, figure, label, selected_index, answers, value, standard_error FROM figures WHERE OURS",
            known.figures().iter().map(row).collect(),
        ),
        (
            "session_stages",
            "SELECT response_group_uid, is_completed, first_question_id FROM session_stages
             WHERE starts_with(response_group_uid, 'session-')",
            known.sessions(),
        ),
    ]
}

/// Asserts that each view shows one wording per question.
fn assert_wordings(known: &Known, warehouse: &Warehouse, night: i64, what: &dyn Fn(&str) -> String) {
    let changes = format!("figure_changes({}, {})", moment(0), moment(night));
    let mut relations: Vec<String> = ["day", "week", "month"]
        .iter()
        .flat_map(|period| ["", "_latest"].map(|suffix| format!("nps_by_{period}_per_question{suffix}")))
        .collect();
    let others = [
        "nps_per_question",
        "likert_distribution",
        "likert_top_two",
        "choice_share",
        "matrix_distribution",
        "rank_summary",
    ];
    relations.extend(others.map(str::to_owned));
    relations.extend(["maxdiff_scores", "skips", "survey_funnel", &changes].map(str::to_owned));
    for relation in relations {
        let sql = format!("SELECT DISTINCT survey_id, question_id, question_text FROM {relation} WHERE {OURS}");
        let found = warehouse.query(&sql);
        assert!(!found.is_empty(), "{}", what(&relation));
        for row in found {
            let key = (row[0].is_some().then_some(SURVEY), row[1].as_deref().unwrap().parse().unwrap());
            assert_eq!(row[2], known.wording(key), "{}: {key:?}", what(&relation));
        }
    }
}

/// Asserts that the figures of an earlier time equal those of that night, whatever was found since.
fn assert_moments(nights: &[Rows], warehouse: &Warehouse, what: &dyn Fn(&str) -> String) {
    let today = nights.len() as i64 - 1;
    // The times of all nights at the end; before, only those of the first and the last two nights.
    let is_checked = |night: i64| today == NIGHTS || night == 0 || night >= today - 1;
    for (night, figures) in nights.iter().enumerate().filter(|(night, _)| is_checked(*night as i64)) {
        let sql = format!("SELECT {FIGURE} FROM figures_as_of({}) WHERE {OURS}", moment(night as i64));
        assert_same(&what(&format!("figures of night {night}")), figures, &warehouse.query(&sql));
    }
    let earlier = (today - 1).max(0);
    let sql = format!(
        "SELECT survey_id, question_id, figure, label, selected_index, nullif(answers_before, 0), before, before_error,
             nullif(answers_after, 0), after, after_error
         FROM figure_changes({}, {}) WHERE {OURS}",
        moment(earlier),
        moment(today)
    );
    let wanted = changes(&nights[earlier as usize], &nights[today as usize]);
    assert_same(&what("figure_changes"), &wanted, &warehouse.query(&sql));
}

/// Both values of each figure. An option that nobody had chosen has the share 0, if the question had an answer.
fn changes(before: &Rows, after: &Rows) -> Rows {
    let mut sides: BTreeMap<Vec<_>, [Option<Vec<_>>; 2]> = BTreeMap::new();
    for (side, rows) in [before, after].into_iter().enumerate() {
        for row in rows {
            sides.entry(row[..5].to_vec()).or_default()[side] = Some(row[5..].to_vec());
        }
    }
    let rest = |key: &[crate::harness::Cell], rows: &Rows| {
        let answers = rows.iter().find(|row| row[..3] == key[..3]).map(|row| row[5].clone())?;
        let is_one = answers.as_deref() == Some("1");
        Some(vec![answers, cell(0), if is_one { None } else { cell(0) }])
    };
    let mut wanted = Rows::new();
    for (key, sides) in sides {
        let figures = sides
            .into_iter()
            .zip([before, after])
            .flat_map(|(side, rows)| side.or_else(|| rest(&key, rows)).unwrap_or_else(|| vec![None, None, None]));
        wanted.push(key.iter().cloned().chain(figures).collect());
    }
    wanted
}

/// Asserts that the rule selects the version that people saw, if the survey had not changed since the last scan.
fn assert_judged_by_what_people_saw(known: &Known) {
    for answer in known.answers.iter().filter(|answer| answer.is_settled && answer.survey.is_some()) {
        let (_, question) = known.judged(answer).unwrap();
        assert_eq!(question, &answer.saw, "{} of {}", answer.saw.id, answer.session);
    }
}

#[test]
fn views_of_a_changing_survey_equal_a_model() {
    play(1, true);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_views_of_more_changing_surveys_equal_a_model() {
    (1..=12).for_each(|seed| play(seed, false));
}
