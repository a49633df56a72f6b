//! A store with a buffer of changes. Many small changes become few writes, because a statement or a file costs about
//! the same for few rows as for many.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;

use super::{
    super::{LoadError, engine::Visit},
    Filter, KeySet, Store, TableChange, Take, TimeRange, project, read_schema, removal_columns, removal_keys,
    visit_batches, with_columns,
};
use crate::schema::{Table, TableKind, children_of, tables};

/// A store with buffered changes of its open transaction. Reads see the buffered changes too.
pub(in crate::load) struct BufferedStore {
    store: Box<dyn Store>,
    /// The buffered changes by table.
    buffered: BTreeMap<&'static str, BufferedTable>,
    /// Approximate memory of the buffered rows and keys, in bytes.
    buffered_bytes: usize,
    /// Number of buffered bytes at which the buffer is written to the store.
    buffer_bytes_max: usize,
    /// True if changes were written to the store and not committed yet.
    is_open: bool,
    /// Number of changes since the store was opened. Empty changes do not count; changes that were rolled back do.
    changes: u64,
}

/// The buffered changes of a table.
struct BufferedTable {
    /// A change with the keys of rows to remove from the store, and without rows to add.
    removals: TableChange,
    /// Rows to add to the store.
    added: Vec<BufferedRows>,
}

/// Buffered rows, with their time range and size, which are computed only once.
struct BufferedRows {
    rows: RecordBatch,
    /// Range of the partition column over the rows; `None` for a table without partitions.
    bounds: Option<TimeRange>,
    bytes: usize,
}

impl BufferedTable {
    fn new(table: &'static Table) -> Self {
        Self { removals: TableChange::new(table), added: Vec::new() }
    }

    /// Removes the buffered rows whose keys a change removes. Also buffers these keys, because the store may have rows
    /// with them too. Returns the freed bytes of buffered rows.
    fn remove(&mut self, change: &TableChange) -> Result<usize, LoadError> {
        let table = change.table;
        let mut freed = 0;
        for buffered in self.added.iter_mut().filter(|buffered| buffered.may_contain(change.removed_range)) {
            let kept = change.removed.rows_not_in(table, buffered.rows.clone())?;
            if kept.num_rows() < buffered.rows.num_rows() {
                let kept = BufferedRows::of(table, kept)?;
                freed += buffered.bytes.saturating_sub(kept.bytes);
                *buffered = kept;
            }
        }
        self.added.retain(|buffered| buffered.rows.num_rows() > 0);
        change.removed.values().iter().try_for_each(|rows| self.removals.remove(rows))?;
        Ok(freed)
    }

    /// Returns the buffered removals and additions as one change.
    fn into_change(self) -> TableChange {
        let mut change = self.removals;
        self.added.into_iter().for_each(|buffered| change.add(buffered.rows));
        change
    }
}

impl BufferedRows {
    /// Computes the time range and the size of rows to buffer.
    fn of(table: &Table, rows: RecordBatch) -> Result<Self, LoadError> {
        let bounds = TimeRange::over(table, std::slice::from_ref(&rows))?;
        let bytes = rows.get_array_memory_size();
        Ok(Self { rows, bounds, bytes })
    }

    /// Returns true if some of the rows may be within the range. Always true if the range is `None`, or if the table
    /// has no partitions.
    fn may_contain(&self, range: Option<TimeRange>) -> bool {
        self.bounds.zip(range).is_none_or(|(bounds, range)| bounds.overlaps(range))
    }
}

impl BufferedStore {
    /// Creates a store that buffers the changes of `store`. The buffer is written when its rows and keys take
    /// `buffer_bytes_max` bytes.
    pub fn new(store: Box<dyn Store>, buffer_bytes_max: usize) -> Self {
        Self { store, buffered: BTreeMap::new(), buffered_bytes: 0, buffer_bytes_max, is_open: false, changes: 0 }
    }

    /// Returns the store without the buffer, for operations that neither read nor write rows of this program's tables.
    pub fn store(&mut self) -> &mut dyn Store {
        self.store.as_mut()
    }

