//! When the views of the file are created, replaced and left alone.

use duckdb::Connection;

use super::*;
use crate::schema;

fn opened(path: &Path) {
    open(path).unwrap().publish().unwrap();
}

fn texts(path: &Path, sql: &str) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

fn change(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// A query that reads a view, or a macro with values of the right types.
fn called(view: &schema::View) -> String {
    let values = view.parameters.iter().filter(|parameter| !parameter.name.contains(":=")).map(|parameter| {
        match parameter.name.as_str() {
            "moment" | "earlier" | "later" => "TIMESTAMP '2026-01-01'",
            "segment" => "'browser'",
            _ => "'text'",
        }
    });
    match view.kind {
        schema::ViewKind::View => view.name.clone(),
        schema::ViewKind::Macro => format!("{}({})", view.name, values.collect::<Vec<_>>().join(", ")),
    }
}

#[test]
fn every_view_has_the_columns_that_its_header_describes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    opened(&path);
    for view in schema::views() {
        let read = called(view);
        let found = texts(&path, &format!("SELECT column_name FROM (DESCRIBE SELECT * FROM {read})"));
        texts(&path, &format!("SELECT 'none' FROM {read}"));
        let described: Vec<&str> = view.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(found, described, "{}", view.name);
        let has = |beginning: &str| view.notes.iter().any(|note| note.starts_with(beginning));
        assert!(has("One row: ") && has("Left out: "), "{}: {:?}", view.name, view.notes);
        let named = view.columns.iter().chain(&view.parameters);
        let texts = named.map(|column| &column.comment).chain([&view.comment]);
        texts.for_each(|text| assert!(text.ends_with('.') && text.len() >= 5, "{}: {text}", view.name));
    }
    let types = "SELECT DISTINCT table_name || '.' || column_name FROM duckdb_columns() \
                 WHERE NOT internal AND (data_type LIKE '%ZONE%' OR data_type IN ('HUGEINT', 'JSON') OR data_type LIKE '%STRUCT%')";
    assert_eq!(texts(&path, types), Vec::<String>::new(), "types that some readers do not know");
}

#[test]
fn an_open_file_with_current_views_is_not_written() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    opened(&path);
    let before = std::fs::read(&path).unwrap();
    opened(&path);
    assert!(before == std::fs::read(&path).unwrap() && !path.with_extension("duckdb.wal").exists());
}

#[test]
fn views_of_another_version_are_replaced_or_dropped() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    opened(&path);
    change(
        &path,
        "CREATE OR REPLACE VIEW nps_by_week AS SELECT 1 AS old;
         UPDATE _studysync SET value = 'old' WHERE key = 'view:nps_by_week';
         CREATE VIEW nps_by_year AS SELECT 1 AS old; INSERT INTO _studysync VALUES ('view:nps_by_year', 'old');
         DROP VIEW skips; DROP MACRO TABLE responses_as_of",
    );
    opened(&path);
    let columns = "SELECT comment FROM duckdb_columns() WHERE table_name = 'nps_by_week' AND column_name = 'nps'";
    assert_eq!(texts(&path, columns).len(), 1);
    assert_eq!(
        texts(&path, "SELECT view_name FROM duckdb_views() WHERE view_name IN ('nps_by_year', 'skips')"),
        ["skips"]
    );
    texts(&path, "SELECT response_group_uid FROM responses_as_of(TIMESTAMP '2026-01-01')");
    assert_eq!(texts(&path, "SELECT key FROM _studysync WHERE value = 'old'"), Vec::<String>::new());
}

#[test]
fn foreign_objects_stay_and_views_that_read_them_are_skipped() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    opened(&path);
    // A file of a version without views, in which somebody keeps a table with the name of a view.
    let views = schema::views().iter().filter(|view| view.kind == schema::ViewKind::View);
    let drops: String = views.map(|view| format!("DROP VIEW {};", view.name)).collect();
    change(
        &path,
        &format!(
            "{drops} DELETE FROM _studysync WHERE key LIKE 'view:%'; CREATE TABLE current_questions AS SELECT 7 AS theirs"
        ),
    );
    opened(&path);
    assert_eq!(texts(&path, "SELECT theirs::VARCHAR FROM current_questions"), ["7"]);
    let there = texts(&path, "SELECT view_name FROM duckdb_views() WHERE NOT internal");
    assert!(there.contains(&"nps_by_week".to_owned()), "{there:?}");
    for name in ["nps_by_week_per_question", "likert_distribution", "likert_top_two"] {
        assert!(!there.contains(&name.to_owned()), "{name} reads their table");
    }
    let before = std::fs::read(&path).unwrap();
    opened(&path);
    assert!(before == std::fs::read(&path).unwrap(), "the same, and nothing to write");
    change(&path, "DROP TABLE current_questions");
    opened(&path);
    assert_eq!(texts(&path, "SELECT count(*)::VARCHAR FROM likert_top_two"), ["0"], "and it comes when there is room");
}
