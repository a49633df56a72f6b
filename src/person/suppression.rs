//! Recognizes records of erased people while the service still sends them.
//!
//! An entry of the suppression list expires in two steps: first the service's purge delay and a margin pass, then
//! complete scans find no record in any window that had one.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    IdentifierKey, KeyedHash, RedactedPage, SuppressionError, SuppressionList,
    identifying_fields::{IdentifyingFields, identifying_fields},
    redacted_page::remove_records,
    suppression_list::SuppressionEntry,
};
use crate::model::{IdentifierKind, Scan, ScanId, WrittenIdentifier};

/// Recognizes the erased people of a suppression list. Costs nothing if the list is empty. Clones share what scans
/// find.
#[derive(Clone, Debug, Default)]
pub struct Suppression(Option<Arc<ActiveList>>);

/// A suppression list with at least one entry.
#[derive(Debug)]
struct ActiveList {
    key: IdentifierKey,
    /// For each hash of the list, the entries that contain it.
    owners: HashMap<KeyedHash, Vec<HashOwner>>,
    scans: Mutex<ScanFindings>,
}

/// An entry that contains a hash.
#[derive(Clone, Copy, Debug)]
struct HashOwner {
    /// The index of the entry in the list.
    entry: usize,
    /// True if the request for erasure named the identifier; false if the identifier is linked.
    is_named: bool,
}

/// What the scans of this process found.
#[derive(Debug)]
struct ScanFindings {
    /// The list, updated with the findings.
    list: SuppressionList,
    /// The scans that this process pulls from their first page, and for each the indexes of the entries whose records
    /// it found.
    found: HashMap<ScanId, HashSet<usize>>,
    /// True if the list differs from its file.
    is_changed: bool,
    late: LateRecords,
}

/// The records that the service sent although it should have purged their people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LateRecords {
    pub records: u64,
    /// The ids of the erasures of these people.
    pub erasure_ids: BTreeSet<String>,
}

/// An erasure whose purge delay is over and whose people later scans did not find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpirableErasure {
    pub erasure_id: String,
    /// The user ids that the service was asked to purge.
    pub user_ids: Vec<String>,
}

impl Suppression {
    /// Creates the suppression for the people on a list.
    pub fn new(list: SuppressionList) -> Suppression {
        let Some(key) = list.key.clone().filter(|_| !list.entries.is_empty()) else { return Suppression(None) };
        let mut owners: HashMap<KeyedHash, Vec<HashOwner>> = HashMap::new();
        for (index, entry) in list.entries.iter().enumerate() {
            for (hashes, is_named) in [(&entry.named, true), (&entry.linked, false)] {
                for hash in hashes {
                    owners.entry(*hash).or_default().push(HashOwner { entry: index, is_named });
                }
            }
        }
        let scans = ScanFindings { list, found: HashMap::new(), is_changed: false, late: LateRecords::default() };
        Suppression(Some(Arc::new(ActiveList { key, owners, scans: Mutex::new(scans) })))
    }

    /// Returns true if nobody is suppressed.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if a JSON object belongs to a suppressed person, for example a webhook delivery. `fields` are the
    /// identifying fields by the contract of its table.
    pub fn matches_json(&self, fields: &IdentifyingFields, json: &str) -> bool {
        self.0.as_ref().is_some_and(|active| active.owners(fields, json).is_some())
    }

