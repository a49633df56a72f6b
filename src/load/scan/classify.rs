//! What becomes of each record of a scan, and of each stored row that it should have found (promises P1, P2, P4).
//!
//! A pure function over keys and hashes: no store, no clock. Records outside the window, rejects and keys that come
//! twice are ordinary input. Rows whose content is not told by their hashes are for the caller to compare column by
//! column.

use foldhash::{HashMap, HashMapExt as _, HashSet};

use super::records::{Record, StoredRow};
use crate::load::{VanishPolicy, store::TimeBounds};

/// Rows that an empty answer may take: as many as one person may have given in one sitting.
const GONE_AT_ONCE_MAX: u64 = 6;

/// What a scan asked for, as far as it decides what becomes of rows.
#[derive(Clone, Debug)]
pub(in crate::load) struct Question {
    /// Of creation time; `None` for a table that is not parted by it: then the scan is of all rows that are stored.
    pub window: Option<TimeBounds>,
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
pub(in crate::load) enum Fate {
    /// Another record of its key stands.
    LeftOut,
    /// No row has its key.
    New,
    /// The row of its key says the same.
    Unchanged,
    /// The row of its key, by its place among the stored rows, is to be replaced, or compared first.
    Held { stored: usize, cause: Cause, has_doubles: bool },
}

/// Why a row is replaced, or may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) enum Cause {
    /// Its hash is another: its columns are to be compared.
    OtherHash,
    /// It was scanned with other flags, or its hash says nothing: its columns are to be compared.
    Unclear,
    /// It had vanished.
    Returned,
    /// Its key has other rows, which give way.
    Doubled,
}

/// What becomes of everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::load) struct Fates {
    /// Of each record, in order.
    pub records: Vec<Fate>,
    /// Records, by place, that lost to another of their key with other content: one for each content.
    pub losers: Vec<usize>,
    /// Stored rows, by place, that have vanished.
    pub gone: Vec<usize>,
    /// Stored rows, by place, that give way to another row of their key.
    pub doubles: Vec<usize>,
    /// Rows that seem to have vanished, and are not believed.
    pub withheld: u64,
    /// Records that stand.
    pub standing: u64,
}

impl Fates {
    /// Whether nothing is to be written, or compared.
    pub fn is_settled(&self) -> bool {
        let is_settled = |fate: &Fate| matches!(fate, Fate::LeftOut | Fate::Unchanged);
        self.gone.is_empty() && self.doubles.is_empty() && self.losers.is_empty() && self.records.iter().all(is_settled)
    }
}

/// Says what becomes of the records, in the order in which they came, and of the stored rows.
pub(in crate::load) fn classify(records: &[Record], stored: &[StoredRow], question: &Question) -> Fates {
    let mut fates = Fates { records: vec![Fate::LeftOut; records.len()], ..Fates::default() };
    let (standing, repeated) = standing_records(records);
    fates.losers = losers(records, &standing, &repeated);
    fates.standing = standing.len() as u64;
    standing.values().for_each(|place| put(&mut fates.records, *place, Fate::New));
    let mut rows_of_records: Vec<(usize, usize)> = Vec::new();
    let mut missing: Vec<usize> = Vec::new();
    let mut in_scope = 0_u64;
    for (place, row) in stored.iter().enumerate() {
        let is_in_scope = question.has_in_scope(row);
        match standing.get(&row.key) {
            Some(record) => rows_of_records.push((*record, place)),
            None if question.expects(row) => missing.push(place),
            None => {}
        }
        in_scope += u64::from(is_in_scope);
    }
    rows_of_records.sort_unstable();
    for rows in rows_of_records.chunk_by(|(one, _), (other, _)| one == other) {
        let Some(record) = rows.first().and_then(|(record, _)| Some((*record, records.get(*record)?))) else {
            continue;
        };
        let doubles_before = fates.doubles.len();
        let kept = row_that_stays(record.1, rows.iter().map(|(_, place)| *place), stored, &mut fates.doubles);
        let set_aside = fates.doubles.iter().skip(doubles_before).filter_map(|place| stored.get(*place));
        in_scope -= set_aside.filter(|row| question.has_in_scope(row)).count() as u64;
        if let Some((place, row)) = kept {
            let has_doubles = fates.doubles.len() > doubles_before;
            put(&mut fates.records, record.0, question.fate_of(record.1, row, place, has_doubles));
        }
    }
    match question.believes(missing.len() as u64, in_scope) {
        true => fates.gone = missing,
        false => fates.withheld = missing.len() as u64,
    }
    fates
}

