//! Writes the changes of a scan: reads its pages again and changes the base table, its children and its history.

use arrow::{
    array::{Array as _, RecordBatch, UInt64Array},
    compute::{take, take_record_batch},
};
use foldhash::HashSet;

use super::{
    child_digests::{ChildDigests, move_with_parents},
    classify::{Classification, RecordChange, UpdateCause},
    filled_tables::{includes_child, is_requested},
    record_set::RecordSet,
    records::{Record, rows_where},
    row_difference::{Comparer, RowDifference},
    snapshots::NewSnapshots,
    staged::StagedScan,
    stamps::{at_the_latest_started, column_of, ended, new_rows, rows_of, stamp, started, text},
    stored::{OldRows, StoredRows},
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

/// Why a row is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeKind {
    Edited {
        is_deletion: bool,
    },
    /// The content is the same, with more columns.
    Enriched,
    Returned,
    HadDuplicateRows,
    /// The fields are the same, stored in other columns or under another hash.
    Moved,
}

/// A row of a page that replaces a stored row.
#[derive(Clone, Copy, Debug)]
struct RowReplacement {
    row: usize,
    /// Row among the old rows.
    old: usize,
    kind: ChangeKind,
    has_duplicate_rows: bool,
}

impl RowReplacement {
    /// Whether its rows in the child table are replaced too.
    fn replaces(&self, child: &Table) -> bool {
        // A scan with a new flag can return more columns, and children that come with this flag.
        let is_enriched = child.flag.is_some() && self.kind == ChangeKind::Enriched;
        self.has_duplicate_rows || is_enriched || matches!(self.kind, ChangeKind::Edited { .. })
    }
}

/// What the pages changed, and what remains to be written after the last page.
#[derive(Debug, Default)]
pub(super) struct WriteResult {
    pub counts: RowCounts,
    /// New and changed records of streams with versions, each with the row of its old version among the old rows.
    pub changed: Vec<(RecordBatch, Vec<Option<usize>>)>,
    /// The versioned parts of these records, each with the name of its table.
    pub parts: Vec<(&'static str, RecordBatch)>,
    /// The records that lost a collision.
    pub collision_losers: Vec<RecordBatch>,
    /// Key and content hash of the edited rows, which are in the history.
    pub edited: HashSet<(u128, i64)>,
}

/// What is known of a scan before its pages are written.
#[derive(Clone, Copy)]
pub(super) struct WriteInput<'a> {
    pub scan: &'a Scan,
    pub staged: &'a StagedScan,
    pub stored: &'a StoredRows,
    pub classification: &'a Classification,
    pub old: &'a OldRows,
    pub snapshots: &'a NewSnapshots,
}

/// Writes the pages of a scan, each once and in order.
pub(super) struct ScanWriter<'a> {
    input: WriteInput<'a>,
    collision_losers: HashSet<usize>,
    /// Digests of the stored child rows; only for surveys, whose children are not built from columns of the survey's
    /// row.
    children: Option<ChildDigests>,
    /// Whether the rows of the stream have versions, which are written after the last page.
    keeps_versions: bool,
    next_record: usize,
    next_page: usize,
    pub written: WriteResult,
}

impl<'a> ScanWriter<'a> {
    /// Begins with the changes that need no page: vanished rows and duplicate rows.
    pub fn begin(store: &mut BufferedStore, input: WriteInput<'a>) -> Result<Self, LoadError> {
        let (stream, classification) = (input.scan.scope.stream, input.classification);
        let is_compared = |change: &RecordChange| {
            matches!(change, RecordChange::Stored { cause: UpdateCause::OtherHash | UpdateCause::Unclear, .. })
        };
        let compares_children = stream == Stream::Surveys && classification.records.iter().any(is_compared);
        let children = compares_children.then(|| ChildDigests::of_stored(store, input.staged.base, |_| Filter::all()));
        let mut writer = Self {
            input,
            collision_losers: classification.collision_losers.iter().copied().collect(),
            children: children.transpose()?,
            keeps_versions: matches!(stream, Stream::Surveys | Stream::Users),
            next_record: 0,
            next_page: 0,
            written: WriteResult::default(),
        };
        writer.write_vanished(store)?;
        writer.remove_duplicate_rows(store)?;
        Ok(writer)
    }

