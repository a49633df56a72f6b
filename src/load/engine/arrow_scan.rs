//! Lets SQL statements read Arrow rows through the table function [`FUNCTION`]. The function copies numbers into the
//! engine's vectors, and points at long texts instead of copying them.
//!
//! The appender of the crate `duckdb` copies each text twice and calls the engine for each text. The appender took a
//! quarter of the time of a warehouse's thread. The `unsafe` code here relies on two facts:
//!
//! - A vector of the engine has [`FlatVector::capacity`] slots, in DuckDB's documented layout for the type that was
//!   bound from the Arrow column.
//! - Texts that a vector points at outlive the statement, because the bind data owns the rows. An `INSERT` copies the
//!   texts, and a join reads them while the statement runs. No result contains the texts.

use std::{
    collections::BTreeMap,
    error::Error,
    ffi::c_char,
    slice,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray as _, ListArray, RecordBatch, StringArray},
    datatypes::{DataType, FieldRef, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType},
};
use duckdb::{
    Connection, Result,
    core::{DataChunkHandle, FlatVector, LogicalTypeHandle, LogicalTypeId},
    ffi,
    vtab::{BindInfo, InitInfo, TableFunctionInfo, VTab},
};

use crate::schema::quote_identifier;

/// Name of the table function. `FROM registered_rows(7)` reads the rows with the id 7 in [`ArrowTables`].
const FUNCTION: &str = "registered_rows";

/// Texts of at most this many bytes are stored in the vector itself. For longer texts the vector has a pointer.
pub(super) const INLINED_BYTES_MAX: usize = 12;

/// Bits of a word in a validity mask, which tells which rows are NULL.
const WORD_BITS: usize = 64;

/// The Arrow rows that statements of an engine can read, by id. Clones share the rows.
#[derive(Clone, Debug, Default)]
pub(super) struct ArrowTables(Arc<Mutex<BTreeMap<i64, Rows>>>);

/// The batches of one registration. All batches have the same columns.
type Rows = Arc<[RecordBatch]>;

impl ArrowTables {
    /// Registers the table function with the engine of this connection. Must be called once for each engine.
    pub fn open(connection: &Connection) -> Result<Self> {
        let arrow_tables = Self::default();
        connection.register_table_function_with_extra_info::<ArrowScan, Self>(FUNCTION, &arrow_tables)?;
        Ok(arrow_tables)
    }

    /// Inserts rows into the table with this SQL name. All batches must have the same columns. The other columns of the
    /// table become NULL. Does nothing if there are no rows.
    pub fn insert(&self, connection: &Connection, table: &str, rows: &[RecordBatch]) -> Result<()> {
        let Some(first) = rows.iter().find(|batch| batch.num_rows() > 0) else { return Ok(()) };
        let columns: Vec<String> = first.schema().fields().iter().map(|field| quote_identifier(field.name())).collect();
        let columns = columns.join(", ");
        let registered = self.register(rows);
        connection
            .execute_batch(&format!("INSERT INTO {table} ({columns}) SELECT {columns} FROM {}", registered.relation()))
    }

    /// Lets statements read these rows until the returned value is dropped. All batches must have the same columns.
    pub fn register(&self, rows: &[RecordBatch]) -> RegisteredRows<'_> {
        let mut registered = self.rows();
        let id = registered.last_key_value().map_or(1, |(last, _)| last + 1);
        registered.insert(id, rows.into());
        RegisteredRows { arrow_tables: self, id }
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<i64, Rows>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows that statements can read until this value is dropped.
pub(super) struct RegisteredRows<'c> {
    arrow_tables: &'c ArrowTables,
    id: i64,
}

impl RegisteredRows<'_> {
    /// Returns the SQL relation of the rows, for use after `FROM`.
    pub fn relation(&self) -> String {
        format!("{FUNCTION}({})", self.id)
    }
}

impl Drop for RegisteredRows<'_> {
    fn drop(&mut self) {
        self.arrow_tables.rows().remove(&self.id);
    }
}

/// The implementation of the table function.
struct ArrowScan;

/// The batch and the row that the scan reads next.
#[derive(Debug, Default)]
struct Cursor {
    batch: usize,
    row: usize,
}

impl VTab for ArrowScan {
    type InitData = Mutex<Cursor>;
    type BindData = Rows;

    fn parameters() -> Option<Vec<LogicalTypeHandle>> {
        Some(vec![LogicalTypeId::Bigint.into()])
    }

