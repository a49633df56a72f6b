//! Publish gives what the same transactions would have given, however commits and publishes follow each other.

use std::collections::BTreeMap;

use duckdb::Connection;

use super::{model::tree_sql, relation::Sources, *};
use crate::{
    load::{Targets, TimeBounds},
    model::RunId,
};

#[test]
fn random_commits_and_publishes_give_what_transactions_would_give() {
    give_what_transactions_would_give(2);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_more_random_commits_and_publishes_give_what_transactions_would_give() {
    give_what_transactions_would_give(4);
}

fn give_what_transactions_would_give(seeds: u64) {
    for seed in 0..seeds {
        let (root, model, mut scenario) = (new_folder(), Model::new(), Scenario::new(seed, 100));
        let mut warehouse = open_with_slices(&root, seed);
        for at in 0..10 {
            let commit = scenario.next();
            assert!(commit.apply(&mut warehouse).unwrap());
            model.apply(&commit);
            assert_targets_equal(&mut warehouse, &model);
            match scenario.below(4) {
                0 => {
                    warehouse.publish().unwrap();
                    model.assert_equals_tree(root.path(), &format!("seed {seed}, commit {at}"));
                }
                1 => {
                    drop(warehouse);
                    warehouse = open_with_slices(&root, seed);
                }
                _ => {}
            }
        }
        warehouse.publish().unwrap();
        model.assert_equals_tree(root.path(), &format!("seed {seed}"));
        let scans: i64 = model.connection.query_row("SELECT count(*) FROM sync_windows", [], |row| row.get(0)).unwrap();
        assert_eq!(warehouse.ledger().unwrap().len() as i64, scans);
    }
}

/// Every other warehouse sorts its rows in slices of a few; every other pair merges partitions side by side.
fn open_with_slices(root: &TempDir, seed: u64) -> ParquetDestination {
    let mut warehouse = open_with(root, if seed % 4 < 2 { 1 } else { 2 });
    if seed % 2 == 1 {
        warehouse.sort_limits = SortLimits { rows_unweighed: 0, slice_bytes_max: 2500, gathered_bytes_max: 0 };
    }
    warehouse
}

/// The comparison sees what is committed, published or not, whatever the bounds.
fn assert_targets_equal(warehouse: &mut ParquetDestination, model: &Model) {
    let all = TimeBounds { start_us: i64::MIN, end_us: i64::MAX };
    let some = TimeBounds { start_us: START_US + 20 * DAY_US + 5, end_us: START_US + 50 * DAY_US };
    for name in ["responses", "response_choices", "surveys", "sync_windows"] {
        let table = table(name).unwrap();
        for bounds in [None, Some(all), Some(some)] {
            let condition = match (bounds, &table.partition) {
                (Some(bounds), Some(column)) => bounds.condition(column),
                _ => "true".to_owned(),
            };
            let relation = warehouse.targets().relation(table, bounds).unwrap();
            let (key, hash) = (&table.key[0], "hash(r) % 1000000007");
            let sql = |from: &str| {
                format!(
                    "SELECT count(*), coalesce(sum({hash}), 0)::BIGINT, max({key})::VARCHAR FROM {from} AS r WHERE {condition}"
                )
            };
            type Sums = (i64, i64, Option<String>);
            let sums = |connection: &Connection, from: &str| -> Sums {
                let read = |row: &duckdb::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
                connection.query_row(&sql(from), [], read).unwrap()
            };
            assert_eq!(
                sums(warehouse.engine.connection(), &relation),
                sums(&model.connection, name),
                "{name} {bounds:?}"
            );
        }
    }
}

#[test]
fn publish_with_nothing_waiting_touches_nothing() {
    let root = new_folder();
    let mut warehouse = open(&root);
    let mut scenario = Scenario::new(1, 100);
    scenario.next().apply(&mut warehouse).unwrap();
    warehouse.publish().unwrap();
    let before = stamps(root.path());
    assert!(!warehouse.wants_publish());
    warehouse.publish().unwrap();
    drop(warehouse);
    open(&root).publish().unwrap();
    assert_eq!(stamps(root.path()), before);
}

#[test]
fn publish_rewrites_the_touched_partitions_and_the_ledger_only() {
    let root = new_folder();
    let mut warehouse = open(&root);
    let put = |number: usize, key: i64, day: i64| {
        let mut commit = Commit::new(number);
        commit.change("responses").upserts.push(answer(key, START_US + day * DAY_US, 1));
        commit
    };
    put(0, 1, 3).apply(&mut warehouse).unwrap();
    put(1, 2, 40).apply(&mut warehouse).unwrap();
    warehouse.publish().unwrap();
    let before = stamps(root.path());
    put(2, 3, 41).apply(&mut warehouse).unwrap();
    warehouse.publish().unwrap();
    let after = stamps(root.path());
    let changed: Vec<&str> = after
        .iter()
        .filter(|(path, stamp)| before.get(*path) != Some(stamp))
        .map(|(path, _)| path.strip_prefix(root.path().canonicalize().unwrap()).unwrap().to_str().unwrap())
        .collect();
    assert_eq!(changed, ["responses/created_month=2026-02-01/data.parquet", "sync_windows/data.parquet"]);
}

/// Inode and time of each file that readers see: a rewritten file has another inode.
fn stamps(root: &Path) -> BTreeMap<PathBuf, (u64, std::time::SystemTime)> {
    use std::os::unix::fs::MetadataExt;
    let root = root.canonicalize().unwrap();
    let files = crate::schema::tables().iter().flat_map(|table| data_files(&root.join(&table.name)));
    files
        .map(|path| {
            let metadata = path.metadata().unwrap();
            (path, (metadata.ino(), metadata.modified().unwrap()))
        })
        .collect()
}

#[test]
fn a_partition_whose_last_row_goes_has_no_file() {
    let root = new_folder();
    let mut warehouse = open(&root);
    let row = answer(1, START_US, 1);
    let mut commit = Commit::new(0);
    commit.change("responses").upserts.push(row.clone());
    commit.apply(&mut warehouse).unwrap();
    warehouse.publish().unwrap();
    assert_eq!(data_files(&root.path().join("responses")).len(), 1);
    let mut commit = Commit::new(1);
    commit.change("responses").deletes.push(row);
    commit.apply(&mut warehouse).unwrap();
    warehouse.publish().unwrap();
    assert_eq!(data_files(&root.path().join("responses")).len(), 0);
}

#[test]
fn a_run_is_recorded_once_however_often_it_is_recorded() {
    let root = new_folder();
    let mut warehouse = open(&root);
    let mut run = RunRecord {
        run_id: RunId("run-1".into()),
        command: "sync".into(),
        outcome: "interrupted".into(),
        exit_code: 130,
        started_ms: 5,
        finished_ms: 6,
        base_url: "https://feedback.example".into(),
        environment: "it's".into(),
        program_version: "0.1.0".into(),
        report: r#"{"quote":"'\u0000"}"#.into(),
    };
    warehouse.record_run(&run).unwrap();
    warehouse.publish().unwrap();
    run.outcome = "done".into();
    warehouse.record_run(&run).unwrap();
    warehouse.record_run(&run).unwrap();
    warehouse.publish().unwrap();
    let sql = format!("{} ", tree_sql(root.path(), table("sync_runs").unwrap()));
    let model = Model::new();
    let rows: Vec<(String, String, String)> = model
        .connection
        .prepare(&sql)
        .unwrap()
        .query_map([], |row| Ok((row.get(2)?, row.get(7)?, row.get(9)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(rows, [("done".into(), "it's".into(), run.report)]);
}

#[test]
fn too_many_parts_or_too_large_ones_ask_for_publish() {
    let root = new_folder();
    let mut warehouse = open(&root);
    Scenario::new(1, 100).next().apply(&mut warehouse).unwrap();
    assert!(!warehouse.wants_publish());
    let part = warehouse.waiting[0].clone();
    assert!(part.bytes > 0);
    warehouse.waiting[0].bytes = WAITING_BYTES_MAX;
    assert!(warehouse.wants_publish());
    warehouse.waiting = vec![part; WAITING_PARTS_MAX];
    assert!(warehouse.wants_publish());
    warehouse.waiting.pop();
    assert!(!warehouse.wants_publish());
}

#[test]
fn reading_within_bounds_opens_what_can_hold_them_and_prunes_by_them() {
    let root = new_folder();
    let mut warehouse = open(&root);
    let put = |number: usize, day: i64| {
        let mut commit = Commit::new(number);
        commit.change("responses").upserts.push(answer(day, START_US + day * DAY_US, 1));
        commit.change("responses").deletes.push(answer(-1, START_US + day * DAY_US, 1));
        commit
    };
    for (number, day) in [0, 31, 59].into_iter().enumerate() {
        put(number, day).apply(&mut warehouse).unwrap();
    }
    warehouse.publish().unwrap();
    for (number, day) in [1, 32, 60].into_iter().enumerate() {
        put(number + 3, day).apply(&mut warehouse).unwrap();
    }
    let bounds = TimeBounds { start_us: START_US + 32 * DAY_US, end_us: START_US + 33 * DAY_US };
    let relation = warehouse.targets().relation(table("responses").unwrap(), Some(bounds)).unwrap();
    let files: Vec<&str> = relation.split('\'').filter(|text| text.ends_with(".parquet")).collect();
    let names: Vec<String> =
        files.iter().map(|file| file.split('/').rev().take(2).collect::<Vec<_>>().join(" of ")).collect();
    assert_eq!(
        names,
        [
            "data.parquet of created_month=2026-02-01",
            "responses.upsert.parquet of 000000000005-scan-0004",
            "responses.delete.parquet of 000000000005-scan-0004",
        ]
    );
    // The file's statistics alone say that it holds nothing within the bounds, so it is not read.
    let explain = format!("EXPLAIN SELECT count(*) FROM {relation}");
    let plan: String = warehouse.engine.connection().query_row(&explain, [], |row| row.get(1)).unwrap();
    assert!(plan.contains("EMPTY_RESULT") && plan.contains("HASH_JOIN"), "{plan}");
    assert_eq!(plan.matches("Function:").count(), 2, "{plan}");
}

#[test]
fn p8_slices_give_the_same_file_as_sorting_all_at_once() {
    let root = new_folder();
    let mut warehouse = open(&root);
    let mut rewrite = |number: usize, slice_bytes_max: u64| {
        warehouse.sort_limits = SortLimits { rows_unweighed: 0, slice_bytes_max, gathered_bytes_max: 0 };
        let mut commit = Commit::new(number);
        for key in 0..200 {
            // Several rows an hour, every fifth without a survey, and many at one moment.
            let row = answer(key, START_US + (key % 37) * 1_200_000_000, key);
            if number > 0 {
                commit.change("responses").deletes.push(row.clone());
            }
            commit.change("responses").upserts.push(row);
        }
        commit.apply(&mut warehouse).unwrap();
        let responses = table("responses").unwrap();
        let sources = Sources::new(responses, None, &[], &warehouse.waiting);
        let slices = slices::selects(&warehouse.engine, responses, &sources, warehouse.sort_limits).unwrap().len();
        warehouse.publish().unwrap();
        (slices, order_in_file(root.path()))
    };
    let (whole, expected) = rewrite(0, u64::MAX);
    assert_eq!((whole, expected.len()), (1, 200));
    for (number, slice_bytes_max) in [(1, 1), (2, 3000), (3, 40_000)] {
        let (slices, order) = rewrite(number, slice_bytes_max);
        assert!(slices > 2, "{slices} slices of {slice_bytes_max} bytes");
        assert!(order == expected, "{slice_bytes_max} bytes a slice");
    }
}

/// Hashes of the answers in the order in which they stand in the file.
fn order_in_file(root: &Path) -> Vec<i64> {
    let file = root.join("responses/created_month=2026-01-01/data.parquet");
    let connection = Connection::open_in_memory().unwrap();
    let sql = format!(
        "SELECT _row_hash FROM read_parquet('{}', file_row_number = true) ORDER BY file_row_number",
        file.display()
    );
    let mut statement = connection.prepare(&sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn p8_little_memory_means_fewer_threads() {
    let threads = |memory_mib: u64, threads: u32| {
        ParquetOptions { memory_limit_bytes: memory_mib << 20, threads, ..options() }.threads_for_memory()
    };
    assert_eq!([threads(1024, 2), threads(1024, 8), threads(300, 2), threads(1, 2), threads(1024, 0)], [2, 4, 1, 1, 1]);
}
