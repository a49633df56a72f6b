//! Writes of objects.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::Path as FilePath,
    thread,
    time::Duration,
};

use bytes::Bytes;
use object_store::{
    Error, GetOptions, GetRange, MultipartId, ObjectStoreExt as _, PutMode, UpdateVersion, multipart::PartId,
};

use super::{Bucket, BucketError, Expected, ListedObject, Version, io_failure, payload};
use crate::model::DurableStep;

/// Largest object that is written in one request. A larger one is written in parts.
pub const WRITTEN_WHOLE_MAX: u64 = 16 << 20;
/// Bytes of a part. Stores want at least 5 MiB, and at most 10,000 parts.
const PART_BYTES: u64 = 16 << 20;
/// Number of bytes at the end of a large object that show whose object it is.
const TAIL_BYTES: u64 = 64 << 10;
/// Tries of a write that the client itself does not repeat, because a repetition could meet its own effect.
const TRIES: u32 = 5;
/// Delay before the second try; each further delay is twice as long.
const FIRST_DELAY: Duration = Duration::from_millis(200);
/// Folder of the records of unfinished writes in parts.
pub const UPLOADS: &str = ".studysync/uploads";

/// The content of a new object.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    Bytes(&'a [u8]),
    File(&'a FilePath),
}

/// A file that is written in parts.
struct Upload<'a> {
    file: &'a FilePath,
    bytes: u64,
}

impl Bucket {
    /// Writes an object. Returns its version, or `None` if the object is not as expected: another writer was first.
    pub fn put(&self, key: &str, content: Content<'_>, expected: &Expected) -> Result<Option<Version>, BucketError> {
        self.step(DurableStep::ObjectWritten, key)?;
        let failed = |error| BucketError::of("write", self.url_of(key))(error);
        let written = match content {
            Content::Bytes(bytes) => self.put_whole(key, Bytes::copy_from_slice(bytes), expected),
            Content::File(file) => match fs::metadata(file).map(|metadata| metadata.len()) {
                Ok(bytes) if bytes > WRITTEN_WHOLE_MAX => self.put_in_parts(key, &Upload { file, bytes }, expected),
                Ok(_) => match fs::read(file) {
                    Ok(bytes) => self.put_whole(key, bytes.into(), expected),
                    Err(error) => Err(io_failure(error)),
                },
                Err(error) => Err(io_failure(error)),
            },
        };
        let written = written.map_err(failed)?;
        self.step(DurableStep::ObjectWrittenNow, key)?;
        Ok(written)
    }

    fn put_whole(&self, key: &str, bytes: Bytes, expected: &Expected) -> Result<Option<Version>, Error> {
        let mode = match expected {
            Expected::Missing => PutMode::Create,
            // Google knows a version by its generation, which lists do not have.
            Expected::Version(version) if self.address().url().scheme() == "gs" && version.0.version.is_none() => {
                match self.version_of(key)? {
                    Some(found) if found == *version => PutMode::Update(found.0),
                    _ => return Ok(None),
                }
            }
            Expected::Version(version) => PutMode::Update(version.0.clone()),
            Expected::Anything => PutMode::Overwrite,
        };
        let mut delay = self.address().test_server().map_or(FIRST_DELAY, |server| server.first_delay);
        let mut tries = 1;
        loop {
            let (path, body, mode) = (self.path(key), payload(bytes.clone()), mode.clone());
            let answer = self.wait(key, move |store| async move { store.put_opts(&path, body, mode.into()).await });
            let error = match answer {
                Ok(written) => return Ok(Some(Version(UpdateVersion::from(written)))),
                Err(error) => error,
            };
            if is_refusal(&error) {
                return Err(error);
            }
            // The answer to this try, or to an earlier one, may be lost after the write took effect.
            let found = self.get(key, GetOptions::default())?;
            if let Some((meta, _)) = found.filter(|(_, found)| *found == bytes) {
                return Ok(Some(Version::of(&meta)));
            }
            if is_conflict(&error) {
                return Ok(None);
            }
            if tries == TRIES {
                return Err(error);
            }
            tries += 1;
            thread::sleep(delay);
            delay *= 2;
        }
    }

    /// Writes a file in parts. Stores have no condition for the last request of such a write, so the condition is
    /// tested just before.
    fn put_in_parts(&self, key: &str, upload: &Upload<'_>, expected: &Expected) -> Result<Option<Version>, Error> {
        if !self.is_as_expected(key, expected)? {
            return Ok(None);
        }
        let path = self.path(key);
        let id = self.wait(key, move |store| async move { store.create_multipart(&path).await })?;
        // The record lets the next writer abort the write if this process is killed.
        let record = format!("{UPLOADS}/{}", uuid::Uuid::new_v4());
        let recorded = self.put_whole(&record, Bytes::from(format!("{key}\n{id}")), &Expected::Missing);
        let written = recorded.and_then(|_| self.complete(key, upload, &id, expected));
        if !matches!(written, Ok(Some(_))) {
            self.abort(key, &id)?;
        }
        self.remove_record(&record);
        written
    }

