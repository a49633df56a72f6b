//! How the store differs from what the service returns now, for `verify`: rows of the window and columns of its rows. Changes nothing.
//!
//! Columns are compared, not hashes alone: a hash says what was stored once, a column what is stored now.

use std::collections::{BTreeMap, BTreeSet};

use arrow::{array::RecordBatch, util::display::array_value_to_string};
use foldhash::{HashMap, HashSet};

use super::{
    children::ChildSums,
    classify::{Question, RecordChange, classify},
    differ::Comparer,
    pages::Pages,
    question,
    records::{Record, StoredRow, stored_rows},
    rejects, snapshots, stage,
    staged::Staged,
    stored::Stored,
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
    /// Records that the service returned of the window, each key once, and those that cannot be placed.
    #[serde(skip)]
    pub service_rows: u64,
    /// Rows that are held of the window and have not vanished.
    pub rows: u64,
    /// At the service, and not here, or here as vanished.
    pub missing: Difference,
    /// Here, and not at the service.
    pub extra: Difference,
    /// In both, with other content.
    pub stale: Difference,
    /// The columns in which stale rows differ, and in how many rows; a table's name stands for its rows of an answer.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, u64>,
}

/// One kind of difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    pub rows: u64,
    /// The first of them, by key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
    /// Rows that are not among the examples.
    #[serde(skip_serializing_if = "is_none")]
    pub left_out: u64,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// A row that differs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Example {
    /// The values of its key, ` / ` between them.
    pub key: String,
    /// The columns that differ; empty but for a stale row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
}

impl Differences {
    /// Whether nothing differs.
    pub fn is_equal(&self) -> bool {
        self.missing.rows + self.extra.rows + self.stale.rows == 0
    }
}

impl Difference {
    /// Of these rows, by the texts of their keys, with the columns that differ.
    fn of(rows: &BTreeMap<String, BTreeSet<&'static str>>, examples_max: usize) -> Self {
        let example = |(key, columns): (&String, &BTreeSet<&'static str>)| Example {
            key: key.clone(),
            columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        };
        let examples: Vec<Example> = rows.iter().take(examples_max).map(example).collect();
        Self { rows: rows.len() as u64, left_out: (rows.len() - examples.len()) as u64, examples }
    }
}

/// Rows that differ, by the texts of their keys, and the columns in which they do.
type Differing = BTreeMap<String, BTreeSet<&'static str>>;

/// Compares a complete scan with the store. At most `examples_max` rows of each kind of difference are named.
pub(in crate::load) fn differences(
    store: &mut BufferedStore,
    scan: &Scan,
    pages: &dyn Pages,
    examples_max: usize,
) -> Result<Differences, LoadError> {
    let staged = stage(scan, pages)?;
    let stored = Stored::of_window(store, scan, &staged)?;
    let mut comparison = Comparison::new(store, scan, &staged, &stored)?;
    pages.for_each(&mut |page| comparison.page(page))?;
    comparison.compare_children();
    let new = snapshots::find(store, &staged.snapshots)?;
    comparison.compare_snapshots(&new);
    let rejected = rejects::find_new(store, scan, &staged.rejects)?.len() as u64;
    let rejects = staged.rows_read.saturating_sub(staged.records.len() as u64);
    comparison.tell(rejected, rejects, examples_max)
}

struct Comparison<'a> {
    scan: &'a Scan,
    base: &'static Table,
    question: Question,
    /// The stored rows of the window, whole.
    held: RecordBatch,
    held_rows: Vec<StoredRow>,
    /// Those of each key that have not vanished.
    held_by_key: HashMap<u128, Vec<usize>>,
    /// For each record whether it stands, and lies inside the window.
    is_compared: Vec<bool>,
    /// The rows that the service should still have, and has not.
    gone: HashSet<u128>,
    next_record: usize,
    next_page: usize,
    /// The text of the key of each record that is compared and has a row here.
    in_both: HashMap<u128, String>,
    /// By page and place in it: the key of a record that is compared.
    keys_by_place: HashMap<(usize, i64), u128>,
    children_here: ChildSums,
    children_there: ChildSums,
    missing: Differing,
    stale: Differing,
}

impl<'a> Comparison<'a> {
    fn new(store: &mut BufferedStore, scan: &'a Scan, staged: &'a Staged, stored: &Stored) -> Result<Self, LoadError> {
        let base = staged.base;
        let question = question(scan, staged, VanishPolicy::Accept);
        let is_compared = compared_records(&staged.records, &question);
        let compared = staged.records.iter().zip(&is_compared).filter(|(_, is_compared)| **is_compared);
        let compared: Vec<Record> = compared.map(|(record, _)| *record).collect();
        let gone = classify(&compared, &stored.rows, &question).gone;
        let gone = gone.into_iter().filter_map(|place| stored.rows.get(place)).map(|row| row.key).collect();
        let window = base.partition.is_some().then(|| TimeRange::of(scan.window));
        let filter = match window {
            None if scan.scope.stream == crate::model::Stream::Users => Filter::all().with_keys(&staged.asked),
            window => Filter::within(window),
        };
        let held = concat_rows(base, &base.full_schema(), &store.full_rows(base, &filter)?)?;
        let held_rows = stored_rows(base, &held)?;
        let mut held_by_key: HashMap<u128, Vec<usize>> = HashMap::default();
        for (at, row) in held_rows.iter().enumerate().filter(|(_, row)| row.vanished_us.is_none()) {
            held_by_key.entry(row.key).or_default().push(at);
        }
        let of_window = |child: &'static Table| Filter::within(window.filter(|_| child.partition.is_some()));
        let children_here = ChildSums::of_stored(store, base, of_window)?;
        Ok(Self {
            scan,
            base,
            question,
            held,
            held_rows,
            held_by_key,
            is_compared,
            gone,
            next_record: 0,
            next_page: 0,
            in_both: HashMap::default(),
            keys_by_place: HashMap::default(),
            children_here,
            children_there: ChildSums::new(base),
            missing: Differing::new(),
            stale: Differing::new(),
        })
    }

