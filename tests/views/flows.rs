//! The views about arrivals and retention, computed a second time in plain Rust.

use std::collections::{BTreeMap, BTreeSet};

use chrono::NaiveDate;
use unicode_normalization::UnicodeNormalization as _;

use super::{
    recompute::Rows,
    truth::{Answer, Truth, day_of, integer, monday_of},
};
use crate::harness::Cell;

fn cell(value: impl ToString) -> Cell {
    Some(value.to_string())
}

fn share(part: usize, whole: usize) -> Cell {
    cell(part as f64 / whole as f64)
}

type Questions<'a> = BTreeMap<(Option<i64>, i64), Vec<&'a Answer>>;

fn by_question(truth: &Truth) -> Questions<'_> {
    let mut groups = Questions::new();
    for answer in &truth.answers {
        groups.entry((answer.survey_id, answer.question_id)).or_default().push(answer);
    }
    groups
}

fn survey_id_cell(survey_id: Option<i64>) -> Cell {
    survey_id.map(|id| id.to_string())
}

pub fn theme_trend(truth: &Truth) -> Rows {
    type Group = (NaiveDate, Option<i64>);
    let mut themed: BTreeMap<(Group, Cell), BTreeSet<(Cell, Cell)>> = BTreeMap::new();
    let mut all: BTreeMap<Group, BTreeSet<(Cell, Cell)>> = BTreeMap::new();
    for theme in &truth.themes {
        let group = (monday_of(day_of(theme.answered_us)), integer(&theme.row, "survey_id"));
        let answer = (theme.row["response_group_uid"].clone(), theme.row["question_id"].clone());
        themed.entry((group, theme.row["theme"].clone())).or_default().insert(answer.clone());
        all.entry(group).or_default().insert(answer);
    }
    let row = |((group, theme), answers): ((Group, Cell), BTreeSet<(Cell, Cell)>)| {
        let (week, survey_id) = group;
        let base = all[&group].len();
        let name = truth.survey_name(survey_id);
        vec![
            cell(week),
            survey_id_cell(survey_id),
            name,
            theme,
            cell(answers.len()),
            cell(base),
            share(answers.len(), base),
        ]
    };
    themed.into_iter().map(row).collect()
}

pub fn survey_funnel(truth: &Truth) -> Rows {
    let mut sessions: BTreeMap<Option<i64>, BTreeSet<&str>> = BTreeMap::new();
    for answer in &truth.answers {
        sessions.entry(answer.survey_id).or_default().insert(&answer.session);
    }
    let row = |((survey_id, question_id), answers): ((Option<i64>, i64), Vec<&Answer>)| {
        let sessions = sessions[&survey_id].len();
        let skipped = answers.iter().filter(|answer| answer.is_skipped).count();
        let (shown, answered) = (answers.len(), answers.len() - skipped);
        vec![
            survey_id_cell(survey_id),
            truth.survey_name(survey_id),
            truth.definition(survey_id, question_id).map(|definition| definition.ordinal.to_string()),
            cell(question_id),
            truth.wording(survey_id, question_id, answers),
            cell(sessions),
            cell(shown),
            cell(answered),
            cell(skipped),
            share(shown, sessions),
            share(answered, sessions),
        ]
    };
    by_question(truth).into_iter().map(row).collect()
}

pub fn daily_breakdown(truth: &Truth) -> Rows {
    let mut days: BTreeMap<(NaiveDate, Option<i64>), Vec<&Answer>> = BTreeMap::new();
    for answer in &truth.answers {
        days.entry((day_of(answer.created_us), answer.survey_id)).or_default().push(answer);
    }
    let row = |((day, survey_id), answers): ((NaiveDate, Option<i64>), Vec<&Answer>)| {
        let sessions: BTreeSet<&str> = answers.iter().map(|answer| answer.session.as_str()).collect();
        let visitors: BTreeSet<&str> =
            answers.iter().filter_map(|answer| answer.row["visitor_id"].as_deref()).collect();
        let skipped = answers.iter().filter(|answer| answer.is_skipped).count();
        vec![
            cell(day),
            survey_id_cell(survey_id),
            truth.survey_name(survey_id),
            cell(sessions.len()),
            cell(visitors.len()),
            cell(answers.len()),
            cell(answers.len() - skipped),
            cell(skipped),
        ]
    };
    days.into_iter().map(row).collect()
}

