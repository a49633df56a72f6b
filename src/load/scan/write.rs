//! Writes what becomes of a scan: goes through its pages again and changes the base table, its children and its history.

use arrow::{
    array::{Array as _, RecordBatch, UInt64Array},
    compute::{take, take_record_batch},
};
use foldhash::HashSet;

use super::{
    children::{ChildSums, move_with_parents},
    classify::{Cause, Classification, RecordChange},
    differ::{Comparer, Difference},
    record_set::RecordSet,
    records::{Record, rows_where},
    snapshots::NewSnapshots,
    staged::Staged,
    stamps::{column_of, earlier, ended, moment, new_rows, rows_of, stamp, text},
    stored::{OldRows, Stored},
    tables::{brings, was_asked_for},
};
use crate::{
    load::{
        LoadError, RowCounts,
        contract::contract,
        error::invalid_rows,
        store::{BufferedStore, Filter, TableChange, removal_keys, time_column},
    },
    model::{Flag, FlatPage, Scan, Stream},
    schema::{Table, children_of, history_of, versioned_parts_of},
};

/// What a row that changes is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeKind {
    Edited {
        is_deletion: bool,
    },
    /// As the service has it, with more columns.
    Enriched,
    Returned,
    HadDuplicateRows,
    /// Its fields are the same, stored in another way: in other columns, or under another hash.
    Moved,
}

/// A row of a page that takes the place of a stored one.
#[derive(Clone, Copy, Debug)]
struct Change {
    row: usize,
    /// Among the old rows.
    old: usize,
    kind: ChangeKind,
    has_duplicate_rows: bool,
}

impl Change {
    /// Whether its rows in the child table are replaced with it.
    fn replaces(&self, child: &Table) -> bool {
        // What a scan asked for the first time may bring more columns, and children that come with the same flag.
        let is_enriched = child.flag.is_some() && self.kind == ChangeKind::Enriched;
        self.has_duplicate_rows || is_enriched || matches!(self.kind, ChangeKind::Edited { .. })
    }
}

/// What is left to do when all pages are written.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub counts: RowCounts,
    /// Of streams whose rows have versions: the records that are new or changed, each with its old row, if it has one.
    pub changed: Vec<(RecordBatch, Vec<Option<usize>>)>,
    /// Of the same records, the rows for tables that keep versions of parts of them, each with the name of its table.
    pub parts: Vec<(&'static str, RecordBatch)>,
    /// The records that lost to others.
    pub collision_losers: Vec<RecordBatch>,
    /// Rows that were edited, by key and hash: the history has them.
    pub edited: HashSet<(u128, i64)>,
}

/// Goes through the pages of a scan once, in order.
pub(super) struct Writer<'a> {
    scan: &'a Scan,
    staged: &'a Staged,
    stored: &'a Stored,
    classification: &'a Classification,
    old: &'a OldRows,
    snapshots: &'a NewSnapshots,
    collision_losers: HashSet<usize>,
    /// What the stored rows have in child tables, where that is not made of the columns of the rows: for those of another hash.
    children: Option<ChildSums>,
    /// Whether the stream's rows have versions, which are written last.
    keeps_versions: bool,
    next_record: usize,
    next_page: usize,
    pub written: Written,
}

/// What is known of a scan before its pages are written.
pub(super) struct Known<'a> {
    pub scan: &'a Scan,
    pub staged: &'a Staged,
    pub stored: &'a Stored,
    pub classification: &'a Classification,
    pub old: &'a OldRows,
    pub snapshots: &'a NewSnapshots,
}

impl<'a> Writer<'a> {
    /// Begins with what needs no page: rows that vanished, and rows that give way to others of their key.
    pub fn begin(store: &mut BufferedStore, known: &Known<'a>) -> Result<Self, LoadError> {
        let Known { scan, staged, stored, classification, old, snapshots } = *known;
        let mut writer = Self {
            scan,
            staged,
            stored,
            classification,
            old,
            snapshots,
            collision_losers: classification.collision_losers.iter().copied().collect(),
            children: None,
            keeps_versions: matches!(scan.scope.stream, Stream::Surveys | Stream::Users),
            next_record: 0,
            next_page: 0,
            written: Written::default(),
        };
        let is_compared = |change: &RecordChange| {
            matches!(change, RecordChange::Stored { cause: Cause::OtherHash | Cause::Unclear, .. })
        };
        if scan.scope.stream == Stream::Surveys && classification.records.iter().any(is_compared) {
            writer.children = Some(ChildSums::of_stored(store, writer.base(), |_| Filter::all())?);
        }
        writer.write_gone(store)?;
        writer.remove_duplicate_rows(store)?;
        Ok(writer)
    }