    /// Returns true if the identifiers of one person belong to a suppressed person.
    pub fn matches_identifiers<'a>(&self, identifiers: impl IntoIterator<Item = &'a WrittenIdentifier>) -> bool {
        self.0.as_ref().is_some_and(|active| {
            let mut matches = RecordMatches::default();
            identifiers.into_iter().for_each(|identifier| active.match_identifier(identifier, &mut matches));
            matches.owners().is_some()
        })
    }

    /// Registers a scan; must be called before its first page. Only a registered scan can prove that a person is
    /// absent.
    pub fn begin_scan(&self, scan: &Scan) {
        if let Some(active) = &self.0 {
            active.scans().found.insert(scan.id.clone(), HashSet::new());
        }
    }

    /// Removes the records of suppressed people from a page of a scan, and remembers who was found. Returns `None` if
    /// the page has no such records.
    pub fn filtered(&self, scan: &Scan, body: &[u8]) -> Option<RedactedPage> {
        let active = self.0.as_ref()?;
        let fields = identifying_fields(scan.scope.stream);
        if fields.is_empty() {
            return None;
        }
        let mut found = HashSet::new();
        let redacted = remove_records(body, |record| match active.owners(fields, record) {
            Some(owners) => {
                found.extend(owners);
                true
            }
            None => false,
        })?;
        active.scans().add(scan, &found, u64::from(redacted.removed));
        Some(redacted)
    }

    /// Must be called when a scan is complete and committed. Marks people as absent from the window if the scan began
    /// after their purge delay and did not find them. Ignores a scan of one survey, and a scan that was not registered
    /// with [`Suppression::begin_scan`].
    pub fn committed(&self, scan: &Scan) {
        let Some(active) = &self.0 else { return };
        let mut scans = active.scans();
        let Some(found) = scans.found.remove(&scan.id).filter(|_| scan.scope.survey_id.is_none()) else { return };
        let ScanFindings { list, is_changed, .. } = &mut *scans;
        for (index, entry) in list.entries.iter_mut().enumerate() {
            if !found.contains(&index) && scan.started_ms >= entry.until_ms {
                *is_changed |= entry.not_found_in(scan.scope.stream, scan.window);
            }
        }
    }

    /// Returns the records that the service sent although it should have purged the people.
    pub fn late_records(&self) -> LateRecords {
        self.0.as_ref().map(|active| active.scans().late.clone()).unwrap_or_default()
    }

    /// Returns the erasures that can expire. The caller must check first that the service no longer knows their user
    /// ids.
    pub fn expirable(&self, now_ms: i64) -> Vec<ExpirableErasure> {
        let Some(active) = &self.0 else { return Vec::new() };
        let scans = active.scans();
        let expirable = scans.list.entries.iter().filter(|entry| entry.is_expirable(now_ms)).map(|entry| {
            ExpirableErasure { erasure_id: entry.erasure_id.clone(), user_ids: entry.user_ids(&active.key) }
        });
        expirable.collect()
    }

    /// Removes the expirable entries from the list's file, except the erasures with an id in `kept`, and writes what
    /// scans found about the other entries. Called at the end of a run. Returns the ids of the removed erasures.
    pub fn expire(&self, now_ms: i64, kept: &BTreeSet<String>) -> Result<Vec<String>, SuppressionError> {
        let Some(active) = &self.0 else { return Ok(Vec::new()) };
        let mut scans = active.scans();
        let is_expired = |entry: &SuppressionEntry| entry.is_expirable(now_ms) && !kept.contains(&entry.erasure_id);
        // The list in memory keeps all entries, because the hash owners contain their indexes.
        let mut list = scans.list.clone();
        let expired: Vec<String> =
            list.entries.extract_if(.., |entry| is_expired(entry)).map(|entry| entry.erasure_id).collect();
        if !expired.is_empty() || scans.is_changed {
            list.write()?;
            scans.is_changed = false;
        }
        Ok(expired)
    }
}

impl ScanFindings {
    /// Adds the entries (indexes in `found`) whose records a page of a scan contained. `records` is the number of these
    /// records on the page.
    fn add(&mut self, scan: &Scan, found: &HashSet<usize>, records: u64) {
        if let Some(scan_found) = self.found.get_mut(&scan.id) {
            scan_found.extend(found);
        }
        let mut are_late = false;
        for index in found {
            let Some(entry) = self.list.entries.get_mut(*index) else { continue };
            entry.found_in(scan.scope.stream, scan.window);
            if scan.started_ms >= entry.until_ms {
                are_late = true;
                self.late.erasure_ids.insert(entry.erasure_id.clone());
            }
            self.is_changed = true;
        }
        self.late.records += if are_late { records } else { 0 };
    }
}

/// The entries that the identifiers of one record match, by index.
#[derive(Debug, Default)]
struct RecordMatches {
    named: Vec<usize>,
    linked: Vec<usize>,
    /// True if the record has a user id that no entry contains.
    has_other_user: bool,
}

impl RecordMatches {
    /// Returns the indexes of the entries that the record belongs to; `None` if the record belongs to no erased person.
    /// A record with only linked identifiers and the user id of another person belongs to that other person, because
    /// both may share a device.
    fn owners(self) -> Option<Vec<usize>> {
        match (self.named.is_empty(), self.linked.is_empty(), self.has_other_user) {
            (false, ..) => Some(self.named.into_iter().chain(self.linked).collect()),
            (true, false, false) => Some(self.linked),
            _ => None,
        }
    }
}

impl ActiveList {
    fn scans(&self) -> MutexGuard<'_, ScanFindings> {
        // Findings are only added, so they stay valid after a panic under the lock.
        self.scans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the indexes of the entries that a record belongs to; `None` if the record belongs to no erased person.
    fn owners(&self, fields: &IdentifyingFields, record: &str) -> Option<Vec<usize>> {
        let mut matches = RecordMatches::default();
        fields.any(record, &mut |identifier| {
            self.match_identifier(&identifier, &mut matches);
            false
        });
        matches.owners()
    }

    fn match_identifier(&self, written: &WrittenIdentifier, matches: &mut RecordMatches) {
        let owners_of = |identifier| self.owners.get(&self.key.hash(identifier));
        // Earlier versions of the program hashed identifiers as they were written, not in their normal form.
        let owners = [owners_of(&written.identifier), written.as_written().as_ref().and_then(owners_of)];
        let is_known = owners.iter().any(Option::is_some);
        matches.has_other_user |= !is_known && written.identifier.kind == IdentifierKind::UserId;
        for owner in owners.into_iter().flatten().flatten() {
            let entries = if owner.is_named { &mut matches.named } else { &mut matches.linked };
            entries.push(owner.entry);
        }
    }
}

#[cfg(test)]
mod tests;
