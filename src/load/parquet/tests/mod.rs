//! A warehouse under random commits, kills and readers, held against a model: the same commits as transactions in DuckDB.

mod kills;
mod layout;
mod publish;
mod readers;
mod suite;

use std::{collections::BTreeMap, path::Path};

use duckdb::Connection;
use tempfile::TempDir;

use super::*;
use crate::{
    load::DeltaRows,
    model::{FlagSet, RunId, Scope, Stream, Window},
    schema::{ColumnType, quote_identifier},
};

const DAY_US: i64 = 86_400_000_000;
/// 2026-01-01.
const START_US: i64 = 1_767_225_600_000_000;

fn identity() -> Identity {
    Identity { base_url: "https://feedback.example".into(), environment: "production".into() }
}

fn options() -> ParquetOptions {
    ParquetOptions { memory_limit_bytes: 256 << 20, threads: 1, ..ParquetOptions::default() }
}

/// Values of some columns of a row as SQL; the others get NULL, or a value that says nothing where NULL is not allowed.
type Values = Vec<(&'static str, String)>;

/// What a commit does to one table.
#[derive(Clone, Debug, Default)]
struct Change {
    deletes: Vec<Values>,
    upserts: Vec<Values>,
}

/// One commit, with the scan that it stands for.
#[derive(Clone, Debug)]
struct Commit {
    scan: Scan,
    changes: BTreeMap<&'static str, Change>,
}

impl Commit {
    fn new(number: usize) -> Self {
        let scan = Scan {
            id: ScanId(format!("scan-{number:04}")),
            run_id: RunId("run".into()),
            scope: Scope::all(Stream::Responses),
            window: Window::new(0, 1),
            flags: FlagSet::EMPTY,
            started_ms: START_US / 1000,
        };
        let ledger = vec![("scan_id", format!("'{}'", scan.id)), ("stream", "'responses'".to_owned())];
        let changes = [("sync_windows", Change { deletes: Vec::new(), upserts: vec![ledger] })].into();
        Self { scan, changes }
    }

    fn change(&mut self, table: &'static str) -> &mut Change {
        self.changes.entry(table).or_default()
    }

    /// Makes the relations of the commit in schema `delta`.
    fn deltas(&self, connection: &Connection) -> Vec<TableDelta> {
        let mut deltas = Vec::new();
        for (name, change) in &self.changes {
            let table = table(name).unwrap();
            let columns: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
            let upserts = relation(connection, table, "upsert", &columns, &change.upserts);
            let named = TableDelta { table, upserts, deletes: None };
            let deletes = relation(connection, table, "delete", &named.delete_columns(), &change.deletes);
            deltas.push(TableDelta { deletes, ..named });
        }
        deltas
    }

    fn apply(&self, warehouse: &mut ParquetDestination) -> Result<bool, LoadError> {
        if warehouse.holds(&self.scan.id)? {
            return Ok(false);
        }
        let deltas = self.deltas(warehouse.engine.connection());
        let counts = RowCounts { rows_read: 7, ..RowCounts::default() };
        warehouse.commit_part(&self.scan.id.0, Some(&self.scan), counts, &deltas).map(|()| true)
    }
}

fn relation(
    connection: &Connection,
    table: &'static Table,
    prefix: &str,
    columns: &[&str],
    rows: &[Values],
) -> Option<DeltaRows> {
    if rows.is_empty() {
        return None;
    }
    let value = |row: &Values, name: &str| {
        let column = table.column(name).unwrap();
        let given = row.iter().find(|(given, _)| *given == name).map(|(_, value)| value.clone());
        let empty = match column.column_type {
            _ if column.nullable => "NULL",
            ColumnType::Text | ColumnType::Json => "'x'",
            ColumnType::Bigint | ColumnType::Double => "0",
            ColumnType::Boolean => "false",
            ColumnType::Timestamp => "TIMESTAMP '2026-01-01'",
            ColumnType::BigintList => "[]",
        };
        let value = given.unwrap_or_else(|| empty.to_owned());
        format!("CAST({value} AS {}) AS {}", column.column_type.duckdb(), quote_identifier(name))
    };
    let selects = rows.iter().map(|row| {
        let list: Vec<String> = columns.iter().map(|name| value(row, name)).collect();
        format!("SELECT {}", list.join(", "))
    });
    let relation = format!("delta.{prefix}_{}", table.name);
    let selects: Vec<String> = selects.collect();
    connection
        .execute_batch(&format!("CREATE OR REPLACE TABLE {relation} AS {}", selects.join(" UNION ALL ")))
        .unwrap();
    let bounds = table.partition.as_ref().map(|column| {
        let sql = format!("SELECT epoch_us(min({column})), epoch_us(max({column})) FROM {relation}");
        connection
            .query_row(&sql, [], |row| Ok(TimeBounds { start_us: row.get(0)?, end_us: row.get::<_, i64>(1)? + 1 }))
            .unwrap()
    });
    Some(DeltaRows { relation, rows: rows.len() as u64, bounds })
}

/// What the warehouse must hold: the same commits applied to DuckDB tables.
struct Model {
    connection: Connection,
}

impl Model {
    fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE SCHEMA delta; SET TimeZone = 'UTC'").unwrap();
        for table in crate::schema::tables() {
            connection.execute_batch(&table.create_sql()).unwrap();
        }
        Self { connection }
    }

    fn apply(&self, commit: &Commit) {
        for delta in commit.deltas(&self.connection) {
            let name = &delta.table.name;
            if let Some(rows) = &delta.deletes {
                let columns = delta.delete_columns();
                let equal: Vec<String> = columns.iter().map(|column| format!("t.{column} = d.{column}")).collect();
                let sql = format!("DELETE FROM {name} AS t USING {} AS d WHERE {}", rows.relation, equal.join(" AND "));
                self.connection.execute_batch(&sql).unwrap();
            }
            if let Some(rows) = &delta.upserts {
                self.connection.execute_batch(&format!("INSERT INTO {name} FROM {}", rows.relation)).unwrap();
            }
        }
    }

    /// These tables of the tree have the rows of the model, no more and no fewer, each in its partition.
    fn assert_equals_tables(&self, root: &Path, tables: &[&Table], context: &str) {
        for table in tables {
            let there = tree_sql(root, table);
            let held = format!("SELECT {} FROM {}", plain_columns(table), table.name);
            for (one, other) in [(&held, &there), (&there, &held)] {
                let sql = format!("SELECT count(*) FROM ({one} EXCEPT ALL {other})");
                let count: i64 = self.connection.query_row(&sql, [], |row| row.get(0)).unwrap();
                assert_eq!(count, 0, "{context}: {} differs: {one} EXCEPT ALL {other}", table.name);
            }
            assert_partitions_fit(&self.connection, root, table);
        }
    }

    /// The same for every table.
    fn assert_equals_tree(&self, root: &Path, context: &str) {
        self.assert_equals_tables(root, &crate::schema::tables().iter().collect::<Vec<_>>(), context);
    }
}

