//! Reads the surveys with most answers: the funnel of each survey, and the answers to each question. The number of
//! queries does not depend on the number of surveys.

use std::collections::BTreeMap;

use super::{
    before,
    limits::{MATRIX_COLUMNS_MAX, OPTIONS_MAX, QUESTIONS_MAX, SURVEYS_MAX, rows_max},
    nps, open_answers,
    question_answers::{Answers, ByQuestion, Cell, Choice, Item, Nps, Rank, Scale, fill_list, first_rows},
    rows::{Key, Row, count, key, query, shortened, survey_filter},
    segments,
    settings::Shown,
};
use crate::load::{LoadError, Reader};

pub(super) struct Surveys {
    pub shown: Vec<Survey>,
    /// The number of surveys with answers that are not shown.
    pub left_out: i64,
}

pub(super) struct Survey {
    pub id: i64,
    pub name: Option<String>,
    pub status: Option<String>,
    pub answers: i64,
    pub sessions: i64,
    /// The questions in the order of the survey.
    pub funnel: Vec<FunnelStep>,
    /// The number of questions that are not shown.
    pub left_out: i64,
    pub questions: Vec<Question>,
}

/// One question as a step of the survey's funnel.
pub(super) struct FunnelStep {
    pub question_id: i64,
    pub ordinal: Option<i64>,
    pub text: Option<String>,
    pub shown: i64,
    pub answered: i64,
    pub skipped: i64,
    pub shown_share: f64,
    pub answered_share: f64,
}

/// One question and its answers.
pub(super) struct Question {
    pub id: i64,
    pub text: Option<String>,
    pub kind: Option<String>,
    pub shown: i64,
    pub answered: i64,
    pub skipped: i64,
    pub skipped_share: f64,
    pub answers: Answers,
}

/// Reads the surveys with most answers. `of` is a SQL predicate for the surveys of the report.
pub(super) fn surveys(reader: &mut Reader, of: &str, settings: &Shown<'_>) -> Result<Surveys, LoadError> {
    let name = shortened("max(survey_name)");
    let shows_all = settings.report.shows_all_surveys || !settings.report.surveys.is_empty();
    let surveys_max = if shows_all { rows_max(reader) } else { SURVEYS_MAX };
    let sql = format!(
        "WITH counted AS (
            SELECT survey_id, {name} AS name, sum(answers)::BIGINT AS answers, count(*) OVER () AS surveys
            FROM daily_breakdown WHERE survey_id IS NOT NULL AND {of} GROUP BY survey_id
            ORDER BY answers DESC, survey_id LIMIT {surveys_max}
        ) SELECT counted.*, left(survey.status::VARCHAR, 40) AS status FROM counted LEFT JOIN surveys AS survey
            ON survey.id = counted.survey_id
        ORDER BY answers DESC, counted.survey_id"
    );
    let make = |row: Row<'_>| {
        let survey = Survey {
            id: row.count("survey_id"),
            name: row.text("name"),
            status: row.text("status"),
            answers: row.count("answers"),
            sessions: 0,
            funnel: Vec::new(),
            left_out: 0,
            questions: Vec::new(),
        };
        (survey, row.count("surveys"))
    };
    let found = query(reader, &sql, make)?;
    let all = found.first().map_or(0, |(_, surveys)| *surveys);
    let mut shown: Vec<Survey> = found.into_iter().map(|(survey, _)| survey).collect();
    if !shown.is_empty() {
        let ids: Vec<i64> = shown.iter().map(|survey| survey.id).collect();
        fill(reader, &mut shown, &survey_filter(&ids), settings)?;
    }
    Ok(Surveys { left_out: all - count(shown.len()), shown })
}

/// Reads the funnels, the questions and the answers of the surveys. `of` is a SQL predicate for these surveys.
fn fill(reader: &mut Reader, surveys: &mut [Survey], of: &str, settings: &Shown<'_>) -> Result<(), LoadError> {
    funnels(reader, surveys, of)?;
    let mut answers = answers(reader, of, settings)?;
    let mut questions = questions(reader, of)?;
    for survey in surveys {
        for step in &survey.funnel {
            let key = (survey.id, step.question_id);
            // A question without counts, such as a text block, is a step of the funnel but has no answers.
            let Some(mut question) = questions.remove(&key) else { continue };
            question.text = step.text.clone();
            question.answers = answers.remove(&key).unwrap_or_default();
            survey.questions.push(question);
        }
    }
    Ok(())
}

