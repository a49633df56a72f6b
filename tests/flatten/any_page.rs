//! Generates arbitrary pages of responses, and checks that each record and field can be found in the tables.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// Strings as JSON: plain, escaped, with NUL, surrogate pairs and lone surrogates, and strings that look like other
/// types.
fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z0-9 ]{0,6}",
        select(vec![
            r"\ud800",
            r"\udc00x",
            r"\ud83d\ude00",
            r"\u0000",
            r"\n",
            r#"\""#,
            r"\\",
            "é",
            "😀",
            "17",
            "[1]",
            "#1"
        ])
        .prop_map(str::to_owned),
    ];
    vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

/// JSON texts of any type.
fn value() -> impl Strategy<Value = String> {
    let number = select(vec![
        "0",
        "-0",
        "1",
        "12.0",
        "1e3",
        "1.5",
        "1e400",
        "-1e400",
        "9223372036854775807",
        "9223372036854775808",
    ]);
    let leaf = prop_oneof![
        select(vec!["null", "true", "false"]).prop_map(str::to_owned),
        number.prop_map(str::to_owned),
        any::<i64>().prop_map(|number| number.to_string()),
        string(),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            vec((string(), inner), 0..4).prop_map(|members| {
                let members: Vec<_> = members.iter().map(|(name, value)| format!("{name}:{value}")).collect();
                format!("{{{}}}", members.join(", "))
            }),
        ]
    })
}

/// Names and values of the members of an object.
type Members = Vec<(String, String)>;

const TEXTS: [(&str, &str); 6] = [
    ("visitorUuid", "visitor_uuid"),
    ("externalUserId", "external_user_id"),
    ("partnerAnonymousId", "partner_anonymous_id"),
    ("questionType", "question_type"),
    ("questionText", "question_text"),
    ("url", "url"),
];
const BIGINTS: [(&str, &str); 2] = [("surveyId", "survey_id"), ("visitorId", "visitor_id")];
const TIMESTAMPS: [(&str, &str); 2] = [("updatedAt", "updated_at"), ("deletedAt", "deleted_at")];
const NAMES: [&str; 15] = [
    "visitorUuid",
    "externalUserId",
    "partnerAnonymousId",
    "questionText",
    "url",
    "surveyId",
    "visitorId",
    "updatedAt",
    "deletedAt",
    "selectedIndexes",
    "customMetadata",
    "meta",
    "visitorSnapshot",
    "new",
    "new#1",
];
const TYPES: [&str; 13] = [
    "OPEN",
    "NPS",
    "LIKERT",
    "MULTIPLECHOICE",
    "MULTIPLESELECT",
    "MATRIX",
    "RANKORDER",
    "MAXDIFF",
    "VIDEOVOICE",
    "CONSENTLEGAL",
    "TEXTURLPROMPT",
    "matrix",
    "NEW",
];

fn placeable() -> impl Strategy<Value = Members> {
    let key = (select(vec!["\"u\"", "\"v\""]), select(vec!["1", "2.0", "\"3\""]), select(TYPES.to_vec()));
    let fields = vec((select(NAMES.to_vec()), value()), 0..8);
    (key, value(), fields).prop_map(|((uid, question, kind), answer, fields)| {
        let mut members = vec![
            ("responseGroupUid".to_owned(), uid.to_owned()),
            ("questionId".to_owned(), question.to_owned()),
            ("createdAt".to_owned(), "\"2026-01-31T08:15:30.5Z\"".to_owned()),
            ("questionType".to_owned(), format!("\"{kind}\"")),
            ("response".to_owned(), answer),
        ];
        members.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
        members
    })
}

fn object(members: &[(String, String)]) -> String {
    let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\" : {value}")).collect();
    format!("{{{}}}", members.join(","))
}

/// Records of all kinds: most fit a table, and some are arbitrary JSON.
pub fn records() -> impl Strategy<Value = Vec<String>> {
    vec(prop_oneof![4 => placeable().prop_map(|members| object(&members)), 1 => value()], 0..8)
}

