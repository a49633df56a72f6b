//! The suppression list on disk: the erased people whose records the service may still send.
//!
//! The list is two files in a folder next to the state file, which only this user can read: `key`, and
//! `suppressed.json` with hashes that are computed with the key. So the list reveals nobody without the key, and it
//! survives the loss of the state file. A list without its key is an error, because its people would be stored again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{IdentifierKey, KeyedHash, SealedBytes, SuppressionError};
use crate::{
    files::{self, FileError},
    model::{DAY_MS, Identifier, IdentifierKind, IntervalSet, Stream, Window, WrittenIdentifier},
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

    /// Adds the windows in which another entry of the same erasure knows records of the person.
    pub(super) fn add_met(&mut self, other: &SuppressionEntry) {
        for (stream, windows) in &other.met {
            let met = self.met.entry(*stream).or_default();
            update(met, |met| windows.iter().for_each(|window| met.insert(*window)));
        }
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
pub(super) struct ListFile {
    format_version: u32,
    erasures: Vec<SuppressionEntry>,
}

impl ListFile {
    pub fn of(erasures: Vec<SuppressionEntry>) -> ListFile {
        ListFile { format_version: FORMAT_VERSION, erasures }
    }

    /// Reads the entries of a list. `path` is that of the list, for errors.
    pub fn entries_in(bytes: &[u8], path: &Path) -> Result<Vec<SuppressionEntry>, SuppressionError> {
        let version = serde_json::from_slice::<serde_json::Value>(bytes).ok();
        let version = version.and_then(|value| value.get("format_version")?.as_u64());
        if version.is_some_and(|version| version > u64::from(FORMAT_VERSION)) {
            return Err(SuppressionError::Newer { path: path.to_owned() });
        }
        let damaged =
            |error: serde_json::Error| SuppressionError::Damaged { path: path.to_owned(), why: error.to_string() };
        Ok(serde_json::from_slice::<ListFile>(bytes).map_err(damaged)?.erasures)
    }

    /// Returns the text of the file at `path`.
    pub fn text(&self, path: &Path) -> Result<String, FileError> {
        serde_json::to_string_pretty(self).map_err(FileError::of("write", path))
    }
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
            Ok(bytes) => ListFile::entries_in(&bytes, &list)?,
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
        let text = ListFile::of(self.entries.clone()).text(&path)?;
        Ok(files::write_private(&path, text.as_bytes()).map_err(FileError::of("write", &path))?)
    }
}

/// The part of an erasure whose suppression ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndedSuppression {
    pub erasure_id: String,
    /// Number of identifiers that are no longer suppressed.
    pub identifiers: usize,
    /// Number of identifiers of the erasure that stay suppressed; 0 if the suppression of the erasure is over.
    #[serde(rename = "identifiers_left")]
    pub left: usize,
    /// Windows in which scans may have left out records of the erased people.
    #[serde(skip)]
    pub windows: BTreeMap<Stream, Vec<Window>>,
}

/// What ids name: erasures, and identifiers of people.
#[derive(Default)]
struct Named {
    erasures: BTreeSet<String>,
    hashes: BTreeSet<KeyedHash>,
}

impl SuppressionList {
    /// Ends the suppression of the people with these ids. An id is that of an erasure, or any identifier of a person;
    /// several ids can be separated by commas. Changes the list in memory only: [`SuppressionList::write`] writes it.
    ///
    /// An erasure of one named person ends with any identifier of the person. Of an erasure of several people, only the
    /// identifiers with an id end, because nothing says to whom the linked ones belong. It ends if all named ones end.
    ///
    /// # Errors
    /// Returns the ids that name nobody on the list, without any change.
    pub fn end(&mut self, ids: &[String]) -> Result<Vec<EndedSuppression>, Vec<String>> {
        let mut named = Named::default();
        let unknown: Vec<String> = ids.iter().filter(|id| !self.find(id, &mut named)).cloned().collect();
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let mut ended = Vec::new();
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain_mut(|entry| {
            let end = self.end_entry(entry, &named);
            let is_over = end.as_ref().is_some_and(|end| end.left == 0);
            ended.extend(end);
            !is_over
        });
        self.entries = entries;
        Ok(ended)
    }

    /// Adds what an id names. Returns false if it names nobody on the list.
    fn find(&self, id: &str, named: &mut Named) -> bool {
        if self.find_one(id, named) {
            return true;
        }
        let parts: Vec<&str> = id.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        parts.len() > 1 && parts.iter().filter(|part| !self.find_one(part, named)).count() == 0
    }

    fn find_one(&self, id: &str, named: &mut Named) -> bool {
        let known = |hash: &KeyedHash| {
            self.entries.iter().any(|entry| entry.named.contains(hash) || entry.linked.contains(hash))
        };
        let hashes: Vec<KeyedHash> = self.hashes_of(id).into_iter().filter(known).collect();
        let is_erasure = self.entries.iter().any(|entry| entry.erasure_id == id);
        named.erasures.extend(is_erasure.then(|| id.to_owned()));
        let is_known = is_erasure || !hashes.is_empty();
        named.hashes.extend(hashes);
        is_known
    }

    fn hashes_of(&self, text: &str) -> Vec<KeyedHash> {
        let Some(key) = &self.key else { return Vec::new() };
        let written = IdentifierKind::ALL.into_iter().filter_map(|kind| WrittenIdentifier::read(kind, text));
        // Earlier versions of the program hashed identifiers as they were written.
        let forms = written.flat_map(|written| [written.as_written(), Some(written.identifier)]);
        forms.flatten().map(|identifier| key.hash(&identifier)).collect()
    }