/// Reads the funnels of the surveys, at most [`QUESTIONS_MAX`] questions of each survey.
fn funnels(reader: &mut Reader, surveys: &mut [Survey], of: &str) -> Result<(), LoadError> {
    let text = shortened("question_text");
    let sql = format!(
        "SELECT survey_id, question_ordinal::BIGINT AS question_ordinal, question_id, {text} AS question_text, sessions, shown,
            answered, skipped, shown_share, answered_share, count(*) OVER (PARTITION BY survey_id) AS questions
         FROM survey_funnel WHERE {of}
         QUALIFY row_number() OVER (PARTITION BY survey_id ORDER BY question_ordinal NULLS LAST, question_id) <= {QUESTIONS_MAX}
         ORDER BY survey_id, survey_funnel.question_ordinal NULLS LAST, question_id"
    );
    let make = |row: Row<'_>| {
        let step = FunnelStep {
            question_id: row.count("question_id"),
            ordinal: row.integer("question_ordinal"),
            text: row.text("question_text"),
            shown: row.count("shown"),
            answered: row.count("answered"),
            skipped: row.count("skipped"),
            shown_share: row.number("shown_share").unwrap_or(0.0),
            answered_share: row.number("answered_share").unwrap_or(0.0),
        };
        (row.count("survey_id"), row.count("sessions"), row.count("questions"), step)
    };
    for (id, sessions, questions, step) in query(reader, &sql, make)? {
        if let Some(survey) = surveys.iter_mut().find(|survey| survey.id == id) {
            survey.sessions = sessions;
            survey.funnel.push(step);
            survey.left_out = questions - count(survey.funnel.len());
        }
    }
    Ok(())
}

/// Reads the counts of the questions, without texts and answers.
fn questions(reader: &mut Reader, of: &str) -> Result<BTreeMap<Key, Question>, LoadError> {
    let sql = format!(
        "SELECT survey_id, question_id, left(question_type::VARCHAR, 40) AS question_type, shown, answered, skipped, skipped_share
         FROM skips WHERE {of}"
    );
    let make = |row: Row<'_>| {
        let question = Question {
            id: row.count("question_id"),
            text: None,
            kind: row.text("question_type"),
            shown: row.count("shown"),
            answered: row.count("answered"),
            skipped: row.count("skipped"),
            skipped_share: row.number("skipped_share").unwrap_or(0.0),
            answers: Answers::default(),
        };
        (key(row), question)
    };
    Ok(query(reader, &sql, make)?.into_iter().collect())
}

fn answers(reader: &mut Reader, of: &str, settings: &Shown<'_>) -> Result<ByQuestion, LoadError> {
    let mut found = ByQuestion::new();
    nps(reader, of, &mut found)?;
    open_answers::read(reader, of, settings.report.verbatims, &mut found)?;
    if let Some(segment) = &settings.report.segment {
        segments::read(reader, of, segment, &mut found)?;
    }
    before::read(reader, of, settings, &mut found)?;
    for (key, periods) in nps::per_question(reader, of, settings.known)? {
        found.entry(key).or_default().nps_periods = periods;
    }
    scales(reader, of, &mut found)?;
    choices(reader, of, &mut found)?;
    matrices(reader, of, &mut found)?;
    ranks(reader, of, &mut found)?;
    items(reader, of, &mut found)?;
    Ok(found)
}

fn nps(reader: &mut Reader, of: &str, found: &mut ByQuestion) -> Result<(), LoadError> {
    let sql = format!(
        "SELECT survey_id, question_id, score::BIGINT AS score, count(*) AS answers FROM nps_answers WHERE {of}
         GROUP BY ALL ORDER BY ALL"
    );
    for (key, score) in query(reader, &sql, |row| (key(row), (row.count("score"), row.count("answers"))))? {
        found.entry(key).or_default().scores.push(score);
    }
    let sql = format!(
        "SELECT survey_id, question_id, responses, promoters, passives, detractors, promoter_share, passive_share,
             detractor_share, nps, nps_low, nps_high
         FROM nps_per_question WHERE {of}"
    );
    let make = |row: Row<'_>| {
        let group = |count: &str, share: &str| (row.count(count), row.number(share).unwrap_or(0.0));
        let nps = Nps {
            responses: row.count("responses"),
            groups: [
                group("promoters", "promoter_share"),
                group("passives", "passive_share"),
                group("detractors", "detractor_share"),
            ],
            nps: row.number("nps").unwrap_or(0.0),
            band: row.number("nps_low").zip(row.number("nps_high")),
        };
        (key(row), nps)
    };
    for (key, nps) in query(reader, &sql, make)? {
        found.entry(key).or_default().nps = Some(nps);
    }
    Ok(())
}

