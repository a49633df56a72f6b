//! The pages of one scan, as temporary tables `stage_*` of the engine.
//!
//! One table for each table that `flatten` fills: its flat columns and `_seq`, the place of the row's record in the scan. It
//! compares nothing; [`super::diff()`] does.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{
        ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Int64Array, PrimitiveArray, RecordBatch,
        RecordBatchOptions, StringArray, new_null_array,
    },
    compute::filter_record_batch,
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef},
    error::ArrowError,
};
use foldhash::{HashMap, HashMapExt};
use xxhash_rust::xxh3::xxh3_64;

use super::{LoadError, engine::Engine};
use crate::{
    model::{Digest, FlatPage, Reject, Scan, TableBatch},
    schema::{self, RECORD_COLUMN, ROW_HASH_COLUMN, Table, TableKind, quote_identifier},
};

/// Place of a row's record in the scan: the page's ordinal above these bits, the record's place in its page in them.
pub(super) const SEQUENCE_COLUMN: &str = "_seq";
/// Bits of the record's place in its page.
const RECORD_BITS: u32 = 24;
/// Keys that are remembered to find out whether a scan repeats one (about 70 MB of hashes). Past it, the scan is simply taken to
/// repeat some.
const KEYS_SEEN_MAX: usize = 1_000_000;
/// Bytes of rows that wait to be handed to the engine: as long as a scan fits, it may turn out that the engine need not have them. A
/// scan is planned for some twenty pages, of one to three MiB each.
const WAITING_BYTES_MAX: usize = 96 * 1024 * 1024;
/// Where the rejects of the scan are staged.
pub(super) const REJECTS: &str = "rejects";
/// Keys of records that the service returned and the drift rules discard: what is held of them has not vanished.
pub(super) const DISCARDED: &str = "discarded";
/// Keys that the service was asked for and does not know.
const ABSENT: &str = "absent";

/// The staged pages of one scan. The rows are in the engine, or about to be; this is what is known of them.
pub struct Stage {
    scan: Scan,
    pages: i64,
    records: u64,
    rows: BTreeMap<&'static str, u64>,
    /// Rows that the engine does not have yet, by table.
    waiting: BTreeMap<&'static str, Vec<RecordBatch>>,
    waiting_bytes: usize,
    has_tables: bool,
    /// Whether the engine has some of them already.
    is_handed_over: bool,
    /// Hashes of the keys of the base table, and of the content that each came with.
    keys_seen: HashMap<u128, i64>,
    may_repeat: bool,
    /// What the records come to, each key once. Of no use where a key [`Stage::may_repeat`].
    digest: Digest,
    /// Set where the records are not here, because the warehouse holds just them.
    is_held: bool,
}

/// The tables that scans of a stream fill from pages.
fn staged_tables(scan: &Scan) -> impl Iterator<Item = &'static Table> {
    let stream = scan.scope.stream.name();
    schema::tables().iter().filter(move |table| {
        table.stream.as_deref() == Some(stream)
            && matches!(table.kind, TableKind::Base | TableKind::Child | TableKind::Versioned)
    })
}

impl Stage {
    /// Makes ready for the pages of a scan; whatever the engine held of an earlier one is dropped.
    pub fn begin(engine: &Engine, scan: &Scan) -> Result<Self, LoadError> {
        Self::clear(engine)?;
        Ok(Self {
            scan: scan.clone(),
            pages: 0,
            records: 0,
            rows: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            has_tables: false,
            is_handed_over: false,
            keys_seen: HashMap::new(),
            may_repeat: false,
            digest: Digest::default(),
            is_held: false,
        })
    }

    /// The tables are made when there is something to put in.
    fn make_tables(&mut self, engine: &Engine) -> Result<(), LoadError> {
        if std::mem::replace(&mut self.has_tables, true) {
            return Ok(());
        }
        let scan = &self.scan;
        let mut sql = String::new();
        for table in staged_tables(scan) {
            let columns: String = table
                .flat_columns()
                .map(|column| format!("{} {}, ", quote_identifier(&column.name), column.column_type.duckdb()))
                .collect();
            sql.push_str(&format!("CREATE TEMP TABLE stage_{} ({columns}{SEQUENCE_COLUMN} BIGINT);\n", table.name));
        }
        sql.push_str(&format!(
            "CREATE TEMP TABLE stage_{REJECTS} (raw_hash BIGINT, reason VARCHAR, field VARCHAR, raw VARCHAR, {SEQUENCE_COLUMN} BIGINT);"
        ));
        let base = base_table(scan)?;
        let keys = base.columns.iter().filter(|column| base.key.contains(&column.name));
        let keys: Vec<String> =
            keys.map(|column| format!("{} {}", quote_identifier(&column.name), column.column_type.duckdb())).collect();
        for name in [DISCARDED, ABSENT] {
            sql.push_str(&format!("CREATE TEMP TABLE stage_{name} ({});", keys.join(", ")));
        }
        engine.execute("make ready for a scan", &sql)
    }