    /// Finds the registered rows by the id in the SQL call, and declares their columns to the engine. Fails if no rows
    /// have the id, or if the batches have different columns.
    fn bind(bind: &BindInfo) -> Result<Rows, Box<dyn Error>> {
        // SAFETY: the function was registered with these `ArrowTables`, which live as long as the function.
        let arrow_tables: &ArrowTables = unsafe { &*bind.get_extra_info() };
        let id = bind.get_parameter(0).to_int64();
        let rows = arrow_tables.rows().get(&id).cloned().ok_or_else(|| format!("no rows are registered as {id}"))?;
        let first = rows.first().ok_or_else(|| format!("no batch is registered as {id}"))?;
        for field in first.schema().fields() {
            bind.add_result_column(field.name(), engine_type(field.data_type())?);
        }
        bind.set_cardinality(rows.iter().map(|batch| batch.num_rows() as u64).sum(), true);
        // The engine allocates vectors for the types of the first batch, so all batches must have the same columns.
        match rows.iter().find(|batch| !has_columns_of(batch, first)) {
            Some(batch) => Err(format!("batches with the columns {} and {}", first.schema(), batch.schema()).into()),
            None => Ok(rows),
        }
    }

    /// Begins a scan at the first row.
    fn init(_: &InitInfo) -> Result<Mutex<Cursor>, Box<dyn Error>> {
        Ok(Mutex::default())
    }

    /// Fills the next chunk of the scan with rows. An empty chunk tells the engine that the scan has ended.
    fn func(call: &TableFunctionInfo<Self>, output: &mut DataChunkHandle) -> Result<(), Box<dyn Error>> {
        let rows: &Rows = call.get_bind_data();
        let mut cursor = call.get_init_data().lock().unwrap_or_else(PoisonError::into_inner);
        let slots = output.flat_vector(0).capacity();
        let mut filled = 0;
        // A chunk is filled from several batches, because a small chunk costs the engine about as much as a full one.
        while let Some(batch) = rows.get(cursor.batch).filter(|_| filled < slots) {
            let length = (slots - filled).min(batch.num_rows() - cursor.row);
            for (index, column) in batch.columns().iter().enumerate() {
                if length == batch.num_rows() {
                    write_column(output, index, filled, column)?;
                } else {
                    write_column(output, index, filled, &column.slice(cursor.row, length))?;
                }
            }
            filled += length;
            cursor.row += length;
            if cursor.row == batch.num_rows() {
                *cursor = Cursor { batch: cursor.batch + 1, row: 0 };
            }
        }
        output.set_len(filled);
        Ok(())
    }
}

/// Returns true if two batches have columns of the same names and types in the same order.
fn has_columns_of(batch: &RecordBatch, first: &RecordBatch) -> bool {
    let (schema, first) = (batch.schema(), first.schema());
    let is_same =
        |(one, other): (&FieldRef, &FieldRef)| one.name() == other.name() && one.data_type() == other.data_type();
    schema.fields().len() == first.fields().len() && schema.fields().iter().zip(first.fields()).all(is_same)
}

/// Returns the engine's type for an Arrow type. Fails for a type that no table contract uses. The zone of times is
/// ignored, because the values are the same with and without a zone.
fn engine_type(data_type: &DataType) -> Result<LogicalTypeHandle, String> {
    Ok(match data_type {
        DataType::Utf8 => LogicalTypeId::Varchar.into(),
        DataType::Int64 => LogicalTypeId::Bigint.into(),
        DataType::Float64 => LogicalTypeId::Double.into(),
        DataType::Boolean => LogicalTypeId::Boolean.into(),
        DataType::Timestamp(TimeUnit::Microsecond, _) => LogicalTypeId::Timestamp.into(),
        DataType::List(item) if *item.data_type() == DataType::Int64 => {
            LogicalTypeHandle::list(&LogicalTypeId::Bigint.into())
        }
        other => return Err(format!("rows with a column of type {other} cannot be registered")),
    })
}

/// Writes a column into the vector with this index in the chunk, from the slot `start` on. The vector must have enough
/// slots.
fn write_column(
    output: &DataChunkHandle,
    vector_index: usize,
    start: usize,
    column: &ArrayRef,
) -> Result<(), Box<dyn Error>> {
    write_nulls(output, vector_index, start, column);
    let mut vector = output.flat_vector(vector_index);
    match column.data_type() {
        DataType::Utf8 => {
            let slots = slots::<ffi::duckdb_string_t>(&mut vector, start, column.len());
            slots.iter_mut().enumerate().for_each(|(row, slot)| *slot = text_of(column.as_string(), row));
        }
        DataType::Int64 => write_numbers::<Int64Type>(&mut vector, start, column),
        DataType::Float64 => write_numbers::<Float64Type>(&mut vector, start, column),
        DataType::Timestamp(..) => write_numbers::<TimestampMicrosecondType>(&mut vector, start, column),
        DataType::Boolean => {
            let slots = slots::<u8>(&mut vector, start, column.len());
            slots.iter_mut().zip(column.as_boolean().values()).for_each(|(slot, value)| *slot = value.into());
        }
        DataType::List(_) => write_lists(output, vector_index, start, column.as_list()),
        other => return Err(format!("a column of type {other} cannot be written").into()),
    }
    Ok(())
}

