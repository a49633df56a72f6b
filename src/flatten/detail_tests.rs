//! A summary and a part of a page equal the complete page: the same hashes, the same rows.

use std::{fs, path::Path};

use arrow::{
    array::{AsArray as _, BooleanArray, RecordBatch},
    compute::filter_record_batch,
    datatypes::Int64Type,
};
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};

use super::*;
use crate::{
    model::{DriftMode, LongTexts, RecordSet},
    schema,
};

const MODES: [DriftMode; 4] = [DriftMode::Evolve, DriftMode::Freeze, DriftMode::DiscardValue, DriftMode::DiscardRow];

/// Returns the rows that belong to records for which `is_kept` returns true.
fn rows_of(rows: &RecordBatch, is_kept: impl Fn(i64) -> bool) -> RecordBatch {
    let records = rows.column_by_name("_record").unwrap().as_primitive::<Int64Type>();
    let kept: BooleanArray = records.values().iter().map(|record| Some(is_kept(*record))).collect();
    filter_record_batch(rows, &kept).unwrap()
}

/// Returns the rows with only the columns that the summary has.
fn summarized(batch: &RecordBatch, table: &schema::Table) -> RecordBatch {
    let schema = batch.schema();
    let is_kept = |index: &usize| table.is_in_summary(schema.field(*index).name());
    batch.project(&(0..batch.num_columns()).filter(is_kept).collect::<Vec<_>>()).unwrap()
}

fn assert_summary(page: &FlatPage, summary: &FlatPage) {
    let expected = page.batches.iter().filter_map(|batch| {
        let table = schema::table(batch.table).unwrap();
        let rows = summarized(&batch.rows, table);
        (rows.num_columns() > 0).then_some((batch.table, rows))
    });
    let built: Vec<_> = summary.batches.iter().map(|batch| (batch.table, batch.rows.clone())).collect();
    assert_eq!(built, expected.collect::<Vec<_>>());
    for batch in &summary.batches {
        assert_eq!(batch.rows.schema(), schema::table(batch.table).unwrap().summary_schema());
    }
    assert!(summary.is_summary && !page.is_summary);
    assert_eq!(summary.key_hashes, page.key_hashes);
    assert_eq!(summary.answer_hashes, page.answer_hashes);
    assert_eq!(summary.rejects, page.rejects);
    assert_eq!((summary.records, &summary.absent), (page.records, &page.absent));
    assert_eq!(format!("{:?}", summary.drift), format!("{:?}", page.drift));
    assert_eq!(summary.long_text_bytes, page.long_text_bytes);
    let long_texts = page.batches.iter().map(|batch| LongTexts::of(&batch.rows).total_bytes());
    assert_eq!(page.long_text_bytes, long_texts.sum::<usize>());
    let discarded = |page: &FlatPage| page.discarded.as_ref().map(|discarded| discarded.key_hashes.clone());
    assert_eq!(discarded(summary), discarded(page));
}

/// Asserts that `part` has the rows of `page` that belong to the wanted records, and no others.
fn assert_part(page: &FlatPage, part: &FlatPage, records: &[i64], wanted: &RecordSet) {
    assert!(part.rejects.is_empty() && part.discarded.is_none());
    let keys = records.iter().zip(&page.key_hashes).filter(|(record, _)| wanted.contains(**record));
    assert_eq!(part.key_hashes, keys.map(|(_, key)| *key).collect::<Vec<_>>());
    for batch in &page.batches {
        let expected = rows_of(&batch.rows, |record| wanted.contains(record));
        let records = batch.rows.column_by_name(RECORD_COLUMN).unwrap().as_primitive::<Int64Type>().values();
        let built = part.table(batch.table).map_or_else(|| expected.slice(0, 0), RecordBatch::clone);
        // A part can have more snapshots: each is the row of the earliest response of the part, which may be a later
        // one than the earliest of the page.
        let is_of_page = |record| !batch.table.starts_with("visitor_snapshot") || records.contains(&record);
        assert_eq!(rows_of(&built, is_of_page), expected, "{}", batch.table);
    }
}

