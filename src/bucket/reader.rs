//! Reads an object in parts.

use std::io::{self, Read, Seek, SeekFrom};

use bytes::Bytes;

use super::{Bucket, BucketError, ListedObject};

/// Reads one version of an object. Each request reads a part, when it is needed. A failed request is an
/// [`io::Error`] with the [`BucketError`] inside.
#[derive(Debug)]
pub struct ObjectReader {
    bucket: Bucket,
    object: ListedObject,
    /// The most bytes that one request reads.
    part_bytes: u64,
    position: u64,
    part: Bytes,
    part_start: u64,
}

impl ObjectReader {
    /// Opens an object, and reads its first part. `part_bytes` is the most that one request reads.
    ///
    /// # Errors
    /// Also if another writer has replaced or removed the object since it was listed.
    pub fn open(bucket: &Bucket, object: &ListedObject, part_bytes: u64) -> Result<Self, BucketError> {
        let (bucket, object) = (bucket.clone(), object.clone());
        let mut reader = Self { bucket, object, part_bytes, position: 0, part: Bytes::new(), part_start: 0 };
        reader.read_part()?;
        Ok(reader)
    }

    /// Reads the part that begins at the position.
    fn read_part(&mut self) -> Result<(), BucketError> {
        let end = self.position.saturating_add(self.part_bytes).min(self.object.bytes);
        if self.position < end {
            self.part = self.bucket.read_range(&self.object, self.position..end)?;
            self.part_start = self.position;
        }
        Ok(())
    }

    /// Returns the bytes of the part from the position on.
    fn rest_of_part(&self) -> &[u8] {
        let offset = self.position.checked_sub(self.part_start).and_then(|offset| usize::try_from(offset).ok());
        offset.and_then(|offset| self.part.get(offset..)).unwrap_or_default()
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest_of_part().is_empty() {
            self.read_part().map_err(io::Error::other)?;
        }
        let rest = self.rest_of_part();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for ObjectReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, offset) = match to {
            SeekFrom::Start(position) => (position, 0),
            SeekFrom::End(offset) => (self.object.bytes, offset),
            SeekFrom::Current(offset) => (self.position, offset),
        };
        let position = from.checked_add_signed(offset);
        self.position = position.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.position)
    }
}