    fn page(&mut self, page: &FlatPage) -> Result<(), LoadError> {
        let number = self.next_page;
        self.next_page += 1;
        let Some(rows) = page.table(&self.base.name) else { return Ok(()) };
        let first = self.next_record;
        self.next_record += rows.num_rows();
        let comparer = Comparer::new(self.base, self.scan, rows, &self.held)?;
        let contents = number_column(rows, ROW_HASH_COLUMN)?.values();
        let places = number_column(rows, RECORD_COLUMN)?.values();
        let mut records = HashSet::default();
        for (row, (key, place)) in page.key_hashes.iter().zip(places).enumerate() {
            if !self.is_compared.get(first + row).copied().unwrap_or(false) {
                continue;
            }
            records.insert(*place);
            let name = key_text(self.base, rows, row)?;
            let Some(held) = self.held_by_key.get(key) else {
                self.missing.insert(name, BTreeSet::new());
                continue;
            };
            for at in held {
                let (differing, have_moved) = comparer.differing_fields(row, *at);
                let mut columns: BTreeSet<&'static str> = differing.iter().map(|column| column.name.as_str()).collect();
                let stored = self.held_rows.get(*at);
                // A hash that differs although no column does: the next scan writes another.
                let has_other_hash = stored.filter(|_| !have_moved).is_some_and(|stored| {
                    self.question.flags.is_none_or(|flags| flags == stored.flags)
                        && stored.content.is_some_and(|content| contents.get(row) != Some(&content))
                });
                columns.extend(has_other_hash.then_some(ROW_HASH_COLUMN));
                if !columns.is_empty() {
                    self.stale.entry(name.clone()).or_default().extend(columns);
                }
            }
            self.in_both.insert(*key, name);
            self.keys_by_place.insert((number, *place), *key);
        }
        self.children_there.add_page(page, |record| records.contains(&record))
    }

    /// Answers whose rows of a child table are others, or more, or fewer.
    fn compare_children(&mut self) {
        for (key, name) in &self.in_both {
            for child in self.children_here.differing(&self.children_there, *key) {
                self.stale.entry(name.clone()).or_default().insert(child.name.as_str());
            }
        }
    }

    /// Answers whose session has no snapshot here, or another one.
    fn compare_snapshots(&mut self, new: &snapshots::NewSnapshots) {
        for (page, snapshot) in new.all() {
            let key = self.keys_by_place.get(&(page, snapshot.record));
            if let Some(name) = key.and_then(|key| self.in_both.get(key)) {
                self.stale.entry(name.clone()).or_default().insert("visitor_snapshots");
            }
        }
    }

    fn tell(&self, rejected: u64, rejects: u64, examples_max: usize) -> Result<Differences, LoadError> {
        let mut missing = Difference::of(&self.missing, examples_max);
        missing.rows += rejected;
        if rejected > 0 && missing.examples.len() < examples_max {
            let key = format!("{rejected} records that cannot be placed");
            missing.examples.push(Example { key, columns: Vec::new() });
        }
        let is_gone =
            |(at, row): (usize, &StoredRow)| (self.gone.contains(&row.key) && self.question.expects(row)).then_some(at);
        let gone = self.held_rows.iter().enumerate().filter_map(is_gone);
        let gone = gone.map(|at| Ok((key_text(self.base, &self.held, at)?, BTreeSet::new())));
        let gone: Differing = gone.collect::<Result<_, LoadError>>()?;
        let mut columns = BTreeMap::new();
        for name in self.stale.values().flatten() {
            *columns.entry((*name).to_owned()).or_default() += 1;
        }
        let is_there = |row: &&StoredRow| self.question.counts(row);
        Ok(Differences {
            service_rows: self.is_compared.iter().filter(|is_compared| **is_compared).count() as u64 + rejects,
            rows: self.held_rows.iter().filter(is_there).count() as u64,
            missing,
            extra: Difference::of(&gone, examples_max),
            stale: Difference::of(&self.stale, examples_max),
            columns,
        })
    }
}

/// Which records stand, and lie inside the window: those outside belong to other windows, and are compared there.
fn compared_records(records: &[Record], question: &Question) -> Vec<bool> {
    let stands = classify(records, &[], question).records.into_iter().map(|change| change != RecordChange::Superseded);
    let is_inside = |record: &Record| question.window.is_none_or(|window| window.holds(record.created_us));
    stands.zip(records).map(|(stands, record)| stands && is_inside(record)).collect()
}

/// The values of the key of a row, ` / ` between them.
fn key_text(base: &Table, rows: &RecordBatch, row: usize) -> Result<String, LoadError> {
    let value = |name: &String| {
        let column = rows.column_by_name(name).ok_or_else(|| LoadError::Bug(format!("rows without {name}")))?;
        array_value_to_string(column, row).map_err(invalid_rows(base))
    };
    Ok(base.key.iter().map(value).collect::<Result<Vec<_>, _>>()?.join(" / "))
}
