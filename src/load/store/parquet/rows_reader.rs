//! Selects and reads rows of one Parquet file: some columns of some rows, one row group at a time. A [`Pick`] is a
//! selection: some of the file's row groups, and some rows of each.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use arrow::{
    array::{BooleanBufferBuilder, RecordBatch},
    buffer::BooleanBuffer,
    datatypes::SchemaRef,
};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection},
    },
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, RowGroupMetaData},
        statistics::Statistics,
    },
};

use super::{
    order,
    partition::{Partition, PartitionBy},
};
use crate::{
    load::{
        LoadError,
        store::{KeySet, TimeRange, fit, read_schema, rows_within, time_column},
    },
    schema::Table,
};

/// Largest number of rows of a decoded batch.
const BATCH_ROWS: usize = 2048;
/// Approximate bytes of a decoded batch. If rows are wide, a batch has fewer rows.
const BATCH_BYTES: usize = 1 << 20;
/// Assumed limit of the size of a dictionary, in bytes: the default limit of the Parquet writer.
const DICTIONARY_BYTES_MAX: usize = 1 << 20;

/// The picked rows of one row group.
#[derive(Clone, Debug)]
pub(super) struct PickedGroup {
    /// Index of the row group in its file; for rows in the cache, of the cached batch.
    pub(super) index: usize,
    /// Number of rows of the row group, picked or not.
    pub(super) rows: usize,
    /// One bit for each row of the row group, set if the row is picked; `None` if every row is picked.
    pub(super) kept: Option<BooleanBuffer>,
}

impl PickedGroup {
    /// Returns the number of picked rows.
    pub(super) fn count(&self) -> usize {
        self.kept.as_ref().map_or(self.rows, BooleanBuffer::count_set_bits)
    }

    /// Returns the picked rows in the type that the Parquet reader takes, or `None` if every row is picked.
    pub(super) fn selection(&self) -> Option<RowSelection> {
        let kept = self.kept.as_ref()?;
        let ranges = kept.set_slices().map(|(start, end)| start..end);
        Some(RowSelection::from_consecutive_ranges(ranges, self.rows))
    }

    /// Returns this pick without the rows whose bit in `kept` is not set. `kept` has one bit for each row that is
    /// picked now, not for each row of the group.
    pub(super) fn narrowed(&self, kept: BooleanBuffer) -> Self {
        let kept = match &self.kept {
            None => kept,
            Some(before) => {
                let mut kept_of_all_rows = vec![false; self.rows];
                for (row, is_kept) in before.set_indices().zip(kept.iter()) {
                    if let Some(bit) = kept_of_all_rows.get_mut(row) {
                        *bit = is_kept;
                    }
                }
                BooleanBuffer::from(kept_of_all_rows)
            }
        };
        let has_all_rows = kept.count_set_bits() == self.rows;
        Self { kept: (!has_all_rows).then_some(kept), ..*self }
    }
}

/// Picked rows of a file, in the order of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Pick {
    /// The row groups with picked rows; all other row groups have none.
    pub(super) groups: Vec<PickedGroup>,
}

impl Pick {
    /// Returns the number of picked rows.
    pub(super) fn count(&self) -> usize {
        self.groups.iter().map(PickedGroup::count).sum()
    }
}

/// The batches of one row group, one after the other.
pub(super) type GroupBatches<'a> = Box<dyn Iterator<Item = Result<RecordBatch, LoadError>> + 'a>;

/// A source of rows in row groups: a file, or rows in the cache.
pub(super) trait PickedRows {
    /// Reads the picked rows of a row group, with the columns and types of the schema. Columns that the source lacks
    /// are NULL.
    fn read_group(&self, group: &PickedGroup, schema: &SchemaRef) -> Result<GroupBatches<'_>, LoadError>;
}

/// Reads all picked rows, in the order of the source. An error ends the batches of one row group only, so the caller
/// must stop at an error.
pub(super) fn read_picked<'a>(
    rows: &'a dyn PickedRows,
    pick: &'a Pick,
    schema: &'a SchemaRef,
) -> impl Iterator<Item = Result<RecordBatch, LoadError>> + 'a {
    pick.groups.iter().flat_map(move |group| {
        rows.read_group(group, schema).unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
    })
}

