//! Compares the store with what the service returns now, for `verify`: rows of the window and columns of these rows.
//! Changes nothing.
//!
//! Columns are compared, not only hashes. A hash shows what was stored at some time; the columns show what is stored
//! now.

use std::collections::{BTreeMap, BTreeSet};

use arrow::{array::RecordBatch, util::display::array_value_to_string};
use foldhash::{HashMap, HashSet};

use super::{
    child_digests::ChildDigests,
    classify::{ClassifyOptions, RecordChange, classify},
    classify_options,
    pages::Pages,
    records::{Record, StoredRow, stored_rows},
    rejects,
    row_difference::Comparer,
    snapshots, stage,
    staged::StagedScan,
    stored::StoredRows,
};
use crate::{
    load::{
        LoadError, VanishPolicy,
        error::invalid_rows,
        store::{BufferedStore, Filter, TimeRange, concat_rows, number_column},
    },
    model::{FlatPage, Scan},
    schema::{RECORD_COLUMN, ROW_HASH_COLUMN, Table},
};

/// How a warehouse differs from the service in one window.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Differences {
    /// Records of the window that the service returned, each key once, and records that do not fit their table.
    #[serde(skip)]
    pub service_rows: u64,
    /// Stored rows of the window that have not vanished.
    pub rows: u64,
    /// Rows at the service that are missing or vanished in the store.
    pub missing: Difference,
    /// Stored rows that the service does not return.
    pub extra: Difference,
    /// Rows in both with different content.
    pub stale: Difference,
    /// Number of stale rows by the column that differs. The name of a child table stands for its rows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, u64>,
}

/// One kind of difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    pub rows: u64,
    /// The first rows, by key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
    /// Rows beyond the examples.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A row that differs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Example {
    /// The values of its key, separated by ` / `.
    pub key: String,
    /// The columns that differ; empty unless the row is stale.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
}

impl Differences {
    /// Whether the warehouse and the service have the same rows.
    pub fn is_equal(&self) -> bool {
        self.missing.rows + self.extra.rows + self.stale.rows == 0
    }
}

impl Difference {
    /// The difference of these rows, given by the texts of their keys with the columns that differ.
    fn of(rows: &BTreeMap<String, BTreeSet<&'static str>>, examples_max: usize) -> Self {
        let example = |(key, columns): (&String, &BTreeSet<&'static str>)| Example {
            key: key.clone(),
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        };
        let examples: Vec<Example> = rows.iter().take(examples_max).map(example).collect();
        Self { rows: rows.len() as u64, left_out: (rows.len() - examples.len()) as u64, examples }
    }
}

/// Rows that differ, by the texts of their keys, with the columns that differ.
type DifferingRows = BTreeMap<String, BTreeSet<&'static str>>;

/// Compares a complete scan with the store. Names at most `examples_max` rows of each kind of difference.
pub(in crate::load) fn differences(
    store: &mut BufferedStore,
    scan: &Scan,
    pages: &dyn Pages,
    examples_max: usize,
) -> Result<Differences, LoadError> {
    let staged = stage(scan, pages)?;
    let stored = StoredRows::of_window(store, scan, &staged)?;
    let mut comparison = Comparison::new(store, scan, &staged, &stored)?;
    pages.for_each(&mut |page| comparison.page(page))?;
    comparison.compare_children();
    let new = snapshots::find(store, &staged.snapshots)?;
    comparison.compare_snapshots(&new);
    let rejected = rejects::find_new(store, scan, &staged.rejects)?.len() as u64;
    let rejects = staged.rows_read.saturating_sub(staged.records.len() as u64);
    comparison.into_differences(rejected, rejects, examples_max)
}

