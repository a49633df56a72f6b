//! The journal from which an interrupted erasure resumes.
//!
//! An erasure deletes the rows that link identifiers, so the journal stores the list of identifiers before the first
//! deletion. The list is encrypted with a key that is derived from the suppression list's key *and* the names on the
//! command line. Only the same command has both, so only it can resume. A finished erasure removes its journal.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::EraseError;
use crate::{
    files,
    model::{DurableStep, Failpoints, Identifier},
    person::{IdentifierKey, KeyedHash, SealedBytes},
};

/// Extension of the name of a journal file.
const SUFFIX: &str = "journal";
/// Makes the encryption key of journals differ from other keys that are derived from the same key.
const PURPOSE: &[u8] = b"studysync journal 1";

/// A purge request that the service accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PurgeNote {
    pub request_id: String,
    /// The largest number of visitors that the service could delete for the request.
    pub deletions: u64,
    /// RFC 3339, by the service's clock; by this machine's clock if the answer has no time.
    pub accepted_at: String,
}

/// The journal of one erasure. It contains no identifier in clear text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    pub erasure_id: String,
    /// When the first attempt began, in epoch milliseconds by this machine.
    pub requested_ms: i64,
    /// Hash of the named people, by which the same command finds its journal.
    pub of: KeyedHash,
    /// Start of the suppression in epoch milliseconds, by the service's clock. `None` before the suppression, or if the
    /// erasure has none.
    pub suppressed_from_ms: Option<i64>,
    pub purge_requests: Vec<PurgeNote>,
    /// Hashes of the names for which the service accepted a purge, and of the names that the service does not know.
    pub purged: BTreeSet<KeyedHash>,
    /// Number of names that the service does not know.
    pub unknown_there: u64,
    /// Counts of what was removed so far, by location.
    pub removed: BTreeMap<String, u64>,
    /// Counts of what this attempt found and has not removed yet, by location. After a kill, the next attempt finds
    /// less than this, and so knows what the killed attempt removed.
    #[serde(default)]
    pub found: BTreeMap<String, u64>,
    /// Number of rows and pages in which an identifier was replaced so far. A kill between the commit of such a change
    /// and the next write of the journal loses its count.
    #[serde(default)]
    pub redacted: u64,
    /// Number of files that had more than one hard link before the first deletion.
    #[serde(default)]
    pub hard_linked: usize,
    /// The encrypted identifiers.
    #[serde(flatten)]
    seal: SealedBytes,
}

impl Journal {
    /// Begins an attempt that found these counts of data to remove, by location. What the interrupted attempt found and
    /// is not found again counts as removed.
    pub fn begin_attempt(&mut self, found: BTreeMap<String, u64>) {
        for (location, before) in std::mem::take(&mut self.found) {
            let left = found.get(&location).copied().unwrap_or(0);
            self.add_removed(location, before.saturating_sub(left));
        }
        self.found = found;
    }

    /// Counts what was removed at a location.
    pub fn add_removed(&mut self, location: String, count: u64) {
        self.found.remove(&location);
        if count > 0 {
            *self.removed.entry(location).or_default() += count;
        }
    }
}

/// The journal of a running erasure, and the folder that it is written to.
pub(super) struct OpenJournal {
    pub journals: Journals,
    pub content: Journal,
}

impl OpenJournal {
    /// Adds `count` to the number of removed items at a location, durably. Does nothing for 0.
    pub fn removed(&mut self, location: &str, count: u64) -> Result<(), EraseError> {
        if count > 0 {
            self.content.add_removed(location.to_owned(), count);
            self.write()?;
        }
        Ok(())
    }

    /// Adds `count` to the number of redacted rows and pages, durably.
    pub fn redacted(&mut self, count: u64) -> Result<(), EraseError> {
        self.content.redacted += count;
        self.write()
    }

    /// Replaces the journal file, durably.
    pub fn write(&self) -> Result<(), EraseError> {
        let path = self.journals.path(&self.content.erasure_id);
        let failed = || EraseError::io("write", &path);
        self.journals.failpoints.hit(DurableStep::JournalWritten).map_err(failed())?;
        let text = serde_json::to_vec_pretty(&self.content).map_err(|error| failed()(error.into()))?;
        files::write_private(&path, &text).map_err(failed())
    }

    /// Removes the journal of a finished erasure.
    pub fn remove(&self) -> Result<(), EraseError> {
        let path = self.journals.path(&self.content.erasure_id);
        self.journals.failpoints.hit(DurableStep::JournalWritten).map_err(EraseError::io("remove", &path))?;
        fs::remove_file(&path).map_err(EraseError::io("remove", &path))
    }
}

