//! A warehouse in a bucket. The folder of the store is its working copy: a file appears there when it is needed, and a
//! changed file is written to the bucket first.
//!
//! ```text
//! <table>/created_month=2026-01-01/data.parquet, <table>/data.parquet   as in a folder
//! .studysync/warehouse.json, .studysync/files.json                     as in a folder
//! .studysync/parts/<number>-<id>.part                                  the files of a commit, one after the other
//! .studysync/parts/<number>.json                                       the commit: names and sizes of these files
//! .studysync/lease.json                                                the writer
//! .studysync/uploads/<id>                                              a write in parts that is not complete
//! ```
//!
//! The object of a commit is created only if its number is free. It stays after the publish, so that a writer which
//! does not know of the commit cannot use the number again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};

use super::{
    lease::{self, Lease, Writer},
    lock,
    working_copy::{LIST, LOCK, PARTS, PRIVATE, PackedFile, clear, pack, take_working_copy, unpack, write_list},
};
use crate::{
    bucket::{Bucket, BucketErrorKind, Content, Expected, ListedObject, UPLOADS, Version},
    files,
    load::LoadError,
    schema,
};

/// Folder of files that only this machine has.
pub(super) const SCRATCH: &str = ".studysync/scratch";
/// Exists while a rebuilt warehouse replaces this one.
const REPLACEMENT: &str = ".studysync/replacement.json";
/// Names the service of the warehouse. Each warehouse has it.
pub(super) const WAREHOUSE: &str = ".studysync/warehouse.json";
/// Beginnings of the keys of objects that are there without a warehouse too.
const NO_PARTS: [&str; 4] = [lease::KEY, UPLOADS, ".studysync/check", ".studysync/state/"];
/// Files and folders of the working copy that the bucket does not have in this form.
const LOCAL: [&str; 4] = [PARTS, SCRATCH, LIST, LOCK];
/// Number of published commits whose objects stay.
pub(super) const PUBLISHED_KEPT: u64 = 256;
/// Bytes that one request reads.
pub(super) const READ_BYTES: u64 = 16 << 20;

/// A committed part.
#[derive(Debug, Serialize, Deserialize)]
struct Commit {
    /// Name of the part's folder in the working copy.
    folder: String,
    /// Key of the object with the files.
    data: String,
    /// The files in the object, in this order.
    files: Vec<PackedFile>,
    /// The process that made the commit, for the message of another writer.
    writer: Writer,
}

/// An object, and whether the working copy has it.
struct Known {
    object: ListedObject,
    is_here: bool,
}

/// The bucket of a warehouse, and its working copy.
pub(super) struct Remote {
    bucket: Bucket,
    folder: PathBuf,
    known: Mutex<BTreeMap<String, Known>>,
    /// True after the first list, which the first refresh uses.
    is_listed: AtomicBool,
    /// The last published commit when this process looked for commits.
    published: AtomicU64,
    /// `None` for a reader.
    lease: Option<Lease>,
    /// Keeps other processes from the working copy. Dropped last.
    _lock: File,
}

impl Remote {
    /// Opens the warehouse for writing. `folder` is the working copy on this machine, or a folder to be made.
    ///
    /// # Errors
    /// [`LoadError::Locked`] while another writer has the warehouse.
    pub(super) fn open(bucket: Bucket, folder: &Path) -> Result<Self, LoadError> {
        let lease = Lease::take(&bucket)?;
        let remote = Self::listed(bucket, folder, Some(lease))?;
        let uploads = remote.objects_below(UPLOADS);
        remote.bucket.abort_uploads(&uploads)?;
        Ok(remote)
    }

    /// Opens the warehouse for reading.
    pub(super) fn open_to_compare(bucket: Bucket, folder: &Path) -> Result<Self, LoadError> {
        let remote = Self::listed(bucket, folder, None)?;
        if remote.is_empty() {
            return Err(LoadError::Missing { path: remote.place() });
        }
        remote.require_complete().map(|()| remote)
    }