pub fn skips(truth: &Truth) -> Rows {
    let mut rows = Vec::new();
    for ((survey_id, question_id), mut answers) in by_question(truth) {
        answers.retain(|answer| answer.kind.as_deref() != Some("TEXTURLPROMPT"));
        if answers.is_empty() {
            continue;
        }
        let kind = answers.iter().filter_map(|answer| answer.kind.clone()).max();
        let skipped: Vec<&Answer> = answers.iter().copied().filter(|answer| answer.is_skipped).collect();
        let sent = |is_so: fn(Option<&str>) -> bool| {
            cell(skipped.iter().filter(|answer| is_so(answer.row["answer_json"].as_deref())).count())
        };
        rows.push(vec![
            survey_id_cell(survey_id),
            cell(question_id),
            truth.survey_name(survey_id),
            truth.wording(survey_id, question_id, answers.iter().copied()),
            kind,
            cell(answers.len()),
            cell(answers.len() - skipped.len()),
            cell(skipped.len()),
            share(skipped.len(), answers.len()),
            sent(|json| json == Some("null")),
            sent(|json| json.is_some_and(|json| json != "null")),
            sent(|json| json.is_none()),
        ]);
    }
    rows
}

pub fn open_answers(truth: &Truth) -> Rows {
    let mut texts = Vec::new();
    for answer in &truth.answers {
        let media = answer.parts.iter().find(|(table, _)| *table == "response_media");
        let transcription = media.and_then(|(_, row)| row["transcription"].clone());
        let (source, text) = match answer.kind.as_deref() {
            Some("OPEN") => ("text", answer.row["answer_text"].clone()),
            _ if transcription.is_some() => ("transcription", transcription),
            _ => continue,
        };
        texts.push((answer, source, text));
    }
    let trimmed = |text: &Cell| text.as_deref().unwrap_or_default().trim().to_owned();
    let same = |answer: &Answer, source: &str, text: &Cell| {
        (answer.survey_id, answer.question_id, source.to_owned(), folded(&trimmed(text)))
    };
    let mut repeats: BTreeMap<_, usize> = BTreeMap::new();
    for (answer, source, text) in &texts {
        *repeats.entry(same(answer, source, text)).or_default() += 1;
    }
    let is_mail = |word: &str| {
        word.match_indices('@').any(|(at, _)| {
            let domain = word[at + 1..].split('@').next().unwrap_or_default();
            let dot = domain.char_indices().skip(1).find(|(_, letter)| *letter == '.');
            word[..at].chars().next_back().is_some_and(|letter| letter != '@')
                && dot.is_some_and(|(dot, _)| !domain[dot + 1..].is_empty())
        })
    };
    let row = |(answer, source, text): &(&Answer, &str, Cell)| {
        let words = trimmed(text);
        let lower = words.to_lowercase();
        let has_link = ["http://", "https://", "www."].iter().any(|sign| lower.contains(sign))
            || words.split([' ', '\t', '\n', '\r', '\x0c']).any(is_mail);
        vec![
            cell(&answer.session),
            cell(answer.question_id),
            answer.survey_id.map(|id| id.to_string()),
            answer.wording.clone(),
            cell(answer.created_us),
            cell(source),
            text.clone(),
            cell(words.chars().count()),
            cell(words.is_empty()),
            cell(has_link),
            (!words.is_empty()).then(|| repeats[&same(answer, source, text)].to_string()),
        ]
    };
    texts.iter().map(row).collect()
}

/// Returns the text without regard to case, with a blank for NUL. Rust's upper case of `ß` is `SS`, and its lower case
/// has a final sigma.
pub fn folded(text: &str) -> String {
    text.nfc().collect::<String>().to_uppercase().to_lowercase().replace('ς', "σ").replace('\0', " ")
}

pub fn questions(truth: &Truth) -> Rows {
    let row = |((survey_id, question_id), definition): (&(i64, i64), &super::truth::Definition)| {
        vec![
            cell(survey_id),
            cell(question_id),
            definition.survey_name.clone(),
            cell(definition.ordinal),
            definition.kind.clone(),
            definition.wording.clone(),
            definition.left.clone(),
            definition.right.clone(),
            definition.scale.map(|(low, _, _)| low.to_string()),
            definition.scale.map(|(_, high, _)| high.to_string()),
            definition.scale.map(|(_, _, source)| source.to_owned()),
        ]
    };
    truth.definitions.iter().map(row).collect()
}