    /// Drops whatever the engine holds of a scan: its pages, the steps of the comparison and the delta.
    pub fn clear(engine: &Engine) -> Result<(), LoadError> {
        engine.clear()
    }

    /// Takes the next page. After an error the stage is of no use: begin again.
    pub fn add(&mut self, engine: &Engine, page: &FlatPage) -> Result<(), LoadError> {
        let base_rows = page.table(self.scan.scope.stream.name()).map_or(0, RecordBatch::num_rows);
        if page.key_hashes.len() != base_rows {
            let hashes = page.key_hashes.len();
            return Err(LoadError::Contract(format!("{hashes} key hashes for {base_rows} rows")));
        }
        let repeats = self.note_keys(page)?;
        for batch in &page.batches {
            let table = staged_tables(&self.scan).find(|table| table.name == batch.table).ok_or_else(|| {
                LoadError::Contract(format!("{} is not filled by {}", batch.table, self.scan.scope.stream))
            })?;
            let batch = if repeats.is_empty() || !self.goes_with_its_record(table) {
                Cow::Borrowed(batch)
            } else {
                Cow::Owned(without(batch, &repeats)?)
            };
            self.put(engine, batch.table, sequenced(table, &batch, self.pages)?)?;
        }
        if !page.rejects.is_empty() {
            self.put(engine, REJECTS, reject_rows(&page.rejects, self.pages)?)?;
        }
        if let Some(discarded) = &page.discarded {
            self.put(engine, DISCARDED, key_columns(base_table(&self.scan)?, &discarded.rows)?)?;
        }
        if !page.absent.is_empty() {
            self.put(engine, ABSENT, absent_keys(base_table(&self.scan)?, &page.absent)?)?;
        }
        self.pages += 1;
        self.records += page.records as u64;
        Ok(())
    }

    /// The scan whose pages these are.
    pub fn scan(&self) -> &Scan {
        &self.scan
    }

    /// Records of all pages: rows of the base table, repeated ones too, and rejects.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Rows staged for a table.
    pub fn rows(&self, table: &str) -> u64 {
        self.rows.get(table).copied().unwrap_or(0)
    }

    /// Whether some key of the base table may have come more than once.
    pub(super) fn may_repeat(&self) -> bool {
        self.may_repeat
    }

    /// What the records come to, each key once.
    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    /// Takes all records at once: the warehouse holds just those that come to this. So many came once more.
    pub(super) fn take_as_held(&mut self, digest: Digest, repeated: u64) {
        (self.records, self.digest, self.is_held) = (digest.records + repeated, digest, true);
    }

    /// Whether [`Stage::take_as_held`] did.
    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether all rows are still here, and nothing about them is to be judged: each key came once or always with the same content, and
    /// there is nothing but records.
    pub(super) fn is_plain(&self) -> bool {
        !self.is_handed_over
            && !self.is_held
            && !self.may_repeat
            && [REJECTS, DISCARDED, ABSENT].iter().all(|table| self.rows(table) == 0)
    }

    /// The rows of a table that are still here, with [`SEQUENCE_COLUMN`].
    pub(super) fn waiting(&self, table: &str) -> &[RecordBatch] {
        self.waiting.get(table).map_or(&[], Vec::as_slice)
    }

    /// Takes them: they are not handed over, and no longer counted.
    pub(super) fn take_waiting(&mut self, table: &str) -> Vec<RecordBatch> {
        let taken = self.waiting.remove(table).unwrap_or_default();
        if let Some(rows) = self.rows.get_mut(table) {
            *rows -= taken.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
        }
        taken
    }

