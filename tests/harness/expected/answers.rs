//! Interprets one answer by `schemas/` and the service's table of response shapes: the columns `answer_*`,
//! `is_skipped`, and the rows of its parts. It shares no code with `src/flatten`, so that the two cannot share a
//! mistake.

use super::{
    json::{integer, items, label, member, members, number, text, timestamp_us},
    row,
};
use crate::harness::{Cell, Row};

/// The derived columns of an answer and the rows of its parts, by table.
pub struct Answer {
    pub text: Cell,
    pub number: Option<f64>,
    pub boolean: Option<bool>,
    pub is_skipped: bool,
    pub parts: Vec<(&'static str, Row)>,
}

/// Reads an answer. `response` is the exact text, `None` when the record has no such field.
pub fn read(question_type: Option<&str>, response: Option<&str>, indexes: &[i64]) -> Answer {
    let kind = question_type.unwrap_or_default().to_uppercase();
    let asks_nothing = kind == "TEXTURLPROMPT";
    let mut answer = Answer { text: None, number: None, boolean: None, is_skipped: !asks_nothing, parts: Vec::new() };
    let Some(raw) = response else { return answer };
    answer.is_skipped = !asks_nothing && is_nothing(raw);
    answer.number = number(raw);
    match kind.as_str() {
        "OPEN" => answer.text = scalar(raw),
        "NPS" | "LIKERT" => {
            let from_text = || text(raw).and_then(|text| number(text.trim()));
            answer.number = answer.number.or_else(from_text);
        }
        "MULTIPLECHOICE" => {
            answer.text = scalar(raw);
            if let (Some(label), false) = (answer.text.clone(), answer.is_skipped) {
                answer.parts = choices(vec![Some(label)], indexes);
            }
        }
        "MULTIPLESELECT" => multiple_select(&mut answer, raw, indexes),
        "CONSENTLEGAL" => {
            answer.boolean = boolean(raw);
            if members(raw).is_some() {
                let submitted = member(raw, "submitted");
                answer.boolean = submitted.as_deref().and_then(boolean);
                answer.is_skipped |= submitted.is_none_or(|raw| raw == "null");
            }
        }
        "MATRIX" => {
            by_label(&mut answer, raw, |name, at, value| ("response_matrix_cells", matrix_cell(name, at, value)))
        }
        "RANKORDER" => by_label(&mut answer, raw, |name, _, value| {
            let rank = integer(value).map(|rank| rank.to_string());
            ("response_ranks", row([("option_label", Some(name.to_owned())), ("rank", rank)]))
        }),
        "MAXDIFF" => max_diff(&mut answer, raw),
        "VIDEOVOICE" => media(&mut answer, raw),
        "TEXTURLPROMPT" => {}
        _ => {
            answer.text = text(raw);
            answer.boolean = boolean(raw);
        }
    }
    answer
}

fn boolean(raw: &str) -> Option<bool> {
    raw.parse().ok()
}

fn is_nothing(raw: &str) -> bool {
    raw == "null"
        || text(raw).is_some_and(|text| text.trim().is_empty())
        || items(raw).is_some_and(|items| items.is_empty())
        || members(raw).is_some_and(|members| members.is_empty())
}

/// The value of a JSON string, or a number as sent.
fn scalar(raw: &str) -> Cell {
    text(raw).or_else(|| number(raw).map(|_| raw.to_owned()))
}

/// A label and an index are in one row only if there are as many labels as indexes.
fn choices(labels: Vec<Cell>, indexes: &[i64]) -> Vec<(&'static str, Row)> {
    let are_paired = labels.len() == indexes.len();
    (0..labels.len().max(indexes.len()))
        .map(|at| {
            let has_label = are_paired || labels.len() > indexes.len();
            let has_index = are_paired || labels.len() < indexes.len();
            let label = has_label.then(|| labels[at].clone()).flatten();
            let index = has_index.then(|| indexes[at].to_string());
            let ordinal = Some((at + 1).to_string());
            ("response_choices", row([("choice_ordinal", ordinal), ("selected_index", index), ("label", label)]))
        })
        .collect()
}

/// A multiple-select answer: one option's text, a JSON list inside a string, or a list.
fn multiple_select(answer: &mut Answer, raw: &str, indexes: &[i64]) {
    let given = if raw.starts_with('[') { Some(raw.to_owned()) } else { scalar(raw) };
    answer.text = given.clone();
    let Some(given) = given else { return };
    let labels: Vec<Cell> = match items(given.trim_start()) {
        Some(items) => items.iter().map(|item| label(item)).collect(),
        None => vec![Some(given)],
    };
    answer.is_skipped |= labels.iter().all(Option::is_none);
    if !answer.is_skipped {
        answer.parts = choices(labels, indexes);
    }
}

fn by_label(answer: &mut Answer, raw: &str, part: impl Fn(&str, usize, &str) -> (&'static str, Row)) {
    let Some(members) = members(raw) else { return };
    answer.is_skipped |= members.iter().all(|(_, value)| value == "null");
    let parts = members.iter().enumerate().map(|(at, (name, value))| part(name, at + 1, value));
    answer.parts = parts.collect();
}

fn matrix_cell(name: &str, at: usize, value: &str) -> Row {
    let column = label(value);
    let number = column.as_deref().and_then(leading_integer).map(|number| number.to_string());
    row([
        ("row_label", Some(name.to_owned())),
        ("row_ordinal", Some(at.to_string())),
        ("column_label", column),
        ("column_number", number),
    ])
}

/// Returns 4 for `4 - Agree` and `None` for `4.5`.
fn leading_integer(label: &str) -> Option<i64> {
    let label = label.trim_start();
    let end =
        label.char_indices().find(|(at, letter)| !(letter.is_ascii_digit() || *at == 0 && "+-".contains(*letter)));
    let end = end.map_or(label.len(), |(at, _)| at);
    let mut rest = label[end..].chars();
    let has_fraction =
        rest.next().is_some_and(|next| ".,".contains(next)) && rest.next().is_some_and(|next| next.is_ascii_digit());
    if has_fraction { None } else { label[..end].parse().ok() }
}

fn max_diff(answer: &mut Answer, raw: &str) {
    let Some(rounds) = items(raw) else { return };
    let mut any_selected = false;
    for (round_at, round) in rounds.iter().enumerate() {
        for (item_at, item) in items(round).expect("the sandbox sends rounds as lists").iter().enumerate() {
            let selected = member(item, "selected").and_then(|raw| text(&raw));
            any_selected |= selected.is_some();
            let part = row([
                ("round", Some((round_at + 1).to_string())),
                ("item_ordinal", Some((item_at + 1).to_string())),
                ("item_id", member(item, "id")),
                ("option", member(item, "option").and_then(|raw| text(&raw))),
                ("selected", selected),
            ]);
            answer.parts.push(("response_maxdiff_items", part));
        }
    }
    answer.is_skipped |= !any_selected;
}

fn media(answer: &mut Answer, raw: &str) {
    let Some(members) = members(raw) else { return };
    if members.iter().all(|(_, value)| value == "null") {
        answer.is_skipped = true;
        return;
    }
    let of = |name: &str| member(raw, name).filter(|value| value != "null");
    let text_of = |name: &str| of(name).and_then(|raw| text(&raw));
    answer.text = text_of("transcription");
    let part = row([
        ("upload_id", text_of("uploadId")),
        ("media_type", text_of("mediaType")),
        ("duration_secs", of("duration").and_then(|raw| number(&raw)).map(|number| format!("{number:?}"))),
        ("transcription", answer.text.clone()),
        ("download_url", text_of("downloadUrl")),
        ("video_url", text_of("videoUrl")),
        ("media_updated_at", of("updatedAt").and_then(|raw| timestamp_us(&raw)).map(|us| us.to_string())),
    ]);
    answer.parts.push(("response_media", part));
}
