//! The rows that a warehouse must contain, computed directly from the service's records.
//!
//! Columns that come from the wire are filled by the path in the contracts of `schemas/`. Derived columns are computed
//! by `answers` and the code below. Nothing here calls `src/`.

mod answers;
mod json;
mod survey;

use std::collections::BTreeMap;

use studysync_sandbox::ListName;

use super::{Cell, Contract, Row, Service, contract, key_text};
use json::{integer, items, label, members, number, text, timestamp_us};

/// The tables with the service's records, base tables first.
pub const BASES: [&str; 4] = ["responses", "visitor_snapshots", "themes", "surveys"];
/// The child tables of each base table.
pub const CHILDREN: [(&str, &[&str]); 4] = [
    (
        "responses",
        &[
            "response_choices",
            "response_matrix_cells",
            "response_ranks",
            "response_maxdiff_items",
            "response_media",
            "response_custom_metadata",
        ],
    ),
    ("visitor_snapshots", &["visitor_snapshot_attributes"]),
    ("themes", &[]),
    ("surveys", &["survey_questions", "survey_question_options", "survey_constraints"]),
];

/// A row of a base table with the rows of its children.
#[derive(Clone, Debug)]
pub struct Entity {
    pub row: Row,
    pub children: Vec<(&'static str, Row)>,
    pub has_vanished: bool,
}

/// All rows that a warehouse must contain: by base table and key. Records with equal keys are in one list.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    pub bases: BTreeMap<&'static str, BTreeMap<String, Vec<Entity>>>,
}

/// Selects the service's records that a warehouse is to contain.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Records created from this time on are too young to be scanned.
    pub until_ms: i64,
    /// Whether the optional parts of responses were requested, deleted responses included.
    pub with_flags: bool,
}

/// The end of the range that a run scans when the service's clock shows `now_ms`: ten minutes earlier, rounded down to
/// a multiple of five minutes.
pub fn settled_ms(now_ms: i64) -> i64 {
    const MINUTE_MS: i64 = 60_000;
    (now_ms - 10 * MINUTE_MS).div_euclid(5 * MINUTE_MS) * 5 * MINUTE_MS
}

impl Expected {
    /// The rows for the service's present records, with every optional part.
    pub fn now(service: &Service) -> Expected {
        let until_ms = settled_ms(service.control().now_ms());
        Expected::of(service, Seen { until_ms, with_flags: true })
    }

    pub fn of(service: &Service, seen: Seen) -> Expected {
        let [responses, themes, surveys] =
            [ListName::Responses, ListName::Themes, ListName::Surveys].map(|list| service.truth(list));
        Expected::of_records(responses, themes, surveys, seen)
    }

    /// The rows for these records, each given as its exact text.
    pub fn of_records(
        responses: impl IntoIterator<Item = String>,
        themes: impl IntoIterator<Item = String>,
        surveys: impl IntoIterator<Item = String>,
        seen: Seen,
    ) -> Expected {
        let mut expected = Expected::default();
        for base in BASES {
            expected.bases.insert(base, BTreeMap::new());
        }
        for record in responses {
            expected.add_response(&record, seen);
        }
        for record in themes {
            let record = members(&record).unwrap();
            let row = wire_row(contract("themes"), &record);
            if row["created_at"].as_deref().unwrap().parse::<i64>().unwrap() < seen.until_ms * 1000 {
                expected.add("themes", Entity { row, children: Vec::new(), has_vanished: false });
            }
        }
        for record in surveys {
            expected.add("surveys", survey::read(&members(&record).unwrap()));
        }
        expected
    }

    /// The entities of a base table.
    pub fn entities(&self, base: &str) -> impl Iterator<Item = (&String, &Entity)> {
        self.bases[base].iter().flat_map(|(key, entities)| entities.iter().map(move |entity| (key, entity)))
    }

    /// The one entity of a key.
    pub fn entity(&self, base: &str, key: &str) -> Option<&Entity> {
        self.bases[base].get(key).and_then(|entities| entities.first())
    }

