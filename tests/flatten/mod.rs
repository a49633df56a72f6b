//! `flatten` through its public interface: golden pages, and properties of any page. `tests/cases/README.md` says how
//! to add a golden page.

use std::{fmt::Write, fs, path::Path};

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{Int64Type, TimestampMicrosecondType},
    util::display::{ArrayFormatter, FormatOptions},
};
use proptest::prelude::*;
use serde_json::value::RawValue;
use studysync::{
    flatten::{FlattenError, flatten_page},
    model::{DriftMode, DriftRules, FlatPage, RejectReason, Stream},
    schema,
};

mod any_page;
mod drift;

fn flatten(stream: Stream, body: &str) -> FlatPage {
    let flat = flatten_page(stream, body.as_bytes(), DriftRules::default()).unwrap();
    assert_whole(stream, &flat);
    flat
}

/// Asserts the properties of every page: the batches follow their contracts, and each record is a base row or a reject.
fn assert_whole(stream: Stream, flat: &FlatPage) {
    for batch in &flat.batches {
        assert_eq!(batch.rows.schema(), schema::table(batch.table).unwrap().flat_schema(), "{}", batch.table);
        assert!(batch.rows.num_rows() > 0, "{} is empty", batch.table);
    }
    let rows = flat.table(stream.name()).map_or(0, RecordBatch::num_rows);
    assert_eq!(rows + flat.rejects.len(), flat.records);
    assert_eq!(rows, flat.key_hashes.len());
}

fn responses(records: &[String]) -> FlatPage {
    flatten(Stream::Responses, &page_of(records))
}

fn page_of(records: &[String]) -> String {
    format!(r#"{{"cursor":"x","data":[{}]}}"#, records.join(","))
}

/// A response with this key and more fields.
fn response(question_id: i64, fields: &str) -> String {
    format!(r#"{{"responseGroupUid":"u","questionId":{question_id},"createdAt":"2026-01-31T08:15:30Z",{fields}}}"#)
}

fn text<'a>(rows: &'a RecordBatch, column: &str, row: usize) -> Option<&'a str> {
    let cells = rows.column_by_name(column).unwrap().as_string::<i32>();
    cells.is_valid(row).then(|| cells.value(row))
}

fn bigint(rows: &RecordBatch, column: &str, row: usize) -> Option<i64> {
    let cells = rows.column_by_name(column).unwrap().as_primitive::<Int64Type>();
    cells.is_valid(row).then(|| cells.value(row))
}

fn row_hash(rows: &RecordBatch, row: usize) -> i64 {
    bigint(rows, "_row_hash", row).unwrap()
}

/// Renders the columns that are not NULL, table by table and row by row.
fn render(flat: &FlatPage) -> String {
    let mut text = format!("{} records, {} rejects\n", flat.records, flat.rejects.len());
    let options = FormatOptions::default().with_null("NULL");
    for batch in &flat.batches {
        let columns = batch.rows.columns().iter();
        let cells: Vec<_> = columns.map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
        for row in 0..batch.rows.num_rows() {
            writeln!(text, "\n{} row {row}", batch.table).unwrap();
            for (at, field) in batch.rows.schema().fields().iter().enumerate() {
                if batch.rows.column(at).is_valid(row) {
                    writeln!(text, "  {} = {}", field.name(), visible(&cells[at].value(row).to_string())).unwrap();
                }
            }
        }
    }
    for entry in flat.drift.entries() {
        let (kind, place, records, example) = (entry.kind.title(), &entry.place, entry.records, &entry.example);
        writeln!(text, "\ndrift: {kind} {place} in {records}: {example}").unwrap();
    }
    for reject in &flat.rejects {
        writeln!(text, "\nreject {} in {}: {}", reject.reason, reject.field, reject.raw).unwrap();
    }
    text
}

/// Escapes a text so that it fits on one line.
fn visible(text: &str) -> String {
    let escape = |character: char| {
        if character.is_control() { character.escape_default().to_string() } else { character.into() }
    };
    text.chars().map(escape).collect()
}

#[test]
fn p1_golden_pages_flatten_as_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/flatten");
    let mut cases: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    cases.sort();
    assert!(cases.len() >= 20, "the cases are gone");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(&folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for case in cases {
            let name = case.file_stem().unwrap().to_str().unwrap();
            let stream: Stream = name.split('-').next().unwrap().parse().unwrap();
            let flat = flatten(stream, &fs::read_to_string(&case).unwrap());
            insta::assert_snapshot!(name, render(&flat));
        }
    });
}

