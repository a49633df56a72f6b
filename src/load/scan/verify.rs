//! Compares the stored rows of a window with a scan of the window, for the command `verify`. Changes nothing.
//!
//! Columns are compared, not only hashes: the stored hash would not show that somebody changed a column of the row.

use std::collections::{BTreeMap, BTreeSet};

use arrow::{
    array::{Array as _, AsArray as _, RecordBatch},
    util::display::array_value_to_string,
};
use foldhash::{HashMap, HashSet};

use super::{
    child_digests::ChildDigests,
    classify::{Classification, ClassifyOptions, RecordChange, classify},
    compared::{classify_options, stage},
    pages::{Pages, Wanted},
    records::{Record, StoredRow, stored_rows},
    rejects,
    row_difference::Comparer,
    snapshots,
    staged::StagedScan,
    stored::StoredRows,
    superseded,
};
use crate::{
    json::is_canonical,
    load::{
        LoadError, VanishPolicy,
        error::invalid_rows,
        store::{BufferedStore, Filter, TimeRange, concat_rows, number_column},
    },
    model::{FlatPage, Scan, Stream},
    schema::{Column, ColumnType, RECORD_COLUMN, ROW_HASH_COLUMN, Table},
};

/// How a warehouse differs from the service in one window.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Differences {
    /// Number of records that the service returned: each key in the window once, plus the records that do not fit their
    /// table.
    #[serde(skip)]
    pub service_rows: u64,
    /// Number of stored rows of the window that the scan was expected to return.
    pub rows: u64,
    /// Rows at the service that are not stored, or are stored as vanished.
    pub missing: Difference,
    /// Stored rows that the service does not return.
    pub extra: Difference,
    /// Rows that the warehouse and the service both have, with different content, child rows or visitor snapshots.
    pub stale: Difference,
    /// Number of stale rows by the column that differs. If child rows or visitor snapshots differ, the name of their
    /// table is listed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, u64>,
}

/// One kind of difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// Number of rows that differ in this way.
    pub rows: u64,
    /// The first of these rows, ordered by key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
    /// Number of rows that are not among the examples.
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
    /// The columns and child tables that differ; empty unless the row is stale.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
}

impl Differences {
    /// Returns true if the warehouse and the service have the same rows.
    pub fn is_equal(&self) -> bool {
        self.missing.rows + self.extra.rows + self.stale.rows == 0
    }
}

impl Difference {
    /// Counts the rows, and lists the first `examples_max` as examples.
    fn of(rows: &DifferingRows, examples_max: usize) -> Self {
        let example = |(key, columns): (&String, &BTreeSet<&'static str>)| Example {
            key: key.clone(),
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        };
        let examples: Vec<Example> = rows.iter().take(examples_max).map(example).collect();
        Self { rows: rows.len() as u64, left_out: (rows.len() - examples.len()) as u64, examples }
    }
}

/// Rows that differ, by the text of their key, with the columns and child tables that differ.
type DifferingRows = BTreeMap<String, BTreeSet<&'static str>>;

/// Compares a complete scan with the store. Lists at most `examples_max` rows of each kind of difference. Reads the
/// pages twice, and changes nothing.
pub(in crate::load) fn differences(
    store: &mut BufferedStore,
    scan: &Scan,
    pages: &dyn Pages,
    examples_max: usize,
) -> Result<Differences, LoadError> {
    let staged = stage(scan, pages)?;
    let stored = StoredRows::of_window(store, scan, &staged)?;
    let mut comparison = Comparison::new(store, scan, &staged, &stored)?;
    pages.for_each(Wanted::Rows, &mut |page| comparison.compare_page(page))?;
    comparison.compare_children();
    let new = snapshots::find(store, &staged.snapshots)?;
    comparison.compare_snapshots(&new);
    let new_rejects = rejects::find_unknown(store, scan, &staged.rejects)?.len() as u64;
    let rejects = staged.rows_read.saturating_sub(staged.records.len() as u64);
    comparison.into_differences(new_rejects, rejects, examples_max)
}