    /// Fails if a replay was stopped while it replaced the warehouse.
    pub(super) fn require_complete(&self) -> Result<(), LoadError> {
        if !self.known().contains_key(REPLACEMENT) {
            return Ok(());
        }
        let why = "a replay was stopped while it replaced the warehouse: run a command on the machine of the replay, \
                   which ends it, or remove the objects and replay again";
        Err(LoadError::Damaged { path: self.place(), why: why.to_owned() })
    }

    /// Fails if the store ignores the conditions of writes.
    pub(super) fn require_conditions(&self) -> Result<(), LoadError> {
        Ok(self.bucket.require_conditions(lease::KEY)?)
    }

    fn listed(bucket: Bucket, folder: &Path, lease: Option<Lease>) -> Result<Self, LoadError> {
        files::create_folders(&folder.join(PRIVATE)).map_err(LoadError::io("create", folder))?;
        let folder = fs::canonicalize(folder).map_err(LoadError::io("find", folder))?;
        let _lock = lock::exclusive(&folder, &folder.join(LOCK))?;
        let before = take_working_copy(&folder, &bucket.address().to_string())?;
        let before = before.into_iter().map(|object| (object.key.clone(), Known { object, is_here: true })).collect();
        let (known, is_listed, published) = (Mutex::new(before), AtomicBool::new(false), AtomicU64::default());
        let remote = Self { bucket, folder, known, is_listed, published, lease, _lock };
        remote.list()?;
        remote.is_listed.store(true, Ordering::Relaxed);
        Ok(remote)
    }

    /// Returns the working copy.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the address of the warehouse, as a path for messages.
    pub(super) fn place(&self) -> PathBuf {
        self.bucket.address().to_string().into()
    }

    /// Returns true if the bucket has the file of the working copy at this path, and not only this machine.
    pub(super) fn keeps(&self, path: &Path) -> bool {
        let is_local = |below: &Path| LOCAL.iter().any(|local| below.starts_with(local));
        path.strip_prefix(&self.folder).is_ok_and(|below| !is_local(below))
    }

    /// Reads the list of objects again, unless it is the first list since the opening. Removes files of other versions
    /// from the working copy.
    pub(super) fn refresh(&self) -> Result<(), LoadError> {
        if self.is_listed.swap(false, Ordering::Relaxed) { Ok(()) } else { self.list() }
    }

    /// Reads the list of objects again. Removes files of other versions from the working copy.
    pub(super) fn list(&self) -> Result<(), LoadError> {
        let listed = self.bucket.list("", None)?;
        let mut known = self.known();
        let before = std::mem::take(&mut *known);
        for object in listed {
            let is_same =
                before.get(&object.key).is_some_and(|old| old.is_here && old.object.version == object.version);
            known.insert(object.key.clone(), Known { object, is_here: is_same });
        }
        let gone = before.iter().filter(|(key, old)| old.is_here && !known.get(*key).is_some_and(|new| new.is_here));
        let gone: Vec<PathBuf> = gone.map(|(key, _)| self.folder.join(key)).collect();
        drop(known);
        gone.iter().try_for_each(|path| files::remove(path).map_err(LoadError::io("remove", path)))
    }

    /// Returns true if the bucket has no object of the warehouse but the lease.
    pub(super) fn is_empty(&self) -> bool {
        let is_of_warehouse = |key: &String| !NO_PARTS.iter().any(|other| key.starts_with(other));
        !self.known().keys().any(is_of_warehouse)
    }

    /// Returns true if the bucket has objects, and all of them are of other programs.
    pub(super) fn is_of_others(&self) -> bool {
        let is_ours = |key: &String| key.starts_with(PRIVATE) && !key.starts_with(lease::KEY);
        !self.is_empty() && !self.known().keys().any(is_ours)
    }