    fn base(&self) -> &'static Table {
        self.input.staged.base
    }

    fn write_vanished(&mut self, store: &mut BufferedStore) -> Result<(), LoadError> {
        if self.input.classification.vanished.is_empty() {
            return Ok(());
        }
        let (base, scan) = (self.base(), self.input.scan);
        let rows = self.input.old.take(base, self.input.classification.vanished.iter().copied())?;
        let count = rows.num_rows();
        let mut change = TableChange::new(base);
        change.remove(&rows)?;
        change.add(rows_of(base, count, |column| {
            Ok(Some(match column.name.as_str() {
                "_vanished_at" => started(scan, count),
                "_run_id" => text(&scan.run_id.0, count),
                "_synced_at" => started(scan, count),
                name => column_of(base, &rows, name)?,
            }))
        })?);
        store.change(change)?;
        self.written.counts.vanished = count as u64;
        self.write_history(store, &rows, "vanished")
    }

    /// Removes duplicate rows. They go to the history unless the scan returned their content: the current record and
    /// collision losers are written elsewhere.
    fn remove_duplicate_rows(&mut self, store: &mut BufferedStore) -> Result<(), LoadError> {
        if self.input.classification.duplicate_rows.is_empty() {
            return Ok(());
        }
        let base = self.base();
        let rows = self.input.old.take(base, self.input.classification.duplicate_rows.iter().copied())?;
        store.remove_with_children(base, &rows)?;
        let current = self
            .input
            .staged
            .records
            .iter()
            .zip(&self.input.classification.records)
            .filter(|(_, change)| **change != RecordChange::Superseded);
        let collision_losers =
            self.input.classification.collision_losers.iter().filter_map(|place| self.input.staged.records.get(*place));
        let content = |record: &Record| (record.key, record.content);
        let found: HashSet<(u128, i64)> =
            current.map(|(record, _)| content(record)).chain(collision_losers.map(content)).collect();
        let mut is_ended = self.input.classification.duplicate_rows.iter().map(|place| {
            let row = self.input.stored.rows.get(*place);
            row.is_none_or(|row| row.content.is_none_or(|content| !found.contains(&(row.key, content))))
        });
        let ended = rows_where(base, &rows, |_| is_ended.next().unwrap_or(true))?;
        self.write_history(store, &ended, "edited")
    }

    /// Writes stored rows as versions that end with this scan, if the table has a history.
    fn write_history(&self, store: &mut BufferedStore, rows: &RecordBatch, reason: &str) -> Result<(), LoadError> {
        match history_of(&self.base().name) {
            Some(history) => store.change(ended(history, self.input.scan, rows, reason)?),
            None => Ok(()),
        }
    }

    /// Writes the changes of the next page.
    pub fn page(&mut self, store: &mut BufferedStore, page: &FlatPage) -> Result<(), LoadError> {
        let number = self.next_page;
        self.next_page += 1;
        self.write_snapshots(store, page, number)?;
        let base = self.base();
        let Some(rows) = page.table(&base.name) else { return Ok(()) };
        let first = self.next_record;
        self.next_record += rows.num_rows();
        let classification = self.input.classification.records.get(first..self.next_record);
        let classification =
            classification.ok_or_else(|| LoadError::Bug("a page has other records than before".to_owned()))?;
        if !self.collision_losers.is_empty() {
            let lost = rows_where(base, rows, |row| self.collision_losers.contains(&(first + row)))?;
            self.written.collision_losers.extend((lost.num_rows() > 0).then_some(lost));
        }
        let changes = self.changes(page, rows, classification)?;
        let (moved, changes): (Vec<RowReplacement>, Vec<RowReplacement>) =
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
        change.add(new_rows(base, self.input.scan, &new)?);
        let changed = self.changed_rows(rows, &old, &changes)?;
        change.add(changed.clone());
        store.change(change)?;
        self.write_ended(store, &old, &changes)?;
        let of = PageWrites { rows, new: &new, old: &old, changed: &changed, changes: &changes };
        self.write_children(store, page, &of)?;
        if self.keeps_versions {
            self.keep_versions(page, rows, classification, &changes)?;
        }
        Ok(())
    }

    fn old_of(&self, changes: &[RowReplacement]) -> Result<RecordBatch, LoadError> {
        let old = UInt64Array::from_iter_values(changes.iter().map(|change| change.old as u64));
        take_record_batch(&self.input.old.rows, &old).map_err(invalid_rows(self.base()))
    }

    /// Writes fields into the columns that they have now. The content is the same, so the rows keep the run and time
    /// of their last change.
    fn write_moved(
        &self,
        store: &mut BufferedStore,
        rows: &RecordBatch,
        moved: &[RowReplacement],
    ) -> Result<(), LoadError> {
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

    /// The rows of a page that replace stored rows.
    fn changes(
        &self,
        page: &FlatPage,
        rows: &RecordBatch,
        classification: &[RecordChange],
    ) -> Result<Vec<RowReplacement>, LoadError> {
        let mut changes = Vec::new();
        let mut compared = None;
        for (row, change) in classification.iter().enumerate() {
            let RecordChange::Stored { stored, cause, has_duplicate_rows } = *change else { continue };
            let old = self.input.old.at(stored)?;
            let kind = match cause {
                UpdateCause::Returned => Some(ChangeKind::Returned),
                UpdateCause::HasDuplicateRows => Some(ChangeKind::HadDuplicateRows),
                UpdateCause::OtherHash | UpdateCause::Unclear => {
                    let compared = match &compared {
                        Some(compared) => compared,
                        None => compared.insert(self.compare(page, rows)?),
                    };
                    let is_deletion = self.is_deletion(rows, row, old)?;
                    let has_vanished = self.input.stored.rows.get(stored).is_some_and(|row| row.vanished_us.is_some());
                    match compared.difference(page, row, old) {
                        _ if is_deletion => Some(ChangeKind::Edited { is_deletion }),
                        RowDifference::Edited => Some(ChangeKind::Edited { is_deletion }),
                        RowDifference::Enriched => Some(ChangeKind::Enriched),
                        _ if has_vanished => Some(ChangeKind::Returned),
                        _ if has_duplicate_rows => Some(ChangeKind::HadDuplicateRows),
                        RowDifference::Moved => Some(ChangeKind::Moved),
                        RowDifference::None => (cause == UpdateCause::OtherHash).then_some(ChangeKind::Moved),
                    }
                }
            };
            changes.extend(kind.map(|kind| RowReplacement { row, old, kind, has_duplicate_rows }));
        }
        Ok(changes)
    }

    /// Prepares the comparison of the rows of a page with stored rows.
    fn compare(&self, page: &FlatPage, rows: &RecordBatch) -> Result<PageComparison<'_>, LoadError> {
        let columns = Comparer::new(self.base(), self.input.scan, rows, &self.input.old.rows)?;
        let children = self.children.as_ref().map(|here| {
            let mut there = ChildDigests::new(self.base());
            there.add_page(page, |_| true).map(|()| (here, there))
        });
        Ok(PageComparison { columns, children: children.transpose()? })
    }

    /// Whether the row is soft-deleted now and was not when it was stored. Without the flag the service omits deleted
    /// rows, so a stored row without deletion time was not deleted under any flags. So a deletion is an edit even
    /// where the flags would make it an enrichment.
    fn is_deletion(&self, rows: &RecordBatch, row: usize, old: usize) -> Result<bool, LoadError> {
        if self.base().column("deleted_at").is_none() || !self.input.scan.flags.contains(Flag::WithDeletedResponses) {
            return Ok(false);
        }
        let (now, before) = (time_column(rows, "deleted_at")?, time_column(&self.input.old.rows, "deleted_at")?);
        Ok(now.is_valid(row) && before.is_null(old))
    }

    /// The rows that replace `old`. Columns that the scan did not request keep their stored values.
    fn changed_rows(
        &self,
        rows: &RecordBatch,
        old: &RecordBatch,
        changes: &[RowReplacement],
    ) -> Result<RecordBatch, LoadError> {
        let (base, scan, count) = (self.base(), self.input.scan, changes.len());
        let at = UInt64Array::from_iter_values(changes.iter().map(|change| change.row as u64));
        rows_of(base, count, |column| {
            Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
                (Some(stamp), _) => stamp,
                (None, "_first_seen_at") => at_the_latest_started(scan, time_column(old, "_first_seen_at")?),
                (None, name) if !is_requested(scan, column) => column_of(base, old, name)?,
                (None, name) => take(&column_of(base, rows, name)?, &at, None).map_err(invalid_rows(base))?,
            }))
        })
    }

    fn write_ended(
        &mut self,
        store: &mut BufferedStore,
        old: &RecordBatch,
        changes: &[RowReplacement],
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

    /// Replaces all children of a row together with it. Rows that only vanished, returned or were enriched keep their
    /// children, except those that come with a flag.
    /// Children that the scan did not request stay, and move with the row.
    fn write_children(&self, store: &mut BufferedStore, page: &FlatPage, of: &PageWrites<'_>) -> Result<(), LoadError> {
        let (base, scan) = (self.base(), self.input.scan);
        for child in children_of(&base.name) {
            if !includes_child(scan, child) {
                move_with_parents(store, scan, base, child, of.old, of.changed)?;
                continue;
            }
            let replaced = rows_where(base, of.old, |row| of.changes.get(row).is_some_and(|it| it.replaces(child)))?;
            let changed = of.changes.iter().filter(|change| change.replaces(child)).map(|change| change.row);
            let mut records = RecordSet::of(of.new)?;
            records.add(of.rows, changed)?;
            let mut change = TableChange::new(child);
            change.remove(&removal_keys(base, &replaced, child)?)?;
            if let Some(rows) = page.table(&child.name) {
                change.add(new_rows(child, self.input.scan, &records.keep(child, rows)?)?);
            }
            store.change(change)?;
        }
        Ok(())
    }

    fn write_snapshots(&self, store: &mut BufferedStore, page: &FlatPage, number: usize) -> Result<(), LoadError> {
        let records = self.input.snapshots.of_page(number);
        if records.is_empty() {
            return Ok(());
        }
        let table = contract("visitor_snapshots")?;
        let records = RecordSet::from_iter(records.iter().map(|new| new.record));
        for of in std::iter::once(table).chain(children_of(&table.name)) {
            let Some(rows) = page.table(&of.name) else { continue };
            let rows = records.keep(of, rows)?;
            let mut change = TableChange::new(of);
            change.add(self.input.snapshots.rows(of, self.input.scan, number, &rows)?);
            store.change(change)?;
        }
        Ok(())
    }

    fn keep_versions(
        &mut self,
        page: &FlatPage,
        rows: &RecordBatch,
        classification: &[RecordChange],
        changes: &[RowReplacement],
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

/// The comparison of the rows of a page with the stored rows.
struct PageComparison<'a> {
    columns: Comparer<'a>,
    /// Digests of the stored children and of the page's children, where children are compared.
    children: Option<(&'a ChildDigests, ChildDigests)>,
}

impl PageComparison<'_> {
    fn difference(&self, page: &FlatPage, row: usize, old: usize) -> RowDifference {
        let key = page.key_hashes.get(row).copied().unwrap_or_default();
        match &self.children {
            Some((stored, returned)) if stored.differing(returned, key).next().is_some() => RowDifference::Edited,
            _ => self.columns.difference(row, old),
        }
    }
}

/// The rows of a page that are written.
struct PageWrites<'p> {
    /// All rows of the base table.
    rows: &'p RecordBatch,
    new: &'p RecordBatch,
    /// The old row of each change.
    old: &'p RecordBatch,
    /// The row that replaces it.
    changed: &'p RecordBatch,
    changes: &'p [RowReplacement],
}