/// A comparison in progress: the stored rows of the window, and the differences that the pages have shown so far.
struct Comparison<'a> {
    scan: &'a Scan,
    base: &'static Table,
    options: ClassifyOptions,
    /// The stored rows of the window, with all columns. Of a table without partitions, all rows; for a scan of users,
    /// the rows with the requested keys.
    window_rows: RecordBatch,
    /// Key, hash and state of each row of `window_rows`.
    stored_rows: Vec<StoredRow>,
    /// Indexes in `window_rows` of the rows of each key that have not vanished.
    rows_by_key: HashMap<u128, Vec<usize>>,
    /// For each record of the scan, true if it is current and inside the window.
    is_compared: Vec<bool>,
    /// Key hashes of the stored rows that the scan should have returned and did not.
    vanished: HashSet<u128>,
    /// Index of the first record of the next page.
    next_record: usize,
    /// Number of the next page.
    next_page: usize,
    /// For each compared record that has a stored row: the text of its key, by the hash of the key.
    in_both: HashMap<u128, String>,
    /// The key hashes of the records in `in_both`, by page number and record number in the page.
    keys_by_record: HashMap<(usize, i64), u128>,
    stored_children: ChildDigests,
    returned_children: ChildDigests,
    missing: DifferingRows,
    stale: DifferingRows,
}