struct Comparison<'a> {
    scan: &'a Scan,
    base: &'static Table,
    options: ClassifyOptions,
    /// The stored rows of the window, with all columns.
    window_rows: RecordBatch,
    stored_rows: Vec<StoredRow>,
    /// Indexes of the stored rows of each key that have not vanished.
    rows_by_key: HashMap<u128, Vec<usize>>,
    /// For each record, whether it is current and inside the window.
    is_compared: Vec<bool>,
    /// Keys of the stored rows that the scan should have returned and did not.
    vanished: HashSet<u128>,
    next_record: usize,
    next_page: usize,
    /// The text of the key of each compared record that has a stored row.
    in_both: HashMap<u128, String>,
    /// The key of each compared record, by its page and its number in the page.
    keys_by_record: HashMap<(usize, i64), u128>,
    stored_children: ChildDigests,
    returned_children: ChildDigests,
    missing: DifferingRows,
    stale: DifferingRows,
}

impl<'a> Comparison<'a> {
    fn new(
        store: &mut BufferedStore,
        scan: &'a Scan,
        staged: &'a StagedScan,
        stored: &StoredRows,
    ) -> Result<Self, LoadError> {
        let base = staged.base;
        let options = classify_options(scan, staged, VanishPolicy::Accept);
        let is_compared = compared_records(&staged.records, &options);
        let compared = staged.records.iter().zip(&is_compared).filter(|(_, is_compared)| **is_compared);
        let compared: Vec<Record> = compared.map(|(record, _)| *record).collect();
        let vanished = classify(&compared, &stored.rows, &options).vanished;
        let vanished = vanished.into_iter().filter_map(|record| stored.rows.get(record)).map(|row| row.key).collect();
        let window = base.partition.is_some().then(|| TimeRange::of(scan.window));
        let filter = match window {
            None if scan.scope.stream == crate::model::Stream::Users => Filter::all().with_keys(&staged.asked),
            window => Filter::within(window),
        };
        let window_rows = concat_rows(base, &base.full_schema(), &store.full_rows(base, &filter)?)?;
        let stored_rows = stored_rows(base, &window_rows)?;
        let mut rows_by_key: HashMap<u128, Vec<usize>> = HashMap::default();
        for (at, row) in stored_rows.iter().enumerate().filter(|(_, row)| row.vanished_us.is_none()) {
            rows_by_key.entry(row.key).or_default().push(at);
        }
        let of_window = |child: &'static Table| Filter::within(window.filter(|_| child.partition.is_some()));
        let stored_children = ChildDigests::of_stored(store, base, of_window)?;
        Ok(Self {
            scan,
            base,
            options,
            window_rows,
            stored_rows,
            rows_by_key,
            is_compared,
            vanished,
            next_record: 0,
            next_page: 0,
            in_both: HashMap::default(),
            keys_by_record: HashMap::default(),
            stored_children,
            returned_children: ChildDigests::new(base),
            missing: DifferingRows::new(),
            stale: DifferingRows::new(),
        })
    }

    fn page(&mut self, page: &FlatPage) -> Result<(), LoadError> {
        let number = self.next_page;
        self.next_page += 1;
        let Some(rows) = page.table(&self.base.name) else { return Ok(()) };
        let first = self.next_record;
        self.next_record += rows.num_rows();
        let comparer = Comparer::new(self.base, self.scan, rows, &self.window_rows)?;
        let contents = number_column(rows, ROW_HASH_COLUMN)?.values();
        let record_numbers = number_column(rows, RECORD_COLUMN)?.values();
        let mut records = HashSet::default();
        for (row, (key, record)) in page.key_hashes.iter().zip(record_numbers).enumerate() {
            if !self.is_compared.get(first + row).copied().unwrap_or(false) {
                continue;
            }
            records.insert(*record);
            let name = key_text(self.base, rows, row)?;
            let Some(stored) = self.rows_by_key.get(key) else {
                self.missing.insert(name, BTreeSet::new());
                continue;
            };
            for at in stored {
                let (differing, have_moved) = comparer.differing_fields(row, *at);
                let mut columns: BTreeSet<&'static str> = differing.iter().map(|column| column.name.as_str()).collect();
                let stored = self.stored_rows.get(*at);
                // The hash differs although no column does: the next scan writes the new hash.
                let has_other_hash = stored.filter(|_| !have_moved).is_some_and(|stored| {
                    self.options.flags.is_none_or(|flags| flags == stored.flags)
                        && stored.content.is_some_and(|content| contents.get(row) != Some(&content))
                });
                columns.extend(has_other_hash.then_some(ROW_HASH_COLUMN));
                if !columns.is_empty() {
                    self.stale.entry(name.clone()).or_default().extend(columns);
                }
            }
            self.in_both.insert(*key, name);
            self.keys_by_record.insert((number, *record), *key);
        }
        self.returned_children.add_page(page, |record| records.contains(&record))
    }