/// Asserts that every detail of a page agrees with the complete page, or that none can be flattened.
fn assert_agrees(stream: Stream, body: &[u8], mode: DriftMode, is_wanted: impl Fn(i64) -> bool) {
    let rules = DriftRules { unknown_fields: mode, type_clashes: mode };
    let summary = flatten_in_detail(stream, body, rules, &PageDetail::Summary);
    let (Ok(page), Ok(summary)) = (flatten_page(stream, body, rules), &summary) else {
        assert!(flatten_page(stream, body, rules).is_err() && summary.is_err());
        return;
    };
    assert_summary(&page, summary);
    let records = page.table(stream.name()).and_then(records_column).unwrap_or_default();
    let wanted: RecordSet = records.iter().copied().filter(|record| is_wanted(*record)).collect();
    let part = flatten_in_detail(stream, body, rules, &PageDetail::Records(wanted.clone())).unwrap();
    assert_part(&page, &part, records, &wanted);
}

/// The golden pages, with their streams.
fn golden_pages() -> Vec<(Stream, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/flatten");
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let stream = [Stream::Responses, Stream::Surveys, Stream::Themes, Stream::Users];
        let stream = stream.into_iter().find(|stream| name.starts_with(stream.name()));
        if let (Some(stream), true) = (stream, name.ends_with(".json")) {
            pages.push((stream, fs::read(path).unwrap()));
        }
    }
    assert!(pages.len() > 10);
    pages
}

#[test]
fn p4_a_summary_and_a_part_of_a_page_equal_the_page() {
    for (stream, body) in golden_pages() {
        for mode in MODES {
            for (step, first) in [(1, 0), (2, 0), (2, 1), (5, 3)] {
                assert_agrees(stream, &body, mode, |record| record % step == first);
            }
        }
    }
}

#[test]
fn p8_long_texts_of_a_summary_count_as_in_the_page() {
    let long = "x".repeat(5000);
    let fields = [
        format!(r#""questionType":"MULTIPLESELECT","response":["{long}","b"]"#),
        format!(r#""questionType":"MATRIX","response":{{"{long}":"{long}"}}"#),
        format!(r#""customMetadata":{{"a":"{long}","b":1}},"response":1"#),
        format!(r#""visitorSnapshot":{{"attributes":{{"a":"{long}"}},"extra":"{long}"}}"#),
        format!(r#""questionType":"VIDEOVOICE","response":{{"transcription":"{}"}}"#, "y".repeat(200_000)),
        r#""customMetadata":{"a":"short"}"#.to_owned(),
    ];
    let record = |(id, fields): (usize, &String)| {
        format!(r#"{{"responseGroupUid":"u","questionId":{id},"createdAt":"2026-01-31T08:15:30Z",{fields}}}"#)
    };
    let records: Vec<String> = fields.iter().enumerate().map(record).collect();
    let body = format!(r#"{{"data":[{}]}}"#, records.join(","));
    let rules = DriftRules::default();
    let summary = flatten_in_detail(Stream::Responses, body.as_bytes(), rules, &PageDetail::Summary).unwrap();
    assert!(summary.long_text_bytes > 400_000);
    assert_agrees(Stream::Responses, body.as_bytes(), DriftMode::Evolve, |_| true);
}

#[test]
fn a_page_without_wanted_records_is_not_read() {
    let none = PageDetail::Records(RecordSet::default());
    assert_eq!(flatten_in_detail(Stream::Responses, b"no page", DriftRules::default(), &none).unwrap().records, 0);
}

proptest! {
    /// Golden pages in which parts were replaced by other parts and bytes by other bytes.
    #[test]
    fn p4_a_summary_and_a_part_of_any_page_equal_the_page(
        page in any::<Index>(),
        copies in vec((any::<Index>(), any::<Index>(), 0_usize..40), 0..4),
        bytes in vec((any::<Index>(), select(b"{}[],:\"\\0a\xff ".to_vec())), 0..4),
        wanted in vec(any::<bool>(), 64),
        mode in select(MODES.to_vec()),
    ) {
        let pages = golden_pages();
        let (stream, mut body) = page.get(&pages).clone();
        for (from, to, length) in copies {
            let (from, to) = (from.index(body.len()), to.index(body.len()));
            let copied: Vec<u8> = body.iter().skip(from).take(length).copied().collect();
            body.iter_mut().skip(to).zip(copied).for_each(|(byte, copied)| *byte = copied);
        }
        for (at, byte) in bytes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        assert_agrees(stream, &body, mode, |record| wanted[record as usize % wanted.len()]);
    }
}
