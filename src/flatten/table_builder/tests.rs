//! Rows are built in the order of the contract.

use std::collections::HashSet;

use super::*;
use crate::{
    flatten::flatten_page,
    model::{Stream, key_hashes},
    schema::tables,
};

fn rank() -> TableBuilder {
    TableBuilder::new("response_ranks", 1, ColumnSet::All).unwrap()
}

fn finish(table: TableBuilder) -> Result<Vec<TableBatch>, ArrowError> {
    let mut page = FlatPage::default();
    table.finish_into(&mut page).map(|()| page.batches)
}

fn begin(table: &mut TableBuilder) {
    table.text("response_group_uid", Some("u"));
    table.bigint("question_id", Some(1));
    table.bigint("survey_id", None);
    table.timestamp("created_at", Some(0));
}

#[test]
fn rows_in_the_order_of_the_contract_are_a_batch() {
    let mut table = rank();
    begin(&mut table);
    table.text("option_label", Some("a"));
    table.bigint("rank", Some(1));
    table.end_row(0);
    assert_eq!(finish(table).unwrap()[0].rows.num_rows(), 1);
    assert!(finish(rank()).unwrap().is_empty());
}

#[test]
fn a_row_out_of_order_is_refused() {
    let mut misplaced = rank();
    begin(&mut misplaced);
    misplaced.text("rank", Some("a"));
    misplaced.bigint("option_label", Some(1));
    misplaced.end_row(0);
    let mut mistyped = rank();
    begin(&mut mistyped);
    mistyped.bigint("option_label", Some(1));
    mistyped.bigint("rank", Some(1));
    mistyped.end_row(0);
    let mut short = rank();
    begin(&mut short);
    short.end_row(0);
    for table in [misplaced, mistyped, short] {
        assert!(finish(table).unwrap_err().to_string().contains("response_ranks"));
    }
    let mut null_key = rank();
    null_key.text("response_group_uid", None);
    null_key.bigint("question_id", Some(1));
    null_key.bigint("survey_id", None);
    null_key.timestamp("created_at", Some(0));
    null_key.text("option_label", Some("a"));
    null_key.bigint("rank", None);
    null_key.end_row(0);
    assert!(finish(null_key).is_err());
}

#[test]
fn an_unknown_table_is_an_error() {
    assert!(TableBuilder::new("nothing", 0, ColumnSet::All).is_err());
}

#[test]
fn the_columns_of_a_table_have_different_marks() {
    for table in tables() {
        let mut marks: HashSet<u32> = table.columns.iter().map(|column| column_name_hash(&column.name)).collect();
        assert_eq!(marks.len(), table.columns.len(), "{}", table.name);
        if table.name == "surveys" {
            assert!(marks.insert(column_name_hash("questions")) && marks.insert(column_name_hash("constraints")));
        }
    }
}

#[test]
fn a_stored_row_has_the_key_hash_of_its_page() {
    let response = r#"{"responseGroupUid":"a-ä","questionId":7,"createdAt":"2026-01-01T00:00:00.001Z"}"#;
    let other = r#"{"responseGroupUid":"","questionId":-9007199254740993,"createdAt":"2026-01-01T00:00:00.001Z"}"#;
    let theme = r#"{"id":3,"responseGroupUid":"u","questionId":4,"createdAt":"2026-01-01T00:00:00.001Z"}"#;
    for (stream, records) in [(Stream::Responses, [response, other].as_slice()), (Stream::Themes, [theme].as_slice())] {
        let body = format!(r#"{{"data":[{}]}}"#, records.join(","));
        let flat = flatten_page(stream, body.as_bytes(), Default::default()).unwrap();
        let table = table(stream.name()).unwrap();
        let rows = flat.table(stream.name()).unwrap();
        assert_eq!(rows.num_rows(), records.len());
        assert_eq!(key_hashes(&table.key_in_order(), rows).unwrap(), flat.key_hashes, "{stream}");
    }
}
