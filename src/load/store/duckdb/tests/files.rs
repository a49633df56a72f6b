//! Which files count as a warehouse, and how an older one gets new columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use duckdb::Connection;

use super::{super::names::qualified, *};
use crate::{
    load::{
        Applied, CommitOptions, VanishPolicy,
        conformance::{Lab, answer, answers_scan, page},
        store::{Store as _, TableChange},
    },
    schema::table,
};

/// Applies a scan of one answer.
fn load(warehouse: &mut Warehouse) -> Result<Applied, LoadError> {
    let pages = [page(&[answer("a", 0, "x")])];
    warehouse.apply_and_commit(&answers_scan(0, 0, 1), &pages.as_slice(), &CommitOptions::default())
}

fn create(path: &Path) {
    open(path).unwrap().publish().unwrap();
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("notes.txt");
    let text = "not a database, but long enough to be looked at. ".repeat(1000);
    std::fs::write(&path, &text).unwrap();
    assert!(matches!(open(&path), Err(LoadError::NotOurs { .. })));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn p2_a_new_file_is_never_there_in_part() {
    let folder = TempDir::new().unwrap();
    let (done, is_done) = (std::sync::atomic::AtomicBool::new(false), std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|scope| {
        for nth in 0..5 {
            let path = folder.path().join(format!("{nth}.duckdb"));
            done.store(false, is_done);
            let watch = scope.spawn({
                let (done, path) = (&done, path.clone());
                move || {
                    let mut sizes = std::collections::BTreeSet::new();
                    while !done.load(is_done) {
                        sizes.extend(path.metadata().map(|file| file.len()));
                    }
                    sizes
                }
            });
            drop(open(&path).unwrap());
            done.store(true, is_done);
            // The head of a DuckDB file.
            assert!(watch.join().unwrap().iter().all(|bytes| *bytes >= 12_288), "{nth}");
        }
    });
    // The leftover of a kill, with a log.
    for rest in ["w.duckdb.new", "w.duckdb.new.wal", "w.duckdb.wal"] {
        std::fs::write(folder.path().join(rest), b"DUCK").unwrap();
    }
    create(&folder.path().join("w.duckdb"));
    assert!(!folder.path().join("w.duckdb.new").exists() && !folder.path().join("w.duckdb.new.wal").exists());
}

#[test]
fn a_database_of_someone_else_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("theirs.duckdb");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE responses AS SELECT 1 AS theirs").unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(open(&path), Err(LoadError::NotOurs { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn tables_and_views_beside_ours_are_welcome() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    create(&path);
    let theirs =
        "CREATE TABLE notes AS SELECT 1 AS x; CREATE VIEW live AS SELECT * FROM responses WHERE deleted_at IS NULL";
    Connection::open(&path).unwrap().execute_batch(theirs).unwrap();
    let mut warehouse = open(&path).unwrap();
    load(&mut warehouse).unwrap();
    warehouse.publish().unwrap();
    let mut reader = Reader::open(&WarehouseKind::DuckDb.at(&path)).unwrap();
    assert_eq!(reader.query("SELECT * FROM live, notes", 10).unwrap().rows(), 1);
}

