//! The suppression list on disk: the erased people whose records the service may still send.
//!
//! The list is two files in a folder next to the state file, which only this user can read: `key`, and
//! `suppressed.json` with hashes that are computed with the key. So the list reveals nobody without the key, and it
//! survives the loss of the state file. A list without its key is an error, because its people would be stored again.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{IdentifierKey, KeyedHash, SealedBytes, SuppressionError};
use crate::{
    files::{self, FileError},
    model::{DAY_MS, IntervalSet, Stream, Window},
};

/// Time after the service's own purge delay during which a person stays suppressed.
pub const SUPPRESSION_MARGIN_MS: i64 = 2 * DAY_MS;
const FORMAT_VERSION: u32 = 1;
/// Separates the encryption of user ids from other uses of the key.
const USERS: &[u8] = b"studysync users 1";
pub(super) const LIST_FILE: &str = "suppressed.json";
pub(super) const KEY_FILE: &str = "key";

/// The entry of one erasure, without any identifier in clear text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuppressionEntry {
    pub erasure_id: String,
    /// End of the service's purge delay plus the margin, in epoch milliseconds of the service's clock. Scans that began
    /// before this time do not prove that the records are gone.
    pub until_ms: i64,
    /// Hashes of the identifiers that the request for erasure named.
    pub named: Vec<KeyedHash>,
    /// Hashes of the linked identifiers. A linked identifier counts only in records without the user id of another
    /// person.
    #[serde(rename = "led")]
    pub linked: Vec<KeyedHash>,
    /// The user ids that the service was asked to purge, encrypted. After the delay, a run decrypts them and checks
    /// whether the service still knows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<SealedBytes>,
    /// Windows of creation time in which records of the person were found.
    #[serde(default)]
    pub met: BTreeMap<Stream, Vec<Window>>,
    /// The windows of complete scans after `until_ms` that found no record of the person.
    #[serde(default)]
    pub absent: BTreeMap<Stream, Vec<Window>>,
}

impl SuppressionEntry {
    /// Encrypts the user ids of an erasure. Returns `None` if the system has no random bytes.
    pub fn sealed_users(key: &IdentifierKey, erasure_id: &str, user_ids: &[&str]) -> Option<Vec<SealedBytes>> {
        user_ids.iter().map(|id| key.seal(&[USERS], erasure_id, id.as_bytes().to_vec())).collect()
    }

    /// Decrypts the user ids.
    pub(super) fn user_ids(&self, key: &IdentifierKey) -> Vec<String> {
        self.users.iter().filter_map(|sealed| self.open_user(key, sealed)).collect()
    }

    /// Decrypts a user id; `None` if it cannot be decrypted.
    pub(super) fn open_user(&self, key: &IdentifierKey, sealed: &SealedBytes) -> Option<String> {
        String::from_utf8(key.open(&[USERS], &self.erasure_id, sealed)?).ok()
    }

    /// Returns true if `until_ms` has passed, and later scans found no record in any window that had a record.
    pub(super) fn is_expirable(&self, now_ms: i64) -> bool {
        let is_absent = |(stream, met): (&Stream, &Vec<Window>)| {
            let absent: IntervalSet = self.absent.get(stream).into_iter().flatten().copied().collect();
            met.iter().all(|window| absent.covers(*window))
        };
        now_ms >= self.until_ms && self.met.iter().all(is_absent)
    }

    /// Records that a scan of a stream found records of the person in a window.
    pub(super) fn found_in(&mut self, stream: Stream, window: Window) {
        update(self.met.entry(stream).or_default(), |met| met.insert(window));
        if let Some(absent) = self.absent.get_mut(&stream) {
            update(absent, |absent| absent.remove(window));
        }
    }