fn plain_columns(table: &Table) -> String {
    let column = |column: &crate::schema::Column| {
        format!("CAST({} AS {})", quote_identifier(&column.name), column.column_type.duckdb())
    };
    table.columns.iter().map(column).collect::<Vec<_>>().join(", ")
}

/// What a reader of the table's folder sees, in plain types.
fn tree_sql(root: &Path, table: &Table) -> String {
    match data_files(&root.join(&table.name)).is_empty() {
        true => format!("SELECT {} FROM {} WHERE false", plain_columns(table), table.name),
        false => format!(
            "SELECT {} FROM read_parquet('{}/{}/**/*.parquet', hive_partitioning = false)",
            plain_columns(table),
            root.display(),
            table.name
        ),
    }
}

fn assert_partitions_fit(connection: &Connection, root: &Path, table: &Table) {
    let Some(column) = &table.partition else { return };
    let sql = format!(
        "SELECT count(*) FROM read_parquet('{}/{}/**/*.parquet', hive_partitioning = true) \
         WHERE created_month <> CAST(date_trunc('month', {column}) AS DATE)",
        root.display(),
        table.name
    );
    if !data_files(&root.join(&table.name)).is_empty() {
        let strays: i64 = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(strays, 0, "{} has rows in partitions that are not theirs", table.name);
    }
}