    /// Returns true if the bucket has this file of the working copy.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.known().contains_key(&self.key_of(path))
    }

    /// Returns the files in a folder of the working copy and below, whether they are here or not.
    pub(super) fn files_below(&self, folder: &Path) -> Vec<PathBuf> {
        self.objects_below(&self.key_of(folder)).iter().map(|object| self.folder.join(&object.key)).collect()
    }

    /// Brings the files below a key into the working copy.
    pub(super) fn fetch_below(&self, key: &str) -> Result<(), LoadError> {
        let lease = self.folder.join(lease::KEY);
        let files = self.files_below(&self.folder.join(key));
        files.iter().filter(|file| **file != lease).try_for_each(|file| self.fetch(file))
    }

    /// Brings a file into the working copy. Does nothing if the file is here, or the bucket does not have it.
    pub(super) fn fetch(&self, path: &Path) -> Result<(), LoadError> {
        let key = self.key_of(path);
        let object = match self.known().get(&key) {
            Some(known) if !known.is_here => known.object.clone(),
            _ => return Ok(()),
        };
        let folder = files::folder_of(path);
        files::create_folders(folder).map_err(LoadError::io("create", folder))?;
        let new = files::with_suffix(path, ".new");
        let mut file = File::create(&new).map_err(LoadError::io("create", &new))?;
        for start in (0..object.bytes).step_by(READ_BYTES as usize) {
            let end = (start + READ_BYTES).min(object.bytes);
            let bytes = self.bucket.read_range(&object, start..end).map_err(|error| match error.kind() {
                BucketErrorKind::Changed | BucketErrorKind::Missing if self.lease.is_some() => self.lost(),
                _ => error.into(),
            })?;
            file.write_all(&bytes).map_err(LoadError::io("write", &new))?;
        }
        drop(file);
        files::move_over_unsynced(&new, path).map_err(LoadError::io("replace", path))?;
        if let Some(known) = self.known().get_mut(&key) {
            known.is_here = true;
        }
        Ok(())
    }

    /// Writes a file to the bucket. `target` is the file in the working copy, which the caller replaces afterwards.
    ///
    /// # Errors
    /// [`LoadError::Locked`] if another writer has changed the object.
    pub(super) fn put(&self, target: &Path, content: Content<'_>) -> Result<(), LoadError> {
        self.require_lease()?;
        let key = self.key_of(target);
        let expected = self.known().get(&key).map(|known| known.object.version.clone()).into();
        let Some(version) = self.bucket.put(&key, content, &expected)? else { return Err(self.lost()) };
        let bytes = match content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::File(file) => fs::metadata(file).map_err(LoadError::io("read", file))?.len(),
        };
        let object = ListedObject { key: key.clone(), bytes, version };
        self.known().insert(key, Known { object, is_here: false });
        Ok(())
    }

    /// Notes that the working copy has the file that was written last.
    pub(super) fn arrived(&self, target: &Path) {
        if let Some(known) = self.known().get_mut(&self.key_of(target)) {
            known.is_here = true;
        }
    }

    /// Removes a file from the bucket. Does nothing if the bucket does not have it.
    pub(super) fn remove(&self, path: &Path) -> Result<(), LoadError> {
        self.require_lease()?;
        let key = self.key_of(path);
        if self.known().contains_key(&key) {
            self.remove_keys(&[key])?;
        }
        Ok(())
    }

    /// Commits a part: writes the files in `folder` to the bucket. `name` is the name that the folder gets afterwards.
    ///
    /// # Errors
    /// [`LoadError::Locked`] with its writer if the number is in use.
    pub(super) fn commit(&self, folder: &Path, number: u64, name: &str) -> Result<(), LoadError> {
        self.require_lease()?;
        let data = format!("{PARTS}/{number:012}-{}.part", uuid::Uuid::new_v4().simple());
        let packed = files::with_suffix(folder, ".part");
        let files = pack(folder, &packed)?;
        let written = self.bucket.put(&data, Content::File(&packed), &Expected::Missing);
        fs::remove_file(&packed).map_err(LoadError::io("remove", &packed))?;
        written.map(|version| self.note(&data, version))?;
        let commit = Commit { folder: name.to_owned(), data, files, writer: Writer::this() };
        let text = serde_json::to_vec(&commit).map_err(|error| LoadError::Bug(error.to_string()))?;
        let key = commit_key(number);
        if let Some(version) = self.bucket.put(&key, Content::Bytes(&text), &Expected::Missing)? {
            self.note(&key, Some(version));
            return Ok(());
        }
        let first = self.read_commit(&key)?;
        // The data of the refused commit belongs to no commit.
        self.bucket.remove(&[commit.data])?;
        Err(self.taken(first.map(|first| first.writer.to_string())))
    }

    /// Brings the commits after `published` into the folder of parts, and removes data that belongs to no commit.
    pub(super) fn fetch_commits(&self, published: u64) -> Result<(), LoadError> {
        self.published.store(published, Ordering::Relaxed);
        let mut data: Vec<String> = Vec::new();
        for object in self.objects_below(PARTS) {
            let Some(number) = object.key.strip_suffix(".json").and_then(number_of) else { continue };
            if number <= published {
                continue;
            }
            let commit = self.read_commit(&object.key)?;
            let damaged = |why: &str| LoadError::Damaged { path: self.place(), why: format!("{} {why}", object.key) };
            let commit = commit.ok_or_else(|| damaged("cannot be read"))?;
            let folder = self.folder.join(PARTS).join(&commit.folder);
            if !folder.is_dir() {
                let packed = self.folder.join(&commit.data);
                if !self.has(&packed) {
                    return Err(damaged("has lost its data"));
                }
                self.fetch(&packed)?;
                unpack(&packed, &commit.files, &folder)?;
                fs::remove_file(&packed).map_err(LoadError::io("remove", &packed))?;
            }
            data.push(commit.data);
        }
        if self.lease.is_none() {
            return Ok(());
        }
        let objects = self.objects_below(PARTS).into_iter().map(|object| object.key);
        let left: Vec<String> = objects.filter(|key| key.ends_with(".part") && !data.contains(key)).collect();
        self.remove_keys(&left)
    }

    /// Removes all commits, published or not.
    pub(super) fn remove_all_commits(&self) -> Result<(), LoadError> {
        self.require_lease()?;
        let keys: Vec<String> = self.objects_below(PARTS).into_iter().map(|object| object.key).collect();
        self.remove_keys(&keys)
    }

    /// Begins to replace the warehouse by the one in the folder `built`, which gets the name of the replacement.
    pub(super) fn begin_replacement(&self, built: &Path) -> Result<(), LoadError> {
        let name = uuid::Uuid::new_v4().to_string();
        let path = built.join(REPLACEMENT);
        fs::write(&path, &name).map_err(LoadError::io("write", &path))?;
        self.put(&self.folder.join(REPLACEMENT), Content::Bytes(name.as_bytes()))
    }

    /// Returns true if the bucket is being replaced by the warehouse in the folder `built`.
    pub(super) fn is_replaced_by(&self, built: &Path) -> Result<bool, LoadError> {
        let found = self.bucket.read(REPLACEMENT)?;
        Ok(found.is_some_and(|found| fs::read(built.join(REPLACEMENT)).is_ok_and(|name| name == found.bytes)))
    }

    /// Replaces the warehouse by the one in the folder `built`. A repetition ends a replacement that was stopped.
    pub(super) fn replace(&self, built: &Path) -> Result<(), LoadError> {
        let marker = self.folder.join(REPLACEMENT);
        self.remove_all_commits()?;
        let mut kept = Vec::new();
        for file in files::files_below(built)? {
            let below = file.strip_prefix(built).unwrap_or(&file);
            let target = self.folder.join(below);
            if self.keeps(&target) && target != marker {
                self.put(&target, Content::File(&file))?;
                kept.push(self.key_of(&target));
            }
        }
        let is_old = |key: &String| {
            let table = key.split('/').next().unwrap_or_default();
            schema::table(table).is_some() && !kept.contains(key)
        };
        let old: Vec<String> = self.known().keys().filter(|key| is_old(key)).cloned().collect();
        self.remove_keys(&old)?;
        self.remove(&marker)?;
        // The working copy has none of the new files.
        self.known().values_mut().for_each(|known| known.is_here = false);
        clear(&self.folder, &BTreeSet::new())
    }

    fn remove_keys(&self, keys: &[String]) -> Result<(), LoadError> {
        self.bucket.remove(keys)?;
        let mut known = self.known();
        keys.iter().for_each(|key| drop(known.remove(key)));
        Ok(())
    }

    /// Adds an object of a commit to the list.
    fn note(&self, key: &str, version: Option<Version>) {
        if let Some(version) = version {
            let object = ListedObject { key: key.to_owned(), bytes: 0, version };
            self.known().insert(key.to_owned(), Known { object, is_here: false });
        }
    }

    /// Returns the largest number of a commit, published or not; 0 if there is none.
    pub(super) fn last_commit(&self) -> u64 {
        let keys = self.objects_below(PARTS);
        keys.iter().filter_map(|object| number_of(object.key.strip_suffix(".json")?)).max().unwrap_or(0)
    }

    /// Removes the data of published commits, and objects of old commits.
    pub(super) fn remove_commits(&self, numbers: &[u64]) -> Result<(), LoadError> {
        self.require_lease()?;
        let last = numbers.iter().max().copied().unwrap_or(0);
        let is_done = |object: &ListedObject| match number_of(&object.key) {
            Some(number) if object.key.ends_with(".json") => number + PUBLISHED_KEPT <= last,
            Some(number) => numbers.contains(&number),
            None => false,
        };
        let done: Vec<String> =
            self.objects_below(PARTS).into_iter().filter(is_done).map(|object| object.key).collect();
        self.remove_keys(&done)
    }

    fn require_lease(&self) -> Result<(), LoadError> {
        match &self.lease {
            Some(lease) => lease.require(),
            None => Err(LoadError::Bug("a change of a bucket that was opened to compare".to_owned())),
        }
    }

    /// Reads the object of a commit; `None` if it does not exist or cannot be read as a commit.
    fn read_commit(&self, key: &str) -> Result<Option<Commit>, LoadError> {
        let found = self.bucket.read(key)?;
        Ok(found.and_then(|found| serde_json::from_slice(&found.bytes).ok()))
    }

    /// Returns the error of a writer that another one has overtaken. Names the other holder of the lease, else the
    /// newest other writer of a commit since the last publish that this process has seen.
    fn lost(&self) -> LoadError {
        let published = self.published.load(Ordering::Relaxed);
        let mut commits = self.bucket.list(PARTS, None).unwrap_or_default();
        commits.retain(|object| object.key.ends_with(".json") && number_of(&object.key) >= Some(published));
        let writer = |object: &ListedObject| Some(self.read_commit(&object.key).ok()??.writer);
        let other = || commits.iter().rev().filter_map(writer).find(|writer| !writer.is_this());
        self.taken(lease::other_holder(&self.bucket).or_else(other).map(|writer| writer.to_string()))
    }

    /// Refuses all later writes of this process: it must not publish the commits of the other writer.
    fn taken(&self, holder: Option<String>) -> LoadError {
        self.lease.iter().for_each(|lease| lease.end(holder.clone()));
        LoadError::Locked { path: self.place(), holder }
    }

    fn key_of(&self, path: &Path) -> String {
        path.strip_prefix(&self.folder).unwrap_or(path).to_string_lossy().into_owned()
    }

    fn objects_below(&self, folder: &str) -> Vec<ListedObject> {
        let is_below = |key: &str| {
            let rest = key.strip_prefix(folder);
            folder.is_empty() || rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let known = self.known();
        known.iter().filter(|(key, _)| is_below(key)).map(|(_, known)| known.object.clone()).collect()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        // Every change is one insertion or removal, or makes the list new.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let here = self.known().values().filter(|known| known.is_here).map(|known| known.object.clone()).collect();
        // Without the list, the next process fetches the files again.
        if let Err(error) = write_list(&self.folder, &self.bucket.address().to_string(), here) {
            tracing::debug!(%error, "cannot keep the list of the working copy");
        }
    }
}

fn commit_key(number: u64) -> String {
    format!("{PARTS}/{number:012}.json")
}

/// Reads the number of a commit from the key of one of its objects.
fn number_of(key: &str) -> Option<u64> {
    key.rsplit('/').next()?.get(..12)?.parse().ok()
}
