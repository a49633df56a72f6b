//! Decides what becomes of each record of a scan, and of each stored row that the scan should have returned (promises
//! P1, P2, P4).
//!
//! [`classify`] is a pure function of keys and hashes, without store or clock. Records outside the window, rejects and
//! repeated keys are ordinary input. Where hashes do not decide whether content changed, the caller compares columns.

use foldhash::{HashMap, HashMapExt as _, HashSet};

use super::records::{Record, StoredRow};
use crate::load::{VanishPolicy, store::TimeRange};

/// Largest number of rows that a scan without records marks as vanished under [`VanishPolicy::Guarded`]: about as many
/// as one person writes in one session. If more rows are missing, all are withheld.
const EMPTY_SCAN_VANISHED_MAX: u64 = 6;

/// What the classification must know of a scan.
#[derive(Clone, Debug)]
pub(in crate::load) struct ClassifyOptions {
    /// Range of creation time that was scanned; `None` for a table without a partition column, whose scan covers all
    /// stored rows that it is compared with.
    pub window: Option<TimeRange>,
    /// The survey that was scanned; `None` if the scan is of all surveys, or the table has no column `survey_id`.
    pub survey_id: Option<i64>,
    /// The bits of the scan's flags; `None` for a table that stores no flags.
    pub flags: Option<i64>,
    /// True if the scan also returns rows that are soft-deleted at the service.
    pub includes_deleted: bool,
    /// Key hashes of the scan's records that the drift rules discarded. Stored rows with these keys have not vanished.
    pub discarded: HashSet<u128>,
    /// Whether rows that the scan did not return are marked as vanished.
    pub vanish: VanishPolicy,
    /// True if the service returned no record.
    pub is_empty_answer: bool,
    /// True if a record of the scan was not JSON. Such a record has no readable key and may be the record of any
    /// missing row. So [`VanishPolicy::Guarded`] withholds all missing rows.
    pub has_broken_records: bool,
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) enum RecordChange {
    /// Another record with the same key is current: of this scan, or of another window.
    Superseded,
    /// No stored row has the record's key.
    New,
    /// The stored row with the record's key has the same content and is not changed.
    Unchanged,
    /// The stored row with the record's key is replaced, or its columns must be compared first: `cause` says which.
    /// `stored` is the index of this row. `has_duplicate_rows` is true if other stored rows with this key are removed.
    Stored { stored: usize, cause: UpdateCause, has_duplicate_rows: bool },
}

/// Why a stored row is replaced, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) enum UpdateCause {
    /// The hash of the content differs. The columns must be compared.
    OtherHash,
    /// The row was stored by a scan with other flags, or has no hash. The columns must be compared.
    Unclear,
    /// The content is the same, but the row had vanished.
    Returned,
    /// The content is the same, but other stored rows have the same key and are removed.
    HasDuplicateRows,
}

/// What becomes of all records and stored rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::load) struct Classification {
    /// The change of each record, in the order of the records.
    pub records: Vec<RecordChange>,
    /// Indexes of records that lost to the current record of their key, which has other content. If several losers have
    /// the same key and content, only the newest is listed.
    pub collision_losers: Vec<usize>,
    /// Indexes of stored rows that have vanished.
    pub vanished: Vec<usize>,
    /// Indexes of stored rows that are removed in favour of another row with their key.
    pub duplicate_rows: Vec<usize>,
    /// Number of missing rows that are not marked as vanished, because the vanish policy does not believe that they
    /// vanished.
    pub withheld: u64,
    /// Number of current records: one for each key of the scan.
    pub current: u64,
    /// For the key of each loser, the creation time of the record that won.
    pub winners: HashMap<u128, i64>,
}

impl Classification {
    /// Returns true if no row has to be written, removed or compared.
    pub fn changes_nothing(&self) -> bool {
        let changes_nothing =
            |change: &RecordChange| matches!(change, RecordChange::Superseded | RecordChange::Unchanged);
        self.vanished.is_empty()
            && self.duplicate_rows.is_empty()
            && self.collision_losers.is_empty()
            && self.records.iter().all(changes_nothing)
    }
}

