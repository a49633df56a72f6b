//! The long texts of Arrow rows. Few rows with long texts take as much memory as many others.

use arrow::array::{AsArray as _, RecordBatch};

/// A text of more bytes than this is long. DuckDB stores long texts in blocks that it cannot spill.
const SHORT_BYTES_MAX: usize = 4096;
/// The bytes of such a block. A text of more than half of it has a block of its own.
const BLOCK_BYTES: usize = 256 << 10;

/// The bytes of the long texts of each row of a batch; empty if the batch has none.
#[derive(Debug, Default)]
pub struct LongTexts(Vec<usize>);

impl LongTexts {
    /// Measures the columns of texts. Lists and numbers count as short.
    pub fn of(batch: &RecordBatch) -> Self {
        let mut row_bytes = Vec::new();
        for column in batch.columns().iter().filter_map(|column| column.as_string_opt::<i32>()) {
            let offsets = column.value_offsets();
            let total = offsets.last().copied().unwrap_or(0) - offsets.first().copied().unwrap_or(0);
            if total as usize <= SHORT_BYTES_MAX {
                continue;
            }
            for (row, ends) in offsets.windows(2).enumerate() {
                let bytes = ends.iter().copied().reduce(|start, end| end - start).unwrap_or(0) as usize;
                if bytes > SHORT_BYTES_MAX {
                    row_bytes.resize(batch.num_rows(), 0);
                    let taken = if bytes > BLOCK_BYTES / 2 { bytes.max(BLOCK_BYTES) } else { bytes };
                    row_bytes.iter_mut().skip(row).take(1).for_each(|sum: &mut usize| *sum += taken);
                }
            }
        }
        Self(row_bytes)
    }

    /// Returns the bytes of the long texts of a row.
    pub fn row_bytes(&self, row: usize) -> usize {
        self.0.get(row).copied().unwrap_or(0)
    }

    /// Returns the bytes of all long texts.
    pub fn total_bytes(&self) -> usize {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    #[test]
    fn texts_of_more_than_a_block_are_counted_by_row() {
        let text = |bytes: usize| Some("x".repeat(bytes));
        let columns: [(&str, ArrayRef); 3] = [
            ("one", Arc::new(StringArray::from(vec![text(10), text(4097), None, text(9000)]))),
            ("other", Arc::new(StringArray::from(vec![text(4096), text(5000), text(1), None]))),
            ("number", Arc::new(Int64Array::from(vec![1, 2, 3, 4]))),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let long = LongTexts::of(&rows);
        assert_eq!((0..4).map(|row| long.row_bytes(row)).collect::<Vec<_>>(), [0, 9097, 0, 9000]);
        assert_eq!(LongTexts::of(&rows.slice(2, 2)).total_bytes(), 9000, "rows of a slice");
        assert_eq!(LongTexts::of(&rows.slice(2, 1)).total_bytes(), 0);
    }
}
