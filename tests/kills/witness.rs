//! Assertions after a kill and at the end. They read the tables with the engine, the checkpoints, and the service's
//! log.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use studysync::{
    archive::read_pages,
    model::{IntervalSet, Scope, Stream, Window},
    state::State,
};
use studysync_sandbox::LogEntry;

use crate::harness::{Cell, Place, Tables, all_contracts};

/// Tables about the runs. The windows and the number of runs differ between two histories.
const ABOUT_RUNS: &[&str] = &["sync_runs", "sync_windows"];
const STREAMS: [Stream; 2] = [Stream::Responses, Stream::Themes];

/// The coverage at the time of a kill.
#[derive(Debug)]
pub struct Before {
    covered: BTreeMap<&'static str, IntervalSet>,
    /// The number of the last request before the kill.
    seq: u64,
    /// Windows of which some pages were stored, and not all.
    pub cut_short: usize,
}

impl Before {
    pub fn read(place: &Place, seq: u64) -> Before {
        let mut covered: BTreeMap<&'static str, IntervalSet> = BTreeMap::new();
        let state = State::open_read_only(&place.state()).unwrap();
        let ledger = place.duckdb().is_file().then(|| ledger(&place.duckdb_tables()));
        for stream in STREAMS {
            let set = covered.entry(stream.path()).or_default();
            let checkpoints = state.as_ref().map(|state| state.coverage(Scope::all(stream)).unwrap());
            checkpoints.into_iter().flatten().for_each(|segment| set.insert(segment.window));
            let committed = ledger.iter().flatten().filter(|(name, _)| name == stream.name());
            committed.for_each(|(_, window)| set.insert(*window));
        }
        let spools = place.files("archive/under-way");
        let cut_short = spools.iter().filter(|spool| is_cut_short(spool)).count();
        Before { covered, seq, cut_short }
    }

    /// Asserts that analysts can read every table, wherever the kill came.
    pub fn assert_readable(&self, place: &Place) {
        let mut warehouses = Vec::new();
        if place.duckdb().is_file() {
            warehouses.push(("DuckDB", place.duckdb_tables()));
        }
        if place.parquet().is_dir() {
            warehouses.push(("Parquet", place.parquet_tables()));
        }
        for (name, tables) in &warehouses {
            // A kill during the creation of the file leaves no tables. A part of them would be a fault.
            if *name == "DuckDB" && tables.count("SELECT count(*) FROM duckdb_tables()") == 0 {
                continue;
            }
            for (table, contract) in all_contracts() {
                let key = contract.key.join(", ");
                let sql = format!("SELECT count(*) - count(DISTINCT ({key})) FROM \"{table}\"");
                assert_eq!(tables.count(&sql), 0, "{name}: rows of {table} share a key");
            }
        }
    }

    /// Returns whether a request came later and is for a covered range.
    pub fn is_covered(&self, entry: &LogEntry) -> bool {
        let covered = self.covered.get(entry.path.as_str());
        let (Some(covered), Some(asked), true) = (covered, window(entry), entry.seq > self.seq) else { return false };
        covered.windows().iter().any(|held| held.overlaps(asked))
    }

    /// Asserts that no later request is for a covered range.
    pub fn assert_not_asked_again(&self, log: &[LogEntry]) {
        let again: Vec<_> = log.iter().filter(|entry| self.is_covered(entry)).collect();
        assert!(again.is_empty(), "asked again, with {:?} complete: {:?}", self.covered, again[0]);
    }
}

fn is_cut_short(spool: &Path) -> bool {
    // A kill during the creation of the spool leaves no header.
    let Ok(mut pages) = read_pages(spool) else { return false };
    let count = pages.by_ref().filter(Result::is_ok).count();
    count > 0 && !pages.is_complete()
}

fn ledger(tables: &Tables) -> Vec<(String, Window)> {
    let known = "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'sync_windows'";
    if tables.count(known) == 0 {
        return Vec::new();
    }
    let rows = tables.rows_of("SELECT stream, epoch_ms(window_start), epoch_ms(window_end) FROM sync_windows");
    let number = |cell: &Cell| cell.as_deref().unwrap().parse::<i64>().unwrap();
    rows.iter().map(|row| (row[0].clone().unwrap(), Window::new(number(&row[1]), number(&row[2])))).collect()
}

/// Returns the window of a list request. The requested range is a millisecond wider at both ends, because the service
/// does not document whether its bounds are inclusive.
pub fn window(entry: &LogEntry) -> Option<Window> {
    let number = |name: &str| entry.query.iter().find(|(key, _)| key == name)?.1.parse::<i64>().ok();
    Some(Window::new(number("start")? + 1, number("end")?))
}

/// Returns the identical list requests that were sent more than once, without probes for the key and the clock.
pub fn repeats(log: &[LogEntry]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let calls = log.iter().filter(|entry| entry.path != Stream::Surveys.path());
    calls.map(|entry| format!("{} {:?}", entry.path, entry.query)).filter(|call| !seen.insert(call.clone())).collect()
}

