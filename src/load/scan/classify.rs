//! Decides what becomes of each record of a scan, and of each stored row that the scan should have returned (promises
//! P1, P2, P4).
//!
//! A pure function of keys and hashes, without store or clock. Records outside the window, rejects and repeated keys
//! are ordinary input. Where hashes do not decide whether content changed, the caller compares columns.

use foldhash::{HashMap, HashMapExt as _, HashSet};

use super::records::{Record, StoredRow};
use crate::load::{VanishPolicy, store::TimeRange};

/// Rows that may vanish by an empty scan: about as many as one person writes in one session.
const EMPTY_SCAN_VANISHED_MAX: u64 = 6;

/// What the scan requested, as far as the classification depends on it.
#[derive(Clone, Debug)]
pub(in crate::load) struct ClassifyOptions {
    /// Range of creation time; `None` for a table without a partition column, whose scans cover all stored rows.
    pub window: Option<TimeRange>,
    /// The survey, if the scan is of one survey.
    pub survey_id: Option<i64>,
    /// The bits of the scan's flags, for a table that stores flags.
    pub flags: Option<i64>,
    /// Whether the scan returns rows that are soft-deleted at the service.
    pub asks_for_deleted: bool,
    /// Keys of records that the drift rules discarded: their stored rows have not vanished.
    pub discarded: HashSet<u128>,
    /// What to do about rows that the scan did not return.
    pub vanish: VanishPolicy,
    /// Whether the service returned no record.
    pub is_empty_answer: bool,
    /// Whether a record was not JSON: it may be the record of any missing row.
    pub has_broken_records: bool,
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) enum RecordChange {
    /// Another record with its key is current.
    Superseded,
    /// No stored row has its key.
    New,
    /// The stored row of its key has the same content.
    Unchanged,
    /// The stored row of its key, by index, is replaced, or must be compared first.
    Stored { stored: usize, cause: UpdateCause, has_duplicate_rows: bool },
}

/// Why a stored row is replaced, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) enum UpdateCause {
    /// The hash differs; its columns must be compared.
    OtherHash,
    /// The row was scanned with other flags, or has no hash; its columns must be compared.
    Unclear,
    /// The row had vanished.
    Returned,
    /// Its key has other stored rows, which are removed.
    HasDuplicateRows,
}

/// What becomes of all records and stored rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::load) struct Classification {
    /// The change of each record, in order.
    pub records: Vec<RecordChange>,
    /// Indexes of records that lost to another record with their key and other content; one for each content.
    pub collision_losers: Vec<usize>,
    /// Indexes of stored rows that have vanished.
    pub vanished: Vec<usize>,
    /// Indexes of stored rows that are removed in favour of another row with their key.
    pub duplicate_rows: Vec<usize>,
    /// Missing rows that are too many to be believed.
    pub withheld: u64,
    /// Number of current records.
    pub current: u64,
}

impl Classification {
    /// Whether nothing has to be written or compared.
    pub fn changes_nothing(&self) -> bool {
        let changes_nothing =
            |change: &RecordChange| matches!(change, RecordChange::Superseded | RecordChange::Unchanged);
        self.vanished.is_empty()
            && self.duplicate_rows.is_empty()
            && self.collision_losers.is_empty()
            && self.records.iter().all(changes_nothing)
    }
}

