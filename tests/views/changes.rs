//! Changes between two nights, in rows and in figures, compared with the results of each night.

use std::collections::{BTreeMap, BTreeSet};

use studysync_sandbox::{ChangeRequest, Settings};

use super::{
    recompute::Rows,
    warehouse::{Warehouse, assert_same},
};
use crate::harness::{Cell, DAY_MS, NOW_MS, Place, Service, days_ago, small};

/// A time after a night as SQL. Each night begins a day after the one before.
fn moment(night: i64) -> String {
    format!("make_timestamp({} + 3600000000)", (NOW_MS + night * DAY_MS) * 1000)
}

/// An answer that exists on a night.
struct Answer {
    session: String,
    survey: i64,
    question: i64,
    kind: String,
    number: Option<f64>,
    is_skipped: bool,
    indexes: Vec<i64>,
    text: Cell,
}

fn answers(warehouse: &Warehouse) -> Vec<Answer> {
    let sql = "SELECT response_group_uid, survey_id, question_id, question_type, answer_number, is_skipped,
                   array_to_string(selected_indexes, ','), answer_text
               FROM current_responses WHERE survey_id IS NOT NULL AND question_type IS NOT NULL";
    let read = |row: Vec<Cell>| Answer {
        session: row[0].clone().unwrap(),
        survey: number(&row[1]),
        question: number(&row[2]),
        kind: row[3].clone().unwrap(),
        number: row[4].as_deref().map(|text| text.parse().unwrap()),
        is_skipped: row[5].as_deref() == Some("true"),
        indexes: row[6].iter().flat_map(|text| text.split(',')).filter_map(|text| text.parse().ok()).collect(),
        text: row[7].clone(),
    };
    warehouse.query(sql).into_iter().map(read).collect()
}

/// Lowest and highest value by survey and question.
type Scales = BTreeMap<(i64, i64), (f64, f64)>;

fn scales(warehouse: &Warehouse) -> Scales {
    let sql = "SELECT survey_id, question_id, scale_min, scale_max FROM likert_top_two WHERE survey_id IS NOT NULL";
    let ends = |row: &Vec<Cell>| (number(&row[2]) as f64, number(&row[3]) as f64);
    warehouse.query(sql).iter().map(|row| ((number(&row[0]), number(&row[1])), ends(row))).collect()
}

fn number(cell: &Cell) -> i64 {
    cell.as_deref().unwrap().parse().unwrap()
}

