//! Each row is visited once, with its values, and an error of the visit is returned.

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::Int64Type;

use super::*;
use crate::load::engine::tests::engine;

/// Rows in several row groups. Texts are short, long, equal, empty or NULL.
const ROWS: &str = "(SELECT i AS number, CASE i % 5 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN 'zo\u{eb}'
    ELSE repeat('long text \u{1f600} ', (i % 7)::INTEGER) || i END AS text FROM range(300_000) r(i))";

fn expected(number: i64) -> Option<String> {
    match number % 5 {
        0 => None,
        1 => Some(String::new()),
        2 => Some("zo\u{eb}".to_owned()),
        _ => Some("long text \u{1f600} ".repeat((number % 7) as usize) + &number.to_string()),
    }
}

#[test]
fn p9_each_row_is_visited_once_with_its_values() {
    for threads in [1, 2] {
        let (_folder, engine) = engine(threads, 256 << 20);
        engine.execute("fill", &format!("CREATE TABLE t AS FROM {ROWS}")).unwrap();
        // Constants are visited row by row too.
        for (relation, columns) in
            [("t", ["text", "number"]), ("(SELECT 2::BIGINT AS number, 'zo\u{eb}' AS text FROM t)", ["text", "number"])]
        {
            let seen = Mutex::new(Vec::new());
            let visit = |rows: RecordBatch| {
                let (texts, numbers) = (rows.column(0).as_string::<i32>(), rows.column(1).as_primitive::<Int64Type>());
                for (text, number) in texts.iter().zip(numbers.values()) {
                    assert_eq!(text.map(str::to_owned), expected(*number));
                }
                seen.lock().unwrap().extend_from_slice(numbers.values());
                Ok(())
            };
            engine.with_all_threads(|| engine.visit_rows("visit", relation, &columns, &visit)).unwrap();
            let mut seen = seen.into_inner().unwrap();
            seen.sort_unstable();
            if relation == "t" {
                assert_eq!(seen, (0..300_000).collect::<Vec<i64>>());
            } else {
                assert_eq!(seen, vec![2; 300_000]);
            }
        }
        let no_rows = "(SELECT * FROM t WHERE number < 0)";
        engine.visit_rows("visit", no_rows, &["number"], &|_| Err(LoadError::Bug("a row".to_owned()))).unwrap();
        assert!(engine.row_visits.0.read().unwrap().is_empty());
    }
}

#[test]
fn p9_equal_texts_in_a_file_are_visited_row_by_row() {
    let (folder, engine) = engine(2, 256 << 20);
    let path = folder.path().join("f.duckdb");
    let fill = format!(
        "ATTACH '{}' AS f; CREATE TABLE f.t AS SELECT 'value ' || i % 3 AS text FROM range(200_000) r(i); CHECKPOINT f",
        path.display()
    );
    engine.execute("fill", &fill).unwrap();
    let rows = Mutex::new(0);
    let visit = |batch: RecordBatch| {
        assert_eq!(batch.column(0).null_count(), 0);
        *rows.lock().unwrap() += batch.num_rows();
        Ok(())
    };
    engine.with_all_threads(|| engine.visit_rows("visit", "f.t", &["text"], &visit)).unwrap();
    assert_eq!(rows.into_inner().unwrap(), 200_000);
}

#[test]
fn p9_an_error_or_panic_of_a_visit_is_an_error() {
    let (_folder, engine) = engine(2, 256 << 20);
    engine.execute("fill", &format!("CREATE TABLE t AS FROM {ROWS}")).unwrap();
    let fails = |_: RecordBatch| Err(LoadError::Bug("as the test wants".to_owned()));
    let failed = engine.visit_rows("visit", "t", &["text"], &fails).unwrap_err();
    assert!(matches!(&failed, LoadError::Bug(why) if why == "as the test wants"), "{failed}");
    let panics = |_: RecordBatch| panic!("as the test wants");
    let failed = engine.visit_rows("visit", "t", &["text"], &panics).unwrap_err();
    assert!(matches!(&failed, LoadError::Bug(why) if !why.contains("as the test wants")), "{failed:?}");
    assert!(engine.row_visits.0.read().unwrap_or_else(PoisonError::into_inner).is_empty());
    let rows = Mutex::new(0);
    let count = |batch: RecordBatch| {
        *rows.lock().unwrap() += batch.num_rows();
        Ok(())
    };
    engine.visit_rows("visit", "t", &["number"], &count).unwrap();
    assert_eq!(rows.into_inner().unwrap(), 300_000);
}

#[test]
fn p9_a_row_that_is_not_visited_once_is_an_error() {
    let (_folder, engine) = engine(2, 256 << 20);
    engine.execute("fill", &format!("CREATE TABLE t AS FROM {ROWS}")).unwrap();
    // A row is skipped, is not counted, or is visited twice.
    for condition in [
        "CASE WHEN number = 7 THEN true ELSE {} END",
        "CASE WHEN number = 7 THEN false ELSE {} END",
        "CASE WHEN {} THEN {} ELSE false END",
    ] {
        let counted = |is_visited: &str| {
            let condition = condition.replace("{}", is_visited);
            engine.integers("visit", &format!("SELECT count(*), count(*) FILTER (WHERE {condition}) FROM t"))
        };
        let failed = engine.row_visits.during(&|_| Ok(()), &["number"], counted).unwrap_err();
        assert!(matches!(failed, LoadError::Bug(_)), "{condition}: {failed}");
    }
}