    /// Returns the store without the buffer, for queries of its state.
    pub fn as_store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Returns true if something changed since the last commit.
    #[cfg(test)]
    pub fn has_changes(&self) -> bool {
        self.is_open || !self.buffered.is_empty()
    }

    /// Returns the number of calls of [`BufferedStore::change`] with a change that was not empty, rolled back or not.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Calls `take` with batches of `columns` of exactly the rows that match the filter, buffered rows included.
    /// Batches without rows are not passed. An empty key set in the filter reads nothing.
    pub fn read(
        &mut self,
        table: &'static Table,
        columns: &[&str],
        filter: &Filter<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), LoadError> {
        if filter.keys.is_some_and(KeySet::is_empty) {
            return Ok(());
        }
        let buffered = self.buffered.get(table.name.as_str());
        let removed = buffered.map(|buffered| &buffered.removals.removed).filter(|removed| !removed.is_empty());
        // The rows of the store are filtered here, by the filter and by the buffered removals. So the columns of both
        // are read too.
        let mut read_columns: Vec<&str> = columns.to_vec();
        let removal_columns = removed.map_or_else(Vec::new, |_| removal_columns(table));
        for column in filter.columns(table).chain(removal_columns) {
            if !read_columns.contains(&column) {
                read_columns.push(column);
            }
        }
        let mut hand_over = |rows: RecordBatch| match rows.num_rows() {
            0 => Ok(()),
            _ if read_columns.len() == columns.len() => take(rows),
            _ => take(project(&rows, columns)?),
        };
        self.store.read(table, &read_columns, filter, &mut |rows| {
            let rows = filter.select(table, rows)?;
            hand_over(match removed {
                Some(removed) => removed.rows_not_in(table, rows)?,
                None => rows,
            })
        })?;
        // Buffered rows need no test against the buffered removals: `BufferedTable::remove` has dropped the rows that
        // were removed after they were buffered.
        let schema = read_schema(table, &read_columns)?;
        let added = buffered.into_iter().flat_map(|buffered| &buffered.added);
        for buffered in added.filter(|buffered| buffered.may_contain(filter.range)) {
            hand_over(filter.select(table, with_columns(table, &schema, &buffered.rows)?)?)?;
        }
        Ok(())
    }

    /// Calls `visit` with batches of `columns` of all rows, buffered rows included, in several threads. Each row is in
    /// one batch. Batches without rows are not passed.
    pub fn visit(&mut self, table: &'static Table, columns: &[&str], visit: &Visit<'_>) -> Result<(), LoadError> {
        if self.buffered.contains_key(table.name.as_str()) {
            return visit_batches(|take| self.read(table, columns, &Filter::all(), take), visit);
        }
        self.store.visit(table, columns, visit)
    }

    /// Like [`BufferedStore::read`], but returns all batches at once.
    pub fn rows(
        &mut self,
        table: &'static Table,
        columns: &[&str],
        filter: &Filter<'_>,
    ) -> Result<Vec<RecordBatch>, LoadError> {
        let mut batches = Vec::new();
        self.read(table, columns, filter, &mut |rows| {
            batches.push(rows);
            Ok(())
        })?;
        Ok(batches)
    }

    /// Returns the rows that match the filter, with all columns of the table.
    pub fn full_rows(&mut self, table: &'static Table, filter: &Filter<'_>) -> Result<Vec<RecordBatch>, LoadError> {
        self.rows(table, &table.column_names(), filter)
    }

    /// Adds a change to the buffer, and writes the buffer to the store if the buffer is full. An empty change does
    /// nothing. After an error the caller must roll back.
    pub fn change(&mut self, change: TableChange) -> Result<(), LoadError> {
        if change.is_empty() {
            return Ok(());
        }
        self.changes += 1;
        let table = change.table;
        let buffered = self.buffered.entry(&table.name).or_insert_with(|| BufferedTable::new(table));
        if !change.removed.is_empty() {
            self.buffered_bytes =
                self.buffered_bytes.saturating_sub(buffered.remove(&change)?) + change.removed.bytes();
        }
        for rows in change.added {
            let rows = BufferedRows::of(table, rows)?;
            self.buffered_bytes += rows.bytes;
            buffered.added.push(rows);
        }
        if self.buffered_bytes >= self.buffer_bytes_max { self.flush() } else { Ok(()) }
    }