fn scales(reader: &mut Reader, of: &str, found: &mut ByQuestion) -> Result<(), LoadError> {
    let sql = format!(
        "SELECT survey_id, question_id, mean, top_two_share, scale_min::BIGINT AS scale_min, scale_max::BIGINT AS scale_max,
             not_rated
         FROM likert_top_two WHERE {of}"
    );
    let make = |row: Row<'_>| {
        let scale = Scale {
            min: row.count("scale_min"),
            max: row.count("scale_max"),
            mean: row.number("mean").unwrap_or(0.0),
            top_two_share: row.number("top_two_share"),
            not_rated: row.count("not_rated"),
            values: Vec::new(),
        };
        (key(row), scale)
    };
    for (key, scale) in query(reader, &sql, make)? {
        found.entry(key).or_default().scale = Some(scale);
    }
    let sql = format!(
        "SELECT survey_id, question_id, value::BIGINT AS value, answers, share FROM likert_distribution WHERE {of}
         ORDER BY survey_id, question_id, likert_distribution.value"
    );
    let make =
        |row: Row<'_>| (key(row), (row.count("value"), row.count("answers"), row.number("share").unwrap_or(0.0)));
    for (key, value) in query(reader, &sql, make)? {
        if let Some(scale) = &mut found.entry(key).or_default().scale {
            scale.values.push(value);
        }
    }
    Ok(())
}

/// Reads the options of choice questions, most frequent first.
fn choices(reader: &mut Reader, of: &str, found: &mut ByQuestion) -> Result<(), LoadError> {
    let columns = format!("{} AS label, selected_index::BIGINT AS selected_index, chosen, share", shortened("label"));
    let sql = first_rows("choice_share", &columns, of, "view.chosen DESC, view.label, view.selected_index");
    let make = |row: Row<'_>| Choice {
        label: row.text("label"),
        index: row.integer("selected_index"),
        chosen: row.count("chosen"),
        share: row.number("share").unwrap_or(0.0),
    };
    fill_list(reader, &sql, make, |answers| &mut answers.options, found)
}

/// Reads the first rows and columns of MATRIX questions.
fn matrices(reader: &mut Reader, of: &str, found: &mut ByQuestion) -> Result<(), LoadError> {
    let (row_label, column_label) = (shortened("row_label"), shortened("column_label"));
    let sql = format!(
        "WITH placed AS (
            SELECT survey_id, question_id, {row_label} AS row_label, {column_label} AS column_label, answers, answered, share,
                dense_rank() OVER (PARTITION BY survey_id, question_id ORDER BY view.row_label) AS row_index,
                dense_rank() OVER (PARTITION BY survey_id, question_id ORDER BY column_number NULLS LAST, view.column_label)
                    AS column_index
            FROM matrix_distribution AS view WHERE {of}
        )
        SELECT *, max(row_index) OVER (PARTITION BY survey_id, question_id) AS row_count,
            max(column_index) OVER (PARTITION BY survey_id, question_id) AS column_count
        FROM placed QUALIFY row_index <= {OPTIONS_MAX} AND column_index <= {MATRIX_COLUMNS_MAX}
        ORDER BY survey_id, question_id, row_index, column_index"
    );
    let make = |row: Row<'_>| {
        let cell = Cell {
            row: row.text("row_label"),
            column: row.text("column_label"),
            row_index: row.count("row_index"),
            column_index: row.count("column_index"),
            answers: row.count("answers"),
            answered: row.count("answered"),
            share: row.number("share").unwrap_or(0.0),
        };
        (key(row), cell, row.count("row_count"), row.count("column_count"))
    };
    for (key, cell, row_count, column_count) in query(reader, &sql, make)? {
        let answers = found.entry(key).or_default();
        answers.cells.push(cell);
        answers.rows_left_out = (row_count - count(OPTIONS_MAX)).max(0);
        answers.columns_left_out = (column_count - count(MATRIX_COLUMNS_MAX)).max(0);
    }
    Ok(())
}

/// Reads the options of RANKORDER questions, best first.
fn ranks(reader: &mut Reader, of: &str, found: &mut ByQuestion) -> Result<(), LoadError> {
    let columns = format!("{} AS option_label, answers, mean_rank, first_place_share", shortened("option_label"));
    let sql = first_rows("rank_summary", &columns, of, "view.mean_rank, view.option_label");
    let make = |row: Row<'_>| Rank {
        option: row.text("option_label"),
        answers: row.count("answers"),
        mean_rank: row.number("mean_rank").unwrap_or(0.0),
        first_place_share: row.number("first_place_share").unwrap_or(0.0),
    };
    fill_list(reader, &sql, make, |answers| &mut answers.ranks, found)
}

/// Reads the items of MAXDIFF questions, best first.
fn items(reader: &mut Reader, of: &str, found: &mut ByQuestion) -> Result<(), LoadError> {
    let columns = format!("{} AS item, shown, chosen_left, chosen_right, score", shortened("item"));
    let order = "view.score DESC NULLS LAST, view.chosen_left - view.chosen_right DESC, view.item";
    let make = |row: Row<'_>| Item {
        item: row.text("item"),
        shown: row.count("shown"),
        chosen_left: row.count("chosen_left"),
        chosen_right: row.count("chosen_right"),
        score: row.number("score"),
    };
    fill_list(reader, &first_rows("maxdiff_scores", &columns, of, order), make, |answers| &mut answers.items, found)
}
