//! The views computed a second time in plain Rust, from the service's records.
//!
//! Nothing here is SQL. Every function returns rows of cells in the order of the view's columns.

use std::collections::{BTreeMap, BTreeSet};

use chrono::NaiveDate;

use super::truth::{Answer, Truth, day_of, first_of_month, integer, monday_of};
use crate::harness::Cell;

pub type Rows = Vec<Vec<Cell>>;

/// Returns a cell with the text of a value.
pub fn cell(value: impl ToString) -> Cell {
    Some(value.to_string())
}

pub fn optional(value: Option<impl ToString>) -> Cell {
    value.map(|value| value.to_string())
}

type Question = (Option<i64>, i64);

/// Groups answers by survey and question.
pub fn by_question<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> BTreeMap<Question, Vec<&'a Answer>> {
    let mut groups: BTreeMap<Question, Vec<&Answer>> = BTreeMap::new();
    for answer in answers {
        groups.entry((answer.survey_id, answer.question_id)).or_default().push(answer);
    }
    groups
}

/// How NPS answers are grouped.
#[derive(Clone, Copy, Debug)]
pub struct NpsCut {
    pub period: &'static str,
    pub per_question: bool,
    pub latest: bool,
}

pub fn nps(truth: &Truth, cut: NpsCut) -> Rows {
    let counts = |answer: &&Answer| {
        answer.kind.as_deref() == Some("NPS")
            && answer.number.is_some_and(|score| (0..=10).any(|whole| score == f64::from(whole)))
    };
    let mut groups: BTreeMap<(NaiveDate, Option<Question>), Vec<&Answer>> = BTreeMap::new();
    for answer in truth.answers.iter().filter(counts) {
        let day = day_of(answer.created_us);
        let period = match cut.period {
            "day" => day,
            "week" => monday_of(day),
            "all" => NaiveDate::default(),
            _ => first_of_month(day),
        };
        let question = cut.per_question.then_some((answer.survey_id, answer.question_id));
        groups.entry((period, question)).or_default().push(answer);
    }
    let row = |((period, question), mut answers): ((NaiveDate, Option<Question>), Vec<&Answer>)| {
        if cut.latest {
            answers = latest_of_each_visitor(&answers);
        }
        let mut row = vec![cell(period)];
        if let Some((survey_id, question_id)) = question {
            row.extend([optional(survey_id), cell(question_id)]);
            row.push(truth.survey_name(survey_id));
            row.push(names(truth, (survey_id, question_id), "NPS")[3].clone());
        }
        row.extend(score_cells(&answers.iter().map(|answer| answer.number.unwrap()).collect::<Vec<_>>()));
        row
    };
    groups.into_iter().map(row).collect()
}

/// The rows of `nps_per_question`: those of one period with all answers, without the period and with shares.
pub fn nps_per_question(truth: &Truth) -> Rows {
    let all = nps(truth, NpsCut { period: "all", per_question: true, latest: false });
    let row = |row: Vec<Cell>| {
        let count = |at: usize| row[at].as_ref().unwrap().parse::<f64>().unwrap();
        let shares = [6, 7, 8].map(|at| cell(count(at) / count(5)));
        [&row[1..9], &shares, &row[9..]].concat()
    };
    all.into_iter().map(row).collect()
}

fn latest_of_each_visitor<'a>(answers: &[&'a Answer]) -> Vec<&'a Answer> {
    let mut latest: BTreeMap<String, &Answer> = BTreeMap::new();
    let age = |answer: &Answer| (answer.created_us, answer.session.clone(), answer.question_id);
    for answer in answers {
        let id = |name: &str| answer.row[name].clone();
        let visitor = id("visitor_id").or_else(|| id("visitor_uuid")).unwrap_or_else(|| answer.session.clone());
        let held = latest.entry(visitor).or_insert(answer);
        if age(answer) > age(held) {
            *held = answer;
        }
    }
    latest.into_values().collect()
}

