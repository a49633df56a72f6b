//! Random transactions, publishes, reads and reopenings give the same as a store in memory.

use proptest::prelude::*;

use super::{
    rows::{all_columns, assert_published, change},
    *,
};
use crate::{load::store::parquet::options::Limits, schema::table};

/// Times at the edges of partitions and within them.
const MOMENTS_US: [i64; 7] = [
    START_US,
    START_US + 1,
    START_US + 9 * DAY_US,
    START_US + 31 * DAY_US - 1,
    START_US + 31 * DAY_US,
    START_US + 45 * DAY_US,
    -5,
];

const TABLES: [&str; 4] = ["responses", "response_choices", "surveys", "sync_windows"];

#[derive(Clone, Debug)]
struct TableStep {
    table: &'static str,
    removed: Vec<Row>,
    added: Vec<Row>,
}

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<TableStep>),
    Commit,
    Rollback,
    Publish,
    Purge,
    Reopen,
}

fn row() -> impl Strategy<Value = Row> {
    (0..12_i64, prop::sample::select(&MOMENTS_US[..]), 0..50_i64).prop_map(|(key, at_us, content)| Row {
        key,
        at_us,
        content,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let rows = |most| prop::collection::vec(row(), 0..most);
    let table_step = (prop::sample::select(&TABLES[..]), rows(6), rows(8))
        .prop_map(|(table, removed, added)| TableStep { table, removed, added });
    prop_oneof![
        8 => prop::collection::vec(table_step, 1..4).prop_map(Step::Write),
        4 => Just(Step::Commit),
        1 => Just(Step::Rollback),
        2 => Just(Step::Publish),
        1 => Just(Step::Purge),
        2 => Just(Step::Reopen),
    ]
}

fn low_limits(limits: Limits) -> Limits {
    Limits { open_runs_max: 2, removed_keys_max: 2, sort_bytes_max: 1, cached_rows_max: 4, ..limits }
}

struct Pair {
    root: TempDir,
    options: ParquetOptions,
    has_low_limits: bool,
    store: ParquetStore,
    shelf: Shelf,
    memory: MemoryStore,
}

impl Pair {
    fn new(options: ParquetOptions, has_low_limits: bool) -> Self {
        let (root, shelf) = (new_folder(), Shelf::default());
        let (store, memory) = (open_with(root.path(), &options), MemoryStore::open(&shelf));
        let mut pair = Self { root, options, has_low_limits, store, shelf, memory };
        pair.limit();
        pair
    }

    fn limit(&mut self) {
        if self.has_low_limits {
            self.store.limits = low_limits(self.store.limits);
            self.store.cache = super::super::partition_cache::PartitionCache::new(self.store.limits.cached_rows_max);
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Write(steps) => {
                let changes: Vec<_> = steps.iter().map(|step| change(step.table, &step.removed, &step.added)).collect();
                self.store.write(&changes).unwrap();
                self.memory.write(&changes).unwrap();
            }
            Step::Commit => {
                self.store.commit("random").unwrap();
                self.memory.commit("random").unwrap();
            }
            Step::Rollback => {
                self.store.rollback();
                self.memory.rollback();
            }
            Step::Publish | Step::Purge => {
                match step {
                    Step::Publish => self.store.publish().unwrap(),
                    _ => self.store.purge_removed_bytes().unwrap(),
                }
                assert_published(self.root.path(), self.options.partition_by, &self.shelf, "published");
            }
            Step::Reopen => {
                self.memory.rollback();
                // The lock of the old store must be released first.
                let elsewhere = new_folder();
                self.store = open_with(elsewhere.path(), &self.options);
                self.store = open_with(self.root.path(), &self.options);
                self.limit();
            }
        }
    }

    fn assert_reads_equal(&mut self, context: &str) {
        let keys = [Row { key: 3, at_us: START_US, content: 0 }, Row { key: 4, at_us: START_US + 1, content: 0 }];
        let range = |start_us, end_us| Some(TimeRange { start_us, end_us });
        let window = range(START_US + 1, START_US + 40 * DAY_US);
        for name in TABLES {
            let table = table(name).unwrap();
            let by_key = KeySet::of(vec![table.key[0].as_str()], &[batch(table, &keys)]).unwrap();
            let narrow: Vec<_> = table.key.iter().map(String::as_str).chain(["_synced_at"]).collect();
            let filters = [
                (all_columns(name), Filter::all()),
                (narrow.clone(), Filter::within(range(START_US, START_US + DAY_US))),
                (narrow, Filter::within(window)),
                (vec!["_synced_at", "_run_id"], Filter::within(window).with_keys(&by_key)),
                (all_columns(name), Filter::all().with_keys(&by_key)),
            ];
            for (columns, filter) in filters {
                let expected = contents(&mut self.memory, name, &columns, &filter);
                let found = contents(&mut self.store, name, &columns, &filter);
                assert_eq!(found, expected, "{context}: {name} {:?}", filter.range);
            }
        }
    }
}

fn give_what_a_store_in_memory_gives(cases: u32, steps: usize) {
    let options = (any::<bool>(), 1..3_u32).prop_map(|(by_day, threads)| ParquetOptions {
        partition_by: if by_day { PartitionBy::Day } else { PartitionBy::Month },
        threads,
        ..options()
    });
    let steps = prop::collection::vec(step(), 1..steps);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
    proptest!(config, |(options in options, has_low_limits in any::<bool>(), steps in steps)| {
        let mut pair = Pair::new(options, has_low_limits);
        for (at, step) in steps.iter().enumerate() {
            pair.take(step);
            pair.assert_reads_equal(&format!("after step {at}, {step:?}"));
        }
        pair.store.rollback();
        pair.store.publish().unwrap();
        assert_published(pair.root.path(), pair.options.partition_by, &pair.shelf, "at the end");
    });
}

#[test]
fn p2_random_transactions_match_a_store_in_memory() {
    give_what_a_store_in_memory_gives(6, 16);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_more_random_transactions_match_a_store_in_memory() {
    give_what_a_store_in_memory_gives(100, 40);
}
