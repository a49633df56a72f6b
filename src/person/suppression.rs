//! The people who are kept out: whoever was erased here is still sent by the service until its delay is over.
//!
//! Two files in a folder beside the state file, readable by this user alone: `key`, and `suppressed.json` with hashes
//! under that key. The list survives a lost state file, and tells nobody anything without the key. A list without its
//! key is an error: to go on would let everybody back in.
//!
//! An entry stays until the service's delay and a margin are over, and then until complete scans of all times at which
//! the person was seen have not met anything of theirs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{
    IdentifierKey, KeyedHash, RedactedPage, SealedBytes, SuppressionError,
    identifying_fields::{IdentifyingFields, identifying_fields},
    redacted_page::remove_records,
};
use crate::{
    files,
    model::{DAY_MS, IdentifierKind, IntervalSet, Scan, ScanId, Stream, Window, WrittenIdentifier},
};

/// So long after the service's own delay a person is still kept out.
pub const SUPPRESSION_MARGIN_MS: i64 = 2 * DAY_MS;
const FORMAT_VERSION: u32 = 1;
/// For what the key seals user ids.
const USERS: &[u8] = b"studysync users 1";
const LIST_FILE: &str = "suppressed.json";
const KEY_FILE: &str = "key";

/// One erasure, as the list knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuppressionEntry {
    pub erasure_id: String,
    /// When the service should have purged, with the margin, epoch milliseconds by its clock: no look before it counts.
    pub until_ms: i64,
    /// Hashes of the identifiers that were named.
    pub named: Vec<KeyedHash>,
    /// Hashes of the linked identifiers. They count only in records without the user id of somebody else.
    #[serde(rename = "led")]
    pub linked: Vec<KeyedHash>,
    /// The user ids that were named and asked to be purged, sealed:
    /// once its delay is over, the service is asked for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<SealedBytes>,
    /// The creation times at which records of the person were met.
    #[serde(default)]
    pub met: BTreeMap<Stream, Vec<Window>>,
    /// Those of them at which complete scans, begun after `until_ms`, met none.
    #[serde(default)]
    pub absent: BTreeMap<Stream, Vec<Window>>,
}

impl SuppressionEntry {
    /// Seals user ids of an erasure. `None` if the system has no random bytes.
    pub fn sealed_users(key: &IdentifierKey, erasure_id: &str, user_ids: &[&str]) -> Option<Vec<SealedBytes>> {
        user_ids.iter().map(|id| key.seal(&[USERS], erasure_id, id.as_bytes().to_vec())).collect()
    }