/// Asserts that all tables are equal row by row, except run ids, scan ids and times of scans.
pub fn assert_same(calm: &Place, stormy: &Place, what: &str) {
    for ((name, expected), (_, found)) in calm.warehouses().iter().zip(stormy.warehouses()) {
        for table in all_contracts().keys().filter(|table| !ABOUT_RUNS.contains(&table.as_str())) {
            let (want, have) = (content(expected, table), content(&found, table));
            if want == have {
                continue;
            }
            let only = |these: &BTreeMap<String, usize>, those: &BTreeMap<String, usize>| -> Vec<String> {
                let more = these.iter().filter(|(row, count)| those.get(*row) != Some(*count));
                more.take(3).map(|(row, count)| format!("{count} x {row}")).collect()
            };
            let total = |rows: &BTreeMap<String, usize>| rows.values().sum::<usize>();
            panic!(
                "{name}, {table}, {what}: expected {} rows, found {}\nexpected alone: {:#?}\nfound alone: {:#?}",
                total(&want),
                total(&have),
                only(&want, &have),
                only(&have, &want)
            );
        }
    }
    let answers = stormy.warehouses().iter().map(|(_, tables)| tables.count("SELECT count(*) FROM responses")).min();
    assert!(answers > Some(100), "{what}: {answers:?} rows prove nothing");
}

/// Returns the rows of a table as texts, each with its count. Of times that the load sets, only whether they are set is
/// compared.
fn content(tables: &Tables, table: &str) -> BTreeMap<String, usize> {
    let contract = &all_contracts()[table];
    let mut rows = BTreeMap::new();
    for mut row in tables.rows(table) {
        for column in contract.columns.iter().filter(|column| column.origin == "load") {
            let is_name = column.name == "_run_id" || column.name == "scan_id";
            if is_name || column.column_type == "timestamp" {
                let cell = row.get_mut(&column.name).unwrap();
                *cell = cell.is_some().then(|| "set".to_owned());
            }
        }
        *rows.entry(format!("{row:?}")).or_default() += 1;
    }
    rows
}

/// Asserts that no scan is unfinished, and that the ledgers of both warehouses have the same scans, each once.
pub fn assert_settled(place: &Place) {
    assert_settled_but(place, 0);
}

/// Allows `alone_max` scans in only one ledger: the kill came between the commits of two warehouses, and the record of
/// the scan was lost, so the window was scanned again. The warehouse with the first scan then had no rows to insert.
/// The rows inserted differ per scan, but their sums are equal.
pub fn assert_settled_but(place: &Place, alone_max: usize) {
    let state = State::open_read_only(&place.state()).unwrap().unwrap();
    assert_eq!(state.unfinished_scans().unwrap(), []);
    let under_way = place.files("archive/under-way");
    assert!(under_way.is_empty(), "spools that nobody owns: {under_way:?}");
    let ledgers: Vec<_> = place.warehouses().into_iter().map(|(_, tables)| Ledger::read(&tables)).collect();
    let first = &ledgers[0];
    assert!(!first.scans.is_empty());
    for other in &ledgers[1..] {
        let alone: Vec<_> = first.scans.keys().filter(|scan| !other.scans.contains_key(*scan)).collect();
        let missing: Vec<_> = other.scans.keys().filter(|scan| !first.scans.contains_key(*scan)).collect();
        assert!(alone.len() + missing.len() <= alone_max, "in one ledger alone: {alone:?}, {missing:?}");
        if alone.is_empty() && missing.is_empty() {
            assert_eq!(first.scans, other.scans);
            continue;
        }
        for (scan, counts) in &first.scans {
            let theirs = other.scans.get(scan);
            assert!(theirs.is_none_or(|theirs| theirs[0] == counts[0]), "{scan:?} read {counts:?} and {theirs:?}");
        }
        assert_eq!(first.changed, other.changed, "rows inserted and updated in all");
    }
}

/// The content of a warehouse's ledger.
struct Ledger {
    /// Rows read, inserted and updated, by scan.
    scans: BTreeMap<Cell, Vec<Cell>>,
    /// Rows inserted and updated by all scans.
    changed: Vec<Vec<Cell>>,
}

impl Ledger {
    fn read(tables: &Tables) -> Self {
        let rows = tables.rows_of("SELECT scan_id, rows_read, inserted, updated FROM sync_windows");
        let count = rows.len();
        let scans: BTreeMap<_, _> = rows.into_iter().map(|row| (row[0].clone(), row[1..].to_vec())).collect();
        assert_eq!(scans.len(), count, "a scan is in a ledger twice");
        let changed = tables.rows_of("SELECT sum(inserted)::BIGINT, sum(updated)::BIGINT FROM sync_windows");
        Self { scans, changed }
    }
}
