//! The people who are kept out: whoever was erased here is still sent by the service until its delay is over.
//!
//! Two files in a folder beside the state file, readable by this user alone: `key`, and `suppressed.json` with hashes under that
//! key. The list survives a lost state file, and tells nobody anything without the key. A list without its key is an error: to go
//! on would let everybody back in.
//!
//! An entry stays until the service's delay and a margin are over, and then until complete scans of all times at which the person
//! was seen have not met anything of theirs.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{
    Key, KeyedHash, LessPage, PersonError,
    pages::without_records,
    records::{RecordFields, fields_of_stream},
    write_privately,
};
use crate::{
    files,
    model::{DAY_MS, IdentifierKind, IntervalSet, Scan, ScanId, Spelled, Stream, Window},
};

/// So long after the service's own delay a person is still kept out.
pub const SUPPRESSION_MARGIN_MS: i64 = 2 * DAY_MS;
const FORMAT_VERSION: u32 = 1;
const LIST_FILE: &str = "suppressed.json";
const KEY_FILE: &str = "key";

/// One erasure, as the list knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suppressed {
    pub erasure_id: String,
    /// When the service should have purged, with the margin, epoch milliseconds by its clock: no look before it counts.
    pub until_ms: i64,
    /// Hashes of the identifiers that were named.
    pub named: Vec<KeyedHash>,
    /// Hashes of those that they led to. They count only in records without the user id of somebody else.
    pub led: Vec<KeyedHash>,
    /// The creation times at which records of the person were met.
    #[serde(default)]
    pub met: BTreeMap<Stream, Vec<Window>>,
    /// Those of them at which complete scans, begun after `until_ms`, met none.
    #[serde(default)]
    pub absent: BTreeMap<Stream, Vec<Window>>,
}

impl Suppressed {
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
    erasures: Vec<Suppressed>,
}

/// The list on the disk.
#[derive(Clone, Debug)]
pub struct SuppressionList {
    folder: PathBuf,
    key: Option<Key>,
    entries: Vec<Suppressed>,
}

impl SuppressionList {
    /// Reads the list in this folder; no folder is an empty list.
    pub fn read(folder: &Path) -> Result<SuppressionList, PersonError> {
        let (list, key) = (folder.join(LIST_FILE), folder.join(KEY_FILE));
        let damaged = |why: String| PersonError::Damaged { path: list.clone(), why };
        let entries = match fs::read(&list) {
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(PersonError::Io { action: "read", path: list, source }),
            Ok(bytes) => {
                let version = serde_json::from_slice::<serde_json::Value>(&bytes).ok();
                let version = version.and_then(|value| value.get("format_version")?.as_u64());
                if version.is_some_and(|version| version > u64::from(FORMAT_VERSION)) {
                    return Err(PersonError::Newer { path: list });
                }
                let file: ListFile = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
                file.erasures
            }
        };
        let found = Key::read(&key)?;
        if found.is_none() && !entries.is_empty() {
            return Err(PersonError::KeyLost { list, key });
        }
        Ok(SuppressionList { folder: folder.to_owned(), key: found, entries })
    }

    /// The key; drawn now if there is none yet.
    pub fn key(&mut self) -> Result<Key, PersonError> {
        if let Some(key) = &self.key {
            return Ok(key.clone());
        }
        let failed = |source| PersonError::Io { action: "create", path: self.folder.clone(), source };
        files::create_folders(&self.folder).map_err(failed)?;
        let key = Key::create(&self.folder.join(KEY_FILE))?;
        Ok(self.key.insert(key).clone())
    }

    /// The entries.
    pub fn entries(&self) -> &[Suppressed] {
        &self.entries
    }

    /// Puts an entry in the place of an earlier one of the same erasure, and writes the list, durably.
    pub fn put(&mut self, entry: Suppressed) -> Result<(), PersonError> {
        self.entries.retain(|held| held.erasure_id != entry.erasure_id);
        self.entries.push(entry);
        self.write()
    }

    fn write(&self) -> Result<(), PersonError> {
        let path = self.folder.join(LIST_FILE);
        let failed = |source| PersonError::Io { action: "write", path: path.clone(), source };
        let file = ListFile { format_version: FORMAT_VERSION, erasures: self.entries.clone() };
        let bytes = serde_json::to_vec_pretty(&file).map_err(|error| failed(error.into()))?;
        write_privately(&path, &bytes).map_err(failed)
    }

    /// The list at work.
    pub fn suppression(self) -> Suppression {
        let Some(key) = self.key.clone().filter(|_| !self.entries.is_empty()) else { return Suppression(None) };
        let mut marks: HashMap<KeyedHash, Vec<Mark>> = HashMap::new();
        for (entry, suppressed) in self.entries.iter().enumerate() {
            let named = suppressed.named.iter().map(|hash| (*hash, Mark { entry, is_named: true }));
            let led = suppressed.led.iter().map(|hash| (*hash, Mark { entry, is_named: false }));
            for (hash, mark) in named.chain(led) {
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
    key: Key,
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
        self.matches_json(fields_of_stream(stream), record)
    }

    /// The same for any JSON object with such fields, a webhook for one: `fields` are those of the contract of its table.
    pub fn matches_json(&self, fields: &RecordFields, json: &str) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.owners(fields, json).is_some())
    }