    /// Removes what `named` names from an entry. Returns `None` if that is nothing.
    fn end_entry(&self, entry: &mut SuppressionEntry, named: &Named) -> Option<EndedSuppression> {
        let is_ended = |hash: &KeyedHash| named.hashes.contains(hash);
        let has_any = entry.named.iter().chain(&entry.linked).any(is_ended);
        let is_whole = named.erasures.contains(&entry.erasure_id)
            || (has_any && entry.named.len() == 1)
            || (!entry.named.is_empty() && entry.named.iter().all(is_ended));
        if !is_whole && !has_any {
            return None;
        }
        let before = entry.named.len() + entry.linked.len();
        if is_whole {
            (entry.named, entry.linked) = (Vec::new(), Vec::new());
        } else {
            entry.named.retain(|hash| !is_ended(hash));
            entry.linked.retain(|hash| !is_ended(hash));
            // Otherwise a run would request the user from the service, and find that it was not purged.
            if let Some(key) = &self.key {
                let hash = |id: &String| Identifier::read(IdentifierKind::UserId, id).map(|one| key.hash(&one));
                let users = entry.users.iter().filter(|sealed| {
                    let id = entry.open_user(key, sealed);
                    !id.as_ref().and_then(hash).is_some_and(|hash| is_ended(&hash))
                });
                entry.users = users.cloned().collect();
            }
        }
        let left = entry.named.len() + entry.linked.len();
        let windows = entry.met.keys().map(|stream| (*stream, entry.unproven(*stream))).collect();
        Some(EndedSuppression { erasure_id: entry.erasure_id.clone(), identifiers: before - left, left, windows })
    }
}

impl SuppressionEntry {
    /// Returns the windows of a stream that had records of the people, except those in which a later scan found none.
    fn unproven(&self, stream: Stream) -> Vec<Window> {
        let mut unproven: IntervalSet = self.met.get(&stream).into_iter().flatten().copied().collect();
        self.absent.get(&stream).into_iter().flatten().for_each(|window| unproven.remove(*window));
        unproven.windows().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNA: &str = "user-anna";

    /// A list with an erasure of one person, and one of two.
    fn list(folder: &std::path::Path) -> SuppressionList {
        let mut list = SuppressionList::read(folder).unwrap();
        let key = list.key().unwrap();
        let hash = |kind, text: &str| key.hash(&Identifier::read(kind, text).unwrap());
        let (user, mail, number) = (IdentifierKind::UserId, IdentifierKind::Email, IdentifierKind::VisitorId);
        let entry = |id: &str, users: &[&str], linked| SuppressionEntry {
            erasure_id: id.to_owned(),
            until_ms: 5,
            named: users.iter().map(|id| hash(user, id)).collect(),
            linked,
            users: SuppressionEntry::sealed_users(&key, id, users).unwrap(),
            met: BTreeMap::from([(Stream::Responses, vec![Window::new(0, 100)])]),
            absent: BTreeMap::from([(Stream::Responses, vec![Window::new(20, 30)])]),
        };
        let linked = vec![hash(mail, "anna@example.com"), hash(number, "17")];
        list.put(entry("one", &[ANNA], linked)).unwrap();
        list.put(entry("two", &["user-bob", "user,cid"], vec![hash(mail, "bob@example.com")])).unwrap();
        list
    }

    fn ended(ids: &[&str]) -> Result<Vec<(String, usize, usize)>, Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let mut list = list(folder.path());
        let before = list.clone();
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let result = list.end(&ids);
        if result.is_err() {
            assert_eq!(list.entries, before.entries);
        }
        Ok(result?.into_iter().map(|end| (end.erasure_id, end.identifiers, end.left)).collect())
    }

    #[test]
    fn p9_each_id_of_a_person_ends_their_suppression() {
        for id in [ANNA, "Anna@Example.com", "017", "one"] {
            assert_eq!(ended(&[id]), Ok(vec![("one".to_owned(), 3, 0)]), "{id}");
        }
        let both = vec![("one".to_owned(), 3, 0), ("two".to_owned(), 3, 0)];
        for ids in [&["one", "two"][..], &["one,two"], &[ANNA, "user,cid", "user-bob"]] {
            assert_eq!(ended(ids), Ok(both.clone()), "{ids:?}");
        }
        assert_eq!(ended(&["user,cid"]), Ok(vec![("two".to_owned(), 1, 2)]));
        assert_eq!(ended(&["user-bob", "bob@example.com"]), Ok(vec![("two".to_owned(), 2, 1)]));
        assert_eq!(ended(&[ANNA, "nobody", "one,none"]), Err(vec!["nobody".to_owned(), "one,none".to_owned()]));
    }

    #[test]
    fn p9_others_of_the_erasure_stay_suppressed() {
        let folder = tempfile::tempdir().unwrap();
        let mut list = list(folder.path());
        let windows = list.end(&["user-bob".to_owned()]).unwrap().remove(0).windows;
        let expected = vec![Window::new(0, 20), Window::new(30, 100)];
        assert_eq!(windows, BTreeMap::from([(Stream::Responses, expected)]));
        let key = list.key().unwrap();
        let entry = list.entries().iter().find(|entry| entry.erasure_id == "two").unwrap();
        assert_eq!(entry.user_ids(&key), ["user,cid"], "the service is not asked whether it has purged the other");
        let hash = |text| key.hash(&Identifier::read(IdentifierKind::UserId, text).unwrap());
        assert!(entry.named.contains(&hash("user,cid")) && !entry.named.contains(&hash("user-bob")));
    }
}