    /// Records that a complete scan of a stream after `until_ms` found no record of the person in a window. Does
    /// nothing, and returns false, if earlier scans found no record in this window either.
    pub(super) fn not_found_in(&mut self, stream: Stream, window: Window) -> bool {
        let is_relevant = self.met.get(&stream).into_iter().flatten().any(|met| met.overlaps(window));
        if is_relevant {
            update(self.absent.entry(stream).or_default(), |absent| absent.insert(window));
        }
        is_relevant
    }
}

/// Applies `change` to a list of windows as a set, so that the list stays sorted and disjoint.
fn update(windows: &mut Vec<Window>, change: impl FnOnce(&mut IntervalSet)) {
    let mut set: IntervalSet = windows.iter().copied().collect();
    change(&mut set);
    *windows = set.windows().to_vec();
}

/// The content of `suppressed.json`.
#[derive(Debug, Serialize, Deserialize)]
struct ListFile {
    format_version: u32,
    erasures: Vec<SuppressionEntry>,
}

/// The suppression list of a folder.
#[derive(Clone, Debug)]
pub struct SuppressionList {
    folder: PathBuf,
    /// `None` if no key was created yet.
    pub(super) key: Option<IdentifierKey>,
    pub(super) entries: Vec<SuppressionEntry>,
}

impl SuppressionList {
    /// Reads the list in a folder. A missing folder is an empty list. Fails if the list has entries but no key, or if a
    /// newer version of the program wrote the list.
    pub fn read(folder: &Path) -> Result<SuppressionList, SuppressionError> {
        let (list, key) = (folder.join(LIST_FILE), folder.join(KEY_FILE));
        let entries = match fs::read(&list) {
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(FileError::of("read", &list)(source).into()),
            Ok(bytes) => {
                let version = serde_json::from_slice::<serde_json::Value>(&bytes).ok();
                let version = version.and_then(|value| value.get("format_version")?.as_u64());
                if version.is_some_and(|version| version > u64::from(FORMAT_VERSION)) {
                    return Err(SuppressionError::Newer { path: list });
                }
                let damaged =
                    |error: serde_json::Error| SuppressionError::Damaged { path: list.clone(), why: error.to_string() };
                serde_json::from_slice::<ListFile>(&bytes).map_err(damaged)?.erasures
            }
        };
        let found = IdentifierKey::read(&key)?;
        if found.is_none() && !entries.is_empty() {
            return Err(SuppressionError::KeyLost { list, key });
        }
        Ok(SuppressionList { folder: folder.to_owned(), key: found, entries })
    }

    /// Returns the path of the list in a folder.
    pub fn path_in(folder: &Path) -> PathBuf {
        folder.join(LIST_FILE)
    }

    /// Returns the key of the list. Creates the key, in a new file, if there is none.
    pub fn key(&mut self) -> Result<IdentifierKey, SuppressionError> {
        if let Some(key) = &self.key {
            return Ok(key.clone());
        }
        files::create_folders(&self.folder).map_err(FileError::of("create", &self.folder))?;
        let key = IdentifierKey::create(&self.folder.join(KEY_FILE))?;
        Ok(self.key.insert(key).clone())
    }

    /// Returns the entries.
    pub fn entries(&self) -> &[SuppressionEntry] {
        &self.entries
    }

    /// Adds an entry, or replaces the entry of the same erasure, and writes the list durably.
    pub fn put(&mut self, entry: SuppressionEntry) -> Result<(), SuppressionError> {
        self.entries.retain(|existing| existing.erasure_id != entry.erasure_id);
        self.entries.push(entry);
        self.write()
    }

    /// Writes the list durably.
    pub fn write(&self) -> Result<(), SuppressionError> {
        let path = self.folder.join(LIST_FILE);
        let file = ListFile { format_version: FORMAT_VERSION, erasures: self.entries.clone() };
        let bytes = serde_json::to_vec_pretty(&file).map_err(FileError::of("write", &path))?;
        Ok(files::write_private(&path, &bytes).map_err(FileError::of("write", &path))?)
    }
}
