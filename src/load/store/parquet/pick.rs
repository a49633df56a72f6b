//! Which rows of a file are meant: some of its row groups, and some rows of each.

use arrow::buffer::BooleanBuffer;
use parquet::arrow::arrow_reader::RowSelection;

/// The rows of one row group that are meant.
#[derive(Clone, Debug)]
pub(super) struct PickedGroup {
    /// Place of the row group in its file.
    pub(super) index: usize,
    /// Rows of the row group, picked or not.
    pub(super) rows: usize,
    /// For each row, whether it is picked; `None`: every row is.
    pub(super) kept: Option<BooleanBuffer>,
}

impl PickedGroup {
    /// Rows that are picked.
    pub(super) fn count(&self) -> usize {
        self.kept.as_ref().map_or(self.rows, BooleanBuffer::count_set_bits)
    }

    /// The same for the reader of files; `None`: every row.
    pub(super) fn selection(&self) -> Option<RowSelection> {
        let kept = self.kept.as_ref()?;
        let ranges = kept.set_slices().map(|(start, end)| start..end);
        Some(RowSelection::from_consecutive_ranges(ranges, self.rows))
    }

    /// Those of the picked rows for which `kept`, which has a bit for each picked row, is set.
    pub(super) fn narrowed(&self, kept: BooleanBuffer) -> Self {
        let kept = match &self.kept {
            None => kept,
            Some(before) => {
                let mut all = vec![false; self.rows];
                for (place, is_kept) in before.set_indices().zip(kept.iter()) {
                    if let Some(bit) = all.get_mut(place) {
                        *bit = is_kept;
                    }
                }
                BooleanBuffer::from(all)
            }
        };
        let has_all_rows = kept.count_set_bits() == self.rows;
        Self { kept: (!has_all_rows).then_some(kept), ..*self }
    }
}

/// Rows of a file, in its order.
#[derive(Clone, Debug, Default)]
pub(super) struct Pick {
    /// Row groups with picked rows.
    pub(super) groups: Vec<PickedGroup>,
}

impl Pick {
    /// Rows that are picked.
    pub(super) fn count(&self) -> usize {
        self.groups.iter().map(PickedGroup::count).sum()
    }
}