/// The key of a figure: survey, question, name, label.
type Key = (i64, i64, &'static str, Cell);
/// Answers, value, standard error.
type Figure = (usize, f64, f64);

fn nps(answers: &[&Answer]) -> Option<Figure> {
    let worths: Vec<f64> = answers
        .iter()
        .filter_map(|answer| answer.number)
        .filter(|number| number.fract() == 0.0 && (0.0..=10.0).contains(number))
        .map(|number| {
            if number > 8.0 {
                100.0
            } else if number > 6.0 {
                0.0
            } else {
                -100.0
            }
        })
        .collect();
    let n = worths.len() as f64;
    let mean = worths.iter().sum::<f64>() / n;
    let squares: f64 = worths.iter().map(|worth| (worth - mean).powi(2)).sum();
    (!worths.is_empty()).then(|| (worths.len(), mean, (squares / (n - 1.0) / n).sqrt()))
}

fn share(part: usize, whole: usize) -> Figure {
    let share = part as f64 / whole as f64;
    (whole, share, (share * (1.0 - share) / whole as f64).sqrt())
}

/// The labels of the options that an answer chose: its own labels, or the most frequent label of each index.
fn labels(answer: &Answer, called: &BTreeMap<(i64, i64, i64), String>) -> BTreeSet<String> {
    let text = answer.text.as_deref().unwrap_or_default();
    if answer.kind == "MULTIPLESELECT"
        && let Ok(labels) = serde_json::from_str::<Vec<String>>(text)
    {
        return labels.into_iter().collect();
    }
    if answer.kind == "MULTIPLECHOICE" || answer.indexes.len() < 2 {
        return answer.text.iter().cloned().collect();
    }
    let name = |index: &i64| called.get(&(answer.survey, answer.question, *index)).cloned();
    answer.indexes.iter().filter_map(name).collect()
}

fn figures(answers: &[Answer], scales: &Scales, called: &BTreeMap<(i64, i64, i64), String>) -> BTreeMap<Key, Figure> {
    let mut questions: BTreeMap<(i64, i64), Vec<&Answer>> = BTreeMap::new();
    for answer in answers {
        questions.entry((answer.survey, answer.question)).or_default().push(answer);
    }
    let mut figures = BTreeMap::new();
    for ((survey, question), answers) in questions {
        let of = |kinds: &[&str]| -> Vec<&Answer> {
            answers.iter().copied().filter(|answer| kinds.contains(&answer.kind.as_str())).collect()
        };
        if let Some(figure) = nps(&of(&["NPS"])) {
            figures.insert((survey, question, "nps", None), figure);
        }
        if let Some((low, high)) = scales.get(&(survey, question)).filter(|(low, high)| high - low >= 2.0) {
            let values = of(&["LIKERT"]).into_iter().filter_map(|answer| answer.number);
            let values: Vec<f64> =
                values.filter(|value| value.fract() == 0.0 && (*low..=*high).contains(value)).collect();
            let top = values.iter().filter(|value| **value >= high - 1.0).count();
            if !values.is_empty() {
                figures.insert((survey, question, "top_two_share", None), share(top, values.len()));
            }
        }
        let mut answered = of(&["MULTIPLECHOICE", "MULTIPLESELECT"]);
        answered.retain(|answer| !answer.is_skipped);
        let mut chosen: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for answer in &answered {
            for label in labels(answer, called) {
                chosen.entry(label).or_default().insert(&answer.session);
            }
        }
        for (label, sessions) in chosen {
            figures.insert((survey, question, "choice_share", Some(label)), share(sessions.len(), answered.len()));
        }
        if !answered.is_empty() {
            // The share of an option that nobody chose, for its number of answers.
            figures.insert((survey, question, "choice_share", None), share(0, answered.len()));
        }
    }
    figures
}

/// Computes the rows of `figure_changes`, without names and wordings.
fn wanted_figures(before: &BTreeMap<Key, Figure>, after: &BTreeMap<Key, Figure>) -> Rows {
    let keys: BTreeSet<&Key> = before.keys().chain(after.keys()).collect();
    let is_figure = |key: &&&Key| key.2 != "choice_share" || key.3.is_some();
    let mut rows = Vec::new();
    for key in keys.iter().filter(is_figure) {
        let at = |figures: &BTreeMap<Key, Figure>| {
            figures.get(*key).copied().or_else(|| {
                let whole = figures.get(&(key.0, key.1, key.2, None)).filter(|_| key.3.is_some())?;
                Some((whole.0, 0.0, 0.0))
            })
        };
        let cells = |figure: Option<Figure>| {
            let error = figure.filter(|(answers, ..)| *answers > 1).map(|(.., error)| error.to_string());
            vec![
                Some(figure.map_or(0, |(answers, ..)| answers).to_string()),
                figure.map(|(_, value, _)| value.to_string()),
                error,
            ]
        };
        let (before, after) = (at(before), at(after));
        let change = before.zip(after).map(|(before, after)| (after.1 - before.1).to_string());
        let head = vec![Some(key.0.to_string()), Some(key.1.to_string()), Some(key.2.to_owned()), key.3.clone()];
        rows.push([head, cells(before), cells(after), vec![change]].concat());
    }
    rows
}

/// Counts the changed rows, by survey.
fn wanted_rows(warehouse: &Warehouse, earlier: i64, later: i64) -> Rows {
    let mut counts: BTreeMap<Cell, [i64; 6]> = BTreeMap::new();
    let mut count = |sql: &str, at: &dyn Fn(&[Cell]) -> Option<usize>| {
        for row in warehouse.query(sql) {
            let moment = number(&row[1]);
            if moment > earlier
                && moment <= later
                && let Some(at) = at(&row)
            {
                counts.entry(row[0].clone()).or_default()[at] += 1;
            }
        }
    };
    // An answer that was deleted when a scan first found it is not new, and cannot vanish.
    let found = "WITH first AS (
            SELECT response_group_uid, question_id, arg_min(deleted_at IS NOT NULL, valid_to) AS was_deleted FROM response_history
            WHERE reason <> 'collision' GROUP BY ALL
        )
        SELECT survey_id, epoch_us(_first_seen_at), coalesce(was_deleted, deleted_at IS NOT NULL) FROM responses
        LEFT JOIN first USING (response_group_uid, question_id)";
    count(found, &|row| (row[2].as_deref() == Some("false")).then_some(0));
    let ended = "SELECT survey_id, epoch_us(valid_to), reason, deleted_at FROM response_history";
    count(ended, &|row| match row[2].as_deref() {
        Some("edited") => Some(1),
        Some("deleted") => Some(2),
        Some("vanished") if row[3].is_none() => Some(3),
        _ => None,
    });
    count("SELECT survey_id, epoch_us(_first_seen_at) FROM themes", &|_| Some(4));
    // A question counts once, even if it changed several times.
    let mut questions: BTreeSet<(Cell, Cell)> = BTreeSet::new();
    for row in warehouse.query(
        "SELECT survey_id, coalesce(question_id, -question_ordinal), epoch_us(valid_from), epoch_us(valid_to)
         FROM survey_question_history",
    ) {
        let is_within =
            |cell: &Cell| cell.as_deref().is_some_and(|at| (earlier + 1..=later).contains(&at.parse().unwrap()));
        if (is_within(&row[2]) || is_within(&row[3])) && questions.insert((row[0].clone(), row[1].clone())) {
            counts.entry(row[0].clone()).or_default()[5] += 1;
        }
    }
    let mut statuses: BTreeMap<Cell, Vec<(i64, Cell)>> = BTreeMap::new();
    for row in warehouse
        .query("SELECT survey_id, epoch_us(changed_at), new_status FROM survey_status_changes ORDER BY changed_at")
    {
        let at = number(&row[1]);
        statuses.entry(row[0].clone()).or_default().push((at, row[2].clone()));
        if at > earlier && at <= later {
            counts.entry(row[0].clone()).or_default();
        }
    }
    let status = |survey: &Cell, at: i64| -> Cell {
        let of = statuses.get(survey)?;
        of.iter().rfind(|(changed, _)| *changed <= at)?.1.clone()
    };
    let row = |(survey, counts): (&Cell, &[i64; 6])| {
        let counts = counts.iter().map(|count| Some(count.to_string()));
        let ends = [status(survey, earlier), status(survey, later)];
        std::iter::once(survey.clone()).chain(counts).chain(ends).collect()
    };
    counts.iter().map(row).collect()
}

