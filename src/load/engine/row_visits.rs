//! Calls Rust code for the rows of a query, in the threads of the engine, through the scalar function [`FUNCTION`].
//!
//! The engine copies the rows of a result into a buffer, and one thread copies them again into Arrow batches. A visit
//! copies the rows once, in all threads. The `unsafe` code here relies on two facts:
//!
//! - The engine flattens the arguments of a scalar function: a vector has a slot for each row, in DuckDB's documented
//!   layout for its type. A text of the engine is UTF-8.
//! - A visit is registered only while its statement runs: [`RowVisits::during`] waits for calls of the visit.

use std::{
    collections::BTreeMap,
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicI64, Ordering},
    },
};

use arrow::{
    array::{ArrayRef, RecordBatch, StringArray},
    buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer},
};
use duckdb::{
    Connection,
    core::{DataChunkHandle, FlatVector, LogicalTypeId},
    ffi,
    vscalar::{ScalarFunctionSignature, VScalar},
    vtab::arrow::{WritableVector, flat_vector_to_arrow_array},
};

use super::arrow_scan::INLINED_BYTES_MAX;
use crate::{load::LoadError, schema::quote_identifier};

/// Name of the scalar function. `visit_row(7, a, b)` calls the visit with the id 7 for `a` and `b`, and is true.
const FUNCTION: &str = "visit_row";

/// The id of the next visit. A statement that outlived its visit finds no other visit under its id.
static NEXT_ID: AtomicI64 = AtomicI64::new(1);

/// A callback that receives batches of rows in several threads. An error of the callback ends the visit, which returns
/// this error.
pub type Visit<'a> = dyn Fn(RecordBatch) -> Result<(), LoadError> + Sync + 'a;

/// The visits of statements that run now, by id. Clones share the visits.
#[derive(Clone, Default)]
pub(super) struct RowVisits(Arc<RwLock<BTreeMap<i64, Registered>>>);

struct Registered {
    visit: &'static GuardedVisit<'static>,
    /// Names of the arguments after the id.
    names: Vec<String>,
}

/// Passes a batch to a visit. Returns false if the visit failed or panicked.
type GuardedVisit<'a> = dyn Fn(RecordBatch) -> bool + Sync + 'a;

impl RowVisits {
    /// Registers the scalar function with the engine of this connection. Must be called once for each engine.
    pub fn open(connection: &Connection) -> duckdb::Result<Self> {
        let visits = Self::default();
        connection.register_scalar_function_with_state::<VisitRow>(FUNCTION, &visits)?;
        Ok(visits)
    }

    /// Runs a statement that visits the rows with these columns. `run` gets the SQL condition that visits a row; the
    /// condition is true. `run` returns the number of all rows and of the rows that satisfy the condition.
    ///
    /// # Errors
    /// The first error of the visit, or else the error of `run`. `Bug` if the visit panicked, or if a row was not
    /// visited once.
    pub fn during(
        &self,
        visit: &Visit<'_>,
        columns: &[&str],
        run: impl FnOnce(&str) -> Result<[i64; 2], LoadError>,
    ) -> Result<(), LoadError> {
        let (visited, failed) = (AtomicI64::new(0), Mutex::new(None));
        let guarded = |rows: RecordBatch| {
            let length = rows.num_rows() as i64;
            // The error of a panic leaves out its message, which may quote texts of people.
            let panicked = |_| Err(LoadError::Bug("a visit of rows panicked".to_owned()));
            let done = catch_unwind(AssertUnwindSafe(|| visit(rows))).unwrap_or_else(panicked);
            visited.fetch_add(length, Ordering::Relaxed);
            let Err(error) = done else { return true };
            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            false
        };
        // SAFETY: only calls of the function use the visit, and they hold the lock for reading. `Unregister` removes
        // the visit with the lock for writing, so no call uses the visit after this method has returned.
        let visit = unsafe { std::mem::transmute::<&GuardedVisit<'_>, &'static GuardedVisit<'static>>(&guarded) };
        let names = columns.iter().map(|column| (*column).to_owned()).collect();
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(id, Registered { visit, names });
        let registered = Unregister { visits: self, id };
        let arguments: String = columns.iter().map(|column| format!(", {}", quote_identifier(column))).collect();
        let ran = run(&format!("{FUNCTION}({id}::BIGINT{arguments})"));
        drop(registered);
        if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let ([rows, satisfying], visited) = (ran?, visited.into_inner());
        if rows == satisfying && rows == visited {
            Ok(())
        } else {
            Err(LoadError::Bug(format!("{visited} of {rows} rows were visited, {satisfying} as the engine counts")))
        }
    }
}

/// Removes a visit when it is dropped.
struct Unregister<'v> {
    visits: &'v RowVisits,
    id: i64,
}

