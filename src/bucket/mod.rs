//! Objects in a bucket of S3, Google Cloud Storage or Azure. All calls block the thread.
//!
//! A write has a condition ([`Expected`]): two writers cannot both replace one version of an object. The answer to a
//! write can be lost after the write took effect. So a write that seems to fail is a success if the object has the
//! written content.

mod check;
mod client;
mod error;
#[cfg(test)]
pub mod faulty;
mod put;
mod reader;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::Future,
    io,
    ops::Range,
    sync::{Arc, Mutex, PoisonError, Weak, mpsc},
};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{GetOptions, ObjectMeta, PutPayload, UpdateVersion, path::Path};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

pub use check::{BucketCheck, OldVersions};
pub use client::Backend;
pub use error::{BucketError, BucketErrorKind};
pub use put::{Content, UPLOADS, WRITTEN_WHOLE_MAX};
pub use reader::ObjectReader;

use crate::model::{BucketAddress, DurableStep, Failpoints};

/// A version of an object. Each write gives an object another version.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "StoredVersion", into = "StoredVersion")]
pub struct Version(UpdateVersion);

impl PartialEq for Version {
    /// Compares the tags, because lists of objects have no other name of a version.
    fn eq(&self, other: &Self) -> bool {
        match (&self.0.e_tag, &other.0.e_tag) {
            (Some(tag), Some(other)) => tag.trim_matches('"') == other.trim_matches('"'),
            _ => self.0.version == other.0.version,
        }
    }
}

impl Eq for Version {}

/// A version in a file.
#[derive(Serialize, Deserialize)]
struct StoredVersion {
    e_tag: Option<String>,
    version: Option<String>,
}

impl From<StoredVersion> for Version {
    fn from(StoredVersion { e_tag, version }: StoredVersion) -> Self {
        Self(UpdateVersion { e_tag, version })
    }
}

impl From<Version> for StoredVersion {
    fn from(Version(UpdateVersion { e_tag, version }): Version) -> Self {
        Self { e_tag, version }
    }
}

impl Version {
    fn of(meta: &ObjectMeta) -> Self {
        Self(UpdateVersion { e_tag: meta.e_tag.clone(), version: meta.version.clone() })
    }

    /// Returns the tag by which the store names the version; empty if the store has no tags.
    pub fn tag(&self) -> &str {
        self.0.e_tag.as_deref().unwrap_or_default()
    }
}

/// The condition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The object does not exist.
    Missing,
    /// The object has this version.
    Version(Version),
    /// The object may exist, and have any version.
    Anything,
}

impl From<Option<Version>> for Expected {
    /// Expects the version that was found, or no object.
    fn from(found: Option<Version>) -> Self {
        found.map_or(Self::Missing, Self::Version)
    }
}

/// The content of an object.
#[derive(Clone, Debug)]
pub struct Object {
    pub bytes: Bytes,
    pub version: Version,
    /// When the object was written, by the clock of the store, in epoch milliseconds.
    pub written_ms: i64,
}

/// An object in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedObject {
    /// The key below the folder of the bucket.
    pub key: String,
    /// Size in bytes.
    pub bytes: u64,
    pub version: Version,
}

/// A folder of a bucket. Keys of objects are relative to the folder. Clones share the connections.
#[derive(Clone)]
pub struct Bucket(Arc<Shared>);

struct Shared {
    connection: Arc<Connection>,
    address: BucketAddress,
    failpoints: Failpoints,
}

/// The client of a bucket, and the threads of its requests.
struct Connection {
    store: Arc<dyn Backend>,
    /// `None` only while this value is dropped.
    runtime: Option<Runtime>,
}

/// The connections in use. All folders of one bucket share a connection.
static CONNECTIONS: Mutex<Vec<(BucketAddress, Weak<Connection>)>> = Mutex::new(Vec::new());

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.0.address)
    }
}