/// Asserts that the rows before, plus new rows, minus lost rows, equal the rows after. With `is_until_today`, the rows
/// after are the current rows.
fn assert_adds_up(warehouse: &Warehouse, between: &str, is_until_today: bool) {
    let sums = "answers_before + new_answers + returned - deleted - vanished <> answers_after
         OR themes_before + new_themes + returned_themes - vanished_themes <> themes_after
         OR surveys_before + new_surveys + returned_surveys - vanished_surveys <> surveys_after";
    let wrong = warehouse.query(&format!("SELECT * FROM row_changes({between}) WHERE {sums}"));
    assert!(wrong.is_empty(), "{}: {wrong:?}", warehouse.name);
    let themes = "(FROM themes WHERE _vanished_at IS NULL)";
    for (count, current) in [("answers_after", "current_responses"), ("themes_after", themes)] {
        let sql = format!(
            "SELECT change.survey_id, {count}, current.rows FROM row_changes({between}) AS change
             LEFT JOIN (SELECT survey_id, count(*) AS rows FROM {current} GROUP BY survey_id) AS current
                 ON current.survey_id IS NOT DISTINCT FROM change.survey_id
             WHERE {count} <> coalesce(current.rows, 0)"
        );
        let wrong = if is_until_today { warehouse.query(&sql) } else { Rows::new() };
        assert!(wrong.is_empty(), "{}: {current}: {wrong:?}", warehouse.name);
    }
}