/// Reduces a pick to the rows that pass a test. `test` gets batches of the picked rows with the columns of `schema`,
/// and returns one bit for each row.
pub(super) fn narrow(
    rows: &dyn PickedRows,
    pick: &Pick,
    schema: &SchemaRef,
    mut test: impl FnMut(&RecordBatch) -> Result<BooleanBuffer, LoadError>,
) -> Result<Pick, LoadError> {
    let mut narrowed = Pick::default();
    for group in &pick.groups {
        let mut kept = BooleanBufferBuilder::new(group.count());
        for batch in rows.read_group(group, schema)? {
            kept.append_buffer(&test(&batch?)?);
        }
        let kept = kept.finish();
        if kept.count_set_bits() > 0 {
            narrowed.groups.push(group.narrowed(kept));
        }
    }
    Ok(narrowed)
}

/// An open Parquet file. Only one thread may use a reader at a time, because all its handles of the file share one read
/// position.
pub(super) struct RowsReader {
    path: PathBuf,
    file: File,
    metadata: ArrowReaderMetadata,
}

impl RowsReader {
    /// Opens a file and reads its footer.
    ///
    /// # Errors
    /// [`LoadError::Damaged`] if the footer cannot be read.
    pub(super) fn open(path: &Path) -> Result<Self, LoadError> {
        let file = File::open(path).map_err(LoadError::io("open", path))?;
        // Reads the locations of pages too: the reader needs them to skip pages without picked rows.
        let options = ArrowReaderOptions::new().with_offset_index_policy(PageIndexPolicy::Optional);
        let metadata = ArrowReaderMetadata::load(&file, options).map_err(|error| unreadable(path, error))?;
        Ok(Self { path: path.to_owned(), file, metadata })
    }

    fn footer(&self) -> &ParquetMetaData {
        self.metadata.metadata()
    }

    /// Picks every row of the file.
    pub(super) fn all(&self) -> Pick {
        self.pick_groups(&|_| true)
    }

    /// Picks the row groups that may have rows within the range, according to their statistics. A row group without
    /// statistics is picked.
    pub(super) fn may_be_within(&self, table: &Table, range: TimeRange) -> Pick {
        let column = self.partition_column(table);
        self.pick_groups(&|group| group_range(group, column).is_none_or(|bounds| bounds.overlaps(range)))
    }

    /// Picks all rows of the row groups for which `is_picked` returns true.
    fn pick_groups(&self, is_picked: &dyn Fn(&RowGroupMetaData) -> bool) -> Pick {
        let groups = self.footer().row_groups().iter().enumerate().filter(|(_, group)| is_picked(group));
        let rows = |group: &RowGroupMetaData| usize::try_from(group.num_rows()).unwrap_or(0);
        Pick { groups: groups.map(|(index, group)| PickedGroup { index, rows: rows(group), kept: None }).collect() }
    }

    /// Returns the range of the partition column over all rows, according to the statistics. Returns `None` if the
    /// table or the file has no such column, the file has no rows, or a row group has no statistics.
    pub(super) fn bounds(&self, table: &Table) -> Option<TimeRange> {
        let column = self.partition_column(table);
        let mut bounding_range = None;
        for group in self.footer().row_groups() {
            bounding_range = TimeRange::bounding_range(bounding_range, Some(group_range(group, column)?));
        }
        bounding_range
    }

    /// Returns the index of the partition column among the columns of the file, or `None` if the table or the file has
    /// none.
    fn partition_column(&self, table: &Table) -> Option<usize> {
        let name = table.partition.as_deref()?;
        let columns = self.footer().file_metadata().schema_descr().columns();
        columns.iter().position(|column| column.path().parts() == [name])
    }

    /// Returns true if the footer says that the rows are in the order of the table.
    pub(super) fn is_in_order(&self, table: &Table) -> bool {
        order::is_in_order(table, self.footer())
    }

    /// Returns the approximate memory for reading all columns, in bytes: a page and a dictionary of each column, and a
    /// decoded batch.
    pub(super) fn buffer_bytes(&self) -> usize {
        let groups = 0..self.footer().num_row_groups();
        groups.map(|group| BATCH_BYTES + self.page_bytes(group)).max().unwrap_or(0)
    }

    /// Returns the approximate bytes that one row group needs in memory: one page and the dictionary of each column.
    fn page_bytes(&self, group: usize) -> usize {
        let pages = self.footer().offset_index().and_then(|groups| groups.get(group));
        let columns = self.footer().row_groups().get(group).map_or(&[][..], RowGroupMetaData::columns);
        let of_column = |(index, column): (usize, &ColumnChunkMetaData)| {
            let pages = pages.and_then(|columns| columns.get(index)).map_or(1, |pages| pages.page_locations.len());
            let bytes = usize::try_from(column.uncompressed_size()).unwrap_or(0);
            let dictionary = column.dictionary_page_offset().map_or(0, |_| bytes.min(DICTIONARY_BYTES_MAX));
            (bytes / pages.max(1) + dictionary).min(bytes)
        };
        columns.iter().enumerate().map(of_column).sum()
    }