/// Every file below the folder: all of them must be data.
fn data_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(data_files(&path)),
            false => {
                assert_eq!(path.file_name().unwrap(), "data.parquet", "{} is no data", path.display());
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Random commits: answers come, change, move between months and go, with their children and their history.
struct Scenario {
    random: u64,
    next_key: i64,
    /// Answers that are there: key and creation time.
    answers: BTreeMap<i64, i64>,
    commits: usize,
    /// Days over which the answers are spread.
    days: u64,
}

/// The tables that a scenario fills.
const SCENARIO_TABLES: [&str; 5] = ["responses", "response_choices", "response_history", "surveys", "sync_windows"];

impl Scenario {
    fn new(seed: u64, days: u64) -> Self {
        Self { random: seed.wrapping_mul(2) + 1, next_key: 0, answers: BTreeMap::new(), commits: 0, days }
    }

    /// A number below the bound (splitmix64).
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn moment_us(&mut self) -> i64 {
        START_US + self.below(self.days) as i64 * DAY_US + self.below(DAY_US as u64) as i64
    }

    fn next(&mut self) -> Commit {
        let mut commit = Commit::new(self.commits);
        self.commits += 1;
        for _ in 0..=self.below(6) {
            let created_us = self.moment_us();
            self.put(&mut commit, self.next_key, created_us);
            self.next_key += 1;
        }
        let held: Vec<(i64, i64)> = self.answers.iter().map(|(key, at)| (*key, *at)).collect();
        for (key, created_us) in held {
            match self.below(10) {
                0 => self.take(&mut commit, key, created_us),
                1 | 2 if key < self.next_key - 6 => {
                    self.take(&mut commit, key, created_us);
                    let moved_us = if self.below(2) == 0 { created_us } else { self.moment_us() };
                    self.put(&mut commit, key, moved_us);
                    let version = answer(key, created_us, self.below(1 << 40) as i64);
                    commit.change("response_history").upserts.push(version);
                }
                _ => {}
            }
        }
        let survey = self.below(4);
        let known = vec![("id", survey.to_string())];
        commit.change("surveys").deletes.push(known.clone());
        let named = [known, vec![("name", format!("'version {}'", self.commits))]].concat();
        commit.change("surveys").upserts.push(named);
        commit
    }

    fn put(&mut self, commit: &mut Commit, key: i64, created_us: i64) {
        let hash = self.below(1 << 40) as i64;
        commit.change("responses").upserts.push(answer(key, created_us, hash));
        for ordinal in 0..self.below(3) {
            let mut choice = answer(key, created_us, hash);
            choice.retain(|(name, _)| *name != "_row_hash" && *name != "selected_indexes");
            choice.push(("choice_ordinal", ordinal.to_string()));
            commit.change("response_choices").upserts.push(choice);
        }
        self.answers.insert(key, created_us);
    }

    fn take(&mut self, commit: &mut Commit, key: i64, created_us: i64) {
        // A commit takes out what was there before it: rows of its own are not meant.
        if commit.change("responses").upserts.contains(&answer(key, created_us, 0)) {
            return;
        }
        let gone: Values = answer(key, created_us, 0).into_iter().filter(|(name, _)| *name != "_row_hash").collect();
        commit.change("responses").deletes.push(gone.clone());
        commit.change("response_choices").deletes.push(gone);
        self.answers.remove(&key);
    }
}

fn answer(key: i64, created_us: i64, hash: i64) -> Values {
    vec![
        ("response_group_uid", format!("'group-{key}'")),
        ("question_id", (key % 3).to_string()),
        ("survey_id", if key % 5 == 0 { "NULL".into() } else { (key % 4).to_string() }),
        ("created_at", format!("make_timestamp({created_us})")),
        ("selected_indexes", if key % 2 == 0 { "[1, NULL, 3]".into() } else { "NULL".into() }),
        ("_row_hash", hash.to_string()),
    ]
}

/// A folder for a warehouse; in memory where that is possible, since these tests do little else than to wait for the disk.
fn new_folder() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

fn open(root: &TempDir) -> ParquetDestination {
    ParquetDestination::open(root.path(), &identity(), &options()).unwrap()
}