/// Classifies the records, in the order in which the scan returned them, and the stored rows.
pub(in crate::load) fn classify(records: &[Record], stored: &[StoredRow], options: &ClassifyOptions) -> Classification {
    let mut classification =
        Classification { records: vec![RecordChange::Superseded; records.len()], ..Classification::default() };
    let (current, repeated) = current_records(records);
    classification.collision_losers = collision_losers(records, &current, &repeated);
    classification.current = current.len() as u64;
    current.values().for_each(|index| set_change(&mut classification.records, *index, RecordChange::New));
    let mut rows_of_records: Vec<(usize, usize)> = Vec::new();
    let mut missing: Vec<usize> = Vec::new();
    let mut in_scope = 0_u64;
    for (index, row) in stored.iter().enumerate() {
        let is_in_scope = options.is_in_scope(row);
        match current.get(&row.key) {
            Some(record) => rows_of_records.push((*record, index)),
            None if options.expects(row) => missing.push(index),
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
        let set_aside =
            classification.duplicate_rows.iter().skip(duplicates_before).filter_map(|index| stored.get(*index));
        in_scope -= set_aside.filter(|row| options.is_in_scope(row)).count() as u64;
        if let Some((index, row)) = kept {
            let has_duplicate_rows = classification.duplicate_rows.len() > duplicates_before;
            set_change(
                &mut classification.records,
                record.0,
                options.change_of(record.1, row, index, has_duplicate_rows),
            );
        }
    }
    match options.believes(missing.len() as u64, in_scope) {
        true => classification.vanished = missing,
        false => classification.withheld = missing.len() as u64,
    }
    classification
}

fn set_change(classification: &mut [RecordChange], index: usize, change: RecordChange) {
    if let Some(slot) = classification.get_mut(index) {
        *slot = change;
    }
}

/// For each key the index of the current record: the one updated last, then the one returned last. Also the indexes
/// of all records whose key came more than once.
fn current_records(records: &[Record]) -> (HashMap<u128, usize>, Vec<usize>) {
    let mut current = HashMap::with_capacity(records.len());
    let mut repeated = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let Some(before) = current.insert(record.key, index) else { continue };
        repeated.extend([before, index]);
        let is_newer = |other: &Record| (record.updated_us, index) > (other.updated_us, before);
        if !records.get(before).is_some_and(is_newer) {
            current.insert(record.key, before);
        }
    }
    repeated.sort_unstable();
    repeated.dedup();
    (current, repeated)
}

/// Of the records whose content differs from the current record, the newest of each content.
fn collision_losers(records: &[Record], current: &HashMap<u128, usize>, repeated: &[usize]) -> Vec<usize> {
    let content = |index: usize| records.get(index).map(|record| record.content);
    let mut newest: HashMap<(u128, i64), usize> = HashMap::new();
    for &index in repeated {
        let Some(record) = records.get(index) else { continue };
        if current.get(&record.key).and_then(|stands| content(*stands)) == Some(record.content) {
            continue;
        }
        let slot = newest.entry((record.key, record.content)).or_insert(index);
        let is_newer = |other: &Record| (record.updated_us, index) > (other.updated_us, *slot);
        if records.get(*slot).is_some_and(is_newer) {
            *slot = index;
        }
    }
    let mut collision_losers: Vec<usize> = newest.into_values().collect();
    collision_losers.sort_unstable();
    collision_losers
}

/// Of the stored rows of one key the one that stays: the row at the record's creation time, then a row that has not
/// vanished, then the latest. The other rows are added to `duplicate_rows`.
fn row_that_stays<'s>(
    record: &Record,
    indexes: impl Iterator<Item = usize>,
    stored: &'s [StoredRow],
    duplicate_rows: &mut Vec<usize>,
) -> Option<(usize, &'s StoredRow)> {
    let rank = |row: &StoredRow| {
        let is_at_its_moment = row.created_us == record.created_us;
        (is_at_its_moment, row.vanished_us.is_none(), row.vanished_us, row.created_us)
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
    /// Whether the scan covers a row, and the row has not vanished.
    fn is_in_scope(&self, row: &StoredRow) -> bool {
        self.window.is_none_or(|window| window.holds(row.created_us))
            && self.survey_id.is_none_or(|survey| row.survey_id == Some(survey))
            && row.vanished_us.is_none()
    }

    /// Whether a complete scan returns the row unless it has vanished.
    pub fn expects(&self, row: &StoredRow) -> bool {
        self.vanish != VanishPolicy::Ignore && self.counts(row) && !self.discarded.contains(&row.key)
    }

    /// Whether the scan returns the row if nothing changed.
    pub fn counts(&self, row: &StoredRow) -> bool {
        self.is_in_scope(row) && (self.asks_for_deleted || !row.is_deleted)
    }

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

    /// Whether so many missing rows, of the rows in scope, are believed to have vanished.
    fn believes(&self, vanished: u64, in_scope: u64) -> bool {
        match self.vanish {
            VanishPolicy::Accept | VanishPolicy::Ignore => true,
            _ if self.has_broken_records && vanished > 0 => false,
            // An empty scan can mean that the service failed, so the limit is lower.
            VanishPolicy::Guarded { .. } if self.is_empty_answer => vanished <= EMPTY_SCAN_VANISHED_MAX,
            // Row counts are far below 2^53, so they are exact as f64.
            VanishPolicy::Guarded { share_max, rows_max } => {
                vanished <= rows_max || vanished as f64 <= share_max * in_scope as f64
            }
        }
    }
}

#[cfg(test)]
mod tests;