    fn complete(
        &self,
        key: &str,
        upload: &Upload<'_>,
        id: &MultipartId,
        expected: &Expected,
    ) -> Result<Option<Version>, Error> {
        let parts = self.put_parts(key, upload, id)?;
        if !self.is_as_expected(key, expected)? {
            return Ok(None);
        }
        let (path, id) = (self.path(key), id.clone());
        let completed = self.wait(key, move |store| async move { store.complete_multipart(&path, &id, parts).await });
        match completed {
            Ok(written) => Ok(Some(Version(UpdateVersion::from(written)))),
            Err(error) => match self.version_if_same_end(key, upload)? {
                Some(version) => Ok(Some(version)),
                None => Err(error),
            },
        }
    }

    fn put_parts(&self, key: &str, upload: &Upload<'_>, id: &MultipartId) -> Result<Vec<PartId>, Error> {
        let mut file = File::open(upload.file).map_err(io_failure)?;
        let mut parts = Vec::new();
        loop {
            let sent = parts.len() as u64 * PART_BYTES;
            let mut bytes = Vec::with_capacity(PART_BYTES.min(upload.bytes.saturating_sub(sent)) as usize);
            (&mut file).take(PART_BYTES).read_to_end(&mut bytes).map_err(io_failure)?;
            if bytes.is_empty() {
                return Ok(parts);
            }
            let (path, id, index) = (self.path(key), id.clone(), parts.len());
            let body = payload(bytes.into());
            parts.push(self.wait(key, move |store| async move { store.put_part(&path, &id, index, body).await })?);
        }
    }

    fn is_as_expected(&self, key: &str, expected: &Expected) -> Result<bool, Error> {
        Ok(match (self.version_of(key)?, expected) {
            (_, Expected::Anything) => true,
            (Some(found), Expected::Version(version)) => found == *version,
            (None, Expected::Missing) => true,
            (Some(_), Expected::Missing) | (None, Expected::Version(_)) => false,
        })
    }

    fn version_of(&self, key: &str) -> Result<Option<Version>, Error> {
        let path = self.path(key);
        match self.wait(key, move |store| async move { store.head(&path).await }) {
            Err(Error::NotFound { .. }) => Ok(None),
            found => found.map(|meta| Some(Version::of(&meta))),
        }
    }

    /// Returns the version of the object if its size and its last bytes are those of the file.
    fn version_if_same_end(&self, key: &str, upload: &Upload<'_>) -> Result<Option<Version>, Error> {
        let mut end = Vec::new();
        let mut file = File::open(upload.file).map_err(io_failure)?;
        file.seek(SeekFrom::Start(upload.bytes.saturating_sub(TAIL_BYTES))).map_err(io_failure)?;
        file.read_to_end(&mut end).map_err(io_failure)?;
        let options = GetOptions { range: Some(GetRange::Suffix(end.len() as u64)), ..GetOptions::default() };
        let found = self.get(key, options)?.filter(|(meta, bytes)| meta.size == upload.bytes && *bytes == end);
        Ok(found.map(|(meta, _)| Version::of(&meta)))
    }

    /// Aborts writes in parts that killed writers have left. Only for a writer that has the folder alone.
    pub fn abort_uploads(&self, records: &[ListedObject]) -> Result<(), BucketError> {
        for record in records {
            let text = self.read(&record.key)?.map(|found| found.bytes);
            let text = text.as_deref().and_then(|text| std::str::from_utf8(text).ok());
            if let Some((key, id)) = text.and_then(|text| text.split_once('\n')) {
                let aborted = self.abort(key, &id.to_owned());
                aborted.map_err(BucketError::of("abort the write of", self.url_of(key)))?;
            }
            self.remove_record(&record.key);
        }
        Ok(())
    }

    fn abort(&self, key: &str, id: &MultipartId) -> Result<(), Error> {
        let (path, id) = (self.path(key), id.clone());
        match self.wait(key, move |store| async move { store.abort_multipart(&path, &id).await }) {
            // The write is complete, or aborted already.
            Err(Error::NotFound { .. }) => Ok(()),
            aborted => aborted,
        }
    }

    /// Removes the record of a write in parts. If this fails, the next writer removes it.
    fn remove_record(&self, record: &str) {
        let path = self.path(record);
        let _ = self.wait(record, move |store| async move { store.delete(&path).await });
    }
}

/// Returns true if the object is not as the condition of the write says.
fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. })
}

/// Returns true if a repetition would fail too.
fn is_refusal(error: &Error) -> bool {
    let is_local = |error: &Error| matches!(error, Error::Generic { store: "file", .. });
    is_local(error)
        || matches!(
            error,
            Error::PermissionDenied { .. }
                | Error::Unauthenticated { .. }
                | Error::NotImplemented { .. }
                | Error::NotSupported { .. }
        )
}