/// Returns the `length` slots of a vector from the slot `start` on.
fn slots<'v, T>(vector: &'v mut FlatVector<'_>, start: usize, length: usize) -> &'v mut [T] {
    // SAFETY: [`engine_type`] bound the vector as the type with the layout of T, and indexing checks the bounds.
    let all_slots = unsafe { vector.as_mut_slice::<T>() };
    &mut all_slots[start..start + length]
}

/// Writes the values of a column of a type that Arrow and DuckDB store as the same 64 bits.
fn write_numbers<T: ArrowPrimitiveType>(vector: &mut FlatVector<'_>, start: usize, column: &ArrayRef) {
    slots(vector, start, column.len()).copy_from_slice(column.as_primitive::<T>().values());
}

/// Marks the NULLs of a column in the validity mask of the vector, from the slot `start` on. Arrow and DuckDB both
/// store one bit for each row, the lowest bit first; a set bit means a value.
fn write_nulls(output: &DataChunkHandle, vector_index: usize, start: usize, column: &ArrayRef) {
    let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) else { return };
    let words = output.flat_vector(vector_index).capacity().div_ceil(WORD_BITS);
    // SAFETY: the index of the vector is within the chunk. A writable mask has one bit for each slot of its vector, in
    // words of 64 bits.
    let mask = unsafe {
        let vector = ffi::duckdb_data_chunk_get_vector(output.get_ptr(), vector_index as u64);
        ffi::duckdb_vector_ensure_validity_writable(vector);
        slice::from_raw_parts_mut(ffi::duckdb_vector_get_validity(vector), words)
    };
    let (shift, bits) = (start % WORD_BITS, nulls.inner().bit_chunks());
    // Bits after the last row are set, so that the AND below does not change their slots.
    let last_word = bits.remainder_bits() | (u64::MAX << bits.remainder_len());
    for (word_index, valid) in (start / WORD_BITS..).zip(bits.iter().chain([last_word])) {
        // With a shift, one word of Arrow covers parts of two words of the mask.
        let (low, high) = match shift {
            0 => (valid, u64::MAX),
            shift => (!(!valid << shift), !(!valid >> (WORD_BITS - shift))),
        };
        for (word_index, valid) in [(word_index, low), (word_index + 1, high)] {
            if let Some(word) = mask.get_mut(word_index) {
                *word &= valid;
            }
        }
    }
}

/// Returns the text of a row in the engine's layout. For NULL, returns an empty text, because Arrow may store any text
/// there.
fn text_of(column: &StringArray, row: usize) -> ffi::duckdb_string_t {
    text(if column.is_null(row) { "" } else { column.value(row) })
}

/// Returns a text in the engine's layout: a short text itself, or a pointer to a long text. Texts in an Arrow column
/// are UTF-8 and shorter than 4 GiB, as the engine requires.
fn text(text: &str) -> ffi::duckdb_string_t {
    let length = text.len() as u32;
    let value = match text.as_bytes() {
        bytes if bytes.len() <= INLINED_BYTES_MAX => {
            let mut inlined = [0; INLINED_BYTES_MAX];
            inlined.iter_mut().zip(bytes).for_each(|(slot, byte)| *slot = *byte as c_char);
            let inlined = ffi::duckdb_string_t__bindgen_ty_1__bindgen_ty_2 { length, inlined };
            ffi::duckdb_string_t__bindgen_ty_1 { inlined }
        }
        bytes => {
            let mut prefix = [0; 4];
            prefix.iter_mut().zip(bytes).for_each(|(slot, byte)| *slot = *byte as c_char);
            // The type demands a mutable pointer, but the engine only reads the texts of its input.
            let ptr = bytes.as_ptr().cast::<c_char>().cast_mut();
            let pointer = ffi::duckdb_string_t__bindgen_ty_1__bindgen_ty_1 { length, prefix, ptr };
            ffi::duckdb_string_t__bindgen_ty_1 { pointer }
        }
    };
    ffi::duckdb_string_t { value }
}

/// Writes a column of integer lists, from the slot `start` on. The child vector of a vector of lists has the items of
/// all lists, one after the other. Each slot of the vector has the range of its items.
fn write_lists(output: &DataChunkHandle, vector_index: usize, start: usize, column: &ListArray) {
    let mut vector = output.list_vector(vector_index);
    let offsets: Vec<usize> = column.value_offsets().iter().map(|offset| *offset as usize).collect();
    let (first, last) = (offsets.first().copied().unwrap_or(0), offsets.last().copied().unwrap_or(0));
    let items_before = if start == 0 { 0 } else { vector.len() };
    let items = column.values().slice(first, last - first);
    vector.set_len(items_before + items.len());
    let mut child = vector.child(items_before + items.len());
    write_numbers::<Int64Type>(&mut child, items_before, &items);
    (0..items.len()).filter(|item| items.is_null(*item)).for_each(|item| child.set_null(items_before + item));
    for (row, list) in (start..).zip(offsets.windows(2)) {
        if let [begin, end] = *list {
            vector.set_entry(row, items_before + begin - first, end - begin);
        }
    }
}

#[cfg(test)]
mod tests;