/// The journals in a folder.
#[derive(Clone, Debug)]
pub(super) struct Journals {
    folder: PathBuf,
    pub key: IdentifierKey,
    pub failpoints: Failpoints,
}

impl Journals {
    pub fn new(folder: &Path, key: IdentifierKey, failpoints: Failpoints) -> Journals {
        Journals { folder: folder.to_owned(), key, failpoints }
    }

    /// Returns the journal of an interrupted erasure of the same names, with the decrypted identifiers. Returns `None`
    /// if no such erasure was interrupted.
    ///
    /// `as_written` are the names without normalization, as earlier versions of the program hashed them.
    pub fn find(
        &self,
        named: &BTreeSet<Identifier>,
        as_written: &BTreeSet<Identifier>,
    ) -> Result<Option<(Journal, Vec<Identifier>)>, EraseError> {
        match self.find_named(named)? {
            None if named != as_written => self.find_named(as_written),
            found => Ok(found),
        }
    }

    /// Returns the journal of an interrupted erasure of exactly these names, with the decrypted identifiers. Fails if a
    /// journal cannot be read or decrypted.
    fn find_named(&self, named: &BTreeSet<Identifier>) -> Result<Option<(Journal, Vec<Identifier>)>, EraseError> {
        let wanted = self.hash(named);
        for path in self.files()? {
            let text = fs::read(&path).map_err(EraseError::io("read", &path))?;
            let wrong = |why: String| EraseError::Journal { path: path.clone(), why };
            let journal: Journal = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
            if journal.of == wanted {
                let identifiers = self.open(&journal, named).ok_or_else(|| wrong("its seal is broken".to_owned()))?;
                return Ok(Some((journal, identifiers)));
            }
        }
        Ok(None)
    }

    /// Returns the number of journals other than `except`. Each of them belongs to another unfinished erasure.
    pub fn others(&self, except: Option<&Journal>) -> Result<usize, EraseError> {
        let except = except.map(|journal| self.path(&journal.erasure_id));
        Ok(self.files()?.into_iter().filter(|path| Some(path) != except.as_ref()).count())
    }

    /// Returns true if the erasure with this id is unfinished.
    pub fn is_unfinished(&self, erasure_id: &str) -> Result<bool, EraseError> {
        let path = self.path(erasure_id);
        path.try_exists().map_err(EraseError::io("look at", path))
    }

    /// Creates a journal with these identifiers, or replaces the identifiers of `earlier`, the journal of an
    /// interrupted attempt. The journal is durable when this function returns. `named` are the people in the request.
    pub fn begin(
        &self,
        earlier: Option<Journal>,
        erasure_id: &str,
        requested_ms: i64,
        named: &BTreeSet<Identifier>,
        identifiers: &[Identifier],
    ) -> Result<OpenJournal, EraseError> {
        let mut journal = earlier.unwrap_or_else(|| Journal {
            erasure_id: erasure_id.to_owned(),
            requested_ms,
            ..Journal::default()
        });
        journal.of = self.hash(named);
        let path = self.path(&journal.erasure_id);
        let unsealed = || EraseError::io("seal", &path)(std::io::Error::other("the system has no random bytes"));
        let bytes = serde_json::to_vec(identifiers).map_err(|error| EraseError::io("seal", &path)(error.into()))?;
        let mut parts = parts(PURPOSE, named);
        parts.push(journal.erasure_id.as_bytes());
        journal.seal = self.key.seal(&parts, &journal.erasure_id, bytes).ok_or_else(unsealed)?;
        let journal = OpenJournal { journals: self.clone(), content: journal };
        journal.write().map(|()| journal)
    }

