//! Decides where the chunks end in which a file is written. The ends depend on the rows alone, so that equal rows give
//! equal files.

/// Number of rows of a chunk, unless its rows are long.
pub(super) const CHUNK_ROWS: usize = 2048;
/// Bytes of long texts at which a chunk ends early.
const LONG_BYTES_MAX: usize = 4 << 20;

/// The rows of a chunk so far.
#[derive(Debug, Default)]
pub(super) struct ChunkSize {
    rows: usize,
    long_bytes: usize,
}

impl ChunkSize {
    /// Adds a row with this many bytes of long texts.
    pub(super) fn add(&mut self, long_bytes: usize) {
        self.rows += 1;
        self.long_bytes += long_bytes;
    }

    /// Returns true if the chunk ends with its last row.
    pub(super) fn is_full(&self) -> bool {
        self.rows >= CHUNK_ROWS || self.long_bytes >= LONG_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of rows of the first chunk.
    fn rows_of_chunk(long_bytes: impl Fn(usize) -> usize) -> usize {
        let mut size = ChunkSize::default();
        (1..=usize::MAX)
            .find(|rows| {
                size.add(long_bytes(*rows));
                size.is_full()
            })
            .unwrap()
    }

    #[test]
    fn p8_chunks_of_long_texts_have_fewer_rows() {
        assert_eq!(rows_of_chunk(|_| 0), CHUNK_ROWS);
        assert_eq!(rows_of_chunk(|_| 1 << 20), 4);
        assert_eq!(rows_of_chunk(|row| if row == 3 { 16 << 20 } else { 0 }), 3, "one long text ends a chunk");
    }
}
