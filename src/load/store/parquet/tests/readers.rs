//! A reader during publishes sees exactly one committed state of each partition.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use duckdb::Connection;

use super::{rows::change, *};

/// Rows that exist after each commit and change in each.
const KEYS: i64 = 150;
const ROUNDS: i64 = 12;

/// Month, rows, and a sum that no mixture of two states has.
type State = (String, i64, i64);

fn states(connection: &Connection, from: &str) -> duckdb::Result<Vec<State>> {
    let sql = format!(
        "SELECT strftime(CAST(created_at AS TIMESTAMP), '%Y-%m'), count(*), sum(_row_hash)::BIGINT FROM {from} GROUP BY 1"
    );
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

fn rows_of(round: i64) -> Vec<Row> {
    let row = |key: i64| Row {
        key,
        at_us: START_US + (key % 3) * 31 * DAY_US + key,
        content: (round + 1) * 1_000_003 + key * round,
    };
    (0..KEYS).map(row).collect()
}

fn states_of(round: i64) -> Vec<State> {
    let sum = |month: i64| {
        let rows: Vec<_> = rows_of(round).into_iter().filter(|row| row.key % 3 == month).collect();
        (format!("2026-0{}", month + 1), rows.len() as i64, rows.iter().map(|row| row.content).sum())
    };
    (0..3).map(sum).collect()
}

#[test]
fn p2_readers_see_the_old_partition_or_the_new_one() {
    let root = new_folder();
    let mut store = open(&root);
    let committed: Arc<Mutex<HashSet<State>>> = Arc::default();
    let mut step = |round: i64| {
        committed.lock().unwrap().extend(states_of(round));
        let before = if round == 0 { Vec::new() } else { rows_of(round - 1) };
        commit(&mut store, &[change("responses", &before, &rows_of(round))]);
        store.publish().unwrap();
    };
    step(0);
    let is_done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (committed, is_done) = (Arc::clone(&committed), Arc::clone(&is_done));
        let glob =
            format!("read_parquet('{}/responses/**/*.parquet', hive_partitioning = true)", root.path().display());
        thread::spawn(move || {
            let connection = Connection::open_in_memory().unwrap();
            let mut seen = HashSet::new();
            while !is_done.load(Ordering::Relaxed) {
                // DuckDB lists a folder with the sizes of its files and then opens them. The query fails if a file was
                // replaced in between by one of another size.
                let Ok(states) = states(&connection, &glob) else { continue };
                assert_eq!(states.len(), 3, "a partition was missing");
                for state in states {
                    assert!(committed.lock().unwrap().contains(&state), "{state:?} was never committed");
                    seen.insert(state);
                }
            }
            seen.len()
        })
    };
    (1..ROUNDS).for_each(&mut step);
    is_done.store(true, Ordering::Relaxed);
    let seen = reader.join().unwrap();
    assert!(seen > 3, "the reader saw only {seen} states, so it proves nothing");
}