    /// Removes rows of a table, and the child rows of these rows in all child tables. `rows` must have the
    /// [`removal_columns`] of the table.
    pub fn remove_with_children(&mut self, table: &'static Table, rows: &RecordBatch) -> Result<(), LoadError> {
        for target in std::iter::once(table).chain(children_of(&table.name)) {
            let mut change = TableChange::new(target);
            change.remove(&removal_keys(table, rows, target)?)?;
            self.change(change)?;
        }
        Ok(())
    }

    /// Writes the buffered changes to the store, without a commit. The buffer is empty afterwards, also after an error.
    fn flush(&mut self) -> Result<(), LoadError> {
        self.buffered_bytes = 0;
        let mut buffered = std::mem::take(&mut self.buffered);
        // The changes are written in the order of `tables`: parent tables before their child tables.
        let mut changes = Vec::new();
        for buffered in tables().iter().filter_map(|table| buffered.remove(table.name.as_str())) {
            let mut change = buffered.into_change();
            if change.table.kind == TableKind::Child && !change.removed.is_empty() {
                self.drop_removals_without_rows(&mut change)?;
            }
            changes.extend((!change.is_empty()).then_some(change));
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.is_open = true;
        self.store.write(&changes)
    }

    /// Drops the removals from a child table for which the store has no row. Most parent rows have no row in a given
    /// child table. Without removals, a store need not write a file for the table. One lookup for all buffered keys is
    /// cheap.
    fn drop_removals_without_rows(&mut self, change: &mut TableChange) -> Result<(), LoadError> {
        let (table, columns) = (change.table, removal_columns(change.table));
        let keys = std::mem::replace(&mut change.removed, KeySet::new(columns.clone()));
        change.removed_range = None;
        for range in TimeRange::clusters_of(table, keys.values())? {
            let filter = Filter::within(range).with_keys(&keys);
            self.store.read(table, &columns, &filter, &mut |rows| change.remove(&filter.select(table, rows)?))?;
        }
        Ok(())
    }

    /// Commits all changes since the last commit durably. After an error all these changes are rolled back.
    pub fn commit(&mut self, label: &str) -> Result<(), LoadError> {
        let committed = self.flush().and_then(|()| if self.is_open { self.store.commit(label) } else { Ok(()) });
        match &committed {
            Ok(()) => self.is_open = false,
            Err(_) => self.rollback(),
        }
        committed
    }

    /// Undoes all changes since the last commit.
    pub fn rollback(&mut self) {
        (self.buffered_bytes, self.is_open) = (0, false);
        self.buffered.clear();
        self.store.rollback();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use arrow::{
        array::{ArrayRef, AsArray as _, Int64Array, StringArray, TimestampMicrosecondArray},
        datatypes::Int64Type,
    };
    use proptest::prelude::*;

    use super::{
        super::{MemoryStore, Shelf},
        *,
    };
    use crate::schema::table;

    /// A row of `response_choices`: its session and its number.
    type Row = (u8, i64);

    fn batch(rows: &[Row]) -> RecordBatch {
        let groups: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|(group, _)| group.to_string())));
        let questions: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|_| 1)));
        // A key has one creation time.
        let moments: ArrayRef =
            Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|(group, _)| i64::from(*group))));
        let ordinals: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, ordinal)| *ordinal)));
        let run_ids: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|_| "run")));
        RecordBatch::try_from_iter([
            ("response_group_uid", groups),
            ("question_id", questions),
            ("created_at", Arc::clone(&moments)),
            ("choice_ordinal", ordinals),
            ("_run_id", run_ids),
            ("_synced_at", moments),
        ])
        .unwrap()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Change { removed: Vec<u8>, added: Vec<Row> },
        Commit,
        Rollback,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let change = (prop::collection::vec(0..6_u8, 0..3), prop::collection::vec((0..6_u8, 0..4_i64), 0..4))
            .prop_map(|(removed, added)| Step::Change { removed, added });
        let step = prop_oneof![6 => change, 1 => Just(Step::Commit), 1 => Just(Step::Rollback)];
        prop::collection::vec(step, 1..24)
    }

    const COLUMNS: [&str; 2] = ["choice_ordinal", "response_group_uid"];

    fn read(store: &mut BufferedStore, filter: &Filter<'_>) -> Vec<(String, i64)> {
        sorted(store.rows(table("response_choices").unwrap(), &COLUMNS, filter).unwrap())
    }

    fn visited(store: &mut BufferedStore) -> Vec<(String, i64)> {
        let found = Mutex::new(Vec::new());
        let visit = |rows: RecordBatch| {
            assert!(rows.num_rows() > 0);
            found.lock().unwrap().push(rows);
            Ok(())
        };
        store.visit(table("response_choices").unwrap(), &COLUMNS, &visit).unwrap();
        sorted(found.into_inner().unwrap())
    }

    fn sorted(batches: Vec<RecordBatch>) -> Vec<(String, i64)> {
        let mut found = Vec::new();
        for rows in batches {
            let groups = rows.column(1).as_string::<i32>();
            let ordinals = rows.column(0).as_primitive::<Int64Type>();
            found.extend(groups.iter().zip(ordinals.values()).map(|(group, at)| (group.unwrap().to_owned(), *at)));
        }
        found.sort();
        found
    }

    #[test]
    fn p8_the_buffer_of_removals_is_limited() {
        let mut store = BufferedStore::new(Box::new(MemoryStore::open(&Shelf::default())), 100_000);
        let mut written = 0;
        for number in 0..200_u8 {
            let mut change = TableChange::new(table("response_choices").unwrap());
            change.remove(&batch(&[(number, 0)])).unwrap();
            store.change(change).unwrap();
            written += u32::from(store.buffered.is_empty());
        }
        assert!(written > 0 && !store.buffered.is_empty(), "{written}");
    }

    proptest! {
        /// Reads return what a plain list would hold, whatever is buffered and whatever is written.
        #[test]
        fn p2_reads_show_buffered_and_written_rows(steps in steps(), buffer_bytes_max in prop_oneof![Just(0), Just(600), Just(1 << 20)]) {
            let table = table("response_choices").unwrap();
            let shelf = Shelf::default();
            let mut store = BufferedStore::new(Box::new(MemoryStore::open(&shelf)), buffer_bytes_max);
            let (mut model, mut committed): (Vec<Row>, Vec<Row>) = (Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Change { removed, added } => {
                        let mut change = TableChange::new(table);
                        let gone: Vec<Row> = removed.iter().map(|group| (*group, 0)).collect();
                        change.remove(&batch(&gone)).unwrap();
                        change.add(batch(&added));
                        store.change(change).unwrap();
                        model.retain(|(group, _)| !removed.contains(group));
                        model.extend(added);
                    }
                    Step::Commit => {
                        store.commit("test").unwrap();
                        committed.clone_from(&model);
                    }
                    Step::Rollback => {
                        store.rollback();
                        model.clone_from(&committed);
                    }
                }
                let expected = |keeps: &dyn Fn(&Row) -> bool| {
                    let rows = model.iter().filter(|row| keeps(row)).map(|(group, at)| (group.to_string(), *at));
                    let mut rows: Vec<_> = rows.collect();
                    rows.sort();
                    rows
                };
                prop_assert_eq!(read(&mut store, &Filter::all()), expected(&|_| true));
                prop_assert_eq!(visited(&mut store), expected(&|_| true));
                let range = Filter::within(Some(TimeRange { start_us: 1, end_us: 4 }));
                prop_assert_eq!(read(&mut store, &range), expected(&|(group, _)| (1..4).contains(group)));
                let keys = KeySet::of(vec!["response_group_uid"], &[batch(&[(2, 0), (5, 0)])]).unwrap();
                prop_assert_eq!(read(&mut store, &range.with_keys(&keys)), expected(&|(group, _)| *group == 2));
            }
        }
    }
}