    /// Whether the engine is still to have rows.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Hands over what still waits: to be called before anything reads the stage.
    pub fn complete(&mut self, engine: &Engine) -> Result<(), LoadError> {
        self.make_tables(engine)?;
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting).iter().try_for_each(|(table, batches)| append(engine, table, batches))
    }

    fn put(&mut self, engine: &Engine, table: &'static str, rows: RecordBatch) -> Result<(), LoadError> {
        *self.rows.entry(table).or_default() += rows.num_rows() as u64;
        self.waiting_bytes += rows.get_array_memory_size();
        self.waiting.entry(table).or_default().push(rows);
        if self.waiting_bytes >= WAITING_BYTES_MAX {
            self.is_handed_over = true;
            self.complete(engine)?;
        }
        Ok(())
    }

    /// Whether a row of the table is left out with a record that is left out. Snapshots are not: they have a content of their own.
    fn goes_with_its_record(&self, table: &Table) -> bool {
        let base = self.scan.scope.stream.name();
        table.name == base || table.parent.as_deref() == Some(base)
    }

    /// The places in the page of records that came before with the same content: they are left out, for a look at a page's edge
    /// brings many. A record that came with other content is for the comparison to judge.
    fn note_keys(&mut self, page: &FlatPage) -> Result<HashSet<i64>, LoadError> {
        let mut repeats = HashSet::new();
        let Some(rows) = page.table(self.scan.scope.stream.name()) else { return Ok(repeats) };
        if self.keys_seen.len() + page.key_hashes.len() > KEYS_SEEN_MAX {
            (self.may_repeat, self.keys_seen) = (true, HashMap::new());
        }
        let contents = integers(rows, ROW_HASH_COLUMN)?;
        let records = integers(rows, RECORD_COLUMN)?;
        for ((key, content), record) in page.key_hashes.iter().zip(contents).zip(records) {
            match self.keys_seen.insert(*key, *content) {
                Some(seen) if seen == *content => {
                    repeats.insert(*record);
                }
                Some(_) => self.may_repeat = true,
                None => self.digest.add(*key, *content),
            }
        }
        Ok(repeats)
    }
}

/// A column of numbers.
pub(super) fn column_of<'a, T: ArrowPrimitiveType>(
    rows: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<T>, LoadError> {
    let column = rows.column_by_name(name).and_then(|column| column.as_primitive_opt::<T>());
    column.ok_or_else(|| LoadError::Contract(format!("a batch without {name}")))
}

/// A column of integers that are never NULL.
fn integers<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a [i64], LoadError> {
    column_of::<Int64Type>(rows, name).map(|column| column.values().as_ref())
}

/// The rows of a batch but those of some records.
fn without(batch: &TableBatch, records: &HashSet<i64>) -> Result<TableBatch, LoadError> {
    let kept: BooleanArray =
        integers(&batch.rows, RECORD_COLUMN)?.iter().map(|record| Some(!records.contains(record))).collect();
    let rows = filter_record_batch(&batch.rows, &kept)
        .map_err(|error| LoadError::Contract(format!("{}: {error}", batch.table)))?;
    Ok(TableBatch { table: batch.table, rows })
}

fn base_table(scan: &Scan) -> Result<&'static Table, LoadError> {
    let name = scan.scope.stream.name();
    schema::table(name).ok_or_else(|| LoadError::Contract(format!("no contract is called {name}")))
}

/// The columns that name the rows of a base table.
pub(super) fn key_columns(base: &Table, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let places: Result<Vec<usize>, _> = base.key.iter().map(|name| rows.schema().index_of(name)).collect();
    places
        .and_then(|places| rows.project(&places))
        .map_err(|error| LoadError::Contract(format!("{}: {error}", base.name)))
}

/// Keys of a base table whose key is one text.
fn absent_keys(base: &Table, keys: &[String]) -> Result<RecordBatch, LoadError> {
    let column: ArrayRef = Arc::new(StringArray::from_iter_values(keys));
    match base.key.as_slice() {
        [name] => RecordBatch::try_from_iter([(name.as_str(), column)])
            .map_err(|error| LoadError::Contract(format!("{}: {error}", base.name))),
        _ => Err(LoadError::Contract(format!("{} is not asked for by key", base.name))),
    }
}