#[test]
fn changes_between_nights_equal_a_second_computation() {
    let service = Service::start(Settings { hostile_share: 0.05, ..small(2500, 20) });
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(22)], 0);
    let said = |place: &Place| -> Vec<(Vec<Answer>, Scales)> {
        Warehouse::in_utc(place).iter().map(|warehouse| (answers(warehouse), scales(warehouse))).collect()
    };
    let mut nights = vec![said(&place)];
    for seed in 1..=2 {
        service.advance_days(1);
        service.change(&ChangeRequest {
            seed,
            edits: 120,
            soft_deletes: 30,
            vanish_visitors: 4,
            new_answers: 150,
            new_themes: 8,
            status_changes: 3,
            question_edits: 5,
            within_ms: Some(5 * DAY_MS),
            ..ChangeRequest::default()
        });
        place.report(&["sync"], 0);
        nights.push(said(&place));
    }
    for (at, warehouse) in Warehouse::in_utc(&place).iter().enumerate() {
        let mut times: BTreeMap<(i64, i64, i64), BTreeMap<String, usize>> = BTreeMap::new();
        let named = "SELECT survey_id, question_id, selected_index, label FROM response_choices
                     WHERE survey_id IS NOT NULL AND selected_index IS NOT NULL AND label IS NOT NULL";
        for row in warehouse.query(named) {
            let key = (number(&row[0]), number(&row[1]), number(&row[2]));
            *times.entry(key).or_default().entry(row[3].clone().unwrap()).or_default() += 1;
        }
        let most = |names: BTreeMap<String, usize>| {
            let least_first = names.into_iter().min_by_key(|(label, times)| (usize::MAX - times, label.clone()));
            least_first.unwrap().0
        };
        let called: BTreeMap<_, _> = times.into_iter().map(|(key, names)| (key, most(names))).collect();
        for (earlier, later) in [(0, 1), (0, 2), (1, 2), (-1, 2)] {
            let of = |night: i64| match usize::try_from(night) {
                Ok(night) => figures(&nights[night][at].0, &nights[night][at].1, &called),
                Err(_) => BTreeMap::new(),
            };
            let wanted = wanted_figures(&of(earlier), &of(later));
            let what = format!("{earlier} to {later}, {}", warehouse.name);
            let between = format!("{}, {}", moment(earlier), moment(later));
            let sql = format!(
                "SELECT survey_id, question_id, figure, label, answers_before, before, before_error, answers_after, after,
                     after_error, change FROM figure_changes({between}) WHERE survey_id IS NOT NULL"
            );
            assert_same(&what, &wanted, &warehouse.query(&sql));
            let is_other = |row: &&Vec<Cell>| row[5] != row[8];
            for figure in ["nps", "top_two_share", "choice_share"] {
                let changed = wanted.iter().filter(is_other).filter(|row| row[2].as_deref() == Some(figure)).count();
                assert!(changed > 1, "{what}: {figure}");
            }
            let us = |night: i64| (NOW_MS + night * DAY_MS) * 1000 + 3_600_000_000;
            let sql = format!(
                "SELECT survey_id, new_answers, edited, deleted, vanished, new_themes, changed_questions, status_before, status_after
                 FROM row_changes({between})"
            );
            assert_adds_up(warehouse, &between, later == 2);
            let wanted = wanted_rows(warehouse, us(earlier), us(later));
            assert_same(&what, &wanted, &warehouse.query(&sql));
            let sum = |column: usize| wanted.iter().map(|row| number(&row[column])).sum::<i64>();
            assert!((1..7).all(|column| sum(column) > 0), "{what}: {wanted:?}");
        }
    }
}