    /// Returns the number of rows of a decoded batch of a row group. A batch has about [`BATCH_BYTES`], and at most
    /// [`BATCH_ROWS`] rows.
    fn batch_rows(&self, group: usize) -> usize {
        let Some(group) = self.footer().row_groups().get(group) else { return BATCH_ROWS };
        let row_bytes = group.total_byte_size().unsigned_abs() / group.num_rows().unsigned_abs().max(1);
        (BATCH_BYTES / usize::try_from(row_bytes.max(1)).unwrap_or(BATCH_BYTES)).clamp(1, BATCH_ROWS)
    }
}

impl PickedRows for RowsReader {
    /// Decodes the picked rows of one row group in batches. Pages without picked rows are skipped.
    fn read_group(&self, group: &PickedGroup, schema: &SchemaRef) -> Result<GroupBatches<'_>, LoadError> {
        let failed = |error: ParquetError| unreadable(&self.path, error);
        let file = self.file.try_clone().map_err(LoadError::io("open", &self.path))?;
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let columns = ProjectionMask::columns(self.metadata.parquet_schema(), names);
        let mut reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
            .with_projection(columns)
            .with_row_groups(vec![group.index])
            .with_batch_size(self.batch_rows(group.index));
        if let Some(selection) = group.selection() {
            reader = reader.with_row_selection(selection);
        }
        let batches = reader.build().map_err(failed)?;
        let schema = SchemaRef::clone(schema);
        Ok(Box::new(batches.map(move |batch| {
            batch.and_then(|batch| fit(&batch, &schema)).map_err(|error| unreadable(&self.path, error.into()))
        })))
    }
}

/// Returns the range of the partition column in a row group according to the statistics. `column` is the index of the
/// partition column. Returns `None` if the column or its statistics are missing.
fn group_range(group: &RowGroupMetaData, column: Option<usize>) -> Option<TimeRange> {
    let Some(Statistics::Int64(times)) = group.columns().get(column?)?.statistics() else { return None };
    let (first, last) = times.min_opt().zip(times.max_opt())?;
    Some(TimeRange { start_us: *first, end_us: last.saturating_add(1) })
}

/// Returns the error for a file that cannot be read: [`LoadError::File`] if the error came from outside of the Parquet
/// reader, such as the file system, or else [`LoadError::Damaged`].
pub(super) fn unreadable(path: &Path, error: ParquetError) -> LoadError {
    match error {
        ParquetError::External(source) => {
            let source = source.downcast().map_or_else(std::io::Error::other, |source| *source);
            LoadError::io("read", path)(source)
        }
        error => LoadError::Damaged { path: path.to_owned(), why: format!("it cannot be read: {error}") },
    }
}

/// Reduces a pick to the rows whose partition column is within the range. In a table without partitions, keeps every
/// row.
pub(super) fn pick_within(
    table: &Table,
    rows: &dyn PickedRows,
    pick: &Pick,
    range: TimeRange,
) -> Result<Pick, LoadError> {
    let schema = read_schema(table, &table.partition.as_deref().into_iter().collect::<Vec<_>>())?;
    narrow(rows, pick, &schema, |batch| rows_within(table, batch, range))
}

/// Reduces a pick to the rows that belong to the partition. In a table without partitions, keeps every row.
pub(super) fn pick_partition(
    table: &Table,
    rows: &dyn PickedRows,
    pick: &Pick,
    partition_by: PartitionBy,
    partition: Partition,
) -> Result<Pick, LoadError> {
    let Some(column) = table.partition.as_deref() else { return Ok(pick.clone()) };
    let schema = read_schema(table, &[column])?;
    narrow(rows, pick, &schema, |batch| {
        let times = time_column(batch, column)?;
        Ok(times.values().iter().map(|time_us| partition_by.of(*time_us) == partition).collect())
    })
}

/// Reduces a pick to the rows that have one of the keys.
pub(super) fn pick_keys(table: &Table, rows: &dyn PickedRows, pick: &Pick, keys: &KeySet) -> Result<Pick, LoadError> {
    let schema = read_schema(table, keys.columns())?;
    narrow(rows, pick, &schema, |batch| keys.contains(batch))
}
