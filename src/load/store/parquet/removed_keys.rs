//! Excludes the rows of a source that later layers remove. Keys are compared by their hashes, of which only a limited
//! number is in memory.

use arrow::{array::RecordBatch, buffer::BooleanBuffer, datatypes::SchemaRef};
use foldhash::HashMap;

use super::{
    rows_reader::{Pick, PickedRows, RowsReader, narrow, read_picked},
    sources::Removal,
};
use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{Filter, TimeRange, read_schema, removal_columns},
    },
    model::key_hashes,
    schema::Table,
};

/// For the hash of each removed key, the order ([`Removal::order`]) of the last layer that removes the key.
type LastRemoved = HashMap<u128, usize>;

/// The keys that layers remove from a partition within a range.
pub(super) struct RemovedKeys<'a> {
    columns: KeyColumns,
    range: Option<TimeRange>,
    removals: &'a [Removal],
    /// Largest number of keys in memory.
    keys_max: usize,
    /// All removed keys within the range, read at the first use. `None` before the first use, and always if the files
    /// have more keys than `keys_max`.
    loaded: Option<LastRemoved>,
}

impl<'a> RemovedKeys<'a> {
    /// Prepares to read the removed keys of a partition, at most `keys_max` of them in memory. `removals` are the files
    /// with the keys, which are not read yet.
    pub(super) fn new(
        table: &'static Table,
        range: Option<TimeRange>,
        removals: &'a [Removal],
        keys_max: usize,
    ) -> Result<Self, LoadError> {
        let names = removal_columns(table);
        let columns = KeyColumns { table, schema: read_schema(table, &names)?, names };
        Ok(Self { columns, range, removals, keys_max, loaded: None })
    }

    /// Drops the rows of `pick` that a later layer removes. `pick` selects rows of one source; `order` is the position
    /// of the source's layer. If there are too many keys for the memory, the keys are read in batches.
    pub(super) fn exclude(&mut self, rows: &dyn PickedRows, pick: Pick, order: usize) -> Result<Pick, LoadError> {
        let has_later_removals = self.removals.iter().any(|removal| removal.order > order);
        if !has_later_removals || pick.count() == 0 {
            return Ok(pick);
        }
        let keys: u64 = self.removals.iter().map(|removal| removal.keys).sum();
        if keys > self.keys_max as u64 {
            return self.exclude_in_batches(rows, pick, order);
        }
        let loaded = match self.loaded.take() {
            Some(loaded) => loaded,
            None => self.load()?,
        };
        self.columns.survivors(self.loaded.insert(loaded), rows, &pick, order)
    }

    /// Reads the removed keys within the range into memory. Returns, for the hash of each key, the last layer that
    /// removes the key.
    fn load(&self) -> Result<LastRemoved, LoadError> {
        let mut all = LastRemoved::default();
        self.each_batch(&mut |order, hashes| {
            insert(&mut all, order, &hashes);
            Ok(())
        })?;
        Ok(all)
    }

    /// Does the work of [`RemovedKeys::exclude`] if there are too many keys for the memory. Reads the keys in batches,
    /// and the picked rows once for each batch.
    fn exclude_in_batches(&self, rows: &dyn PickedRows, mut pick: Pick, order: usize) -> Result<Pick, LoadError> {
        let mut batch = LastRemoved::default();
        self.each_batch(&mut |layer_order, hashes| {
            insert(&mut batch, layer_order, &hashes);
            if batch.len() >= self.keys_max {
                pick = self.columns.survivors(&batch, rows, &pick, order)?;
                batch.clear();
            }
            Ok(())
        })?;
        self.columns.survivors(&batch, rows, &pick, order)
    }

    /// Calls `take` for each batch of removed keys within the range. `take` gets the order of the layer that removes
    /// the keys, and the hashes of the keys.
    fn each_batch(&self, take: &mut dyn FnMut(usize, Vec<u128>) -> Result<(), LoadError>) -> Result<(), LoadError> {
        let KeyColumns { table, schema, .. } = &self.columns;
        for removal in self.removals {
            let reader = RowsReader::open(&removal.path)?;
            let pick = self.range.map_or_else(|| reader.all(), |range| reader.may_be_within(table, range));
            for batch in read_picked(&reader, &pick, schema) {
                let batch = Filter::within(self.range).select(table, batch?)?;
                take(removal.order, self.columns.hashes(&batch)?)?;
            }
        }
        Ok(())
    }
}

/// Stores that the layer with this order removes these keys. For each key, only the latest layer is kept.
fn insert(removed: &mut LastRemoved, order: usize, hashes: &[u128]) {
    for hash in hashes {
        let last = removed.entry(*hash).or_insert(order);
        *last = order.max(*last);
    }
}

/// The columns that identify removed rows of a table.
struct KeyColumns {
    table: &'static Table,
    names: Vec<&'static str>,
    schema: SchemaRef,
}

impl KeyColumns {
    /// Returns a hash of the key of each row.
    fn hashes(&self, rows: &RecordBatch) -> Result<Vec<u128>, LoadError> {
        key_hashes(&self.names, rows).map_err(invalid_rows(self.table))
    }

    /// Reduces a pick to the rows that no layer after `order` removes. `removed` has the last removal of each key.
    fn survivors(
        &self,
        removed: &LastRemoved,
        rows: &dyn PickedRows,
        pick: &Pick,
        order: usize,
    ) -> Result<Pick, LoadError> {
        narrow(rows, pick, &self.schema, |batch| {
            let hashes = self.hashes(batch)?;
            let survives = |hash: &u128| removed.get(hash).is_none_or(|last| *last <= order);
            Ok(hashes.iter().map(survives).collect::<BooleanBuffer>())
        })
    }
}