/// Classifies the records of a scan and the stored rows. `records` are in the order in which the scan returned them.
/// Missing rows are either all marked as vanished, or all withheld.
pub(in crate::load) fn classify(records: &[Record], stored: &[StoredRow], options: &ClassifyOptions) -> Classification {
    let mut classification =
        Classification { records: vec![RecordChange::Superseded; records.len()], ..Classification::default() };
    let (current, repeated) = current_records(records);
    classification.collision_losers = collision_losers(records, &current, &repeated);
    classification.current = current.len() as u64;
    classification.winners = winners(records, &current, &classification.collision_losers);
    current.values().for_each(|index| set_change(&mut classification.records, *index, RecordChange::New));
    // Pairs of a current record's index and the index of a stored row with its key.
    let mut rows_of_records: Vec<(usize, usize)> = Vec::new();
    let mut missing: Vec<usize> = Vec::new();
    // Number of stored rows that the scan covers. Duplicate rows are subtracted below.
    let mut in_scope = 0_u64;
    for (index, row) in stored.iter().enumerate() {
        let is_in_scope = options.is_in_scope(row);
        let record = current.get(&row.key).and_then(|index| Some((*index, records.get(*index)?)));
        match record {
            Some((record_index, record)) if options.is_row_of(row, record) => {
                rows_of_records.push((record_index, index))
            }
            Some(_) => {}
            None if options.counts_as_missing(row) => missing.push(index),
            None => {}
        }
        in_scope += u64::from(is_in_scope);
    }
    rows_of_records.sort_unstable();
    for rows in rows_of_records.chunk_by(|(one, _), (other, _)| one == other) {
        let Some(record) = rows.first().and_then(|(record, _)| Some((*record, records.get(*record)?))) else {
            continue;
        };
        let duplicates_before = classification.duplicate_rows.len();
        let kept =
            row_that_stays(record.1, rows.iter().map(|(_, index)| *index), stored, &mut classification.duplicate_rows);
        let duplicates =
            classification.duplicate_rows.iter().skip(duplicates_before).filter_map(|index| stored.get(*index));
        in_scope -= duplicates.filter(|row| options.is_in_scope(row)).count() as u64;
        if let Some((index, row)) = kept {
            let has_duplicate_rows = classification.duplicate_rows.len() > duplicates_before;
            set_change(
                &mut classification.records,
                record.0,
                options.change_of(record.1, row, index, has_duplicate_rows),
            );
        }
    }
    if options.believes_vanished(missing.len() as u64, in_scope) {
        classification.vanished = missing;
    } else {
        classification.withheld = missing.len() as u64;
    }
    classification
}

fn set_change(changes: &mut [RecordChange], index: usize, change: RecordChange) {
    if let Some(slot) = changes.get_mut(index) {
        *slot = change;
    }
}

/// Returns, for each key, the index of its current record, which has the greatest [`Record::precedence`]; and the
/// sorted indexes of all records whose key came more than once.
fn current_records(records: &[Record]) -> (HashMap<u128, usize>, Vec<usize>) {
    let mut current = HashMap::with_capacity(records.len());
    let mut repeated = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let Some(before) = current.insert(record.key, index) else { continue };
        repeated.extend([before, index]);
        let is_newer = |other: &Record| (record.precedence(), index) > (other.precedence(), before);
        if !records.get(before).is_some_and(is_newer) {
            current.insert(record.key, before);
        }
    }
    repeated.sort_unstable();
    repeated.dedup();
    (current, repeated)
}

/// Returns the sorted indexes of the records that lost a collision: their content differs from that of the current
/// record of their key. Of losers with one key and content, only the newest is returned. `repeated` are the indexes of
/// the records whose key came more than once.
fn collision_losers(records: &[Record], current: &HashMap<u128, usize>, repeated: &[usize]) -> Vec<usize> {
    let content = |index: usize| records.get(index).map(|record| record.content);
    let mut newest: HashMap<(u128, i64), usize> = HashMap::new();
    for &index in repeated {
        let Some(record) = records.get(index) else { continue };
        if current.get(&record.key).and_then(|winner| content(*winner)) == Some(record.content) {
            continue;
        }
        let slot = newest.entry((record.key, record.content)).or_insert(index);
        let is_newer = |other: &Record| (record.precedence(), index) > (other.precedence(), *slot);
        if records.get(*slot).is_some_and(is_newer) {
            *slot = index;
        }
    }
    let mut collision_losers: Vec<usize> = newest.into_values().collect();
    collision_losers.sort_unstable();
    collision_losers
}

fn winners(records: &[Record], current: &HashMap<u128, usize>, losers: &[usize]) -> HashMap<u128, i64> {
    let keys = losers.iter().filter_map(|index| Some(records.get(*index)?.key));
    keys.filter_map(|key| Some((key, records.get(*current.get(&key)?)?.created_us))).collect()
}