    fn is_over(&self, now_ms: i64) -> bool {
        let is_absent = |(stream, met): (&Stream, &Vec<Window>)| {
            let absent: IntervalSet = self.absent.get(stream).into_iter().flatten().copied().collect();
            met.iter().all(|window| absent.covers(*window))
        };
        now_ms >= self.until_ms && self.met.iter().all(is_absent)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct ListFile {
    format_version: u32,
    erasures: Vec<SuppressionEntry>,
}

/// The list on the disk.
#[derive(Clone, Debug)]
pub struct SuppressionList {
    folder: PathBuf,
    key: Option<IdentifierKey>,
    entries: Vec<SuppressionEntry>,
}

impl SuppressionList {
    /// Reads the list in this folder; no folder is an empty list.
    pub fn read(folder: &Path) -> Result<SuppressionList, SuppressionError> {
        let (list, key) = (folder.join(LIST_FILE), folder.join(KEY_FILE));
        let damaged = |why: String| SuppressionError::Damaged { path: list.clone(), why };
        let entries = match fs::read(&list) {
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(SuppressionError::Io { action: "read", path: list, source }),
            Ok(bytes) => {
                let version = serde_json::from_slice::<serde_json::Value>(&bytes).ok();
                let version = version.and_then(|value| value.get("format_version")?.as_u64());
                if version.is_some_and(|version| version > u64::from(FORMAT_VERSION)) {
                    return Err(SuppressionError::Newer { path: list });
                }
                let file: ListFile = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
                file.erasures
            }
        };
        let found = IdentifierKey::read(&key)?;
        if found.is_none() && !entries.is_empty() {
            return Err(SuppressionError::KeyLost { list, key });
        }
        Ok(SuppressionList { folder: folder.to_owned(), key: found, entries })
    }

    /// The key; drawn now if there is none yet.
    pub fn key(&mut self) -> Result<IdentifierKey, SuppressionError> {
        if let Some(key) = &self.key {
            return Ok(key.clone());
        }
        let failed = |source| SuppressionError::Io { action: "create", path: self.folder.clone(), source };
        files::create_folders(&self.folder).map_err(failed)?;
        let key = IdentifierKey::create(&self.folder.join(KEY_FILE))?;
        Ok(self.key.insert(key).clone())
    }

    /// The entries.
    pub fn entries(&self) -> &[SuppressionEntry] {
        &self.entries
    }

    /// Puts an entry in the place of an earlier one of the same erasure, and writes the list, durably.
    pub fn put(&mut self, entry: SuppressionEntry) -> Result<(), SuppressionError> {
        self.entries.retain(|held| held.erasure_id != entry.erasure_id);
        self.entries.push(entry);
        self.write()
    }

    fn write(&self) -> Result<(), SuppressionError> {
        let path = self.folder.join(LIST_FILE);
        let failed = |source| SuppressionError::Io { action: "write", path: path.clone(), source };
        let file = ListFile { format_version: FORMAT_VERSION, erasures: self.entries.clone() };
        let bytes = serde_json::to_vec_pretty(&file).map_err(|error| failed(error.into()))?;
        files::write_private(&path, &bytes).map_err(failed)
    }

    /// The list at work.
    pub fn suppression(self) -> Suppression {
        let Some(key) = self.key.clone().filter(|_| !self.entries.is_empty()) else { return Suppression(None) };
        let mut marks: HashMap<KeyedHash, Vec<Mark>> = HashMap::new();
        for (entry, suppressed) in self.entries.iter().enumerate() {
            let named = suppressed.named.iter().map(|hash| (*hash, Mark { entry, is_named: true }));
            let linked = suppressed.linked.iter().map(|hash| (*hash, Mark { entry, is_named: false }));
            for (hash, mark) in named.chain(linked) {
                marks.entry(hash).or_default().push(mark);
            }
        }
        let seen = Mutex::new(Seen { list: self, scans: HashMap::new(), is_changed: false, late: 0 });
        Suppression(Some(Arc::new(Inner { key, marks, seen })))
    }
}

/// Says who is kept out. Costs nothing while nobody is. Cheap to clone; clones share what was met.
#[derive(Clone, Debug, Default)]
pub struct Suppression(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    key: IdentifierKey,
    marks: HashMap<KeyedHash, Vec<Mark>>,
    seen: Mutex<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    entry: usize,
    is_named: bool,
}

#[derive(Debug)]
struct Seen {
    list: SuppressionList,
    /// Scans that this process pulls from their first page on, and whom they met.
    scans: HashMap<ScanId, HashSet<usize>>,
    is_changed: bool,
    late: u64,
}

/// An entry whose time is over, and of which complete scans met nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    pub erasure_id: String,
    /// The user ids that the service was asked to purge.
    pub user_ids: Vec<String>,
}

/// An entry that has done its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    pub erasure_id: String,
}

impl Suppression {
    /// Whether nobody is kept out.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a record of a stream is of somebody who is kept out.
    pub fn matches_record(&self, stream: Stream, record: &str) -> bool {
        self.matches_json(identifying_fields(stream), record)
    }