#[test]
fn a_newer_layout_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    create(&path);
    let newer = "UPDATE _studysync SET value = '99' WHERE key = 'format_version'";
    Connection::open(&path).unwrap().execute_batch(newer).unwrap();
    match open(&path).err() {
        Some(LoadError::Newer { found, .. }) => assert_eq!(found, "format 99"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn new_columns_and_tables_are_added_to_an_older_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    create(&path);
    let older = "ALTER TABLE responses DROP COLUMN extra; DROP TABLE rejects; INSERT INTO surveys (id, _row_hash, _first_seen_at, _run_id, _synced_at) VALUES (1, 1, now()::TIMESTAMP, 'r', now()::TIMESTAMP)";
    Connection::open(&path).unwrap().execute_batch(older).unwrap();
    create(&path);
    let mut reader = Reader::open(&WarehouseKind::DuckDb.at(&path)).unwrap();
    let count = |reader: &mut Reader, sql: &str| reader.query(sql, 10).unwrap().rows();
    let added = "SELECT 1 FROM duckdb_columns() WHERE table_name = 'responses' AND column_name = 'extra' AND comment LIKE 'JSON object%'";
    assert_eq!(count(&mut reader, added), 1);
    assert_eq!(count(&mut reader, "SELECT raw FROM rejects"), 0);
    assert_eq!(count(&mut reader, "FROM surveys"), 1, "what was there stays");
}

#[test]
fn a_new_file_has_storage_version_1_4_and_an_older_one_stays() {
    let folder = TempDir::new().unwrap();
    let version = |path: &Path| -> String {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&format!("ATTACH '{}' AS w (READ_ONLY)", path.display())).unwrap();
        let sql = "SELECT tags['storage_version'] FROM duckdb_databases() WHERE database_name = 'w'";
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let path = folder.path().join("w.duckdb");
    create(&path);
    assert_eq!(version(&path), "v1.4.0+");

    let older = folder.path().join("older.duckdb");
    let copy = format!(
        "ATTACH '{}' AS w; ATTACH '{}' AS older (STORAGE_VERSION 'v1.0.0'); COPY FROM DATABASE w TO older",
        path.display(),
        older.display()
    );
    Connection::open_in_memory().unwrap().execute_batch(&copy).unwrap();
    let mut warehouse = open(&older).unwrap();
    assert_eq!(load(&mut warehouse).unwrap().counts.inserted, 1);
    warehouse.publish().unwrap();
    assert_eq!(version(&older), "v1.0.0+");
    // An erasure makes a new file.
    warehouse.erase_people(&[]).unwrap();
    warehouse.publish().unwrap();
    assert_eq!(version(&older), "v1.4.0+");
}

#[test]
fn a_column_of_another_type_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    create(&path);
    let changed = "ALTER TABLE responses ALTER COLUMN survey_id TYPE VARCHAR";
    Connection::open(&path).unwrap().execute_batch(changed).unwrap();
    let to_compare = DuckDbStore::open_to_compare(&path, &identity("test"), &options(folder.path()));
    for refused in [open(&path).err(), to_compare.err()] {
        match refused {
            Some(LoadError::NotOurs { why, .. }) => assert_eq!(why, "responses.survey_id is VARCHAR and not BIGINT"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_table_and_column_carries_its_comment() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    create(&path);
    let mut reader = Reader::open(&WarehouseKind::DuckDb.at(&path)).unwrap();
    let silent = "SELECT table_name, column_name FROM duckdb_columns() WHERE comment IS NULL AND table_name <> '_studysync' AND NOT internal
        UNION ALL SELECT table_name, NULL FROM duckdb_tables() WHERE comment IS NULL";
    assert_eq!(reader.query(silent, 10).unwrap().rows(), 0);
}

#[test]
fn p2_an_error_half_way_rolls_back_what_was_done() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    let mut store = open_store(&path, &identity("test"), &options(folder.path())).unwrap();
    // The second statement fails while it is bound, which alone does not end the transaction.
    let events = table("user_events").unwrap();
    let broken = format!("ALTER TABLE {} RENAME TO elsewhere", qualified("user_events"));
    let mut first = TableChange::new(table("surveys").unwrap());
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values([7]));
    let row = RecordBatch::try_from_iter([("id", Arc::clone(&ids)), ("_row_hash", ids)]).unwrap();
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(["run"]));
    let moments: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values([0]));
    let filled = RecordBatch::try_from_iter([
        ("id", Arc::clone(row.column(0))),
        ("_row_hash", Arc::clone(row.column(1))),
        ("_first_seen_at", Arc::clone(&moments)),
        ("_run_id", Arc::clone(&texts)),
        ("_synced_at", moments),
    ]);
    first.add(filled.unwrap());
    let mut second = TableChange::new(events);
    second.add(RecordBatch::try_from_iter([("external_user_id", texts)]).unwrap());
    store.write(std::slice::from_ref(&first)).unwrap();
    store.engine.execute("break it", &broken).unwrap();
    let error = store.write(&[second]).unwrap_err();
    assert!(matches!(error, LoadError::Engine { .. }), "{error:?}");
    store.rollback();
    store.commit("nothing").unwrap();
    store.publish().unwrap();
    let mut reader = Reader::open(&WarehouseKind::DuckDb.at(&path)).unwrap();
    assert_eq!(reader.query("SELECT 1 FROM surveys", 10).unwrap().rows(), 0);
    assert_eq!(reader.query("FROM user_events", 10).unwrap().rows(), 0);
}