/// The members of a record without duplicates, in two orders.
pub fn shuffled_members() -> impl Strategy<Value = (Members, Members)> {
    let distinct = placeable().prop_map(|mut members| {
        let mut seen = std::collections::HashSet::new();
        members.retain(|(name, _)| seen.insert(name.clone()));
        members
    });
    distinct.prop_flat_map(|members| (Just(members.clone()), Just(members).prop_shuffle()))
}

/// Every member of every record is in its column, or in `extra` with its exact text, or the record is a reject.
pub fn assert_nothing_lost(records: &[String], flat: &FlatPage) {
    let mut rejects = flat.rejects.iter().map(|reject| reject.raw.as_str());
    let mut rows = 0;
    for (at, record) in records.iter().enumerate() {
        let row = flat.table("responses").and_then(|table| {
            let is_next = rows < table.num_rows() && bigint(table, "_record", rows) == Some(at as i64);
            is_next.then_some(table)
        });
        match row {
            Some(table) => {
                assert_record(record, table, rows, flat);
                rows += 1;
            }
            None => assert_eq!(rejects.next(), Some(record.as_str()), "record {at} is neither a row nor a reject"),
        }
    }
    assert_eq!(rejects.next(), None);
}

fn assert_record(record: &str, table: &RecordBatch, row: usize, flat: &FlatPage) {
    let members = super::members(record).unwrap();
    let extra = text(table, "extra", row).map(|extra| super::members(extra).unwrap()).unwrap_or_default();
    let mut names: Vec<_> = extra.iter().map(|(name, _)| name).collect();
    names.dedup();
    assert!(names.is_sorted() && names.len() == extra.len(), "{names:?}");
    for (at, (name, value)) in members.iter().enumerate() {
        let is_last = members[at + 1..].iter().all(|(later, _)| later != name);
        let in_column = is_last && is_in_column(name, value, table, row, flat);
        let in_extra = extra.iter().any(|(kept, raw)| {
            raw == value && if is_last { kept == name } else { kept.starts_with(&format!("{name}#")) }
        });
        // A null in a field without a column is kept in `extra`; in a field with a column it is NULL there.
        assert!(in_column || in_extra, "{name} = {value} of {record} is lost; extra: {extra:?}");
    }
}

fn is_in_column(name: &str, value: &str, table: &RecordBatch, row: usize, flat: &FlatPage) -> bool {
    let column_of =
        |columns: &[(&str, &'static str)]| columns.iter().find(|(wire, _)| *wire == name).map(|(_, column)| *column);
    let is_null = |column: &str| table.column_by_name(column).unwrap().is_null(row);
    match name {
        "responseGroupUid" | "questionId" | "createdAt" => true,
        "response" => text(table, "answer_json", row) == Some(value),
        "new" | "new#1" => false,
        _ if value == "null" => true,
        "customMetadata" => text(table, "custom_metadata", row) == Some(value),
        "selectedIndexes" => !is_null("selected_indexes"),
        "meta" => value.starts_with('{') && is_meta_kept(value, text(table, "meta_extra", row)),
        "visitorSnapshot" => value.starts_with('{') && flat.table("visitor_snapshots").is_some(),
        _ => {
            if let Some(column) = column_of(&TEXTS) {
                serde_json::from_str::<String>(value).ok().as_deref() == text(table, column, row) && !is_null(column)
            } else if let Some(column) = column_of(&BIGINTS) {
                bigint(table, column, row).is_some_and(|number| value.parse::<f64>() == Ok(number as f64))
            } else {
                !is_null(column_of(&TIMESTAMPS).unwrap())
            }
        }
    }
}

/// Returns whether all members of these objects are in `meta_extra`. None of the members has a column.
fn is_meta_kept(meta: &str, extra: Option<&str>) -> bool {
    let extra = extra.unwrap_or_default();
    let end = meta.trim_start_matches(['{', ' ']).trim_end_matches('}').len();
    (end == 0) == extra.is_empty()
}