/// Chooses which of the stored rows of one key stays, and adds the indexes of the others to `duplicate_rows`. Prefers,
/// in this order: a row with the record's creation time, a row that has not vanished, the row that vanished last, the
/// row with the latest creation time.
fn row_that_stays<'s>(
    record: &Record,
    indexes: impl Iterator<Item = usize>,
    stored: &'s [StoredRow],
    duplicate_rows: &mut Vec<usize>,
) -> Option<(usize, &'s StoredRow)> {
    let rank = |row: &StoredRow| {
        let has_time_of_record = row.created_us == record.created_us;
        (has_time_of_record, row.vanished_us.is_none(), row.vanished_us, row.created_us)
    };
    let mut kept: Option<(usize, &StoredRow)> = None;
    for (index, row) in indexes.filter_map(|index| Some((index, stored.get(index)?))) {
        match kept {
            Some((_, best)) if rank(row) <= rank(best) => duplicate_rows.push(index),
            _ => duplicate_rows.extend(kept.replace((index, row)).map(|(index, _)| index)),
        }
    }
    kept
}

impl ClassifyOptions {
    /// Returns true if the stored row is of the same place as the record with its key: it has the same creation time,
    /// or the record replaces it. A row of another window, which this scan did not cover, can be another record with
    /// the same key; [`super::unique_keys`] decides between both.
    fn is_row_of(&self, row: &StoredRow, record: &Record) -> bool {
        let is_covered = self.window.is_none_or(|window| window.holds(row.created_us))
            && self.survey_id.is_none_or(|survey| row.survey_id == Some(survey));
        row.created_us == record.created_us || is_covered || row.vanished_us.is_some()
    }

    /// Returns true if the row is inside the window and the survey of the scan, and had not vanished before.
    fn is_in_scope(&self, row: &StoredRow) -> bool {
        self.window.is_none_or(|window| window.holds(row.created_us))
            && self.survey_id.is_none_or(|survey| row.survey_id == Some(survey))
            && row.vanished_us.is_none()
    }

    /// Returns true if the row counts as missing when the scan has no record of its key. Returns false under
    /// [`VanishPolicy::Ignore`], and for the key of a discarded record.
    pub fn counts_as_missing(&self, row: &StoredRow) -> bool {
        self.vanish != VanishPolicy::Ignore && self.is_expected(row) && !self.discarded.contains(&row.key)
    }

    /// Returns true if the scan must return the row as long as the service still has it.
    pub fn is_expected(&self, row: &StoredRow) -> bool {
        self.is_in_scope(row) && (self.includes_deleted || !row.is_deleted)
    }

    /// Compares the current record of a key with the stored row that stays, by hash and flags. `stored` is the index of
    /// `row`. Returns [`RecordChange::Unchanged`] or [`RecordChange::Stored`].
    fn change_of(&self, record: &Record, row: &StoredRow, stored: usize, has_duplicate_rows: bool) -> RecordChange {
        let has_same_flags = self.flags.is_none_or(|flags| flags == row.flags);
        let cause = match row.content.filter(|_| has_same_flags) {
            None => UpdateCause::Unclear,
            Some(content) if content != record.content => UpdateCause::OtherHash,
            Some(_) if row.vanished_us.is_some() => UpdateCause::Returned,
            Some(_) if has_duplicate_rows => UpdateCause::HasDuplicateRows,
            Some(_) => return RecordChange::Unchanged,
        };
        RecordChange::Stored { stored, cause, has_duplicate_rows }
    }

    /// Returns true if the policy believes that `missing` rows have vanished. `in_scope` is the number of stored rows
    /// that the scan covers.
    fn believes_vanished(&self, missing: u64, in_scope: u64) -> bool {
        match self.vanish {
            VanishPolicy::Accept | VanishPolicy::Ignore => true,
            _ if self.has_broken_records && missing > 0 => false,
            // An empty scan can mean that the service failed, so the limit is lower.
            VanishPolicy::Guarded { .. } if self.is_empty_answer => missing <= EMPTY_SCAN_VANISHED_MAX,
            // Row counts are far below 2^53, so they are exact as f64.
            VanishPolicy::Guarded { share_max, rows_max } => {
                missing <= rows_max || missing as f64 <= share_max * in_scope as f64
            }
        }
    }
}

#[cfg(test)]
mod tests;
