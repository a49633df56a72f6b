//! Writes the changes of a scan: reads its pages again and changes the base table, its children and its history.

use arrow::{
    array::{Array as _, RecordBatch, UInt64Array},
    compute::{take, take_record_batch},
};
use foldhash::HashSet;

use super::{
    child_digests::{ChildDigests, move_with_parents},
    classify::{RecordChange, UpdateCause},
    collisions::have_lost,
    pages::check_columns,
    records::{Record, records_of_rows, rows_of_records, rows_where},
    returned::vanished_rows,
    row_difference::{Comparer, PageComparison, RowDifference},
    stamps::{
        column_of, ended_versions, includes_child, is_requested, new_rows, not_later_than_scan, rows_of, stamp,
        started, text,
    },
    write_input::WriteInput,
};
use crate::{
    load::{
        LoadError, RowCounts,
        contract::contract,
        error::invalid_rows,
        store::{BufferedStore, Filter, TableChange, removal_keys, time_column},
    },
    model::{Flag, FlatPage, RecordSet, Stream},
    schema::{Table, children_of, history_of, version_tables_of},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeKind {
    /// The content changed at the service.
    Edited {
        /// True if the service soft-deleted the record.
        is_deletion: bool,
    },
    /// The content is the same, but the scan requested columns that the scan of the stored row did not.
    Enriched,
    /// The row had vanished, and the scan returned its record with the same content.
    Returned,
    /// The content is the same, but other stored rows with the same key are removed.
    HadDuplicateRows,
    /// The content is the same, but fields belong in other columns, or the hash differs.
    Moved,
}

/// A row of a page that replaces a stored row.
#[derive(Clone, Copy, Debug)]
struct RowReplacement {
    /// Index of the new row in the page's batch of the base table.
    row: usize,
    /// Index of the replaced row in [`super::stored::OldRows::rows`].
    old: usize,
    kind: ChangeKind,
    has_duplicate_rows: bool,
}

impl RowReplacement {
    /// Returns true if the stored rows in the table `child` that belong to this row are replaced too.
    fn replaces_children(&self, child: &Table) -> bool {
        // Child rows that need a flag may be missing if the row was stored by a scan without this flag.
        let may_be_missing = child.flag.is_some() && self.kind == ChangeKind::Enriched;
        self.has_duplicate_rows || may_be_missing || matches!(self.kind, ChangeKind::Edited { .. })
    }
}

/// Counts of the rows that the pages changed, and the records that the writes after the last page need.
#[derive(Debug, Default)]
pub(super) struct WriteResult {
    pub counts: RowCounts,
    /// The new and changed records, one batch for each page; empty for streams without tables of versions.
    pub changed: Vec<RecordBatch>,
    /// The child rows of the records in `changed` whose versions are stored. Each batch comes with the name of the
    /// table of versions.
    pub version_rows: Vec<(&'static str, RecordBatch)>,
    /// The rows of the records that lost a collision, one batch for each page with such records.
    pub collision_losers: Vec<RecordBatch>,
    /// The stored rows that had vanished and returned, as they were before, one batch for each page.
    pub returned: Vec<RecordBatch>,
    /// The stored rows that have vanished.
    pub vanished: Vec<RecordBatch>,
    /// The stored rows that were current until this scan, and lost a collision in it. They are in `collision_losers`
    /// too.
    pub stored_losers: Vec<RecordBatch>,
}

/// Writes the pages of a scan, each once and in order.
pub(super) struct ScanWriter<'a> {
    input: WriteInput<'a>,
    /// Indexes of the records that lost a collision, counted over all pages.
    collision_losers: HashSet<usize>,
    /// Digests of the stored child rows; `None` for streams other than surveys, and if no record is compared. The child
    /// rows of a survey are not built from columns of the survey's row. So comparing columns does not show changes in
    /// child rows.
    stored_children: Option<ChildDigests>,
    /// True if the stream has tables of versions, which are written after the last page.
    keeps_versions: bool,
    /// Number of the next page.
    next_page: usize,
    pub written: WriteResult,
}

impl<'a> ScanWriter<'a> {
    /// Writes the changes that need no page (vanished rows and duplicate rows), and returns a writer for the pages.
    pub fn begin(store: &mut BufferedStore, input: WriteInput<'a>) -> Result<Self, LoadError> {
        let (stream, classification) = (input.scan.scope.stream, input.classification);
        let is_compared = |change: &RecordChange| {
            matches!(change, RecordChange::Stored { cause: UpdateCause::OtherHash | UpdateCause::Unclear, .. })
        };
        let compares_children = stream == Stream::Surveys && classification.records.iter().any(is_compared);
        let stored_children =
            compares_children.then(|| ChildDigests::of_stored(store, input.staged.base, |_| Filter::all()));
        let mut writer = Self {
            input,
            collision_losers: classification.collision_losers.iter().copied().collect(),
            stored_children: stored_children.transpose()?,
            keeps_versions: matches!(stream, Stream::Surveys | Stream::Users),
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

    /// Sets `_vanished_at` of the vanished rows, and writes each row as it was before to the history. Does nothing if
    /// no row vanished.
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
        self.written.vanished.push(rows.clone());
        self.write_history(store, &rows, "vanished")
    }

    /// Removes duplicate rows with their child rows. A duplicate row goes to the history, unless the history has it
    /// already because it had vanished, or the scan returned a record with the same key and content. Then the current
    /// record or a collision loser with this content is stored.
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
            self.input.classification.collision_losers.iter().filter_map(|index| self.input.staged.records.get(*index));
        let content = |record: &Record| (record.key, record.content);
        let returned: HashSet<(u128, i64)> =
            current.map(|(record, _)| content(record)).chain(collision_losers.map(content)).collect();
        let mut is_ended = self.input.classification.duplicate_rows.iter().map(|index| {
            let Some(row) = self.input.stored.rows.get(*index) else { return true };
            row.vanished_us.is_none() && !row.content.is_some_and(|content| returned.contains(&(row.key, content)))
        });
        let ended = rows_where(base, &rows, |_| is_ended.next().unwrap_or(true))?;
        self.write_history(store, &ended, "edited")
    }

    /// Writes stored rows to the history of the base table, as versions that end at the start of this scan. Does
    /// nothing if the table has no history. `reason` says why the versions end: the value of the column `reason`.
    fn write_history(&self, store: &mut BufferedStore, rows: &RecordBatch, reason: &str) -> Result<(), LoadError> {
        match history_of(&self.base().name) {
            Some(history) => store.change(ended_versions(history, self.input.scan, rows, reason)?),
            None => Ok(()),
        }
    }

    /// Writes the changes of the next page: new and replaced rows with their child rows, and the edited rows to the
    /// history. Collects what is written after the last page. Fails if the page has other records than in the first
    /// reading, or lacks one that is written.
    pub fn write_page(&mut self, store: &mut BufferedStore, page: &FlatPage) -> Result<(), LoadError> {
        let page_number = self.next_page;
        self.next_page += 1;
        check_columns(self.input.scan, page)?;
        self.write_snapshots(store, page, page_number)?;
        let base = self.base();
        let records = self.input.records_of(page, page_number)?;
        let Some(rows) = page.table(&base.name) else { return Ok(()) };
        let change = |record: &usize| self.input.classification.records.get(*record).copied();
        let record_changes: Vec<RecordChange> = records.iter().filter_map(change).collect();
        if !self.collision_losers.is_empty() {
            let is_loser = |row: usize| records.get(row).is_some_and(|record| self.collision_losers.contains(record));
            let lost = rows_where(base, rows, is_loser)?;
            self.written.collision_losers.extend((lost.num_rows() > 0).then_some(lost));
        }
        let replacements = self.replacements(page, rows, &record_changes)?;
        let (moved, changes): (Vec<RowReplacement>, Vec<RowReplacement>) =
            replacements.into_iter().partition(|change| change.kind == ChangeKind::Moved);
        self.write_moved(store, rows, &moved)?;
        let is_new = |row: usize| matches!(record_changes.get(row), Some(RecordChange::New));
        let new = rows_where(base, rows, is_new)?;
        if new.num_rows() == 0 && changes.is_empty() {
            return Ok(());
        }
        self.written.counts.inserted += new.num_rows() as u64;
        let filled_in = changes.iter().filter(|change| change.kind == ChangeKind::Enriched).count() as u64;
        self.written.counts.filled_in += filled_in;
        self.written.counts.updated += changes.len() as u64 - filled_in;
        let old = self.replaced_rows(&changes)?;
        let mut change = TableChange::new(base);
        change.remove(&old)?;
        change.add(new_rows(base, self.input.scan, &new)?);
        let changed = self.changed_rows(rows, &old, &changes)?;
        change.add(changed.clone());
        store.change(change)?;
        self.write_edits_to_history(store, &old, &changes)?;
        self.written.returned.push(vanished_rows(base, &old)?);
        let writes = PageWrites { rows, new: &new, old: &old, changed: &changed, changes: &changes };
        self.write_children(store, page, &writes)?;
        if self.keeps_versions {
            self.collect_versions(page, rows, &record_changes, &changes)?;
        }
        Ok(())
    }

    /// Returns the stored rows that `changes` replace, in the same order.
    fn replaced_rows(&self, changes: &[RowReplacement]) -> Result<RecordBatch, LoadError> {
        let old = UInt64Array::from_iter_values(changes.iter().map(|change| change.old as u64));
        take_record_batch(&self.input.old.rows, &old).map_err(invalid_rows(self.base()))
    }

    /// Replaces stored rows whose content is the same, but whose fields belong in other columns or whose hash differs.
    /// Because the content did not change, the rows keep `_run_id` and `_synced_at`.
    fn write_moved(
        &self,
        store: &mut BufferedStore,
        rows: &RecordBatch,
        moved: &[RowReplacement],
    ) -> Result<(), LoadError> {
        if moved.is_empty() {
            return Ok(());
        }
        let (base, old) = (self.base(), self.replaced_rows(moved)?);
        let changed = self.changed_rows(rows, &old, moved)?;
        let mut change = TableChange::new(base);
        change.remove(&old)?;
        change.add(rows_of(base, moved.len(), |column| {
            let is_kept = matches!(column.name.as_str(), "_run_id" | "_synced_at");
            column_of(base, if is_kept { &old } else { &changed }, &column.name).map(Some)
        })?);
        store.change(change)
    }

    /// Decides which rows of a page replace stored rows. Compares columns where the hashes did not decide. A row
    /// without a difference replaces nothing, unless its hash differs: then it counts as moved.
    fn replacements(
        &self,
        page: &FlatPage,
        rows: &RecordBatch,
        record_changes: &[RecordChange],
    ) -> Result<Vec<RowReplacement>, LoadError> {
        let mut replacements = Vec::new();
        let mut comparison = None;
        for (row, change) in record_changes.iter().enumerate() {
            let RecordChange::Stored { stored, cause, has_duplicate_rows } = *change else { continue };
            let old = self.input.old.batch_row(stored)?;
            let kind = match cause {
                UpdateCause::Returned => Some(ChangeKind::Returned),
                UpdateCause::HasDuplicateRows => Some(ChangeKind::HadDuplicateRows),
                UpdateCause::OtherHash | UpdateCause::Unclear => {
                    let comparison = match &comparison {
                        Some(comparison) => comparison,
                        None => comparison.insert(self.compare(page, rows)?),
                    };
                    let is_deletion = self.is_deletion(rows, row, old)?;
                    let has_vanished = self.input.stored.rows.get(stored).is_some_and(|row| row.vanished_us.is_some());
                    // An edit or enrichment also clears `_vanished_at` and removes duplicate rows.
                    match comparison.difference(page, row, old) {
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
            replacements.extend(kind.map(|kind| RowReplacement { row, old, kind, has_duplicate_rows }));
        }
        Ok(replacements)
    }

    /// Prepares the comparison of the rows of a page with stored rows: by columns, and for surveys also by child rows.
    fn compare(&self, page: &FlatPage, rows: &RecordBatch) -> Result<PageComparison<'_>, LoadError> {
        let columns = Comparer::new(self.base(), self.input.scan, rows, &self.input.old.rows)?;
        let children = self.stored_children.as_ref().map(|stored| {
            let mut returned = ChildDigests::new(self.base());
            returned.add_page(page, |_| true).map(|()| (stored, returned))
        });
        Ok(PageComparison { columns, children: children.transpose()? })
    }

    /// Returns true if the record is soft-deleted now and its stored row has no deletion time. A deletion is an edit
    /// and no enrichment, even if the earlier scan had no [`Flag::WithDeletedResponses`]: without the flag the service
    /// omits deleted rows, so the row was not deleted at the earlier scan. `row` is the index in the page's batch,
    /// `old` in [`super::stored::OldRows::rows`].
    fn is_deletion(&self, rows: &RecordBatch, row: usize, old: usize) -> Result<bool, LoadError> {
        if self.base().column("deleted_at").is_none() || !self.input.scan.flags.contains(Flag::WithDeletedResponses) {
            return Ok(false);
        }
        let (now, before) = (time_column(rows, "deleted_at")?, time_column(&self.input.old.rows, "deleted_at")?);
        Ok(now.is_valid(row) && before.is_null(old))
    }

    /// Returns the rows that replace `old`, in the order of `changes`. Columns that the scan did not request keep their
    /// stored values. `_first_seen_at` keeps its value too, unless it is later than this scan.
    fn changed_rows(
        &self,
        rows: &RecordBatch,
        old: &RecordBatch,
        changes: &[RowReplacement],
    ) -> Result<RecordBatch, LoadError> {
        let (base, scan, count) = (self.base(), self.input.scan, changes.len());
        let row_indexes = UInt64Array::from_iter_values(changes.iter().map(|change| change.row as u64));
        rows_of(base, count, |column| {
            Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
                (Some(stamp), _) => stamp,
                (None, "_first_seen_at") => not_later_than_scan(scan, time_column(old, "_first_seen_at")?),
                (None, name) if !is_requested(scan, column) => column_of(base, old, name)?,
                (None, name) => take(&column_of(base, rows, name)?, &row_indexes, None).map_err(invalid_rows(base))?,
            }))
        })
    }

    /// Writes the replaced rows that were edited or soft-deleted to the history, and counts the soft-deleted ones. The
    /// history has the rows that had vanished already: they have no version for the time in which they were gone.
    fn write_edits_to_history(
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
            if is_deletion {
                self.written.counts.soft_deleted += ended.num_rows() as u64;
            }
            let losers = self.collision_losers.iter().filter_map(|index| self.input.staged.records.get(*index));
            let vanished = time_column(&ended, "_vanished_at")?;
            let ended = rows_where(base, &ended, |row| vanished.is_null(row))?;
            let has_lost = have_lost(base, &ended, losers)?;
            let is_loser = |row: usize| has_lost.get(row).copied().unwrap_or(false);
            self.write_history(store, &rows_where(base, &ended, |row| !is_loser(row))?, reason)?;
            self.written.stored_losers.push(rows_where(base, &ended, is_loser)?);
        }
        Ok(())
    }

    /// Writes the child rows of new records, and replaces the child rows of records for which
    /// [`RowReplacement::replaces_children`] is true. In a child table that the scan did not request, the rows stay,
    /// and take the changed shared columns of their parent row.
    fn write_children(
        &self,
        store: &mut BufferedStore,
        page: &FlatPage,
        writes: &PageWrites<'_>,
    ) -> Result<(), LoadError> {
        let (base, scan, changes) = (self.base(), self.input.scan, writes.changes);
        for child in children_of(&base.name) {
            if !includes_child(scan, child) {
                move_with_parents(store, scan, base, child, writes.old, writes.changed)?;
                continue;
            }
            let is_replaced = |row: usize| changes.get(row).is_some_and(|change| change.replaces_children(child));
            let replaced = rows_where(base, writes.old, is_replaced)?;
            let all = records_of_rows(writes.rows)?;
            let changed = changes.iter().filter(|change| change.replaces_children(child));
            let changed = changed.filter_map(|change| all.get(change.row));
            let records: RecordSet = records_of_rows(writes.new)?.iter().chain(changed).copied().collect();
            let mut change = TableChange::new(child);
            change.remove(&removal_keys(base, &replaced, child)?)?;
            if let Some(rows) = page.table(&child.name) {
                change.add(new_rows(child, self.input.scan, &rows_of_records(child, rows, &records)?)?);
            }
            store.change(change)?;
        }
        Ok(())
    }

    /// Writes the new snapshots of a page, and their child rows. `page_number` counts from 0.
    fn write_snapshots(&self, store: &mut BufferedStore, page: &FlatPage, page_number: usize) -> Result<(), LoadError> {
        let records = self.input.snapshots.of_page(page_number);
        if records.is_empty() {
            return Ok(());
        }
        let table = contract("visitor_snapshots")?;
        let records: RecordSet = records.iter().map(|new| new.record).collect();
        for target in std::iter::once(table).chain(children_of(&table.name)) {
            let Some(rows) = page.table(&target.name) else { continue };
            let rows = rows_of_records(target, rows, &records)?;
            let mut change = TableChange::new(target);
            change.add(self.input.snapshots.rows(target, self.input.scan, page_number, &rows)?);
            store.change(change)?;
        }
        Ok(())
    }

    /// Collects the new and changed records of the page, and their child rows for the tables of versions. These tables
    /// are written after the last page.
    fn collect_versions(
        &mut self,
        page: &FlatPage,
        rows: &RecordBatch,
        record_changes: &[RecordChange],
        changes: &[RowReplacement],
    ) -> Result<(), LoadError> {
        let base = self.base();
        let is_written = |row: usize| {
            matches!(record_changes.get(row), Some(RecordChange::New)) || changes.iter().any(|change| change.row == row)
        };
        let written = rows_where(base, rows, is_written)?;
        let records: RecordSet = records_of_rows(&written)?.iter().copied().collect();
        for versions in version_tables_of(&base.name) {
            // A table of versions without a child table is filled by `flatten` under its own name.
            if let Some(rows) = page.table(versions.versions_of.as_deref().unwrap_or(&versions.name)) {
                self.written.version_rows.push((&versions.name, rows_of_records(versions, rows, &records)?));
            }
        }
        self.written.changed.push(written);
        Ok(())
    }
}

/// The rows of a page in the base table, and the rows among them that are written.
struct PageWrites<'p> {
    /// All rows of the page.
    rows: &'p RecordBatch,
    /// The rows of the page whose records are new.
    new: &'p RecordBatch,
    /// The stored rows that are replaced, in the order of `changes`.
    old: &'p RecordBatch,
    /// The rows that replace `old`, in the order of `changes`.
    changed: &'p RecordBatch,
    changes: &'p [RowReplacement],
}