impl<'a> Comparison<'a> {
    /// Reads the stored rows of the window, and finds the rows that the scan did not return. `stored` are the same
    /// rows, reduced to keys and hashes.
    fn new(
        store: &mut BufferedStore,
        scan: &'a Scan,
        staged: &'a StagedScan,
        stored: &StoredRows,
    ) -> Result<Self, LoadError> {
        let base = staged.base;
        let options = classify_options(scan, staged, VanishPolicy::Accept);
        let mut changes = classify(&staged.records, &stored.rows, &options);
        superseded::mark(store, scan, staged, &mut changes)?;
        let is_compared = compared_records(&staged.records, &changes, &options);
        let compared = staged.records.iter().zip(&is_compared).filter(|(_, is_compared)| **is_compared);
        let compared: Vec<Record> = compared.map(|(record, _)| *record).collect();
        let vanished = classify(&compared, &stored.rows, &options).vanished;
        let vanished = vanished.into_iter().filter_map(|index| stored.rows.get(index)).map(|row| row.key).collect();
        let window = base.partition.is_some().then(|| TimeRange::of(scan.window));
        let filter = match window {
            None if scan.scope.stream == Stream::Users => Filter::all().with_keys(&staged.requested_keys),
            window => Filter::within(window),
        };
        let window_rows = concat_rows(base, &base.full_schema(), &store.full_rows(base, &filter)?)?;
        let stored_rows = stored_rows(base, &window_rows)?;
        let mut rows_by_key: HashMap<u128, Vec<usize>> = HashMap::default();
        for (index, row) in stored_rows.iter().enumerate().filter(|(_, row)| row.vanished_us.is_none()) {
            rows_by_key.entry(row.key).or_default().push(index);
        }
        let in_window = |child: &'static Table| Filter::within(window.filter(|_| child.partition.is_some()));
        let stored_children = ChildDigests::of_stored(store, base, in_window)?;
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

    /// Compares the records of the next page with the stored rows of their keys, column by column.
    fn compare_page(&mut self, page: &FlatPage) -> Result<(), LoadError> {
        let page_number = self.next_page;
        self.next_page += 1;
        let Some(rows) = page.table(&self.base.name) else { return Ok(()) };
        let first_record = self.next_record;
        self.next_record += rows.num_rows();
        let comparer = Comparer::new(self.base, self.scan, rows, &self.window_rows)?;
        let contents = number_column(rows, ROW_HASH_COLUMN)?.values();
        let record_numbers = number_column(rows, RECORD_COLUMN)?.values();
        let mut records = HashSet::default();
        for (row, (key, record)) in page.key_hashes.iter().zip(record_numbers).enumerate() {
            if !self.is_compared.get(first_record + row).copied().unwrap_or(false) {
                continue;
            }
            records.insert(*record);
            let key_text = key_text(self.base, rows, row)?;
            let Some(stored_indexes) = self.rows_by_key.get(key) else {
                self.missing.insert(key_text, BTreeSet::new());
                continue;
            };
            for index in stored_indexes {
                let (differing, have_only_moved) = comparer.differing_fields(row, *index);
                let mut columns: BTreeSet<&'static str> = differing.iter().map(|column| column.name.as_str()).collect();
                let stored = self.stored_rows.get(*index);
                // The stored hash can be wrong although all columns are right. Such a row counts as stale, and the next
                // scan that is applied writes the right hash. A hash of an earlier version is not wrong.
                let is_comparable = !have_only_moved && !self.may_have_older_hash(*index);
                let has_other_hash = stored.filter(|_| is_comparable).is_some_and(|stored| {
                    self.options.flags.is_none_or(|flags| flags == stored.flags)
                        && stored.content.is_some_and(|content| contents.get(row) != Some(&content))
                });
                columns.extend(has_other_hash.then_some(ROW_HASH_COLUMN));
                if !columns.is_empty() {
                    self.stale.entry(key_text.clone()).or_default().extend(columns);
                }
            }
            self.in_both.insert(*key, key_text);
            self.keys_by_record.insert((page_number, *record), *key);
        }
        self.returned_children.add_page(page, |record| records.contains(&record))
    }

    /// Returns true if an earlier version of the program may have computed another hash for the stored row. Earlier
    /// versions hashed JSON as it was spelled. The hash of a survey covers JSON that no column stores.
    fn may_have_older_hash(&self, index: usize) -> bool {
        let is_respelled = |column: &Column| {
            let texts = self.window_rows.column_by_name(&column.name).and_then(|values| values.as_string_opt::<i32>());
            let text = texts.filter(|texts| texts.is_valid(index)).map(|texts| texts.value(index));
            text.is_some_and(|text| !is_canonical(text, &column.signed_links))
        };
        let mut json_columns = self.base.content_columns().filter(|column| column.column_type == ColumnType::Json);
        self.scan.scope.stream == Stream::Surveys || json_columns.any(is_respelled)
    }

    /// Counts a row as stale if its child rows differ, once for each child table. Called after the last page.
    fn compare_children(&mut self) {
        for (key, key_text) in &self.in_both {
            for child in self.stored_children.differing_tables(&self.returned_children, *key) {
                self.stale.entry(key_text.clone()).or_default().insert(child.name.as_str());
            }
        }
    }

    /// Counts the response of each new snapshot as stale, because the stored snapshot of its session is missing or
    /// differs. A response that is not stored counts only as missing.
    fn compare_snapshots(&mut self, new: &snapshots::NewSnapshots) {
        for (page, snapshot) in new.all() {
            let key = self.keys_by_record.get(&(page, snapshot.record));
            if let Some(key_text) = key.and_then(|key| self.in_both.get(key)) {
                self.stale.entry(key_text.clone()).or_default().insert("visitor_snapshots");
            }
        }
    }

    /// Counts the differences and lists the examples. `rejects` is the number of scanned records that do not fit their
    /// table. The table `rejects` does not store `new_rejects` of them, so these count as missing.
    fn into_differences(self, new_rejects: u64, rejects: u64, examples_max: usize) -> Result<Differences, LoadError> {
        let mut missing = Difference::of(&self.missing, examples_max);
        missing.rows += new_rejects;
        if new_rejects > 0 && missing.examples.len() >= examples_max {
            missing.left_out += new_rejects;
        } else if new_rejects > 0 {
            let key = format!("{new_rejects} records that cannot be placed");
            missing.examples.push(Example { key, columns: Vec::new() });
        }
        let is_gone = |row: &StoredRow| self.vanished.contains(&row.key) && self.options.counts_as_missing(row);
        let vanished = self.stored_rows.iter().enumerate().filter(|(_, row)| is_gone(row));
        let vanished = vanished.map(|(row, _)| Ok((key_text(self.base, &self.window_rows, row)?, BTreeSet::new())));
        let vanished: DifferingRows = vanished.collect::<Result<_, LoadError>>()?;
        let mut columns = BTreeMap::new();
        for name in self.stale.values().flatten() {
            *columns.entry((*name).to_owned()).or_default() += 1;
        }
        let is_expected = |row: &&StoredRow| self.options.is_expected(row);
        Ok(Differences {
            service_rows: self.is_compared.iter().filter(|is_compared| **is_compared).count() as u64 + rejects,
            rows: self.stored_rows.iter().filter(is_expected).count() as u64,
            missing,
            extra: Difference::of(&vanished, examples_max),
            stale: Difference::of(&self.stale, examples_max),
            columns,
        })
    }
}

/// Returns, for each record, true if it is current and inside the window. A record outside the window is compared by
/// the scan of another window.
fn compared_records(records: &[Record], changes: &Classification, options: &ClassifyOptions) -> Vec<bool> {
    let is_inside = |record: &Record| options.window.is_none_or(|window| window.holds(record.created_us));
    let is_current = |change: RecordChange| change != RecordChange::Superseded;
    changes.records.iter().zip(records).map(|(change, record)| is_current(*change) && is_inside(record)).collect()
}

/// Returns the values of the key of a row, separated by ` / `.
fn key_text(base: &Table, rows: &RecordBatch, row: usize) -> Result<String, LoadError> {
    let value = |name: &String| {
        let column = rows.column_by_name(name).ok_or_else(|| LoadError::Bug(format!("rows without {name}")))?;
        array_value_to_string(column, row).map_err(invalid_rows(base))
    };
    Ok(base.key.iter().map(value).collect::<Result<Vec<_>, _>>()?.join(" / "))
}