fn put(fates: &mut [Fate], place: usize, fate: Fate) {
    if let Some(held) = fates.get_mut(place) {
        *held = fate;
    }
}

/// For each key the record that stands: that which was updated last, then that which came last. And the places of the
/// records whose key came more than once.
fn standing_records(records: &[Record]) -> (HashMap<u128, usize>, Vec<usize>) {
    let mut standing = HashMap::with_capacity(records.len());
    let mut repeated = Vec::new();
    for (place, record) in records.iter().enumerate() {
        let Some(before) = standing.insert(record.key, place) else { continue };
        repeated.extend([before, place]);
        let is_newer = |other: &Record| (record.updated_us, place) > (other.updated_us, before);
        if !records.get(before).is_some_and(is_newer) {
            standing.insert(record.key, before);
        }
    }
    repeated.sort_unstable();
    repeated.dedup();
    (standing, repeated)
}

/// Of the records with another content than that which stands, the newest of each content.
fn losers(records: &[Record], standing: &HashMap<u128, usize>, repeated: &[usize]) -> Vec<usize> {
    let content = |place: usize| records.get(place).map(|record| record.content);
    let mut newest: HashMap<(u128, i64), usize> = HashMap::new();
    for &place in repeated {
        let Some(record) = records.get(place) else { continue };
        if standing.get(&record.key).and_then(|stands| content(*stands)) == Some(record.content) {
            continue;
        }
        let held = newest.entry((record.key, record.content)).or_insert(place);
        let is_newer = |other: &Record| (record.updated_us, place) > (other.updated_us, *held);
        if records.get(*held).is_some_and(is_newer) {
            *held = place;
        }
    }
    let mut losers: Vec<usize> = newest.into_values().collect();
    losers.sort_unstable();
    losers
}

/// Of the stored rows of one key that which stays: at the record's moment, then one that has not vanished, then the
/// latest. The others go to `doubles`.
fn row_that_stays<'s>(
    record: &Record,
    places: impl Iterator<Item = usize>,
    stored: &'s [StoredRow],
    doubles: &mut Vec<usize>,
) -> Option<(usize, &'s StoredRow)> {
    let rank = |row: &StoredRow| {
        let is_at_its_moment = row.created_us == record.created_us;
        (is_at_its_moment, row.vanished_us.is_none(), row.vanished_us, row.created_us)
    };
    let mut kept: Option<(usize, &StoredRow)> = None;
    for (place, row) in places.filter_map(|place| Some((place, stored.get(place)?))) {
        match kept {
            Some((_, best)) if rank(row) <= rank(best) => doubles.push(place),
            _ => doubles.extend(kept.replace((place, row)).map(|(place, _)| place)),
        }
    }
    kept
}

impl Question {
    /// Whether a row is there, and belongs to what was asked for.
    fn has_in_scope(&self, row: &StoredRow) -> bool {
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
        self.has_in_scope(row) && (self.asks_for_deleted || !row.is_deleted)
    }

    fn fate_of(&self, record: &Record, row: &StoredRow, stored: usize, has_doubles: bool) -> Fate {
        let has_same_flags = self.flags.is_none_or(|flags| flags == row.flags);
        let cause = match row.content.filter(|_| has_same_flags) {
            None => Cause::Unclear,
            Some(content) if content != record.content => Cause::OtherHash,
            Some(_) if row.vanished_us.is_some() => Cause::Returned,
            Some(_) if has_doubles => Cause::Doubled,
            Some(_) => return Fate::Unchanged,
        };
        Fate::Held { stored, cause, has_doubles }
    }

    /// Whether so many rows, of those in scope, are believed to have vanished.
    fn believes(&self, gone: u64, in_scope: u64) -> bool {
        match self.vanish {
            VanishPolicy::Accept | VanishPolicy::Ignore => true,
            _ if self.has_broken_records && gone > 0 => false,
            // An answer of nothing looks the same as a service that has lost its way for a night: it is believed less.
            VanishPolicy::Guarded { .. } if self.is_empty_answer => gone <= GONE_AT_ONCE_MAX,
            // Counts of rows are far below 2^53: exact as f64.
            VanishPolicy::Guarded { share_max, rows_max } => {
                gone <= rows_max || gone as f64 <= share_max * in_scope as f64
            }
        }
    }
}

#[cfg(test)]
mod tests;
