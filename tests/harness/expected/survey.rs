//! The expected rows of a survey with its questions, options and constraints.

use super::{Entity, fill_below, json, object, row, typed, wire_row};
use crate::harness::{Cell, Row, contract};

/// The rows of one survey record.
pub fn read(record: &[(String, String)]) -> Entity {
    let mut survey = wire_row(contract("surveys"), record);
    let id = survey["id"].clone();
    survey.insert("survey_id".to_owned(), id.clone());
    let list = |name: &str| {
        let raw = record.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        raw.and_then(json::items).unwrap_or_default()
    };
    let mut children = Vec::new();
    for (at, question) in list("questions").iter().enumerate() {
        let question = json::members(question).unwrap();
        let ordinal = Some((at + 1).to_string());
        let own = row([("survey_id", id.clone()), ("question_ordinal", ordinal)]);
        children.push(("survey_questions", below("survey_questions", "questions.", own.clone(), &question)));
        let options = question.iter().find(|(name, _)| name == "options").and_then(|(_, raw)| json::items(raw));
        for (at, option) in options.unwrap_or_default().iter().enumerate() {
            let question_id = question.iter().find(|(name, _)| name == "id").map(|(_, raw)| raw.clone());
            let mut option_row = own.clone();
            option_row.insert("option_ordinal".to_owned(), Some((at + 1).to_string()));
            option_row.insert("question_id".to_owned(), question_id);
            option_row.insert("label".to_owned(), option_label(option));
            option_row.insert("option_json".to_owned(), Some(option.clone()));
            children.push(("survey_question_options", option_row));
        }
    }
    for (at, constraint) in list("constraints").iter().enumerate() {
        let constraint = json::members(constraint).unwrap();
        let own = row([("survey_id", id.clone()), ("constraint_ordinal", Some((at + 1).to_string()))]);
        children.push(("survey_constraints", below("survey_constraints", "constraints.", own, &constraint)));
    }
    Entity { row: survey, children, has_vanished: false }
}

/// The columns below a path of the survey, and `extra` with the members that have no column.
fn below(table: &str, prefix: &str, mut own: Row, record: &[(String, String)]) -> Row {
    let contract = contract(table);
    let whole: Vec<String> =
        record.iter().map(|(name, raw)| format!("{}:{raw}", serde_json::to_string(name).unwrap())).collect();
    fill_below(&mut own, contract, prefix, Some(&format!("{{{}}}", whole.join(","))));
    let misfits = record.iter().filter(|(name, raw)| {
        let of_name = contract.columns.iter().filter(|column| column.json.starts_with(prefix));
        let known: Vec<_> =
            of_name.filter(|column| column.json[prefix.len()..].split('.').next() == Some(name)).collect();
        let fits = known.iter().any(|column| {
            raw == "null" || column.json[prefix.len()..].contains('.') || typed(&column.column_type, raw).is_some()
        });
        !fits
    });
    own.insert("extra".to_owned(), object(misfits.cloned().collect()));
    own
}

/// The label of an option: a string or a number as it is; for an object, the first member that is a label.
fn option_label(raw: &str) -> Cell {
    match json::members(raw) {
        Some(_) => ["label", "text", "option", "value"].iter().find_map(|name| json::text(&json::member(raw, name)?)),
        None => json::text(raw).or_else(|| json::number(raw).map(|_| raw.to_owned())),
    }
}
