//! Registered rows arrive unchanged, whatever their length and their first slot.

use arrow::{
    array::{BooleanArray, Float64Array, Int64Array, ListArray, TimestampMicrosecondArray},
    util::pretty::pretty_format_batches,
};
use proptest::prelude::*;

use super::*;
use crate::load::engine::{Engine, tests::engine};

/// A row with a value or NULL of each type.
type Row = (Option<i64>, Option<f64>, Option<bool>, Option<String>, Option<Vec<Option<i64>>>);

const COLUMNS: &str = "number BIGINT, share DOUBLE, truth BOOLEAN, said VARCHAR, list BIGINT[], moment TIMESTAMP";

fn batch(rows: &[Row]) -> RecordBatch {
    let numbers = || rows.iter().map(|row| row.0);
    let texts: StringArray = rows.iter().map(|row| row.3.as_deref()).collect();
    let columns: [(&str, ArrayRef); 6] = [
        ("number", Arc::new(Int64Array::from_iter(numbers()))),
        ("share", Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.1)))),
        ("truth", Arc::new(BooleanArray::from_iter(rows.iter().map(|row| row.2)))),
        ("said", Arc::new(texts)),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows.iter().map(|row| row.4.clone())))),
        // The range of TIMESTAMP.
        (
            "moment",
            Arc::new(TimestampMicrosecondArray::from_iter(numbers().map(|number| number.map(|number| number >> 8)))),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

/// The content of the table as texts.
fn stored(engine: &Engine) -> String {
    let mut stored = Vec::new();
    engine
        .each_batch("read", "FROM stored", |batch| {
            stored.push(batch);
            Ok(())
        })
        .unwrap();
    pretty_format_batches(&stored).unwrap().to_string()
}

fn row() -> impl Strategy<Value = Row> {
    let said = prop_oneof!["\\PC{0,3}", "[a-z]{11,14}", "\\PC{20,40}", Just("a\0b".to_owned()), Just("é".repeat(300))];
    let list = prop::collection::vec(prop::option::of(any::<i64>()), 0..4);
    (
        prop::option::of(any::<i64>()),
        prop::option::of(any::<f64>()),
        any::<Option<bool>>(),
        prop::option::of(said),
        prop::option::of(list),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn p1_rows_arrive_as_they_are(rows in prop::collection::vec(row(), 1..60), repeated in 1_usize..90, from in 0_usize..30) {
        let (_folder, engine) = engine(1, 64 << 20);
        engine.execute("make a table", &format!("CREATE TEMP TABLE stored ({COLUMNS})")).unwrap();
        // Some batches are longer than a vector, and some slices begin within a byte of the mask.
        let long: Vec<Row> = rows.iter().cycle().take(rows.len() * repeated).cloned().collect();
        let (long, short) = (batch(&long), batch(&rows));
        let from = from.min(long.num_rows());
        let batches = [short.clone(), long.slice(from, long.num_rows() - from), short.slice(0, 0), short];
        engine.insert("stored", &batches).unwrap();
        prop_assert_eq!(stored(&engine), pretty_format_batches(&batches).unwrap().to_string());
    }
}

#[test]
fn missing_columns_are_null_and_names_are_quoted() {
    let (_folder, engine) = engine(1, 64 << 20);
    engine.execute("make a table", "CREATE TEMP TABLE stored (a BIGINT, \"b \"\" c\" VARCHAR)").unwrap();
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    engine.insert("stored", &[RecordBatch::try_from_iter([("b \" c", texts)]).unwrap()]).unwrap();
    engine.insert("stored", &[]).unwrap();
    assert_eq!(
        engine.integers("count", "SELECT count(*), count(a), count(\"b \"\" c\") FROM stored").unwrap(),
        [1, 0, 1]
    );
}

#[test]
fn what_does_not_fit_is_an_error_and_leaves_nothing_behind() {
    let (_folder, engine) = engine(1, 64 << 20);
    engine.execute("make a table", "CREATE TEMP TABLE stored (a BIGINT NOT NULL, b VARCHAR)").unwrap();
    let column = |name, column: ArrayRef| RecordBatch::try_from_iter_with_nullable([(name, column, true)]).unwrap();
    let number = |number| column("a", Arc::new(Int64Array::from(vec![number])));
    let other = column("a", Arc::new(StringArray::from(vec!["x"])));
    // Columns that are read by position would change names.
    let renamed = column("d", Arc::new(Int64Array::from(vec![1])));
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(1));
    let bare =
        RecordBatch::try_new_with_options(Arc::new(arrow::datatypes::Schema::empty()), vec![], &options).unwrap();
    let small = column("a", Arc::new(arrow::array::Int8Array::from(vec![1])));
    for (rows, why) in [
        (vec![number(None)], "NOT NULL"),
        (vec![column("c", Arc::new(Int64Array::from(vec![1])))], "\"c\""),
        (vec![number(Some(1)), other], "batches with the columns"),
        (vec![number(Some(1)), renamed], "batches with the columns"),
        (vec![bare], "syntax error"),
        (vec![small], "Int8"),
    ] {
        let error = engine.insert("stored", &rows).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(engine.arrow_tables.rows().is_empty());
    }
    let error = engine.connection().execute_batch("FROM registered_rows(1)").unwrap_err().to_string();
    assert!(error.contains("no rows are registered as 1"), "{error}");
    engine.insert("stored", &[number(Some(1))]).unwrap();
    assert_eq!(engine.integers("count", "SELECT count(*) FROM stored").unwrap(), [1]);
}

#[test]
fn p2_registered_rows_can_be_joined_and_are_gone_afterwards() {
    let (_folder, engine) = engine(2, 64 << 20);
    // Longer than an inlined text, and more rows than a vector has slots.
    let name = |at: usize| (!at.is_multiple_of(5)).then(|| format!("a text that is pointed at, number {at}"));
    let rows = |step: usize| {
        let names: ArrayRef = Arc::new((0..20_000).step_by(step).map(name).collect::<StringArray>());
        vec![RecordBatch::try_from_iter([("name", names)]).unwrap()]
    };
    engine.execute("make a table", "CREATE TABLE stored (name VARCHAR)").unwrap();
    engine.insert("stored", &rows(1)).unwrap();
    let mut found = 0;
    let join = |rows: &str| format!("SELECT t.name FROM stored t SEMI JOIN {rows} k ON t.name = k.name");
    engine
        .each_batch_with_rows("join", &rows(2), join, |batch| {
            found += batch.num_rows();
            Ok(())
        })
        .unwrap();
    assert_eq!(found, 8_000);
    let delete = |rows: &str| format!("DELETE FROM stored t USING {rows} k WHERE t.name IS NOT DISTINCT FROM k.name");
    engine.execute_with_rows(&rows(2), delete).unwrap();
    assert_eq!(engine.integers("count", "SELECT count(*), count(name) FROM stored").unwrap(), [8_000, 8_000]);
    assert!(engine.arrow_tables.rows().is_empty());
}
