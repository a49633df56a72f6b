//! The trait of the output formats.

use std::io::{self, Write};

use arrow::array::RecordBatch;

/// Writes the rows of a result in one format.
pub(super) trait RowWriter {
    /// Writes the next rows, or stores them until [`RowWriter::finish`]. The first batch has no rows, only the columns.
    fn write(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()>;

    /// Writes the end of the output, and all rows that were stored.
    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()>;
}