    /// The keys that several records share. The warehouse can store only one of them.
    pub fn collisions(&self, base: &str) -> Vec<&String> {
        self.bases[base].iter().filter(|(_, entities)| entities.len() > 1).map(|(key, _)| key).collect()
    }

    /// The rows of a table, base or child.
    pub fn rows(&self, table: &str) -> Vec<Row> {
        let (base, _) = CHILDREN
            .into_iter()
            .find(|(base, children)| *base == table || children.contains(&table))
            .unwrap_or_else(|| panic!("no records of the service land in {table}"));
        let entities = self.entities(base).map(|(_, entity)| entity);
        if base == table {
            return entities.map(|entity| entity.row.clone()).collect();
        }
        entities
            .flat_map(|entity| &entity.children)
            .filter(|(name, _)| *name == table)
            .map(|(_, row)| row.clone())
            .collect()
    }

    fn add(&mut self, base: &'static str, entity: Entity) {
        let key = key_text(contract(base), &entity.row);
        self.bases.get_mut(base).unwrap().entry(key).or_default().push(entity);
    }

    fn add_response(&mut self, record: &str, seen: Seen) {
        let mut record = members(record).unwrap();
        let of_flags = contract("responses").columns.iter().filter(|column| !column.flag.is_empty());
        let is_of_flags =
            |name: &str| name == "visitorSnapshot" || of_flags.clone().any(|column| first_of(&column.json) == name);
        if !seen.with_flags {
            if record.iter().any(|(name, value)| name == "deletedAt" && value != "null") {
                return;
            }
            record.retain(|(name, _)| !is_of_flags(name));
        }
        let row = response_row(&record);
        if row["created_at"].as_deref().unwrap().parse::<i64>().unwrap() >= seen.until_ms * 1000 {
            return;
        }
        let entity = with_answer(row, &record);
        if let Some((_, raw)) = record.iter().find(|(name, _)| name == "visitorSnapshot") {
            self.add_snapshot(&entity.row, raw);
        }
        self.add("responses", entity);
    }

    /// A session has one snapshot, from its earliest answer.
    fn add_snapshot(&mut self, response: &Row, raw: &str) {
        let entity = snapshot(response, raw);
        let key = key_text(contract("visitor_snapshots"), &entity.row);
        let held = self.bases.get_mut("visitor_snapshots").unwrap().entry(key).or_default();
        match held.first() {
            Some(first) if created_us(&first.row) <= created_us(&entity.row) => {}
            _ => *held = vec![entity],
        }
    }

    /// The rows after the next night: `self` is the content of the warehouse, `today` that of the service. A missing
    /// row has vanished and keeps its last content. Snapshots never vanish, and the earliest one stays.
    pub fn next_morning(mut self, today: Expected) -> Expected {
        for (base, mut entities) in today.bases {
            let held = self.bases.get_mut(base).unwrap();
            if base == "visitor_snapshots" {
                for (key, new) in entities {
                    let is_earlier = |old: &Vec<Entity>| created_us(&old[0].row) <= created_us(&new[0].row);
                    if !held.get(&key).is_some_and(is_earlier) {
                        held.insert(key, new);
                    }
                }
                continue;
            }
            for (key, mut old) in std::mem::take(held) {
                entities.entry(key).or_insert_with(|| {
                    old.iter_mut().for_each(|entity| entity.has_vanished = true);
                    old
                });
            }
            *held = entities;
        }
        self
    }
}

fn created_us(row: &Row) -> i64 {
    row["created_at"].as_deref().unwrap().parse().unwrap()
}

fn first_of(path: &str) -> &str {
    path.split('.').next().unwrap_or_default()
}

