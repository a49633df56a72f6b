//! A selection of rows of a Parquet file: some of its row groups, and some rows of each.

use arrow::buffer::BooleanBuffer;
use parquet::arrow::arrow_reader::RowSelection;

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
