//! A reader that looks while publishes go on sees, in each partition, exactly one of the committed states.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use duckdb::Connection;

use super::*;

/// Rows of each partition, which stay through all commits but change every time.
const KEYS: i64 = 150;
const ROUNDS: usize = 12;

/// Month, rows, and a sum that no mixture of two states has.
type State = (String, i64, i64);

const STATE_SQL: &str = "SELECT strftime(CAST(created_at AS TIMESTAMP), '%Y-%m'), count(*), sum(_row_hash)::BIGINT";

fn states(connection: &Connection, from: &str) -> duckdb::Result<Vec<State>> {
    let mut statement = connection.prepare(&format!("{STATE_SQL} FROM {from} GROUP BY 1"))?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
}

fn everything_changes(number: usize) -> Commit {
    let mut commit = Commit::new(number);
    for key in 0..KEYS {
        let row = |hash: i64| answer(key, START_US + (key % 3) * 31 * DAY_US + key, hash);
        if number > 0 {
            commit.change("responses").deletes.push(row(0));
        }
        commit.change("responses").upserts.push(row((number as i64 + 1) * 1_000_003 + key * (number as i64)));
    }
    commit
}

#[test]
fn p2_readers_see_the_old_partition_or_the_new_one() {
    let root = new_folder();
    let mut warehouse = open(&root);
    let model = Model::new();
    let committed: Arc<Mutex<HashSet<State>>> = Arc::default();
    let mut step = |number: usize| {
        let commit = everything_changes(number);
        model.apply(&commit);
        committed.lock().unwrap().extend(states(&model.connection, "responses").unwrap());
        commit.apply(&mut warehouse).unwrap();
        warehouse.publish().unwrap();
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
                let states = states(&connection, &glob).unwrap();
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
