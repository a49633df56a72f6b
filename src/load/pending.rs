//! Rows that were applied as they are and wait to be written, those of several scans together: each writing costs as much as a
//! statement, or as a file, whatever it brings.
//!
//! What waits here is in the warehouse for nobody: a destination writes it before anything reads those tables, and when it is sealed.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array},
    datatypes::{Schema, SchemaRef},
    error::ArrowError,
};

use super::{Fill, LoadError, RowCounts, TimeBounds};
use crate::model::{Scan, ScanId};

/// Bytes of rows that may wait.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// The rows that wait.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// In the order in which they were applied.
    pub scans: Vec<PendingScan>,
    /// A table comes before its children.
    pub tables: Vec<Fill>,
    bytes: usize,
}

/// A scan whose rows wait, and what applying it did.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct PendingScan {
    pub scan: Scan,
    pub counts: RowCounts,
}

impl Pending {
    pub fn add(&mut self, scan: PendingScan, fills: Vec<Fill>) {
        self.scans.push(scan);
        for fill in fills {
            self.bytes += fill.rows.iter().map(RecordBatch::get_array_memory_size).sum::<usize>();
            match self.tables.iter_mut().find(|held| held.table.name == fill.table.name) {
                Some(held) => held.append(fill),
                None => self.tables.push(fill),
            }
        }
    }

    /// Whether it is time to write them.
    pub fn is_large(&self) -> bool {
        self.bytes >= BYTES_MAX
    }

    /// Whether rows wait that lie in the window of this scan.
    pub fn touches(&self, scan: &Scan) -> bool {
        self.scans.iter().any(|held| {
            let (one, other) = (held.scan.window, scan.window);
            held.scan.scope.stream == scan.scope.stream && one.start_ms < other.end_ms && other.start_ms < one.end_ms
        })
    }

    /// What applying this scan did, if it waits.
    pub fn counts_of(&self, scan: &ScanId) -> Option<RowCounts> {
        self.scans.iter().find(|held| held.scan.id == *scan).map(|held| held.counts)
    }
}

impl Fill {
    fn append(&mut self, more: Fill) {
        self.rows.extend(more.rows);
        self.bounds = match (self.bounds, more.bounds) {
            (Some(one), Some(other)) => {
                Some(TimeBounds { start_us: one.start_us.min(other.start_us), end_us: one.end_us.max(other.end_us) })
            }
            (one, other) => one.or(other),
        };
    }

    /// The rows, in batches of the columns that have a value in some of them: an engine has work with each NULL, and most flagged
    /// columns have nothing else.
    pub(super) fn filled(&self) -> Result<Vec<RecordBatch>, LoadError> {
        let has_values = |name: &str| {
            let columns = self.rows.iter().filter_map(|rows| rows.column_by_name(name));
            columns.into_iter().any(|column| column.null_count() < column.len())
        };
        let full = self.table.full_schema();
        let fields = full.fields().iter().filter(|field| has_values(field.name())).cloned();
        self.with(&Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    }

    /// The rows, in batches of this schema, which has columns of the table.
    pub(super) fn with(&self, schema: &SchemaRef) -> Result<Vec<RecordBatch>, LoadError> {
        let batches: Result<Vec<RecordBatch>, ArrowError> = self.rows.iter().map(|rows| fit(rows, schema)).collect();
        batches.map_err(|error| LoadError::Contract(format!("{}: {error}", self.table.name)))
    }
}

fn fit(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let column = |name: &String| rows.column_by_name(name).map(Arc::clone);
    let columns: Vec<ArrayRef> = schema
        .fields()
        .iter()
        .map(|field| column(field.name()).unwrap_or_else(|| new_null_array(field.data_type(), rows.num_rows())))
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}
