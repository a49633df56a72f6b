//! Tries what a warehouse needs of a bucket.

use bytes::Bytes;

use super::{Bucket, BucketError, Content, Expected, Version, payload};
use crate::clock::now_ms;

/// Beginning of the keys of trial objects.
const TRIAL: &str = ".studysync/check";

/// What a check found out about a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketCheck {
    /// The store's clock minus this machine's clock, in milliseconds.
    pub clock_ahead_ms: i64,
    pub old_versions: OldVersions,
}

/// Whether a bucket keeps the content of objects that were replaced or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldVersions {
    Kept,
    NotKept,
    /// The store does not say.
    Unknown,
}

impl Bucket {
    /// Lists, writes, reads, replaces and removes a trial object, and begins a write in parts.
    ///
    /// # Errors
    /// The first step that fails; also if the store ignores conditions of writes.
    pub fn check(&self) -> Result<BucketCheck, BucketError> {
        self.list(".studysync", None)?;
        let key = format!("{TRIAL}-{}", uuid::Uuid::new_v4());
        let checked = self.check_with(&key);
        let removed = self.remove(std::slice::from_ref(&key));
        checked.and_then(|found| removed.map(|()| found))
    }

    fn check_with(&self, key: &str) -> Result<BucketCheck, BucketError> {
        let before_ms = now_ms();
        let first = self.put(key, Content::Bytes(b"1"), &Expected::Missing)?;
        let first = first.ok_or_else(|| self.ignores_conditions())?;
        let found = self.read(key)?.ok_or_else(|| self.ignores_conditions())?;
        let clock_ahead_ms = found.written_ms - before_ms;
        self.require_conditions(key)?;
        let second = self.put(key, Content::Bytes(b"2"), &Expected::Version(first.clone()))?;
        if second.is_none() || self.put(key, Content::Bytes(b"3"), &Expected::Version(first))?.is_some() {
            return Err(self.ignores_conditions());
        }
        self.check_parts(key)?;
        Ok(BucketCheck { clock_ahead_ms, old_versions: self.old_versions_by(second.as_ref()) })
    }

    /// Fails if the store ignores the condition that an object must not exist. `key` is an object that exists.
    pub fn require_conditions(&self, key: &str) -> Result<(), BucketError> {
        match self.put(key, Content::Bytes(uuid::Uuid::new_v4().as_bytes()), &Expected::Missing)? {
            None => Ok(()),
            Some(_) => Err(self.ignores_conditions()),
        }
    }

    /// Writes an object twice, to see whether the store gives its versions names.
    pub fn old_versions(&self) -> Result<OldVersions, BucketError> {
        let key = format!("{TRIAL}-{}", uuid::Uuid::new_v4());
        let written = self.put(&key, Content::Bytes(b"1"), &Expected::Missing)?;
        self.remove(&[key])?;
        Ok(self.old_versions_by(written.as_ref()))
    }

    fn old_versions_by(&self, written: Option<&Version>) -> OldVersions {
        let name = written.and_then(|version| version.0.version.as_deref());
        match (self.address().url().scheme(), name) {
            // Google gives each object a generation, whether it keeps old ones or not.
            ("gs", _) => OldVersions::Unknown,
            (_, Some(_)) => OldVersions::Kept,
            ("s3", None) => OldVersions::NotKept,
            (_, None) => OldVersions::Unknown,
        }
    }

    fn check_parts(&self, key: &str) -> Result<(), BucketError> {
        let path = self.path(key);
        let tried = self.wait(key, move |store| async move {
            let id = store.create_multipart(&path).await?;
            let part = store.put_part(&path, &id, 0, payload(Bytes::from_static(b"1"))).await;
            let aborted = store.abort_multipart(&path, &id).await;
            part.and(aborted)
        });
        tried.map_err(BucketError::of("write in parts", self.url_of(key)))
    }

    fn ignores_conditions(&self) -> BucketError {
        BucketError::ignores_conditions(self.address().to_string())
    }
}