/// Counts, NPS and its error by the textbook: mean and sample standard deviation of 100, 0 and -100.
pub fn score_cells(scores: &[f64]) -> Vec<Cell> {
    let worth = |score: &f64| match *score {
        score if score > 8.5 => 100.0,
        score if score > 6.5 => 0.0,
        _ => -100.0,
    };
    let worths: Vec<f64> = scores.iter().map(worth).collect();
    let count_of = |wanted: f64| worths.iter().filter(|worth| **worth == wanted).count();
    let n = worths.len() as f64;
    let mean = worths.iter().sum::<f64>() / n;
    let squares: f64 = worths.iter().map(|worth| (worth - mean).powi(2)).sum();
    let error = (worths.len() > 1).then(|| (squares / (n - 1.0)).sqrt() / n.sqrt());
    let band = |sign: f64| error.map(|error| (mean + sign * 1.96 * error).clamp(-100.0, 100.0));
    let mut cells = vec![cell(worths.len()), cell(count_of(100.0)), cell(count_of(0.0)), cell(count_of(-100.0))];
    cells.extend([cell(mean), optional(error), optional(band(-1.0)), optional(band(1.0))]);
    cells
}

pub fn sessions(truth: &Truth) -> Rows {
    let mut groups: BTreeMap<(Option<i64>, &str), Vec<&Answer>> = BTreeMap::new();
    for answer in &truth.answers {
        groups.entry((answer.survey_id, &answer.session)).or_default().push(answer);
    }
    let row = |((survey_id, session), answers): ((Option<i64>, &str), Vec<&Answer>)| {
        let greatest =
            |name: &str| answers.iter().filter_map(|answer| answer.row[name].clone()).filter(|id| !id.is_empty()).max();
        let visitor_id = answers.iter().filter_map(|answer| integer(&answer.row, "visitor_id")).max();
        let times: Vec<i64> = answers.iter().map(|answer| answer.created_us).collect();
        let (first, last) = (*times.iter().min().unwrap(), *times.iter().max().unwrap());
        let skipped = answers.iter().filter(|answer| answer.is_skipped).count();
        let prompts = answers.iter().filter(|answer| answer.kind.as_deref() == Some("TEXTURLPROMPT")).count();
        vec![
            optional(survey_id),
            cell(session),
            optional(visitor_id),
            greatest("visitor_uuid"),
            greatest("external_user_id"),
            cell(first),
            cell(last),
            cell((last - first) as f64 / 1e6),
            cell(answers.len()),
            cell(answers.len() - skipped - prompts),
            cell(skipped),
        ]
    };
    groups.into_iter().map(row).collect()
}

/// The scale of each LIKERT question, and the number of answers of each value.
pub struct Scale {
    pub low: i64,
    pub high: i64,
    source: &'static str,
    counts: BTreeMap<i64, usize>,
    /// Answers that are not numbers.
    pub not_rated: usize,
}

pub fn scale_of(truth: &Truth, (survey_id, question_id): Question, answers: &[&Answer]) -> Option<Scale> {
    let mut counts = BTreeMap::new();
    for number in answers.iter().filter_map(|answer| answer.number).filter(|number| number.fract() == 0.0) {
        *counts.entry(number as i64).or_insert(0) += 1;
    }
    let defined = truth.definition(survey_id, question_id).and_then(|definition| definition.scale);
    let observed = truth.likert_ranges.get(&(survey_id, question_id)).copied();
    let not_rated = answers.iter().filter(|answer| answer.number.is_none() && !answer.is_skipped).count();
    let usual = |(least, most): (i64, i64)| {
        let lengths: [(i64, i64); 6] = [(0, 4), (0, 6), (0, 10), (1, 5), (1, 7), (1, 10)];
        let holds = |(low, high): &&(i64, i64)| (*low == 0) == (least == 0) && *high >= most;
        let (low, high) = *lengths.iter().find(holds).unwrap();
        (low, high, if (least, most) == (low, high) { "observed" } else { "usual" })
    };
    let (low, high, source) = defined.or(observed.map(usual))?;
    counts.retain(|value, _| (low..=high).contains(value));
    (!counts.is_empty()).then_some(Scale { low, high, source, counts, not_rated })
}

fn likert(truth: &Truth) -> Vec<(Vec<Cell>, Scale)> {
    let answers = truth.answers.iter().filter(|answer| answer.kind.as_deref() == Some("LIKERT"));
    let mut scales = Vec::new();
    for (question, answers) in by_question(answers) {
        let Some(scale) = scale_of(truth, question, &answers) else { continue };
        let (survey_id, question_id) = question;
        scales.push((
            vec![
                optional(survey_id),
                cell(question_id),
                truth.survey_name(survey_id),
                truth.wording(survey_id, question_id, answers),
            ],
            scale,
        ));
    }
    scales
}

