//! Writers of one catalog at the same time.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering},
    },
    thread,
};

use arrow::util::pretty::pretty_format_batches;
use tempfile::TempDir;

use super::suite::{ducklake_in_postgres, ducklake_of_postgres, iceberg, open, postgres};
use crate::load::{
    CommitOptions, LoadError, Warehouse,
    conformance::{Answer, Kind, answer, answers_scan, day, identity, page, pages::WantedRows},
};

/// Counts a writer as ended, also if it panics.
struct Ended<'a>(&'a AtomicI64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Several writers add, change and lose records of the same keys at the same time. In the end each key has one row, the
/// newest, and the ledger has each scan once. `beside` runs again and again until the writers are done.
fn race(kind: &dyn Kind, writers: i64, nights: i64, beside: Option<&(dyn Fn() + Sync)>) {
    const KEYS: i64 = 6;
    kind.open(&identity("test")).unwrap();
    let opened: Vec<Warehouse> = (0..writers).map(|_| kind.open(&identity("test")).unwrap()).collect();
    let running = AtomicI64::new(writers);
    thread::scope(|scope| {
        if let Some(beside) = beside {
            scope.spawn(|| {
                while running.load(Ordering::Relaxed) > 0 {
                    beside()
                }
            });
        }
        for (writer, mut warehouse) in (0..).zip(opened) {
            let running = &running;
            scope.spawn(move || {
                let _ended = Ended(running);
                for night in 0..nights {
                    // Each writer has a day of its own, and all have the same keys.
                    let records: Vec<Answer> = (0..KEYS)
                        .map(|key| Answer {
                            updated_ms: Some(day(50 + night) + (writer + key) % writers),
                            ..answer(&format!("g{key}"), writer, &format!("{writer} in night {night}"))
                        })
                        .collect();
                    let scan = answers_scan(night * writers + writer, writer, writer + 1);
                    let apply = |warehouse: &mut Warehouse| {
                        warehouse.apply(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default())?;
                        warehouse.commit().map(drop)
                    };
                    while let Err(error) = apply(&mut warehouse) {
                        assert!(warehouse.can_repeat(&error).unwrap(), "{error:?}");
                    }
                }
            });
        }
    });
    let mut reader = kind.reader();
    let mut rows = |sql: &str| {
        let found = reader.query(sql, 1000).unwrap().batches;
        pretty_format_batches(&found).unwrap().to_string()
    };
    let one_each = rows("SELECT count(*) = 6 AND count(DISTINCT response_group_uid) = 6 AS ok FROM responses");
    assert!(one_each.contains("true"), "{one_each}");
    // In the last night, the record with the greatest time of a key is that of one writer.
    let newest = rows("SELECT min(epoch_ms(updated_at) % 1000) AS least FROM responses");
    assert!(newest.contains(&format!("| {} ", writers - 1)), "{newest}");
    let ledger = rows("SELECT count(*) AS scans FROM sync_windows");
    assert!(ledger.contains(&format!("| {} ", writers * nights)), "{ledger}");
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn two_writers_of_postgres_lose_nothing() {
    race(&*postgres(), 3, 4, None);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn two_writers_of_a_ducklake_lose_nothing() {
    race(&*ducklake_in_postgres(), 3, 4, None);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn the_maintenance_of_a_ducklake_loses_no_write() {
    let kind = ducklake_of_postgres(&TempDir::new().unwrap().keep());
    kind.open(&identity("test")).unwrap();
    let store = Mutex::new(open(&kind, &identity("test"), false).unwrap());
    let joined = AtomicI64::new(0);
    let join_files =
        || match store.lock().unwrap().compact_lake("0", "to_timestamp(0)", "older_than => to_timestamp(0)") {
            Ok(()) => drop(joined.fetch_add(1, Ordering::Relaxed)),
            // A writer was first.
            Err(LoadError::Conflict { .. }) => {}
            Err(error) => panic!("{error:?}"),
        };
    race(&kind, 2, 8, Some(&join_files));
    assert!(joined.into_inner() > 0);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn two_writers_of_iceberg_lose_nothing() {
    race(&*iceberg(), 3, 4, None);
}