/// The batch with `_seq` in the place of `_record`, checked against the contract: the engine panics on a batch that does not
/// fit its table.
fn sequenced(table: &Table, batch: &TableBatch, page: i64) -> Result<RecordBatch, LoadError> {
    let wanted = table.flat_schema();
    let found = batch.rows.schema();
    let fits = wanted.fields().len() == found.fields().len()
        && wanted.fields().iter().zip(found.fields()).zip(batch.rows.columns()).all(|((wanted, found), values)| {
            let nulls_fit = wanted.is_nullable() || values.null_count() == 0;
            wanted.name() == found.name() && wanted.data_type() == found.data_type() && nulls_fit
        });
    let Some((records, columns)) = batch.rows.columns().split_last().filter(|_| fits) else {
        return Err(LoadError::Contract(format!("the columns of {} are {found}", table.name)));
    };
    let mut columns = columns.to_vec();
    columns.push(sequence(table, records.as_primitive::<Int64Type>().values(), page)?);
    let mut fields: Vec<_> = found.fields().iter().take(columns.len() - 1).cloned().collect();
    debug_assert_eq!(found.field(found.fields().len() - 1).name(), RECORD_COLUMN);
    fields.push(Arc::new(Field::new(SEQUENCE_COLUMN, DataType::Int64, false)));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map_err(|error| LoadError::Contract(format!("{}: {error}", table.name)))
}

fn sequence(table: &Table, records: &[i64], page: i64) -> Result<ArrayRef, LoadError> {
    let limit = 1 << RECORD_BITS;
    if let Some(record) = records.iter().find(|record| !(0..limit).contains(*record)) {
        return Err(LoadError::Contract(format!("{} has a row of record {record}", table.name)));
    }
    Ok(Arc::new(Int64Array::from_iter_values(records.iter().map(|record| page << RECORD_BITS | record))))
}

fn reject_rows(rejects: &[Reject], page: i64) -> Result<RecordBatch, LoadError> {
    let texts = |text: fn(&Reject) -> String| Arc::new(StringArray::from_iter_values(rejects.iter().map(text)));
    // The column is signed; the hash keeps its bits.
    let hashes = rejects.iter().map(|reject| xxh3_64(reject.raw.as_bytes()).cast_signed());
    let places = (0..rejects.len() as i64).map(|at| page << RECORD_BITS | at);
    let columns: [(&str, ArrayRef); 5] = [
        ("raw_hash", Arc::new(Int64Array::from_iter_values(hashes))),
        ("reason", texts(|reject| reject.reason.to_string())),
        ("field", texts(|reject| reject.field.clone().into_owned())),
        ("raw", texts(|reject| reject.raw.clone())),
        (SEQUENCE_COLUMN, Arc::new(Int64Array::from_iter_values(places))),
    ];
    RecordBatch::try_from_iter(columns).map_err(|error| LoadError::Contract(format!("rejects: {error}")))
}

/// Appends rows to `stage_TABLE`.
pub(super) fn append(engine: &Engine, table: &str, batches: &[RecordBatch]) -> Result<(), LoadError> {
    let failed = |source| LoadError::engine("stage a page", source);
    let cut = |error| LoadError::Contract(format!("cannot cut a batch of {table}: {error}"));
    let Some(first) = batches.first() else { return Ok(()) };
    let rows = filled(&first.schema(), batches).map_err(cut)?;
    engine.insert(&format!("stage_{table}"), &rows).map_err(failed)
}

/// The rows with those columns of the schema that have a value in some batch: most flagged columns have none, and left out they cost
/// nothing.
pub(super) fn filled(schema: &Schema, batches: &[RecordBatch]) -> Result<Vec<RecordBatch>, ArrowError> {
    let has_values = |name: &str| {
        let mut columns = batches.iter().filter_map(|rows| rows.column_by_name(name));
        columns.any(|column| column.null_count() < column.len())
    };
    let fields: Vec<_> = schema.fields().iter().filter(|field| has_values(field.name())).cloned().collect();
    with_columns(&Arc::new(Schema::new(fields)), batches)
}

/// The rows with the columns of the schema, by name; those that a batch lacks are NULL.
pub(super) fn with_columns(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<RecordBatch>, ArrowError> {
    let with_columns = |rows: &RecordBatch| {
        let null = |field: &Field| new_null_array(field.data_type(), rows.num_rows());
        let column = |field: &Field| rows.column_by_name(field.name()).map_or_else(|| null(field), Arc::clone);
        let columns = schema.fields().iter().map(|field| column(field)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
    };
    batches.iter().map(with_columns).collect()
}