pub fn likert_distribution(truth: &Truth) -> Rows {
    let mut rows = Vec::new();
    for (names, scale) in likert(truth) {
        let all: usize = scale.counts.values().sum();
        for (value, answers) in &scale.counts {
            let own = [cell(value), cell(answers), cell(*answers as f64 / all as f64)];
            let scale = [cell(scale.low), cell(scale.high), cell(scale.source), cell(scale.not_rated)];
            rows.push([names.clone(), own.to_vec(), scale.to_vec()].concat());
        }
    }
    rows
}

pub fn likert_top_two(truth: &Truth) -> Rows {
    let row = |(names, scale): (Vec<Cell>, Scale)| {
        let all: usize = scale.counts.values().sum();
        let sum: i64 = scale.counts.iter().map(|(value, answers)| value * *answers as i64).sum();
        let of = |values: [i64; 2]| -> usize { values.iter().filter_map(|value| scale.counts.get(value)).sum() };
        let mut row = [names, vec![cell(all), cell(sum as f64 / all as f64)]].concat();
        for values in [[scale.high, scale.high - 1], [scale.low, scale.low + 1]] {
            let has_box = scale.high - scale.low >= 2;
            row.extend([
                optional(has_box.then(|| of(values))),
                optional(has_box.then(|| of(values) as f64 / all as f64)),
            ]);
        }
        let has_box = scale.high - scale.low >= 2;
        row.extend([cell(scale.low), cell(scale.high), cell(scale.source)]);
        row.extend([optional(has_box.then_some(all)), cell(scale.not_rated)]);
        row
    };
    likert(truth).into_iter().map(row).collect()
}

/// Each part of the current answers, with its answer.
pub fn parts<'a>(answers: &[&'a Answer], table: &'static str) -> Vec<(&'a Answer, &'a crate::harness::Row)> {
    let of = |answer: &'a Answer| {
        answer.parts.iter().filter(move |(name, _)| *name == table).map(move |(_, row)| (answer, row))
    };
    answers.iter().copied().flat_map(of).collect()
}

pub fn choice_share(truth: &Truth) -> Rows {
    let mut rows = Vec::new();
    for ((survey_id, question_id), answers) in by_question(&truth.answers) {
        let mut chosen: BTreeMap<(Cell, Cell), BTreeSet<&str>> = BTreeMap::new();
        for (answer, part) in parts(&answers, "response_choices") {
            let known = || truth.label_of_index(survey_id?, question_id, integer(part, "selected_index")?);
            let label = part["label"].clone().or_else(known);
            let index = if label.is_none() { part["selected_index"].clone() } else { None };
            chosen.entry((label, index)).or_default().insert(&answer.session);
        }
        let is_choice = |answer: &&Answer| matches!(answer.kind.as_deref(), Some("MULTIPLECHOICE" | "MULTIPLESELECT"));
        let answered: Vec<&Answer> =
            answers.iter().copied().filter(is_choice).filter(|answer| !answer.is_skipped).collect();
        if answered.is_empty() {
            continue;
        }
        let name = truth.survey_name(survey_id);
        let wording = truth.wording(survey_id, question_id, answers.iter().copied().filter(is_choice));
        for ((label, index), sessions) in chosen {
            let share = sessions.len() as f64 / answered.len() as f64;
            let names = vec![optional(survey_id), cell(question_id), name.clone(), wording.clone(), label, index];
            rows.push([names, vec![cell(sessions.len()), cell(answered.len()), cell(share)]].concat());
        }
    }
    rows
}

/// The first four columns of views over parts of answers.
fn names(truth: &Truth, (survey_id, question_id): Question, kind: &str) -> Vec<Cell> {
    let shown = truth.answers.iter().filter(|answer| {
        (answer.survey_id, answer.question_id) == (survey_id, question_id) && answer.kind.as_deref() == Some(kind)
    });
    let wording = truth.wording(survey_id, question_id, shown);
    vec![optional(survey_id), cell(question_id), truth.survey_name(survey_id), wording]
}

pub fn matrix_distribution(truth: &Truth) -> Rows {
    let mut rows = Vec::new();
    for (question, answers) in by_question(&truth.answers) {
        let mut cells: BTreeMap<String, BTreeMap<String, (Cell, usize)>> = BTreeMap::new();
        for (_, part) in parts(&answers, "response_matrix_cells") {
            let Some(column) = part["column_label"].clone() else { continue };
            let row = cells.entry(part["row_label"].clone().unwrap()).or_default();
            row.entry(column).or_insert((part["column_number"].clone(), 0)).1 += 1;
        }
        for (row_label, columns) in cells {
            let answered: usize = columns.values().map(|(_, answers)| answers).sum();
            for (column_label, (number, answers)) in columns {
                let own = vec![cell(&row_label), cell(column_label), number, cell(answers), cell(answered)];
                rows.push(
                    [names(truth, question, "MATRIX"), own, vec![cell(answers as f64 / answered as f64)]].concat(),
                );
            }
        }
    }
    rows
}