    /// Whether some of these identifiers, all of one person, are of somebody who is kept out.
    pub fn matches_identifiers<'a>(&self, identifiers: impl IntoIterator<Item = &'a Spelled>) -> bool {
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
    pub fn filtered(&self, scan: &Scan, body: &[u8]) -> Option<LessPage> {
        let inner = self.0.as_ref()?;
        let fields = fields_of_stream(scan.scope.stream);
        if fields.is_empty() {
            return None;
        }
        let mut met = HashSet::new();
        let less = without_records(body, |record| match inner.owners(fields, record) {
            Some(owners) => {
                met.extend(owners);
                true
            }
            None => false,
        })?;
        inner.seen().meet(scan, &met, u64::from(less.removed));
        Some(less)
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

    /// At the end of a run: entries that have done their work go, and what was learned of the others is written.
    pub fn settle(&self, now_ms: i64) -> Result<Vec<Expired>, PersonError> {
        let Some(inner) = &self.0 else { return Ok(Vec::new()) };
        let mut seen = inner.seen();
        let is_over = |entry: &&Suppressed| entry.is_over(now_ms);
        let expired: Vec<Expired> = (seen.list.entries.iter().filter(is_over))
            .map(|entry| Expired { erasure_id: entry.erasure_id.clone() })
            .collect();
        if expired.is_empty() && !seen.is_changed {
            return Ok(expired);
        }
        // The list in memory stays as the marks know it; only the file loses what is over.
        let mut list = seen.list.clone();
        list.entries.retain(|entry| !entry.is_over(now_ms));
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
    led: Vec<usize>,
    has_other_user: bool,
}

impl Verdict {
    /// Whose it is. What merely shares a device with somebody, and has a user id of its own, is another person's.
    fn owners(self) -> Option<Vec<usize>> {
        match (self.named.is_empty(), self.led.is_empty(), self.has_other_user) {
            (false, ..) => Some(self.named.into_iter().chain(self.led).collect()),
            (true, false, false) => Some(self.led),
            _ => None,
        }
    }
}

impl Inner {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        // What was met is only ever added to, so a panicking holder left it whole.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owners(&self, fields: &RecordFields, record: &str) -> Option<Vec<usize>> {
        let mut verdict = Verdict::default();
        fields.for_each(record, &mut |identifier| {
            self.judge(&identifier, &mut verdict);
            true
        });
        verdict.owners()
    }

    fn judge(&self, spelled: &Spelled, verdict: &mut Verdict) {
        let marks_of = |identifier| self.marks.get(&self.key.hash(identifier));
        // Entries of versions that compared identifiers as they were written hold hashes of that.
        let forms = [marks_of(&spelled.identifier), spelled.as_written().as_ref().and_then(marks_of)];
        let is_known = forms.iter().any(Option::is_some);
        verdict.has_other_user |= !is_known && spelled.identifier.kind == IdentifierKind::UserId;
        for mark in forms.into_iter().flatten().flatten() {
            let list = if mark.is_named { &mut verdict.named } else { &mut verdict.led };
            list.push(mark.entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FlagSet, Identifier, RunId, Scope};

    fn identifier(kind: IdentifierKind, text: &str) -> Identifier {
        Identifier::read(kind, text).unwrap()
    }

    fn spelled(kind: IdentifierKind, text: &str) -> Spelled {
        Spelled::read(kind, text).unwrap()
    }

    fn listed(folder: &Path) -> SuppressionList {
        let mut list = SuppressionList::read(folder).unwrap();
        let key = list.key().unwrap();
        let hash = |kind, text| key.hash(&identifier(kind, text));
        let entry = Suppressed {
            erasure_id: "e1".into(),
            until_ms: 1000,
            named: vec![hash(IdentifierKind::UserId, "anna")],
            led: vec![hash(IdentifierKind::VisitorId, "7"), hash(IdentifierKind::Email, "a@b.c")],
            met: BTreeMap::from([(Stream::Responses, vec![Window::new(0, 10)])]),
            absent: BTreeMap::new(),
        };
        list.put(entry).unwrap();
        SuppressionList::read(folder).unwrap()
    }

    fn scan(window: Window, started_ms: i64) -> Scan {
        let scope = Scope::all(Stream::Responses);
        Scan { id: ScanId::new(started_ms), run_id: RunId::new(0), scope, window, flags: FlagSet::ALL, started_ms }
    }

    #[test]
    fn p9_records_of_the_suppressed_are_known_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let suppression = listed(folder.path()).suppression();
        let is_kept_out = |record: &str| suppression.matches_record(Stream::Responses, record);
        assert!(is_kept_out(r#"{"externalUserId":"anna","visitorId":1}"#));
        assert!(is_kept_out(r#"{"externalUserId":"","visitorId":7}"#), "by what the name led to");
        assert!(is_kept_out(r#"{"visitorSnapshot":{"attributes":{"email":"A@B.C"}}}"#));
        assert!(!is_kept_out(r#"{"externalUserId":"bert","visitorId":7}"#), "a shared device");
        assert!(!is_kept_out(r#"{"externalUserId":"bert","visitorId":8}"#));
        assert!(suppression.matches_identifiers(&[spelled(IdentifierKind::VisitorId, "7")]));
        let page = br#"{"data":[{"externalUserId":"anna"},{"externalUserId":"bert"}]}"#;
        let less = suppression.filtered(&scan(Window::new(0, 10), 1), page).unwrap();
        assert_eq!(less.body, br#"{"data":[{"externalUserId":"bert"}]}"#);
        let file = fs::read_to_string(folder.path().join(LIST_FILE)).unwrap();
        assert!(!file.contains("anna") && !file.contains("a@b.c"), "{file}");
    }

    #[test]
    fn p9_whoever_is_suppressed_is_kept_out_in_every_form_of_the_name() {
        let is_kept_out = |hashed: &[Identifier], record: &str| {
            let folder = tempfile::tempdir().unwrap();
            let mut list = SuppressionList::read(folder.path()).unwrap();
            let key = list.key().unwrap();
            let named = hashed.iter().map(|one| key.hash(one)).collect();
            let (met, absent) = (BTreeMap::new(), BTreeMap::new());
            list.put(Suppressed { erasure_id: "e1".into(), until_ms: 1, named, led: Vec::new(), met, absent }).unwrap();
            SuppressionList::read(folder.path()).unwrap().suppression().matches_record(Stream::Responses, record)
        };
        let user = |name: &str| format!(r#"{{"externalUserId":"{name}"}}"#);
        let mail = |address: &str| format!(r#"{{"visitorSnapshot":{{"attributes":{{"email":"{address}"}}}}}}"#);
        let now = [identifier(IdentifierKind::UserId, "zoë"), identifier(IdentifierKind::Email, "zoë@exämple.de")];
        for record in [
            user("zoë"),
            user("zoe\u{308}"),
            user(r"zoe\u0308"),
            mail("ZOE\u{308}@xn--exmple-cua.de"),
            mail("zoë@EXA\u{308}MPLE.de."),
        ] {
            assert!(is_kept_out(&now, &record), "{record}");
        }
        assert!(!is_kept_out(&now, &user("zoe")) && !is_kept_out(&now, &mail("zoe@exämple.de")));
        // What versions wrote that hashed a name as it was written: that form is still known.
        let raw = |kind, value: &str| Identifier { kind, value: value.to_owned() };
        let earlier = [raw(IdentifierKind::UserId, "zoe\u{308}"), raw(IdentifierKind::Email, "zoë@xn--exmple-cua.de")];
        assert!(is_kept_out(&earlier, &user("zoe\u{308}")) && is_kept_out(&earlier, &mail("ZOË@xn--exmple-cua.de")));
    }

    #[test]
    fn p9_an_entry_stays_until_a_complete_scan_after_its_time_met_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let none: &[u8] = br#"{"data":[]}"#;
        let some: &[u8] = br#"{"data":[{"externalUserId":"anna"}]}"#;
        let look = |window, started_ms, page: &[u8]| {
            let suppression = SuppressionList::read(folder.path()).unwrap().suppression();
            let scan = scan(window, started_ms);
            suppression.begins(&scan);
            suppression.filtered(&scan, page);
            suppression.committed(&scan);
            (suppression.settle(started_ms).unwrap().len(), suppression.late_records())
        };
        listed(folder.path());
        assert_eq!(look(Window::new(0, 10), 999, none), (0, 0), "before its time a look proves nothing");
        assert_eq!(look(Window::new(0, 5), 1000, none), (0, 0), "half of it");
        assert_eq!(look(Window::new(0, 3), 1001, some), (0, 1), "still there, after its time");
        assert_eq!(look(Window::new(5, 12), 1002, none), (0, 0));
        assert_eq!(look(Window::new(20, 30), 1003, some), (0, 1), "met where nobody knew");
        assert_eq!(look(Window::new(0, 10), 1004, none), (0, 0));
        assert_eq!(look(Window::new(15, 40), 1005, none), (1, 0));
        assert!(SuppressionList::read(folder.path()).unwrap().suppression().is_empty());
    }

    #[test]
    fn p9_a_list_without_its_key_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(SuppressionList::read(folder.path()).unwrap().suppression().is_empty());
        listed(folder.path());
        fs::remove_file(folder.path().join(KEY_FILE)).unwrap();
        assert!(matches!(SuppressionList::read(folder.path()), Err(PersonError::KeyLost { .. })));
        fs::write(folder.path().join(LIST_FILE), "{\"format_version\":9}").unwrap();
        assert!(matches!(SuppressionList::read(folder.path()), Err(PersonError::Newer { .. })));
    }
}