    /// Returns the paths of all journals, sorted.
    fn files(&self) -> Result<Vec<PathBuf>, EraseError> {
        let entries = fs::read_dir(&self.folder).map_err(EraseError::io("list", &self.folder))?;
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(EraseError::io("list", &self.folder))?.path();
            if path.extension().is_some_and(|extension| extension == SUFFIX) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    fn path(&self, erasure_id: &str) -> PathBuf {
        self.folder.join(format!("{erasure_id}.{SUFFIX}"))
    }

    /// Returns the hash by which the same command finds its journal.
    fn hash(&self, named: &BTreeSet<Identifier>) -> KeyedHash {
        self.key.hash_parts(&parts(b"names", named))
    }

    /// Decrypts the identifiers of a journal. Returns `None` if the key or the names are not those of the journal, or
    /// the journal was changed.
    fn open(&self, journal: &Journal, named: &BTreeSet<Identifier>) -> Option<Vec<Identifier>> {
        let mut parts = parts(PURPOSE, named);
        parts.push(journal.erasure_id.as_bytes());
        let opened = self.key.open(&parts, &journal.erasure_id, &journal.seal)?;
        let identifiers: Vec<Identifier> = serde_json::from_slice(&opened).ok()?;
        // Identifiers of earlier versions are normalized, and placeholders that name nobody are dropped.
        Some(identifiers.iter().filter_map(|one| Identifier::read(one.kind, &one.value)).collect())
    }
}

/// Returns the texts from which a key or a hash is derived: the purpose, followed by kind and value of each name.
fn parts<'a>(purpose: &'a [u8], named: &'a BTreeSet<Identifier>) -> Vec<&'a [u8]> {
    let names = named.iter().flat_map(|name| [name.kind.name().as_bytes(), name.value.as_bytes()]);
    std::iter::once(purpose).chain(names).collect()
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::*;
    use crate::model::IdentifierKind;

    fn named(names: &[&str]) -> BTreeSet<Identifier> {
        names.iter().filter_map(|name| Identifier::read(IdentifierKind::UserId, name)).collect()
    }

    fn raw(value: &str) -> Identifier {
        Identifier { kind: IdentifierKind::UserId, value: value.to_owned() }
    }

    fn led_of(named: &BTreeSet<Identifier>) -> Vec<Identifier> {
        named.iter().cloned().collect()
    }

    #[test]
    fn p9_what_a_killed_attempt_removed_is_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let key = IdentifierKey::create(&folder.path().join("key")).unwrap();
        let journals = Journals::new(folder.path(), key, Failpoints::default());
        let found =
            |counts: &[(&str, u64)]| counts.iter().map(|(place, count)| ((*place).to_owned(), *count)).collect();
        let mut journal = journals.begin(None, "e1", 7, &named(&["anna"]), &[]).unwrap().content;
        journal.begin_attempt(found(&[("archive", 5), ("a", 4), ("b", 3), ("c", 2)]));
        journal.add_removed("archive".to_owned(), 5);
        // Killed after the removal of `a`, in the middle of `b`, before `c`.
        journal.begin_attempt(found(&[("b", 1), ("c", 2), ("d", 6)]));
        assert_eq!(journal.removed, found(&[("archive", 5), ("a", 4), ("b", 2)]));
        for (place, count) in [("b", 1), ("c", 2), ("d", 6), ("e", 0)] {
            journal.add_removed(place.to_owned(), count);
        }
        journal.begin_attempt(BTreeMap::new());
        assert_eq!(journal.removed, found(&[("archive", 5), ("a", 4), ("b", 3), ("c", 2), ("d", 6)]));
    }

    #[test]
    fn p9_only_the_same_command_can_read_a_journal() {
        let folder = tempfile::tempdir().unwrap();
        let key = IdentifierKey::create(&folder.path().join("key")).unwrap();
        let journals = Journals::new(folder.path(), key, Failpoints::default());
        let (anna, bert) = (named(&["anna"]), named(&["bert"]));
        let linked = [Identifier::read(IdentifierKind::Email, "anna@example.com").unwrap()];
        let journal = journals.begin(None, "e1", 7, &anna, &linked).unwrap();
        assert_eq!(journals.find(&anna, &anna).unwrap(), Some((journal.content.clone(), linked.to_vec())));
        assert_eq!(journals.find(&bert, &bert).unwrap(), None);
        assert_eq!((journals.others(Some(&journal.content)).unwrap(), journals.others(None).unwrap()), (0, 1));
        let path = folder.path().join("e1.journal");
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("anna") && !text.contains("example"), "{text}");
        // A journal of a version that did not normalize names.
        let (zoe, composed) = (BTreeSet::from([raw("zoe\u{308}")]), named(&["zoe\u{308}"]));
        let earlier = journals.begin(None, "e0", 7, &zoe, &[raw("zoe\u{308}")]).unwrap();
        let (found, linked) = journals.find(&composed, &zoe).unwrap().unwrap();
        assert_eq!((&found, linked), (&earlier.content, composed.iter().cloned().collect()));
        journals.begin(Some(found), "e0", 7, &composed, &led_of(&composed)).unwrap();
        assert!(journals.find(&composed, &composed).unwrap().is_some() && journals.find(&zoe, &zoe).unwrap().is_none());
        earlier.remove().unwrap();
        // A byte of the seal changed.
        let broken = text.replace(&journal.content.seal.sealed, &STANDARD.encode(b"something else entirely"));
        fs::write(&path, broken).unwrap();
        assert!(matches!(journals.find(&anna, &anna), Err(EraseError::Journal { .. })));
        journal.remove().unwrap();
        assert_eq!(journals.find(&anna, &anna).unwrap(), None);
    }
}