#[test]
fn a_broken_envelope_is_an_error_not_an_empty_page() {
    let fails = |body: &str| flatten_page(Stream::Responses, body.as_bytes(), DriftRules::default()).unwrap_err();
    for body in ["", "[]", "nonsense", r#"{"data":[{}"#, r#"{"data":[]} x"#, r#"{"data":{}}"#, r#"{"data":null}"#] {
        assert!(matches!(fails(body), FlattenError::NotAPage(_)), "{body}");
    }
    assert!(matches!(fails("{}"), FlattenError::NoData));
    assert!(matches!(fails(r#"{"cursor":null}"#), FlattenError::NoData));
    let empty = flatten(Stream::Themes, r#"{"data":[],"cursor":null}"#);
    assert_eq!((empty.records, empty.batches.len()), (0, 0));
}

#[test]
fn p1_records_of_every_data_list_land() {
    let flat = flatten(
        Stream::Responses,
        &format!(r#"{{"data":[{}],"data":[{}]}}"#, response(1, r#""a":1"#), response(2, r#""a":1"#)),
    );
    assert_eq!(flat.key_hashes.len(), 2);
}

#[test]
fn p1_a_value_nested_a_hundred_thousand_deep_lands() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_object = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    let types = ["OPEN", "MULTIPLESELECT", "MATRIX", "MAXDIFF", "RANKORDER", "VIDEOVOICE", "CONSENTLEGAL", "NEW"];
    for value in [&deep, &deep_object] {
        let mut records: Vec<String> = types
            .iter()
            .zip(1..)
            .map(|(name, at)| response(at, &format!(r#""questionType":"{name}","response":{value}"#)))
            .collect();
        records.push(response(20, &format!(r#""new":{value},"meta":{value},"visitorSnapshot":{value}"#)));
        let flat = responses(&records);
        let rows = flat.table("responses").unwrap();
        for (at, name) in types.iter().enumerate() {
            assert!(text(rows, "answer_json", at) == Some(value), "{name}");
        }
        assert!(text(rows, "extra", types.len()).unwrap().contains(value.as_str()));
    }
    let flat = responses(&[deep.clone(), response(1, r#""response":1"#)]);
    assert_eq!(flat.rejects[0].reason, RejectReason::NotAnObject);
    assert!(flat.rejects[0].raw == deep);
    let envelope = format!(r#"{{"next":{deep},"data":[{}]}}"#, response(1, r#""response":1"#));
    assert_eq!(flatten(Stream::Responses, &envelope).records, 1);
}

#[test]
fn p1_only_the_invalid_json_record_is_rejected() {
    let good = [response(1, r#""response":1"#), response(2, r#""response":"}],{""#)];
    for broken in ["NaN", "\"two\nlines\"", "\"caf\u{1}\"", "\"cut", "[1,"] {
        let broken = response(9, &format!(r#""response":{broken}"#));
        let broken =
            if broken.contains("cut") || broken.contains("[1,") { broken.trim_end_matches('}') } else { &broken };
        let body = format!(r#"{{"data":[{},{broken},{}],"cursor":"x"}}"#, good[0], good[1]);
        let flat = flatten(Stream::Responses, &body);
        assert_eq!((flat.records, flat.table("responses").unwrap().num_rows()), (3, 2), "{body}");
        assert_eq!((flat.rejects[0].reason, flat.rejects[0].raw.as_str()), (RejectReason::NotJson, broken));
    }
}

#[test]
fn p1_an_invalid_utf8_record_is_rejected_with_its_bytes() {
    let broken = response(9, r#""response":"caf?""#);
    let body =
        format!(r#"{{"data":[{},{broken}],"cursor":null}}"#, response(1, r#""response":1"#)).replace('?', "\u{1}");
    let body: Vec<u8> = body.bytes().map(|byte| if byte == 1 { 0xE9 } else { byte }).collect();
    let flat = flatten_page(Stream::Responses, &body, DriftRules::default()).unwrap();
    assert_eq!((flat.records, flat.rejects.len()), (2, 1));
    assert_eq!(flat.rejects[0].raw, broken.replace('?', "\\xe9"));
    assert_eq!(flat.rejects[0].reason, RejectReason::NotJson);
}

#[test]
fn hashes_are_stable_across_versions() {
    let record = response(12, r#""questionType":"OPEN","response":"Why not","visitorId":5,"new":[1]"#);
    let flat = responses(&[record]);
    assert_eq!(row_hash(flat.table("responses").unwrap(), 0), ROW_HASH);
    assert_eq!(flat.key_hashes, [KEY_HASH]);
}

/// Warehouses store these hashes. A new value makes every row look edited once.
const ROW_HASH: i64 = 1905091044911268662;
const KEY_HASH: u128 = 268036741077148351339917959065437618829;

#[test]
fn each_field_of_a_response_changes_its_hash() {
    let fields = [
        r#""surveyId":1"#,
        r#""visitorId":1"#,
        r#""visitorUuid":"1""#,
        r#""externalUserId":"1""#,
        r#""externalUserId":"""#,
        r#""partnerAnonymousId":"1""#,
        r#""questionType":"1""#,
        r#""questionText":"1""#,
        r#""updatedAt":1"#,
        r#""deletedAt":1"#,
        r#""response":1"#,
        r#""response":null"#,
        r#""selectedIndexes":1"#,
        r#""selectedIndexes":[]"#,
        r#""selectedIndexes":[1,1]"#,
        r#""url":"1""#,
        r#""meta":{"os":"1"}"#,
        r#""meta":{"browser":"1"}"#,
        r#""meta":{"screen":{"width":1}}"#,
        r#""meta":{"screen":{"height":1}}"#,
        r#""meta":{"new":1}"#,
        r#""customMetadata":1"#,
        r#""new":1"#,
        r#""new":null"#,
        r#""visitorSnapshot":1"#,
    ];
    let hash = |fields: &str| row_hash(responses(&[response(1, fields)]).table("responses").unwrap(), 0);
    let mut hashes: Vec<i64> = fields.iter().map(|fields| hash(fields)).collect();
    hashes.push(hash(r#""surveyId":null"#));
    let count = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
    // A snapshot has its own row and its own hash, so it does not change the hash of the response.
    assert_eq!(hash(r#""surveyId":1,"visitorSnapshot":{"events":1}"#), hash(r#""surveyId":1"#));
}

#[test]
fn the_hash_of_a_survey_covers_its_questions_and_constraints() {
    let hash = |fields: &str| {
        let flat = flatten(Stream::Surveys, &page_of(&[format!(r#"{{"id":1,{fields}}}"#)]));
        row_hash(flat.table("surveys").unwrap(), 0)
    };
    let one = hash(r#""questions":[{"id":1}],"constraints":[]"#);
    assert_eq!(one, hash(r#""constraints":[],"questions":[{"id":1}]"#));
    assert_ne!(one, hash(r#""questions":[{"id":2}],"constraints":[]"#));
    assert_ne!(one, hash(r#""questions":[{"id":1}],"constraints":[{}]"#));
    assert_ne!(hash(r#""questions":[]"#), hash(r#""constraints":[]"#));
}

#[test]
fn a_snapshot_has_the_same_hash_in_every_answer() {
    let carried = |at: &str| {
        let record = format!(
            r#"{{"responseGroupUid":"u","questionId":1,"createdAt":"{at}","visitorSnapshot":{{"events":{{"a":1}}}}}}"#
        );
        let flat = responses(&[record]);
        let rows = flat.table("visitor_snapshots").unwrap();
        let created = rows.column_by_name("created_at").unwrap().as_primitive::<TimestampMicrosecondType>().value(0);
        (row_hash(rows, 0), created)
    };
    let (early, late) = (carried("2026-01-31T08:00:00Z"), carried("2026-01-31T09:00:00Z"));
    assert_eq!(early.0, late.0);
    assert_eq!(late.1 - early.1, 3_600_000_000);
}

#[test]
fn the_earliest_answer_keeps_a_repeated_snapshot() {
    let record = |question: i64, second: i64| {
        format!(
            r#"{{"responseGroupUid":"u","questionId":{question},"createdAt":"2026-01-31T08:00:0{second}Z","visitorSnapshot":{{"attributes":{{"plan":"pro"}}}}}}"#
        )
    };
    let flat = responses(&[record(1, 2), record(2, 1), record(3, 3)]);
    for table in ["visitor_snapshots", "visitor_snapshot_attributes"] {
        let rows = flat.table(table).unwrap();
        assert_eq!(rows.num_rows(), 1, "{table}");
        assert_eq!(bigint(rows, "_record", 0), Some(1), "{table}");
    }
}

#[test]
fn p1_metadata_and_attributes_sent_as_json_text_have_rows() {
    let fields = |object: &str| format!(r#""customMetadata":{object},"visitorSnapshot":{{"attributes":{object}}}"#);
    let object = r#"{"source":"mail","n":1.5,"flag":true,"list":["é"]}"#;
    let text = serde_json::to_string(object).unwrap();
    let (sent, in_text) = (responses(&[response(1, &fields(object))]), responses(&[response(1, &fields(&text))]));
    for (table, rows) in [("response_custom_metadata", 4), ("visitor_snapshot_attributes", 4)] {
        let (sent, in_text) = (sent.table(table).unwrap(), in_text.table(table).unwrap());
        assert_eq!((sent.num_rows(), in_text), (rows, sent), "{table}");
    }
    // The column of the answer has the text that was sent.
    assert_eq!(self::text(in_text.table("responses").unwrap(), "custom_metadata", 0), Some(text.as_str()));
    for other in [r#""mail""#, r#""[1]""#, r#""{""#, "null", "[1]"] {
        let flat = responses(&[response(1, &fields(other))]);
        assert_eq!(flat.table("response_custom_metadata").map_or(0, RecordBatch::num_rows), 0, "{other}");
    }
}

proptest! {
    #[test]
    fn p1_every_record_of_any_page_lands_with_every_field(records in any_page::records()) {
        let flat = responses(&records);
        any_page::assert_nothing_lost(&records, &flat);
    }

    #[test]
    fn p1_any_page_of_surveys_and_themes_lands(records in any_page::records()) {
        flatten(Stream::Surveys, &page_of(&records));
        flatten(Stream::Themes, &page_of(&records));
    }

    /// A record that must be rejected changes nothing for the other records.
    #[test]
    fn a_rejected_record_changes_no_other_row(mut records in any_page::records()) {
        let plain = responses(&records);
        records.push("5".to_owned());
        let careful = responses(&records);
        prop_assert_eq!(plain.records + 1, careful.records);
        prop_assert_eq!(&plain.key_hashes, &careful.key_hashes);
        prop_assert_eq!(plain.batches.len(), careful.batches.len());
        for (left, right) in plain.batches.iter().zip(&careful.batches) {
            prop_assert_eq!(&left.rows, &right.rows);
        }
    }

    #[test]
    fn field_order_changes_nothing((members, order) in any_page::shuffled_members()) {
        let object = |members: &[(String, String)]| {
            let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            format!("{{{}}}", members.join(","))
        };
        let (left, right) = (responses(&[object(&members)]), responses(&[object(&order)]));
        prop_assert_eq!(&left.key_hashes, &right.key_hashes);
        for (left, right) in left.batches.iter().zip(&right.batches) {
            prop_assert_eq!(&left.rows, &right.rows);
        }
    }
}

/// Returns the exact texts of an object's members, parsed by serde_json and not by the code under test.
fn members(raw: &str) -> Option<Vec<(String, String)>> {
    struct Pairs;
    impl<'a> serde::de::Visitor<'a> for Pairs {
        type Value = Vec<(String, String)>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<M: serde::de::MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            let mut pairs = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, &'a RawValue>()? {
                pairs.push((name, value.get().to_owned()));
            }
            Ok(pairs)
        }
    }
    serde::de::Deserializer::deserialize_map(&mut serde_json::Deserializer::from_str(raw), Pairs).ok()
}

/// The envelope parser of `source` decodes escapes in names. `flatten` must accept every page that it accepts.
#[test]
fn p1_a_list_name_with_json_escapes_is_read() {
    let body = r#"{"\u0064ata":[1,2],"cursor":null,"d\u0061t\\":[3],"data ":[4]}"#;
    assert_eq!(studysync::source::envelope::parse(body.as_bytes()).unwrap().rows, 2);
    assert_eq!(flatten(Stream::Responses, body).records, 2);
}