/// A row with these columns.
pub fn row<const N: usize>(columns: [(&str, Cell); N]) -> Row {
    columns.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The columns that the contract maps to a path of one name, and `extra` with the members that fit no column.
fn wire_row(contract: &Contract, record: &[(String, String)]) -> Row {
    let mut row = Row::new();
    let mut extra: Vec<(String, String)> = Vec::new();
    for (at, (name, value)) in record.iter().enumerate() {
        if record[at + 1..].iter().any(|(later, _)| later == name) {
            let nth = record[..at].iter().filter(|(earlier, _)| earlier == name).count() + 1;
            extra.push((format!("{name}#{nth}"), value.clone()));
            continue;
        }
        let is_known = contract.columns.iter().any(|column| first_of(&column.json) == name)
            || contract.name == "responses" && name == "visitorSnapshot"
            || contract.name == "surveys" && (name == "questions" || name == "constraints");
        if !is_known {
            extra.push((name.clone(), value.clone()));
        }
    }
    for column in contract.columns.iter().filter(|column| !column.json.is_empty() && !column.json.contains('.')) {
        let raw = record.iter().rev().find(|(name, _)| *name == column.json).map(|(_, value)| value.as_str());
        // Only `response` distinguishes null from missing.
        let sent = raw.filter(|raw| *raw != "null" || column.json == "response" && contract.name == "responses");
        let cell = sent.and_then(|raw| typed(&column.column_type, raw));
        // A text column cannot store a lone surrogate: it has U+FFFD, and `extra` has the exact value.
        let is_lossy = |raw| column.column_type == "text" && serde_json::from_str::<String>(raw).is_err();
        if let Some(raw) = sent
            && (cell.is_none() || is_lossy(raw))
        {
            extra.push((column.json.clone(), raw.to_owned()));
        }
        row.insert(column.name.clone(), cell);
    }
    row.insert("extra".to_owned(), object(extra));
    row
}

/// Fills the columns whose path begins with `prefix`, and ignores all other members.
fn fill_below(row: &mut Row, contract: &Contract, prefix: &str, raw: Option<&str>) {
    for column in contract.columns.iter().filter(|column| column.json.starts_with(prefix)) {
        let mut value = raw.map(str::to_owned);
        for name in column.json[prefix.len()..].split('.') {
            value = value.and_then(|raw| json::member(&raw, name));
        }
        let value = value.filter(|raw| raw != "null");
        row.insert(column.name.clone(), value.and_then(|raw| typed(&column.column_type, &raw)));
    }
}

fn typed(column_type: &str, raw: &str) -> Cell {
    match column_type {
        "text" => text(raw),
        "json" => Some(raw.to_owned()),
        "bigint" => integer(raw).map(|value| value.to_string()),
        "double" => number(raw).map(|value| format!("{value:?}")),
        "timestamp" => timestamp_us(raw).map(|value| value.to_string()),
        "bigint_list" => indexes(raw).map(|indexes| {
            let indexes: Vec<String> = indexes.iter().map(i64::to_string).collect();
            format!("[{}]", indexes.join(", "))
        }),
        other => panic!("no column from the wire has the type {other}"),
    }
}

/// Reads `selectedIndexes`: an integer or a list of integers, and the list may be inside a string.
fn indexes(raw: &str) -> Option<Vec<i64>> {
    match integer(raw) {
        Some(index) => Some(vec![index]),
        None => items(raw).or_else(|| items(&text(raw)?))?.iter().map(|item| integer(item)).collect(),
    }
}

/// A JSON object with sorted names and exact values; NULL if it has no members.
fn object(mut members: Vec<(String, String)>) -> Cell {
    members.sort();
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{value}", serde_json::to_string(name).unwrap())).collect();
    (!members.is_empty()).then(|| format!("{{{}}}", members.join(",")))
}

fn response_row(record: &[(String, String)]) -> Row {
    let contract = contract("responses");
    let mut row = wire_row(contract, record);
    let meta = record.iter().find(|(name, _)| name == "meta").map(|(_, value)| value.as_str());
    fill_below(&mut row, contract, "meta.", meta);
    row.insert("meta_extra".to_owned(), None);
    row
}

fn with_answer(mut row: Row, record: &[(String, String)]) -> Entity {
    let raw_of = |name: &str| record.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let chosen = raw_of("selectedIndexes").and_then(indexes).unwrap_or_default();
    let answer = answers::read(row["question_type"].as_deref(), raw_of("response"), &chosen);
    row.insert("answer_text".to_owned(), answer.text);
    row.insert("answer_number".to_owned(), answer.number.map(|number| format!("{number:?}")));
    row.insert("answer_bool".to_owned(), answer.boolean.map(|boolean| boolean.to_string()));
    row.insert("is_skipped".to_owned(), Some(answer.is_skipped.to_string()));
    let children = answer.parts.into_iter().map(|(table, part)| (table, of_answer(part, &row)));
    let mut entity = Entity { children: children.collect(), row, has_vanished: false };
    entity.read_custom_metadata();
    entity
}

/// Adds to a part of an answer the columns that it shares with the answer.
fn of_answer(mut part: Row, answer: &Row) -> Row {
    for name in ["response_group_uid", "question_id", "survey_id", "created_at"] {
        part.insert(name.to_owned(), answer[name].clone());
    }
    part
}

impl Entity {
    /// Derives the rows of custom metadata from the column of the answer. Both are requested by the same flag, and a
    /// scan without it changes neither.
    pub fn read_custom_metadata(&mut self) {
        self.children.retain(|(table, _)| *table != "response_custom_metadata");
        let metadata = self.row["custom_metadata"].as_deref().map(named_values).unwrap_or_default();
        let parts = metadata.into_iter().map(|part| ("response_custom_metadata", of_answer(part, &self.row)));
        self.children.extend(parts);
    }
}

fn snapshot(response: &Row, raw: &str) -> Entity {
    let record = members(raw).unwrap();
    let find = |name: &str| record.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let parent: Vec<(&str, Cell)> =
        ["response_group_uid", "survey_id", "created_at"].map(|name| (name, response[name].clone())).to_vec();
    let mut row: Row = parent.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let visitor = find("visitorId").filter(|raw| raw != "null");
    let attributes = find("attributes").or_else(|| find("attribtues")).filter(|raw| raw != "null");
    let text_of = |name: &str| find(name).filter(|raw| raw != "null").and_then(|raw| text(&raw));
    // The contract says string; a number becomes its digits.
    row.insert(
        "visitor_id".to_owned(),
        visitor.as_deref().and_then(|raw| text(raw).or_else(|| integer(raw).map(|number| number.to_string()))),
    );
    row.insert("external_user_id".to_owned(), text_of("externalUserId"));
    row.insert("triggering_event".to_owned(), text_of("triggeringEvent"));
    row.insert("attributes".to_owned(), attributes.clone());
    row.insert("event_properties".to_owned(), find("eventProperties").filter(|raw| raw != "null"));
    row.insert("events".to_owned(), find("events").filter(|raw| raw != "null"));
    row.insert("extra".to_owned(), None);
    let children = attributes.as_deref().map(named_values).unwrap_or_default().into_iter().map(|mut child| {
        child.extend(parent.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        ("visitor_snapshot_attributes", child)
    });
    let children = children.collect();
    Entity { row, children, has_vanished: false }
}

/// Returns one row per member of an object.
fn named_values(raw: &str) -> Vec<Row> {
    let members = members(raw).unwrap_or_default().into_iter();
    let value = |(name, raw): (String, String)| {
        let json_type = match raw.as_bytes()[0] {
            b'"' => "string",
            b'{' => "object",
            b'[' => "array",
            b't' | b'f' => "boolean",
            b'n' => "null",
            _ => "number",
        };
        row([
            ("name", Some(name)),
            ("value_text", label(&raw)),
            ("value_number", json::number(&raw).map(|number| format!("{number:?}"))),
            ("value_bool", raw.parse::<bool>().ok().map(|value| value.to_string())),
            ("json_type", Some(json_type.to_owned())),
        ])
    };
    members.map(value).collect()
}