    fn base(&self) -> &'static Table {
        self.staged.base
    }

    fn write_gone(&mut self, store: &mut BufferedStore) -> Result<(), LoadError> {
        if self.classification.gone.is_empty() {
            return Ok(());
        }
        let (base, scan) = (self.base(), self.scan);
        let rows = self.old.take(base, self.classification.gone.iter().copied())?;
        let count = rows.num_rows();
        let mut change = TableChange::new(base);
        change.remove(&rows)?;
        change.add(rows_of(base, count, |column| {
            Ok(Some(match column.name.as_str() {
                "_vanished_at" => moment(scan.started_ms, count),
                "_run_id" => text(&scan.run_id.0, count),
                "_synced_at" => moment(scan.started_ms, count),
                name => column_of(base, &rows, name)?,
            }))
        })?);
        store.change(change)?;
        self.written.counts.vanished = count as u64;
        self.write_history(store, &rows, "vanished")
    }

    /// The history has the rows that give way, but for what this scan found too: the row that stays, and collision_losers of collisions.
    fn remove_duplicate_rows(&mut self, store: &mut BufferedStore) -> Result<(), LoadError> {
        if self.classification.duplicate_rows.is_empty() {
            return Ok(());
        }
        let base = self.base();
        let rows = self.old.take(base, self.classification.duplicate_rows.iter().copied())?;
        store.remove_with_children(base, &rows)?;
        let standing = self
            .staged
            .records
            .iter()
            .zip(&self.classification.records)
            .filter(|(_, change)| **change != RecordChange::Superseded);
        let collision_losers =
            self.classification.collision_losers.iter().filter_map(|place| self.staged.records.get(*place));
        let content = |record: &Record| (record.key, record.content);
        let found: HashSet<(u128, i64)> =
            standing.map(|(record, _)| content(record)).chain(collision_losers.map(content)).collect();
        let mut is_ended = self.classification.duplicate_rows.iter().map(|place| {
            let row = self.stored.rows.get(*place);
            row.is_none_or(|row| row.content.is_none_or(|content| !found.contains(&(row.key, content))))
        });
        let ended = rows_where(base, &rows, |_| is_ended.next().unwrap_or(true))?;
        self.write_history(store, &ended, "edited")
    }

    /// Stored rows as versions that end with this scan, in the table that keeps them.
    fn write_history(&self, store: &mut BufferedStore, rows: &RecordBatch, reason: &str) -> Result<(), LoadError> {
        match history_of(&self.base().name) {
            Some(history) => store.change(ended(history, self.scan, rows, reason)?),
            None => Ok(()),
        }
    }

    /// Writes the next page.
    pub fn page(&mut self, store: &mut BufferedStore, page: &FlatPage) -> Result<(), LoadError> {
        let number = self.next_page;
        self.next_page += 1;
        self.write_snapshots(store, page, number)?;
        let base = self.base();
        let Some(rows) = page.table(&base.name) else { return Ok(()) };
        let first = self.next_record;
        self.next_record += rows.num_rows();
        let classification = self.classification.records.get(first..self.next_record);
        let classification =
            classification.ok_or_else(|| LoadError::Bug("a page has other records than before".to_owned()))?;
        if !self.collision_losers.is_empty() {
            let lost = rows_where(base, rows, |row| self.collision_losers.contains(&(first + row)))?;
            self.written.collision_losers.extend((lost.num_rows() > 0).then_some(lost));
        }
        let changes = self.changes(page, rows, classification)?;
        let (moved, changes): (Vec<Change>, Vec<Change>) =
            changes.into_iter().partition(|change| change.kind == ChangeKind::Moved);
        self.write_moved(store, rows, &moved)?;
        let is_new = |row: usize| matches!(classification.get(row), Some(RecordChange::New));
        let new = rows_where(base, rows, is_new)?;
        if new.num_rows() == 0 && changes.is_empty() {
            return Ok(());
        }
        self.written.counts.inserted += new.num_rows() as u64;
        self.written.counts.updated += changes.len() as u64;
        let old = self.old_of(&changes)?;
        let mut change = TableChange::new(base);
        change.remove(&old)?;
        change.add(new_rows(base, self.scan, &new)?);
        let changed = self.changed_rows(rows, &old, &changes)?;
        change.add(changed.clone());
        store.change(change)?;
        self.write_ended(store, &old, &changes)?;
        let of = RowsOf { rows, new: &new, old: &old, changed: &changed, changes: &changes };
        self.write_children(store, page, &of)?;
        if self.keeps_versions {
            self.keep_versions(page, rows, classification, &changes)?;
        }
        Ok(())
    }

    fn old_of(&self, changes: &[Change]) -> Result<RecordBatch, LoadError> {
        let old = UInt64Array::from_iter_values(changes.iter().map(|change| change.old as u64));
        take_record_batch(&self.old.rows, &old).map_err(invalid_rows(self.base()))
    }

    /// Puts fields into the columns that they have now. The rows say what they said, so they keep the time since when they do.
    fn write_moved(&self, store: &mut BufferedStore, rows: &RecordBatch, moved: &[Change]) -> Result<(), LoadError> {
        if moved.is_empty() {
            return Ok(());
        }
        let (base, old) = (self.base(), self.old_of(moved)?);
        let changed = self.changed_rows(rows, &old, moved)?;
        let mut change = TableChange::new(base);
        change.remove(&old)?;
        change.add(rows_of(base, moved.len(), |column| {
            let is_kept = matches!(column.name.as_str(), "_run_id" | "_synced_at");
            column_of(base, if is_kept { &old } else { &changed }, &column.name).map(Some)
        })?);
        store.change(change)
    }

    /// The rows of a page that take the place of stored ones.
    fn changes(
        &self,
        page: &FlatPage,
        rows: &RecordBatch,
        classification: &[RecordChange],
    ) -> Result<Vec<Change>, LoadError> {
        let mut changes = Vec::new();
        let mut compared = None;
        for (row, change) in classification.iter().enumerate() {
            let RecordChange::Stored { stored, cause, has_duplicate_rows } = *change else { continue };
            let old = self.old.at(stored)?;
            let kind = match cause {
                Cause::Returned => Some(ChangeKind::Returned),
                Cause::HasDuplicateRows => Some(ChangeKind::HadDuplicateRows),
                Cause::OtherHash | Cause::Unclear => {
                    let compared = match &compared {
                        Some(compared) => compared,
                        None => compared.insert(self.compare(page, rows)?),
                    };
                    let is_deletion = self.is_deletion(rows, row, old)?;
                    let has_vanished = self.stored.rows.get(stored).is_some_and(|row| row.vanished_us.is_some());
                    match compared.difference(page, row, old) {
                        _ if is_deletion => Some(ChangeKind::Edited { is_deletion }),
                        Difference::Edited => Some(ChangeKind::Edited { is_deletion }),
                        Difference::Enriched => Some(ChangeKind::Enriched),
                        _ if has_vanished => Some(ChangeKind::Returned),
                        _ if has_duplicate_rows => Some(ChangeKind::HadDuplicateRows),
                        Difference::Moved => Some(ChangeKind::Moved),
                        Difference::None => (cause == Cause::OtherHash).then_some(ChangeKind::Moved),
                    }
                }
            };
            changes.extend(kind.map(|kind| Change { row, old, kind, has_duplicate_rows }));
        }
        Ok(changes)
    }

    /// Makes the rows of a page ready to be compared with the stored ones.
    fn compare(&self, page: &FlatPage, rows: &RecordBatch) -> Result<Compared<'_>, LoadError> {
        let columns = Comparer::new(self.base(), self.scan, rows, &self.old.rows)?;
        let children = self.children.as_ref().map(|here| {
            let mut there = ChildSums::new(self.base());
            there.add_page(page, |_| true).map(|()| (here, there))
        });
        Ok(Compared { columns, children: children.transpose()? })
    }

    /// Whether the row was not deleted when it was stored. Without the flag the service leaves deleted rows out: that a row was stored
    /// without a time of deletion means, under any flags, that it was not deleted. So a deletion is news even where the columns'
    /// flags would call it mere enrichment.
    fn is_deletion(&self, rows: &RecordBatch, row: usize, old: usize) -> Result<bool, LoadError> {
        if self.base().column("deleted_at").is_none() || !self.scan.flags.contains(Flag::WithDeletedResponses) {
            return Ok(false);
        }
        let (now, before) = (time_column(rows, "deleted_at")?, time_column(&self.old.rows, "deleted_at")?);
        Ok(now.is_valid(row) && before.is_null(old))
    }

    /// The rows that take the place of `old`. What the scan did not ask for stays as it was stored: it is never blanked.
    fn changed_rows(
        &self,
        rows: &RecordBatch,
        old: &RecordBatch,
        changes: &[Change],
    ) -> Result<RecordBatch, LoadError> {
        let (base, scan, count) = (self.base(), self.scan, changes.len());
        let at = UInt64Array::from_iter_values(changes.iter().map(|change| change.row as u64));
        rows_of(base, count, |column| {
            Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
                (Some(stamp), _) => stamp,
                (None, "_first_seen_at") => earlier(time_column(old, "_first_seen_at")?, scan.started_ms),
                (None, name) if !was_asked_for(scan, column) => column_of(base, old, name)?,
                (None, name) => take(&column_of(base, rows, name)?, &at, None).map_err(invalid_rows(base))?,
            }))
        })
    }

    fn write_ended(
        &mut self,
        store: &mut BufferedStore,
        old: &RecordBatch,
        changes: &[Change],
    ) -> Result<(), LoadError> {
        let base = self.base();
        for (is_deletion, reason) in [(false, "edited"), (true, "deleted")] {
            let is_ended =
                |row: usize| changes.get(row).is_some_and(|change| change.kind == ChangeKind::Edited { is_deletion });
            let ended = rows_where(base, old, is_ended)?;
            self.write_history(store, &ended, reason)?;
            if is_deletion {
                self.written.counts.soft_deleted += ended.num_rows() as u64;
            }
            if !self.collision_losers.is_empty() && ended.num_rows() > 0 {
                let ended = super::records::stored_rows(base, &ended)?;
                self.written.edited.extend(ended.iter().filter_map(|row| Some((row.key, row.content?))));
            }
        }
        Ok(())
    }

    /// Children are replaced as a set with the row that they belong to. Rows that merely vanished, returned or were enriched keep
    /// theirs, but for what comes with a flag. What the scan did not ask for stays, and moves with the row.
    fn write_children(&self, store: &mut BufferedStore, page: &FlatPage, of: &RowsOf<'_>) -> Result<(), LoadError> {
        let base = self.base();
        for child in children_of(&base.name) {
            if !brings(self.scan, child) {
                move_with_parents(store, self.scan, base, child, of.old, of.changed)?;
                continue;
            }
            let replaced = rows_where(base, of.old, |row| of.changes.get(row).is_some_and(|it| it.replaces(child)))?;
            let changed = of.changes.iter().filter(|change| change.replaces(child)).map(|change| change.row);
            let mut records = RecordSet::of(of.new)?;
            records.add(of.rows, changed)?;
            let mut change = TableChange::new(child);
            change.remove(&removal_keys(base, &replaced, child)?)?;
            if let Some(rows) = page.table(&child.name) {
                change.add(new_rows(child, self.scan, &records.keep(child, rows)?)?);
            }
            store.change(change)?;
        }
        Ok(())
    }

    fn write_snapshots(&self, store: &mut BufferedStore, page: &FlatPage, number: usize) -> Result<(), LoadError> {
        let records = self.snapshots.of_page(number);
        if records.is_empty() {
            return Ok(());
        }
        let table = contract("visitor_snapshots")?;
        let records = RecordSet::from_iter(records.iter().map(|new| new.record));
        for of in std::iter::once(table).chain(children_of(&table.name)) {
            let Some(rows) = page.table(&of.name) else { continue };
            let rows = records.keep(of, rows)?;
            let mut change = TableChange::new(of);
            change.add(self.snapshots.rows(of, self.scan, number, &rows)?);
            store.change(change)?;
        }
        Ok(())
    }

    fn keep_versions(
        &mut self,
        page: &FlatPage,
        rows: &RecordBatch,
        classification: &[RecordChange],
        changes: &[Change],
    ) -> Result<(), LoadError> {
        let base = self.base();
        let old_of = |row: usize| changes.iter().find(|change| change.row == row).map(|change| change.old);
        let is_written =
            |row: usize| matches!(classification.get(row), Some(RecordChange::New)) || old_of(row).is_some();
        let written = rows_where(base, rows, is_written)?;
        let records = RecordSet::of(&written)?;
        let old = (0..rows.num_rows()).filter(|row| is_written(*row)).map(old_of).collect();
        for parts in versioned_parts_of(&base.name) {
            if let Some(rows) = page.table(parts.versions_of.as_deref().unwrap_or(&parts.name)) {
                self.written.parts.push((&parts.name, records.keep(parts, rows)?));
            }
        }
        self.written.changed.push((written, old));
        Ok(())
    }
}

/// The rows of a page against the stored rows that they may take the place of.
struct Compared<'a> {
    columns: Comparer<'a>,
    /// What belongs to the stored rows and to those of the page, where children count.
    children: Option<(&'a ChildSums, ChildSums)>,
}

impl Compared<'_> {
    fn difference(&self, page: &FlatPage, row: usize, old: usize) -> Difference {
        let key = page.key_hashes.get(row).copied().unwrap_or_default();
        match &self.children {
            Some((here, there)) if here.differing(there, key).next().is_some() => Difference::Edited,
            _ => self.columns.difference(row, old),
        }
    }
}

/// The rows of a page that are written.
struct RowsOf<'p> {
    /// All of the base table.
    rows: &'p RecordBatch,
    new: &'p RecordBatch,
    /// The stored row of each change.
    old: &'p RecordBatch,
    /// The row that takes its place.
    changed: &'p RecordBatch,
    changes: &'p [Change],
}