impl Drop for Unregister<'_> {
    fn drop(&mut self) {
        self.visits.0.write().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// The implementation of the scalar function.
struct VisitRow;

impl VScalar for VisitRow {
    type State = RowVisits;

    fn signatures() -> Vec<ScalarFunctionSignature> {
        vec![ScalarFunctionSignature::variadic(LogicalTypeId::Any.into(), LogicalTypeId::Boolean.into())]
    }

    /// The engine must call the function for each row, and not once for equal arguments.
    fn volatile() -> bool {
        true
    }

    fn invoke(
        visits: &RowVisits,
        input: &mut DataChunkHandle,
        output: &mut dyn WritableVector,
    ) -> Result<(), Box<dyn Error>> {
        let length = input.len();
        let id = input.flat_vector(0);
        // SAFETY: the statement passes a BIGINT, and an argument has a slot for each row.
        let Some(id) = (unsafe { id.as_slice_with_len::<i64>(length) }).first() else { return Ok(()) };
        let visits = visits.0.read().unwrap_or_else(PoisonError::into_inner);
        let registered = visits.get(id).ok_or_else(|| format!("no visit is registered as {id}"))?;
        let mut columns = Vec::with_capacity(registered.names.len());
        for (index, name) in registered.names.iter().enumerate() {
            columns.push((name, array(input, index + 1)?, true));
        }
        let rows = RecordBatch::try_from_iter_with_nullable(columns)?;
        if !(registered.visit)(rows) {
            return Err("a visit failed".into());
        }
        let mut output = output.flat_vector();
        // SAFETY: the result is a BOOLEAN, which has one byte for each row.
        unsafe { output.as_mut_slice_with_len::<u8>(length) }.fill(1);
        Ok(())
    }
}

/// Copies the values of an argument.
fn array(input: &DataChunkHandle, index: usize) -> Result<ArrayRef, Box<dyn Error>> {
    let (vector, length) = (input.flat_vector(index), input.len());
    match vector.logical_type().id() {
        LogicalTypeId::Varchar => Ok(Arc::new(texts(&vector, length, nulls(input, index))?)),
        _ => flat_vector_to_arrow_array(&vector, length),
    }
}

/// Copies the validity mask of an argument. Arrow and DuckDB both store one bit for each row, the lowest bit first; a
/// set bit means a value. Returns `None` if the argument has no mask and no NULL.
fn nulls(input: &DataChunkHandle, index: usize) -> Option<NullBuffer> {
    let words = input.len().div_ceil(u64::BITS as usize);
    // SAFETY: the index is one of an argument, whose mask has one bit for each row, in words of 64 bits.
    let mask = unsafe {
        let mask = ffi::duckdb_vector_get_validity(ffi::duckdb_data_chunk_get_vector(input.get_ptr(), index as u64));
        if mask.is_null() {
            return None;
        }
        slice::from_raw_parts(mask, words)
    };
    Some(NullBuffer::new(BooleanBuffer::new(Buffer::from_slice_ref(mask), 0, input.len())))
}

/// Copies the texts of a vector, one directly after the other. Fails for texts of 2 GiB and more.
fn texts(vector: &FlatVector<'_>, length: usize, nulls: Option<NullBuffer>) -> Result<StringArray, Box<dyn Error>> {
    // SAFETY: the slots of the vector have the layout of a text.
    let slots = unsafe { vector.as_mut_ptr::<ffi::duckdb_string_t>() }.cast_const();
    // The slot of a NULL may be uninitialized.
    let texts = (0..length).map(|row| match &nulls {
        Some(nulls) if nulls.is_null(row) => &[],
        // SAFETY: the vector has a slot for each row, and this slot has a text.
        _ => unsafe { text(slots.add(row)) },
    });
    let (mut end, mut offsets) = (0, Vec::with_capacity(length + 1));
    offsets.push(0);
    for text in texts.clone() {
        end += text.len();
        offsets.push(i32::try_from(end)?);
    }
    let mut bytes = Vec::with_capacity(end);
    texts.for_each(|text| bytes.extend_from_slice(text));
    // SAFETY: the offsets grow up to the number of bytes, and each text of the engine is UTF-8.
    Ok(unsafe { StringArray::new_unchecked(OffsetBuffer::new(offsets.into()), Buffer::from_vec(bytes), nulls) })
}

/// Returns the bytes of a text. The slot must have a text, which must not change during `'v`.
unsafe fn text<'v>(slot: *const ffi::duckdb_string_t) -> &'v [u8] {
    // SAFETY: every text begins with its length. Up to `INLINED_BYTES_MAX` bytes follow it, and longer texts have a
    // pointer.
    unsafe {
        let length = (*slot).value.inlined.length as usize;
        let data = if length <= INLINED_BYTES_MAX {
            (&raw const (*slot).value.inlined.inlined).cast::<u8>()
        } else {
            (*slot).value.pointer.ptr.cast_const().cast::<u8>()
        };
        slice::from_raw_parts(data, length)
    }
}

#[cfg(test)]
mod tests;