    /// Adds the rows whose child rows differ to the stale rows.
    fn compare_children(&mut self) {
        for (key, name) in &self.in_both {
            for child in self.stored_children.differing(&self.returned_children, *key) {
                self.stale.entry(name.clone()).or_default().insert(child.name.as_str());
            }
        }
    }

    /// Adds the responses whose session has no snapshot, or another one, to the stale rows.
    fn compare_snapshots(&mut self, new: &snapshots::NewSnapshots) {
        for (page, snapshot) in new.all() {
            let key = self.keys_by_record.get(&(page, snapshot.record));
            if let Some(name) = key.and_then(|key| self.in_both.get(key)) {
                self.stale.entry(name.clone()).or_default().insert("visitor_snapshots");
            }
        }
    }

    fn into_differences(self, rejected: u64, rejects: u64, examples_max: usize) -> Result<Differences, LoadError> {
        let mut missing = Difference::of(&self.missing, examples_max);
        missing.rows += rejected;
        if rejected > 0 && missing.examples.len() < examples_max {
            let key = format!("{rejected} records that cannot be placed");
            missing.examples.push(Example { key, columns: Vec::new() });
        }
        let is_gone = |(at, row): (usize, &StoredRow)| {
            (self.vanished.contains(&row.key) && self.options.expects(row)).then_some(at)
        };
        let vanished = self.stored_rows.iter().enumerate().filter_map(is_gone);
        let vanished = vanished.map(|at| Ok((key_text(self.base, &self.window_rows, at)?, BTreeSet::new())));
        let vanished: DifferingRows = vanished.collect::<Result<_, LoadError>>()?;
        let mut columns = BTreeMap::new();
        for name in self.stale.values().flatten() {
            *columns.entry((*name).to_owned()).or_default() += 1;
        }
        let is_there = |row: &&StoredRow| self.options.counts(row);
        Ok(Differences {
            service_rows: self.is_compared.iter().filter(|is_compared| **is_compared).count() as u64 + rejects,
            rows: self.stored_rows.iter().filter(is_there).count() as u64,
            missing,
            extra: Difference::of(&vanished, examples_max),
            stale: Difference::of(&self.stale, examples_max),
            columns,
        })
    }
}

/// For each record, whether it is current and inside the window. Records outside it are compared in their own
/// windows.
fn compared_records(records: &[Record], options: &ClassifyOptions) -> Vec<bool> {
    let stands = classify(records, &[], options).records.into_iter().map(|change| change != RecordChange::Superseded);
    let is_inside = |record: &Record| options.window.is_none_or(|window| window.holds(record.created_us));
    stands.zip(records).map(|(stands, record)| stands && is_inside(record)).collect()
}

/// The values of the key of a row, separated by ` / `.
fn key_text(base: &Table, rows: &RecordBatch, row: usize) -> Result<String, LoadError> {
    let value = |name: &String| {
        let column = rows.column_by_name(name).ok_or_else(|| LoadError::Bug(format!("rows without {name}")))?;
        array_value_to_string(column, row).map_err(invalid_rows(base))
    };
    Ok(base.key.iter().map(value).collect::<Result<Vec<_>, _>>()?.join(" / "))
}
