//! What becomes of each record of a scan, and of each stored row that it should have found (promises P1, P2, P4).
//!
//! A pure function over keys and hashes: no store, no clock. Records outside the window, rejects and keys that come twice are ordinary
//! input. Rows whose content is not told by their hashes are for the caller to compare column by column.

use foldhash::{HashMap, HashMapExt as _, HashSet};

use super::records::{Record, StoredRow};
use crate::load::{VanishPolicy, store::TimeRange};

/// Rows that an empty answer may take: as many as one person may have given in one sitting.
const EMPTY_SCAN_VANISHED_MAX: u64 = 6;

/// What a scan asked for, as far as it decides what becomes of rows.
#[derive(Clone, Debug)]
pub(in crate::load) struct ClassifyOptions {
    /// Of creation time; `None` for a table that is not parted by it: then the scan is of all rows that are stored.
    pub window: Option<TimeRange>,
    /// The survey, if the scan is of one.
    pub survey_id: Option<i64>,
    /// The bits of its flags, for a table that keeps them.
    pub flags: Option<i64>,
    /// Whether it finds rows that were deleted at the service.
    pub asks_for_deleted: bool,
    /// Keys that the service returned and the drift rules discarded: what is stored of them has not vanished.
    pub discarded: HashSet<u128>,
    /// What to do about rows that it did not find.
    pub vanish: VanishPolicy,
    /// Whether the service returned nothing at all.
    pub is_empty_answer: bool,
    /// Whether it returned records that are no JSON: any of them may be a row that was not found.
    pub has_broken_records: bool,
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) enum RecordChange {
    /// Another record of its key stands.
    Superseded,
    /// No row has its key.
    New,
    /// The row of its key says the same.
    Unchanged,
    /// The row of its key, by its index among the stored rows, is to be replaced, or compared first.
    Stored { stored: usize, cause: UpdateCause, has_duplicate_rows: bool },
}

/// Why a row is replaced, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) enum UpdateCause {
    /// Its hash is another: its columns are to be compared.
    OtherHash,
    /// It was scanned with other flags, or its hash says nothing: its columns are to be compared.
    Unclear,
    /// It had vanished.
    Returned,
    /// Its key has other rows, which give way.
    HasDuplicateRows,
}

/// What becomes of everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::load) struct Classification {
    /// Of each record, in order.
    pub records: Vec<RecordChange>,
    /// Records, by index, that lost to another of their key with other content: one for each content.
    pub collision_losers: Vec<usize>,
    /// Stored rows, by index, that have vanished.
    pub vanished: Vec<usize>,
    /// Stored rows, by index, that give way to another row of their key.
    pub duplicate_rows: Vec<usize>,
    /// Rows that seem to have vanished, and are not believed.
    pub withheld: u64,
    /// Records that stand.
    pub current: u64,
}

impl Classification {
    /// Whether nothing is to be written, or compared.
    pub fn changes_nothing(&self) -> bool {
        let changes_nothing =
            |change: &RecordChange| matches!(change, RecordChange::Superseded | RecordChange::Unchanged);
        self.vanished.is_empty()
            && self.duplicate_rows.is_empty()
            && self.collision_losers.is_empty()
            && self.records.iter().all(changes_nothing)
    }
}

/// Says what becomes of the records, in the order in which they came, and of the stored rows.
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

/// For each key the record that stands: that which was updated last, then that which came last. And the indexes of the records whose key
/// came more than once.
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

/// Of the records with another content than that which stands, the newest of each content.
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

/// Of the stored rows of one key that which stays: at the record's moment, then one that has not vanished, then the latest. The others go
/// to `duplicate_rows`.
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
    /// Whether a row is there, and belongs to what was asked for.
    fn is_in_scope(&self, row: &StoredRow) -> bool {
        self.window.is_none_or(|window| window.holds(row.created_us))
            && self.survey_id.is_none_or(|survey| row.survey_id == Some(survey))
            && row.vanished_us.is_none()
    }

    /// Whether a complete scan finds the row unless it has vanished.
    pub fn expects(&self, row: &StoredRow) -> bool {
        self.vanish != VanishPolicy::Ignore && self.counts(row) && !self.discarded.contains(&row.key)
    }

    /// Whether a row is one that the scan finds, if nothing changed.
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

    /// Whether so many rows, of those in scope, are believed to have vanished.
    fn believes(&self, vanished: u64, in_scope: u64) -> bool {
        match self.vanish {
            VanishPolicy::Accept | VanishPolicy::Ignore => true,
            _ if self.has_broken_records && vanished > 0 => false,
            // An answer of nothing looks the same as a service that has lost its way for a night: it is believed less.
            VanishPolicy::Guarded { .. } if self.is_empty_answer => vanished <= EMPTY_SCAN_VANISHED_MAX,
            // Counts of rows are far below 2^53: exact as f64.
            VanishPolicy::Guarded { share_max, rows_max } => {
                vanished <= rows_max || vanished as f64 <= share_max * in_scope as f64
            }
        }
    }
}

#[cfg(test)]
mod tests;
