//! A warehouse under test: applies scans, and reads tables and files.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::SystemTime,
};

use arrow::util::display::array_value_to_string;
use xxhash_rust::xxh3::xxh3_128;

use super::pages::WantedRows;
use crate::{
    load::{
        Applied, CommitOptions, Identity, LoadError, LockPatience, Opening, Place, Reader, RowCounts, VanishPolicy,
        Warehouse, WarehouseOptions,
    },
    model::{Failpoints, FlatPage, Scan, WarehouseKind},
};

/// A kind of warehouse for the suite. Dropping the value removes the files of the warehouse.
pub(in crate::load) trait Kind {
    /// Opens the warehouse for writing. Every call opens the same warehouse.
    fn open(&self, identity: &Identity) -> Result<Warehouse, LoadError>;

    /// Opens a reader of the published rows.
    fn reader(&self) -> Reader;

    /// Returns the folder with all files of the warehouse.
    fn root(&self) -> &Path;

    /// Returns what a text of the warehouse has in place of the character NUL.
    fn stored_nul(&self) -> char {
        '\0'
    }
}

/// A warehouse under test, and the options with which scans are applied to it.
pub(in crate::load) struct Lab {
    /// `None` while no warehouse is open.
    pub warehouse: Option<Warehouse>,
    pub kind: Box<dyn Kind>,
    pub vanish: VanishPolicy,
    pub record_unchanged: bool,
}

/// Returns an identity in this environment of the service.
pub(in crate::load) fn identity(environment: &str) -> Identity {
    Identity { base_url: "https://service.example".into(), environment: environment.into() }
}

/// Opens a warehouse in a DuckDB file, and creates the file if it is missing.
pub(in crate::load) fn opened_duckdb(path: &Path) -> Warehouse {
    let opening = Opening {
        identity: identity("test"),
        memory_limit_bytes: 256 << 20,
        buffer_bytes_max: 32 << 20,
        threads: 1,
        patience: LockPatience::default(),
        failpoints: Failpoints::default(),
    };
    let place = Place { kind: WarehouseKind::DuckDb, location: path.into(), options: WarehouseOptions::default() };
    place.open(&opening, None).unwrap()
}

impl Lab {
    /// Opens the warehouse and publishes it, so that readers find its tables.
    pub(in crate::load) fn new(kind: Box<dyn Kind>) -> Self {
        let mut warehouse = kind.open(&identity("test")).unwrap();
        warehouse.publish().unwrap();
        Self { warehouse: Some(warehouse), kind, vanish: VanishPolicy::default(), record_unchanged: false }
    }

    pub(in crate::load) fn warehouse(&mut self) -> &mut Warehouse {
        self.warehouse.as_mut().unwrap()
    }

    /// Applies a scan, commits and publishes it.
    pub(in crate::load) fn apply(&mut self, scan: &Scan, pages: &[FlatPage]) -> Applied {
        let applied = self.apply_uncommitted(scan, pages);
        self.warehouse().commit().unwrap();
        self.warehouse().publish().unwrap();
        applied
    }

    /// Applies a scan, commits and publishes it. Returns the counts that a run reports.
    pub(in crate::load) fn apply_and_report(&mut self, scan: &Scan, pages: &[FlatPage]) -> RowCounts {
        let applied = self.apply_uncommitted(scan, pages);
        let corrected = self.warehouse().commit().unwrap().corrected;
        self.warehouse().publish().unwrap();
        corrected.get(&scan.id).copied().unwrap_or(applied.counts)
    }

    /// Applies a scan without a commit.
    pub(in crate::load) fn apply_uncommitted(&mut self, scan: &Scan, pages: &[FlatPage]) -> Applied {
        let options =
            CommitOptions { vanish: self.vanish, record_unchanged: self.record_unchanged, ..CommitOptions::default() };
        self.warehouse().apply(scan, &WantedRows(pages), &options).unwrap()
    }

    /// Reopens the warehouse, as another run does.
    pub(in crate::load) fn reopen(&mut self) {
        self.warehouse = None;
        self.warehouse = Some(self.kind.open(&identity("test")).unwrap());
        self.warehouse().publish().unwrap();
    }

    /// Returns the rows of a query as texts, with ` | ` between two columns.
    pub(in crate::load) fn rows(&self, sql: &str) -> Vec<String> {
        let result = self.kind.reader().query(sql, 100_000).unwrap();
        assert!(!result.truncated);
        let mut rows = Vec::new();
        for batch in &result.batches {
            for row in 0..batch.num_rows() {
                let cell = |column| match batch.column(column).is_null(row) {
                    true => "NULL".to_owned(),
                    false => array_value_to_string(batch.column(column), row).unwrap(),
                };
                rows.push((0..batch.num_columns()).map(cell).collect::<Vec<_>>().join(" | "));
            }
        }
        rows
    }

    /// Returns the number that a query for one count returns.
    pub(in crate::load) fn count(&self, sql: &str) -> usize {
        self.rows(sql)[0].parse().unwrap()
    }

    /// Returns the modification time and content hash of every file of the warehouse.
    pub(in crate::load) fn files(&self) -> BTreeMap<PathBuf, (SystemTime, u128)> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.kind.root().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let written = path.metadata().unwrap().modified().unwrap();
                    let bytes = std::fs::read(&path).unwrap();
                    files.insert(path, (written, xxh3_128(&bytes)));
                }
            }
        }
        files
    }

    /// Returns every row of `tables` as text, without `_run_id` and `_synced_at`, to compare the content before and
    /// after.
    pub(in crate::load) fn contents(&self, tables: &[&str]) -> Vec<String> {
        let read = |table: &'_ &str| -> Vec<String> {
            let rows = self.rows(&format!("SELECT * EXCLUDE (_run_id, _synced_at) FROM {table} ORDER BY ALL"));
            rows.into_iter().map(|row| format!("{table}: {row}")).collect()
        };
        tables.iter().flat_map(read).collect()
    }
}