#[test]
fn p2_uncommitted_scans_are_lost_together() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    let apply = |warehouse: &mut Warehouse, day: i64| {
        let pages = [page(&[answer(&format!("g{day}"), day, "x")])];
        warehouse.apply(&answers_scan(day, day, day + 1), &pages.as_slice(), &CommitOptions::default()).unwrap();
    };
    let scans = |warehouse: &mut Warehouse| warehouse.ledger().unwrap().len();
    let mut warehouse = open(&path).unwrap();
    apply(&mut warehouse, 0);
    warehouse.commit().unwrap();
    apply(&mut warehouse, 1);
    apply(&mut warehouse, 2);
    // The process ends.
    drop(warehouse);
    let mut warehouse = open(&path).unwrap();
    assert_eq!(scans(&mut warehouse), 1);
    // A page of another scan fails: the scans applied before it are rolled back, and nobody may believe them.
    apply(&mut warehouse, 1);
    let mut bad = page(&[answer("bad", 2, "x")]);
    bad.key_hashes.clear();
    assert!(warehouse.apply(&answers_scan(2, 2, 3), &[bad].as_slice(), &CommitOptions::default()).is_err());
    assert!(warehouse.commit().is_err());
    assert_eq!(scans(&mut warehouse), 1);
    // The run continues, and a read of the ledger commits.
    apply(&mut warehouse, 1);
    apply(&mut warehouse, 2);
    assert_eq!(scans(&mut warehouse), 3);
    drop(warehouse);
    let mut warehouse = open(&path).unwrap();
    assert_eq!(scans(&mut warehouse), 3);
}

#[test]
fn a_scan_waits_while_someone_reads_the_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    create(&path);
    let mut warehouse = open(&path).unwrap();
    warehouse.publish().unwrap();
    let reader = Reader::open(&WarehouseKind::DuckDb.at(&path)).unwrap();
    assert!(matches!(load(&mut warehouse), Err(LoadError::Locked { .. })));
    drop(reader);
    assert_eq!(load(&mut warehouse).unwrap().counts.inserted, 1);
    // The file is open for writing until it is published.
    assert!(matches!(Reader::open(&WarehouseKind::DuckDb.at(&path)), Err(LoadError::Locked { .. })));
    warehouse.publish().unwrap();
    Reader::open(&WarehouseKind::DuckDb.at(&path)).unwrap();
}

#[test]
fn a_failed_transaction_does_not_end_the_run() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    create(&path);
    // An unknown column that cannot be NULL: adding rows fails.
    let breaking = "CREATE OR REPLACE TABLE responses AS SELECT *, 1 AS theirs FROM responses;
        ALTER TABLE responses ALTER COLUMN theirs SET NOT NULL";
    Connection::open(&path).unwrap().execute_batch(breaking).unwrap();
    let mut warehouse = open(&path).unwrap();
    assert!(matches!(load(&mut warehouse), Err(LoadError::Engine { .. })));
    assert!(!warehouse.has_applied(&answers_scan(0, 0, 1).id).unwrap());
    warehouse.publish().unwrap();
    let mending = "ALTER TABLE responses ALTER COLUMN theirs DROP NOT NULL";
    Connection::open(&path).unwrap().execute_batch(mending).unwrap();
    assert_eq!(load(&mut warehouse).unwrap().counts.inserted, 1);
}

#[test]
fn p2_a_scan_merges_duplicate_stored_rows() {
    let mut lab = Lab::new(file());
    let found = [page(&[answer("a", 0, "x"), answer("b", 0, "y")])];
    lab.apply(&answers_scan(0, 0, 1), &found);
    lab.warehouse = None;
    let connection = Connection::open(lab.kind.root().join("data/warehouse.duckdb")).unwrap();
    connection.execute_batch("INSERT INTO responses SELECT * FROM responses WHERE response_group_uid = 'a'").unwrap();
    drop(connection);
    lab.reopen();
    assert_eq!(lab.count("SELECT count(*) FROM responses"), 3);
    lab.apply(&answers_scan(1, 0, 1), &found);
    assert_eq!(lab.rows("SELECT response_group_uid FROM responses ORDER BY ALL"), ["a", "b"]);
}

#[test]
fn small_row_groups_of_many_commits_are_merged() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    let mut warehouse = open(&path).unwrap();
    let options = CommitOptions { vanish: VanishPolicy::Ignore, ..CommitOptions::default() };
    for night in 0..40 {
        let pages = [page(&[answer(&format!("g{night}"), 0, "x")])];
        warehouse.apply_and_commit(&answers_scan(night, 0, 1), &pages.as_slice(), &options).unwrap();
    }
    drop(warehouse);
    let connection = Connection::open(&path).unwrap();
    let count = |sql: &str| connection.query_row::<i64, _, _>(sql, [], |row| row.get(0)).unwrap();
    for table in ["responses", "sync_windows"] {
        let sql = format!("SELECT count(DISTINCT row_group_id) FROM pragma_storage_info('{table}')");
        assert!((1..=18).contains(&count(&sql)), "{} row groups of {table}", count(&sql));
        assert_eq!(count(&format!("SELECT count(*) FROM {table}")), 40);
    }
    assert!(path.metadata().unwrap().len() < 40 << 20, "{} bytes", path.metadata().unwrap().len());
}