pub fn rank_summary(truth: &Truth) -> Rows {
    let mut rows = Vec::new();
    for (question, answers) in by_question(&truth.answers) {
        // For each answer that ranked the option: its rank, and the number of options.
        let mut ranks: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
        for answer in answers {
            let parts = parts(&[answer], "response_ranks");
            let options = parts.len() as i64;
            for (_, part) in &parts {
                let rank = integer(part, "rank").filter(|rank| (1..=options).contains(rank));
                let held = rank.map(|rank| (rank, options));
                ranks.entry(part["option_label"].clone().unwrap()).or_default().extend(held);
            }
        }
        for (label, ranks) in ranks.into_iter().filter(|(_, ranks)| !ranks.is_empty()) {
            let n = ranks.len() as f64;
            let first = ranks.iter().filter(|(rank, _)| *rank == 1).count();
            let points: i64 = ranks.iter().map(|(rank, options)| options - rank).sum();
            let scores: Vec<f64> = (ranks.iter().filter(|(_, options)| *options > 1))
                .map(|(rank, options)| (options - rank) as f64 / (options - 1) as f64)
                .collect();
            let score = (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64);
            let mean = ranks.iter().map(|(rank, _)| *rank as f64).sum::<f64>() / n;
            let own =
                vec![cell(label), cell(ranks.len()), cell(mean), cell(first), cell(first as f64 / n), cell(points)];
            rows.push([names(truth, question, "RANKORDER"), own, vec![optional(score)]].concat());
        }
    }
    rows
}

/// Returns whether the left choice is the best one; `None` if the labels do not say.
fn left_is_best(left: Option<&str>, right: Option<&str>) -> Option<bool> {
    let side = |label: &str| {
        let label = label.to_lowercase();
        let words: Vec<&str> = label.split(|letter: char| !letter.is_alphanumeric()).collect();
        let has = |list: &[&str]| words.iter().any(|word| list.contains(word));
        let contrary = words.iter().any(|word| {
            let prefixed =
                ["dis", "un"].iter().any(|prefix| word.strip_prefix(prefix).is_some_and(|rest| rest.len() >= 3));
            prefixed || word.starts_with("annoy") || ["not", "never", "hate", "bad"].contains(word)
        });
        let (best, worst) = (has(&["most", "best", "highest", "top"]), has(&["least", "worst", "lowest", "bottom"]));
        (!contrary && best != worst).then_some(best)
    };
    let (left, right) = (side(left?)?, side(right?)?);
    (left != right).then_some(left)
}

pub fn maxdiff_scores(truth: &Truth) -> Rows {
    let mut rows = Vec::new();
    for (question, answers) in by_question(&truth.answers) {
        let mut items: BTreeMap<Cell, [i64; 3]> = BTreeMap::new();
        for answer in answers {
            let parts = parts(&[answer], "response_maxdiff_items");
            let decided: BTreeSet<&Cell> =
                parts.iter().filter(|(_, part)| part["selected"].is_some()).map(|(_, part)| &part["round"]).collect();
            for (_, part) in parts.iter().filter(|(_, part)| decided.contains(&part["round"])) {
                let counts = items.entry(part["option"].clone()).or_default();
                counts[0] += 1;
                counts[1] += i64::from(part["selected"].as_deref() == Some("left"));
                counts[2] += i64::from(part["selected"].as_deref() == Some("right"));
            }
        }
        let definition = truth.definition(question.0, question.1).cloned().unwrap_or_default();
        let told = left_is_best(definition.left.as_deref(), definition.right.as_deref());
        for (item, [shown, left, right]) in items {
            let probe_pages = told.map(|left_is_best| if left_is_best { (left, right) } else { (right, left) });
            let own =
                vec![item, cell(shown), cell(left), cell(right), definition.left.clone(), definition.right.clone()];
            let scores = vec![
                optional(probe_pages.map(|(best, _)| best)),
                optional(probe_pages.map(|(_, worst)| worst)),
                optional(probe_pages.map(|(best, worst)| (best - worst) as f64 / shown as f64)),
            ];
            rows.push([names(truth, question, "MAXDIFF"), own, scores].concat());
        }
    }
    rows
}