    /// The same for any JSON object with such fields, a webhook for one:
    /// `fields` are those of the contract of its table.
    pub fn matches_json(&self, fields: &IdentifyingFields, json: &str) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.owners(fields, json).is_some())
    }

    /// Whether some of these identifiers, all of one person, are of somebody who is kept out.
    pub fn matches_identifiers<'a>(&self, identifiers: impl IntoIterator<Item = &'a WrittenIdentifier>) -> bool {
        self.0.as_ref().is_some_and(|inner| {
            let mut verdict = Verdict::default();
            identifiers.into_iter().for_each(|identifier| inner.judge(identifier, &mut verdict));
            verdict.owners().is_some()
        })
    }

    /// The scan is pulled from its first page on.
    pub fn begins(&self, scan: &Scan) {
        if let Some(inner) = &self.0 {
            inner.seen().scans.insert(scan.id.clone(), HashSet::new());
        }
    }

    /// A page of a scan without the records of those who are kept out; `None` if it has none.
    pub fn filtered(&self, scan: &Scan, body: &[u8]) -> Option<RedactedPage> {
        let inner = self.0.as_ref()?;
        let fields = identifying_fields(scan.scope.stream);
        if fields.is_empty() {
            return None;
        }
        let mut met = HashSet::new();
        let redacted = remove_records(body, |record| match inner.owners(fields, record) {
            Some(owners) => {
                met.extend(owners);
                true
            }
            None => false,
        })?;
        inner.seen().meet(scan, &met, u64::from(redacted.removed));
        Some(redacted)
    }

    /// The scan came to its end and was committed: whom it did not meet is not there.
    pub fn committed(&self, scan: &Scan) {
        let Some(inner) = &self.0 else { return };
        let mut seen = inner.seen();
        let Some(met) = seen.scans.remove(&scan.id).filter(|_| scan.scope.survey_id.is_none()) else { return };
        let Seen { list, is_changed, .. } = &mut *seen;
        for (at, entry) in list.entries.iter_mut().enumerate() {
            if met.contains(&at) || scan.started_ms < entry.until_ms {
                continue;
            }
            let met_in = entry.met.get(&scan.scope.stream).into_iter().flatten();
            if met_in.into_iter().any(|window| window.overlaps(scan.window)) {
                lay(entry.absent.entry(scan.scope.stream).or_default(), |absent| absent.insert(scan.window));
                *is_changed = true;
            }
        }
    }

    /// Records of people that were still sent after their time.
    pub fn late_records(&self) -> u64 {
        self.0.as_ref().map_or(0, |inner| inner.seen().late)
    }

    /// The entries that have done their work, if the service knows none of their people any more.
    pub fn over(&self, now_ms: i64) -> Vec<Over> {
        let Some(inner) = &self.0 else { return Vec::new() };
        let seen = inner.seen();
        let over = seen.list.entries.iter().filter(|entry| entry.is_over(now_ms)).map(|entry| {
            let opened = entry.users.iter().filter_map(|sealed| inner.key.open(&[USERS], &entry.erasure_id, sealed));
            let user_ids = opened.filter_map(|bytes| String::from_utf8(bytes).ok()).collect();
            Over { erasure_id: entry.erasure_id.clone(), user_ids }
        });
        over.collect()
    }

    /// At the end of a run: entries that have done their work go, but for those of these erasures,
    /// and what was learned of the others is written.
    pub fn settle(&self, now_ms: i64, kept: &BTreeSet<String>) -> Result<Vec<Expired>, SuppressionError> {
        let Some(inner) = &self.0 else { return Ok(Vec::new()) };
        let mut seen = inner.seen();
        let is_over = |entry: &&SuppressionEntry| entry.is_over(now_ms) && !kept.contains(&entry.erasure_id);
        let expired: Vec<Expired> = (seen.list.entries.iter().filter(is_over))
            .map(|entry| Expired { erasure_id: entry.erasure_id.clone() })
            .collect();
        if expired.is_empty() && !seen.is_changed {
            return Ok(expired);
        }
        // The list in memory stays as the marks know it; only the file loses what is over.
        let mut list = seen.list.clone();
        list.entries.retain(|entry| !entry.is_over(now_ms) || kept.contains(&entry.erasure_id));
        list.write()?;
        seen.is_changed = false;
        Ok(expired)
    }
}

impl Seen {
    fn meet(&mut self, scan: &Scan, met: &HashSet<usize>, records: u64) {
        if let Some(scan) = self.scans.get_mut(&scan.id) {
            scan.extend(met);
        }
        for at in met {
            let Some(entry) = self.list.entries.get_mut(*at) else { continue };
            let (window, stream) = (scan.window, scan.scope.stream);
            lay(entry.met.entry(stream).or_default(), |met| met.insert(window));
            if entry.absent.contains_key(&stream) {
                lay(entry.absent.entry(stream).or_default(), |absent| absent.remove(window));
            }
            if scan.started_ms >= entry.until_ms {
                self.late += records;
            }
            self.is_changed = true;
        }
    }
}

/// Changes a list of windows as the set that it is.
fn lay(windows: &mut Vec<Window>, change: impl FnOnce(&mut IntervalSet)) {
    let mut set: IntervalSet = windows.iter().copied().collect();
    change(&mut set);
    *windows = set.windows().to_vec();
}

/// What the identifiers of one record say.
#[derive(Debug, Default)]
struct Verdict {
    named: Vec<usize>,
    linked: Vec<usize>,
    has_other_user: bool,
}

impl Verdict {
    /// Whose it is. What merely shares a device with somebody, and has a user id of its own, is another person's.
    fn owners(self) -> Option<Vec<usize>> {
        match (self.named.is_empty(), self.linked.is_empty(), self.has_other_user) {
            (false, ..) => Some(self.named.into_iter().chain(self.linked).collect()),
            (true, false, false) => Some(self.linked),
            _ => None,
        }
    }
}

impl Inner {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        // What was met is only ever added to, so a panicking holder left it whole.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owners(&self, fields: &IdentifyingFields, record: &str) -> Option<Vec<usize>> {
        let mut verdict = Verdict::default();
        fields.for_each(record, &mut |identifier| {
            self.judge(&identifier, &mut verdict);
            true
        });
        verdict.owners()
    }

    fn judge(&self, spelled: &WrittenIdentifier, verdict: &mut Verdict) {
        let marks_of = |identifier| self.marks.get(&self.key.hash(identifier));
        // Entries of versions that compared identifiers as they were written hold hashes of that.
        let forms = [marks_of(&spelled.identifier), spelled.as_written().as_ref().and_then(marks_of)];
        let is_known = forms.iter().any(Option::is_some);
        verdict.has_other_user |= !is_known && spelled.identifier.kind == IdentifierKind::UserId;
        for mark in forms.into_iter().flatten().flatten() {
            let list = if mark.is_named { &mut verdict.named } else { &mut verdict.linked };
            list.push(mark.entry);
        }
    }
}

#[cfg(test)]
mod tests;