impl Connection {
    fn open(store: Arc<dyn Backend>, address: &BucketAddress) -> Result<Arc<Self>, BucketError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("bucket").enable_all().build();
        let runtime = runtime.map_err(|error| BucketError::local("start a thread for", address.to_string(), error))?;
        Ok(Arc::new(Self { store, runtime: Some(runtime) }))
    }

    /// Returns the connection that is in use, or a new one.
    fn to(address: &BucketAddress) -> Result<Arc<Self>, BucketError> {
        // Every change is complete after one call.
        let mut all = CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, connection)| connection.strong_count() > 0);
        let in_use = all.iter().filter(|(other, _)| other.is_same_bucket(address)).find_map(|(_, open)| open.upgrade());
        if let Some(connection) = in_use {
            return Ok(connection);
        }
        let store = client::store_of(address).map_err(|error| BucketError::of("open", address.to_string())(error))?;
        let connection = Self::open(store, address)?;
        all.push((address.clone(), Arc::downgrade(&connection)));
        Ok(connection)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A runtime that is dropped waits for its tasks, which an asynchronous caller must not do.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Bucket {
    /// Prepares access to the bucket. The credentials come from the usual variables of the provider. Makes no request.
    ///
    /// # Errors
    /// If the variables contradict each other, or the address lacks what the provider needs.
    pub fn connect(address: &BucketAddress, failpoints: &Failpoints) -> Result<Self, BucketError> {
        let connection = Connection::to(address)?;
        Ok(Self(Arc::new(Shared { connection, address: address.clone(), failpoints: failpoints.clone() })))
    }

    /// Creates access to a store of objects.
    #[cfg(test)]
    pub fn over(store: Arc<dyn Backend>, address: BucketAddress, failpoints: Failpoints) -> Result<Self, BucketError> {
        Ok(Self(Arc::new(Shared { connection: Connection::open(store, &address)?, address, failpoints })))
    }

    /// Returns the address of the folder.
    pub fn address(&self) -> &BucketAddress {
        &self.0.address
    }

    /// Returns the failpoints of the run.
    pub fn failpoints(&self) -> &Failpoints {
        &self.0.failpoints
    }

    /// Returns the address of an object, for messages.
    pub fn url_of(&self, key: &str) -> String {
        format!("{}/{key}", self.0.address)
    }

    /// Reads an object; `None` if it does not exist.
    pub fn read(&self, key: &str) -> Result<Option<Object>, BucketError> {
        let found = self.get(key, GetOptions::default()).map_err(BucketError::of("read", self.url_of(key)))?;
        Ok(found.map(|(meta, bytes)| {
            let written_ms = meta.last_modified.timestamp_millis();
            Object { bytes, version: Version::of(&meta), written_ms }
        }))
    }

    /// Reads an object, or the part of it that the options name; `None` if it does not exist.
    fn get(&self, key: &str, options: GetOptions) -> Result<Option<(ObjectMeta, Bytes)>, object_store::Error> {
        let path = self.path(key);
        let found = self.wait(key, move |store| async move {
            let found = store.get_opts(&path, options).await?;
            Ok((found.meta.clone(), found.bytes().await?))
        });
        match found {
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Reads bytes of this version of an object.
    ///
    /// # Errors
    /// Also if another writer has replaced or removed the object.
    pub fn read_range(&self, object: &ListedObject, range: Range<u64>) -> Result<Bytes, BucketError> {
        let path = self.path(&object.key);
        let if_match = object.version.0.e_tag.clone();
        let options = GetOptions { if_match, range: Some(range.into()), ..GetOptions::default() };
        let found =
            self.wait(&object.key, move |store| async move { store.get_opts(&path, options).await?.bytes().await });
        found.map_err(BucketError::of("read", self.url_of(&object.key)))
    }

    /// Lists the objects whose keys begin with `folder` and a slash, in the order of keys; with `after`, only larger
    /// keys.
    pub fn list(&self, folder: &str, after: Option<&str>) -> Result<Vec<ListedObject>, BucketError> {
        let prefix = self.path(folder);
        let after = after.map(|key| self.path(key));
        let found = self.wait(folder, move |store| async move {
            let listed = match &after {
                Some(after) => store.list_with_offset(Some(&prefix), after),
                None => store.list(Some(&prefix)),
            };
            listed.try_collect::<Vec<_>>().await
        });
        let found = found.map_err(BucketError::of("list", self.url_of(folder)))?;
        let start = match self.0.address.prefix() {
            "" => 0,
            prefix => prefix.len() + 1,
        };
        let key = |meta: &ObjectMeta| meta.location.as_ref().get(start..).map(str::to_owned);
        let listed =
            |meta: ObjectMeta| Some(ListedObject { key: key(&meta)?, bytes: meta.size, version: Version::of(&meta) });
        let mut found: Vec<_> = found.into_iter().filter_map(listed).collect();
        found.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(found)
    }

    /// Removes objects; one that does not exist is no error.
    pub fn remove(&self, keys: &[String]) -> Result<(), BucketError> {
        if keys.is_empty() {
            return Ok(());
        }
        self.step(DurableStep::ObjectRemoved, keys.first().map_or("", String::as_str))?;
        let paths: Vec<_> = keys.iter().map(|key| Ok(self.path(key))).collect();
        let removed = self.wait("", move |store| async move {
            let removed = store.delete_stream(futures::stream::iter(paths).boxed());
            let is_failure = |result: Result<Path, object_store::Error>| async move {
                match result {
                    Err(error) if !matches!(error, object_store::Error::NotFound { .. }) => Some(error),
                    _ => None,
                }
            };
            let failures: Vec<_> = removed.filter_map(is_failure).collect().await;
            failures.into_iter().next().map_or(Ok(()), Err)
        });
        removed.map_err(BucketError::of("remove objects of", self.0.address.to_string()))
    }

    fn path(&self, key: &str) -> Path {
        let key = match self.0.address.prefix() {
            "" => key.to_owned(),
            prefix => format!("{prefix}/{key}"),
        };
        // Other programs name objects with characters that `Path::from` would write in another way.
        Path::parse(&key).unwrap_or_else(|_| Path::from(key))
    }

    /// Hits the failpoint of a request that changes objects.
    fn step(&self, step: DurableStep, key: &str) -> Result<(), BucketError> {
        let hit = self.0.failpoints.hit(step);
        hit.map_err(|error| BucketError::local("change", self.url_of(key), error))
    }

    /// Makes a request on the threads of the bucket, and blocks until it is answered.
    fn wait<T, F>(&self, key: &str, request: impl FnOnce(Arc<dyn Backend>) -> F) -> Result<T, object_store::Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, object_store::Error>> + Send + 'static,
    {
        let (answer, answered) = mpsc::sync_channel(1);
        let request = request(Arc::clone(&self.0.connection.store));
        let task = async move {
            // The receiver waits until the answer is here.
            let _ = answer.send(request.await);
        };
        if let Some(runtime) = &self.0.connection.runtime {
            runtime.spawn(task);
        }
        // The sender is gone without an answer only if the request panicked.
        let lost = || object_store::Error::Generic {
            store: "bucket",
            source: format!("the request for {key} panicked").into(),
        };
        answered.recv().unwrap_or_else(|_| Err(lost()))
    }
}

/// Returns the error of a failed file operation as an error of a request.
fn io_failure(error: io::Error) -> object_store::Error {
    object_store::Error::Generic { store: "file", source: Box::new(error) }
}

fn payload(bytes: Bytes) -> PutPayload {
    PutPayload::from_bytes(bytes)
}
