//! Writes the files that readers see: sorted rows of one table or partition, streamed from the engine.
//!
//! Types are those that every reader of Parquet understands; `schemas/` defines them. Where the file goes and when it replaces
//! another is [`super::publish`]'s matter.

use std::{fs::File, io::BufWriter, path::Path, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array, ListArray, RecordBatch, Scalar, UInt32Array},
    compute::{
        LexicographicalComparator, SortColumn, SortOptions, cast, concat, interleave, kernels::cmp::not_distinct, min,
        take,
    },
    datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType},
    error::ArrowError,
};
use parquet::{
    arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::{
        metadata::{KeyValue, SortingColumn},
        properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder},
    },
    schema::types::ColumnPath,
};

use super::{disk::io_error, tree::APPLIED_PART_KEY};
use crate::{
    load::{Engine, Fill, Identity, LoadError},
    schema::{Table, quote_identifier},
};

/// Rows of a row group: what engines read as one unit of work.
const ROW_GROUP_ROWS: usize = 122_880;
/// Level of zstd. Level 3 makes files 2 to 4 % smaller, and takes a tenth more of all the processor time of a replay.
const ZSTD_LEVEL: i32 = 1;
/// Length to which texts are cut in statistics: a long answer says nothing there.
const STATISTICS_TEXT_BYTES: usize = 64;
/// Rows that the writer is handed at once: each time all batches are looked at, and these rows are in memory a second time.
const CHUNK_ROWS: usize = 16_384;
/// Columns whose values hardly repeat within a row group. A dictionary of them holds each value, and numbers beside it: it costs more to
/// make than all else of such a column, and makes it larger than zstd does by itself.
const WITHOUT_DICTIONARY: [&str; 7] =
    ["_row_hash", "created_at", "updated_at", "response_group_uid", "visitor_id", "visitor_uuid", "external_user_id"];
/// Columns of numbers with which an order begins that are looked at by themselves: the survey and the moment.
const NUMBERS_FIRST: usize = 2;
/// What stands for no number among them, where no number is as low.
const NO_NUMBER: i64 = i64::MIN;
/// Bytes gathered before they are handed to the system.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// What a file says of itself in its footer.
pub(super) struct Notes<'a> {
    /// The last part that is merged into it.
    pub(super) applied_part: u64,
    pub(super) identity: &'a Identity,
    /// The run whose commit was merged last.
    pub(super) run_id: Option<&'a str>,
}

impl Notes<'_> {
    fn key_values(&self, table: &Table) -> Vec<KeyValue> {
        let note = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
        let mut notes = vec![
            note(APPLIED_PART_KEY, self.applied_part.to_string()),
            note("studysync.table", table.name.clone()),
            note("studysync.contract_hash", contract_hash(table)),
            note("studysync.base_url", self.identity.base_url.clone()),
            note("studysync.environment", self.identity.environment.clone()),
        ];
        notes.extend(self.run_id.map(|run_id| note("studysync.run_id", run_id.to_owned())));
        notes
    }
}

/// Writes the rows of several `SELECT`s of all columns of the contract, in its order, and returns how many there were. Each of
/// them is sorted here; one after the other they must be in order already. The file is not synced.
pub(super) fn write(
    engine: &Engine,
    table: &'static Table,
    slices: &[String],
    path: &Path,
    notes: &Notes<'_>,
) -> Result<u64, LoadError> {
    let action = format!("merge {}", table.name);
    let schema = table.parquet_schema();
    let mut writer = open_writer(table, path, notes)?;
    let mut rows = 0;
    for select in slices {
        engine.each_batch(&action, &format!("{select}{}", order_sql(table)), |chunk| {
            let batch =
                fit(&chunk, &schema).map_err(|error| LoadError::Contract(format!("{}: {error}", table.name)))?;
            rows += batch.num_rows() as u64;
            writer.write(&batch).map_err(|error| write_error(path, error))
        })?;
    }
    writer.close().map_err(|error| write_error(path, error))?;
    Ok(rows)
}

/// Writes the rows of a fill, which are all that a partition has, and returns how many there were. The file is that which [`write()`]
/// would make of them; it is not synced.
pub(super) fn write_whole(fill: &Fill, path: &Path, notes: &Notes<'_>) -> Result<u64, LoadError> {
    let failed = |error: ArrowError| LoadError::Contract(format!("{}: {error}", fill.table.name));
    let sorted = Sorted::of(fill)?;
    let schema = fill.table.parquet_schema();
    let mut writer = open_writer(fill.table, path, notes)?;
    for chunk in sorted.chunks(CHUNK_ROWS) {
        let chunk = chunk.and_then(|chunk| fit(&chunk, &schema)).map_err(failed)?;
        writer.write(&chunk).map_err(|error| write_error(path, error))?;
    }
    writer.close().map_err(|error| write_error(path, error))?;
    Ok(sorted.rows())
}

fn open_writer(table: &Table, path: &Path, notes: &Notes<'_>) -> Result<ArrowWriter<BufWriter<File>>, LoadError> {
    let file = File::create(path).map_err(|source| io_error("create", path, source))?;
    let file = BufWriter::with_capacity(WRITE_BUFFER_BYTES, file);
    let options = ArrowWriterOptions::new().with_properties(properties(table, notes)?);
    ArrowWriter::try_new_with_options(file, table.parquet_schema(), options).map_err(|error| write_error(path, error))
}

/// Writes the rows of a fill, sorted, with a column of one number behind them. They are read once or twice and then thrown away.
/// Returns how many there were. The file is not synced.
pub(super) fn write_part(
    fill: &Fill,
    (number_column, number): (&str, u64),
    row_group_rows: usize,
    path: &Path,
) -> Result<u64, LoadError> {
    let failed = |error: ArrowError| LoadError::Contract(format!("{}: {error}", fill.table.name));
    let sorted = Sorted::of(fill)?;
    let mut fields: Vec<_> = fill.table.full_schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(number_column, DataType::Int64, false)));
    let schema = Arc::new(Schema::new(fields));
    let properties = with_dictionaries()
        .set_compression(Compression::LZ4_RAW)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(row_group_rows))
        .build();
    let file = File::create(path).map_err(|source| io_error("create", path, source))?;
    let file = BufWriter::with_capacity(WRITE_BUFFER_BYTES, file);
    let mut writer =
        ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties)).map_err(|error| write_error(path, error))?;
    for group in sorted.chunks(row_group_rows) {
        let group = group.map_err(failed)?;
        let mut columns = group.columns().to_vec();
        columns.push(Arc::new(Int64Array::from_value(number.cast_signed(), group.num_rows())));
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(failed)?;
        writer.write(&batch).map_err(|error| write_error(path, error))?;
    }
    writer.close().map_err(|error| write_error(path, error))?;
    Ok(sorted.rows())
}

/// The rows of a fill in the order of the table's files: where they lie, a batch and a row in it.
struct Sorted {
    batches: Vec<RecordBatch>,
    places: Vec<(usize, usize)>,
}

impl Sorted {
    fn of(fill: &Fill) -> Result<Self, LoadError> {
        let table = fill.table;
        let failed = |error: ArrowError| LoadError::Contract(format!("{}: {error}", table.name));
        let batches = fill.full()?;
        let rows_of = |(at, batch): (usize, &RecordBatch)| (0..batch.num_rows()).map(move |row| (at, row));
        let places: Vec<_> = batches.iter().enumerate().flat_map(rows_of).collect();
        if places.is_empty() {
            return Ok(Self { batches, places });
        }
        let columns: Vec<ArrayRef> =
            sort_columns(table).map(|name| whole_column(&batches, name)).collect::<Result<_, _>>().map_err(failed)?;
        let order = order_of(&columns).map_err(failed)?;
        Ok(Self { places: order.into_iter().filter_map(|at| places.get(at).copied()).collect(), batches })
    }

    fn rows(&self) -> u64 {
        self.places.len() as u64
    }

    /// The rows in their order, so many at once.
    fn chunks(&self, rows: usize) -> impl Iterator<Item = Result<RecordBatch, ArrowError>> {
        let schema = self.batches.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
        let column = |at| self.batches.iter().map(|batch| batch.column(at).as_ref()).collect::<Vec<_>>();
        let columns = (0..schema.fields().len()).map(column);
        // Columns of one value are not looked up row by row.
        let columns: Vec<_> = columns.map(|column| (has_one_value(&column), column)).collect();
        self.places.chunks(rows).map(move |places| {
            let chunk = columns.iter().map(|(has_one_value, column)| match column.first() {
                Some(first) if *has_one_value => take(*first, &UInt32Array::from_value(0, places.len()), None),
                _ => interleave(column, places),
            });
            RecordBatch::try_new(Arc::clone(&schema), chunk.collect::<Result<_, _>>()?)
        })
    }
}

/// Whether all rows of a column have the same text or number, or none has any.
fn has_one_value(column: &[&dyn Array]) -> bool {
    if column.iter().all(|array| array.null_count() == array.len()) {
        return true;
    }
    let Some(first) = column.first().filter(|first| !first.is_empty()).map(|first| first.slice(0, 1)) else {
        return false;
    };
    column.iter().filter(|array| !array.is_empty()).all(|array| {
        // Most columns are told by their last value.
        array.slice(array.len() - 1, 1).as_ref() == first.as_ref()
            && not_distinct(array, &Scalar::new(Arc::clone(&first))).is_ok_and(|same| same.true_count() == array.len())
    })
}

/// A column of all batches.
fn whole_column(batches: &[RecordBatch], name: &str) -> Result<ArrayRef, ArrowError> {
    let columns = batches.iter().map(|batch| batch.schema().index_of(name).map(|at| batch.column(at).as_ref()));
    concat(&columns.collect::<Result<Vec<_>, _>>()?)
}

/// The rows in ascending order of the columns, NULLs first. Most are told apart by the numbers that come first, which costs a fraction of what
/// it does to look them up in columns of any type.
fn order_of(columns: &[ArrayRef]) -> Result<Vec<usize>, ArrowError> {
    let options = Some(SortOptions { descending: false, nulls_first: true });
    let columns: Vec<_> = columns.iter().map(|values| SortColumn { values: Arc::clone(values), options }).collect();
    let rest = LexicographicalComparator::try_new(&columns)?;
    let rows = columns.first().map_or(0, |column| column.values.len());
    let mut order: Vec<([i64; NUMBERS_FIRST], usize)> = (0..rows).map(|row| ([0; NUMBERS_FIRST], row)).collect();
    for (place, column) in columns.iter().take(NUMBERS_FIRST).enumerate() {
        let Some(numbers) = numbers_of(&column.values) else { break };
        if numbers.null_count() > 0 && min(&numbers) == Some(NO_NUMBER) {
            break;
        }
        for ((key, _), number) in order.iter_mut().zip(numbers.iter()) {
            key[place] = number.unwrap_or(NO_NUMBER);
        }
    }
    order
        .sort_unstable_by(|(key, row), (other_key, other)| key.cmp(other_key).then_with(|| rest.compare(*row, *other)));
    Ok(order.into_iter().map(|(_, row)| row).collect())
}

/// A column whose order is that of 64-bit numbers.
fn numbers_of(column: &ArrayRef) -> Option<Int64Array> {
    match column.data_type() {
        DataType::Int64 => Some(column.as_primitive().clone()),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Some(column.as_primitive::<TimestampMicrosecondType>().reinterpret_cast())
        }
        _ => None,
    }
}

/// Dictionaries where values repeat.
fn with_dictionaries() -> WriterPropertiesBuilder {
    let builder = WriterProperties::builder().set_dictionary_enabled(true);
    WITHOUT_DICTIONARY
        .iter()
        .fold(builder, |builder, name| builder.set_column_dictionary_enabled(ColumnPath::from(*name), false))
}

fn properties(table: &Table, notes: &Notes<'_>) -> Result<WriterProperties, LoadError> {
    let level = ZstdLevel::try_new(ZSTD_LEVEL).map_err(|error| LoadError::Contract(error.to_string()))?;
    let sorting = sort_columns(table).map(|name| {
        let column_at = table.columns.iter().position(|column| column.name == name).unwrap_or(0);
        SortingColumn { column_idx: i32::try_from(column_at).unwrap_or(0), descending: false, nulls_first: true }
    });
    Ok(with_dictionaries()
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_statistics_truncate_length(Some(STATISTICS_TEXT_BYTES))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_created_by(format!("studysync {}", env!("CARGO_PKG_VERSION")))
        .set_sorting_columns(Some(sorting.collect()))
        .set_key_value_metadata(Some(notes.key_values(table)))
        .build())
}

/// The contract's order, made total by the rest of the key: the same rows always give the same file.
fn sort_columns(table: &Table) -> impl Iterator<Item = &str> {
    let rest = table.key.iter().filter(|name| !table.sort.contains(name));
    table.sort.iter().chain(rest).map(String::as_str)
}

/// ` ORDER BY` for the order of the rows in a file.
pub(super) fn order_sql(table: &Table) -> String {
    let order: Vec<String> =
        sort_columns(table).map(|name| format!("{} ASC NULLS FIRST", quote_identifier(name))).collect();
    format!(" ORDER BY {}", order.join(", "))
}

/// A batch of the engine as one of the Parquet schema, or the other way round. The values are the same; the types differ in their marks.
pub(super) fn fit(chunk: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = chunk.columns().iter().zip(schema.fields()).map(|(column, field)| fit_column(column, field));
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)
}

fn fit_column(column: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    match (column.data_type(), field.data_type()) {
        (found, wanted) if found == wanted => Ok(Arc::clone(column)),
        // The engine's plain times are UTC; here they get the mark that says so.
        (DataType::Timestamp(TimeUnit::Microsecond, None), DataType::Timestamp(_, Some(zone))) => {
            let times = column.as_primitive::<TimestampMicrosecondType>().clone();
            Ok(Arc::new(times.with_timezone(Arc::clone(zone))))
        }
        (DataType::Timestamp(TimeUnit::Microsecond, Some(_)), DataType::Timestamp(TimeUnit::Microsecond, None)) => {
            Ok(Arc::new(column.as_primitive::<TimestampMicrosecondType>().clone().with_timezone_opt(None::<Arc<str>>)))
        }
        (DataType::List(_), DataType::List(item)) => {
            let list = column.as_list::<i32>();
            let values = fit_column(list.values(), item)?;
            Ok(Arc::new(ListArray::try_new(Arc::clone(item), list.offsets().clone(), values, list.nulls().cloned())?))
        }
        (_, wanted) => cast(column, wanted),
    }
}

/// Hash of what the contract says of the columns: their names, types and nullability, in order.
fn contract_hash(table: &Table) -> String {
    let column = |column: &crate::schema::Column| {
        format!("{} {} {}\n", column.name, column.column_type.duckdb(), column.nullable)
    };
    let text: String = table.columns.iter().map(column).collect();
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
}

fn write_error(path: &Path, error: ParquetError) -> LoadError {
    let source = match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => *source,
            Err(source) => std::io::Error::other(source),
        },
        other => std::io::Error::other(other),
    };
    io_error("write", path, source)
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{BooleanArray, Float64Array, StringArray},
        compute::{concat_batches, interleave_record_batch},
        datatypes::Int64Type,
    };

    use super::*;

    #[test]
    fn p2_rows_are_sorted_as_all_columns_say_with_the_least_number_behind_none() {
        let moments = [5, 3, 4, 3, 1, 2, 3, 3];
        let texts = StringArray::from(vec![Some("b"), Some("a"), None, Some("c"), None, Some("x"), None, Some("a")]);
        for least in [i64::MIN, i64::MIN + 1, 0] {
            let surveys = [None, Some(least), Some(7), Some(least), None, Some(-7), None, Some(7)];
            let columns: [ArrayRef; 3] = [
                Arc::new(Int64Array::from_iter(surveys)),
                Arc::new(Int64Array::from_iter_values(moments)),
                Arc::new(texts.clone()),
            ];
            let rows = |row: &usize| (surveys[*row], moments[*row], texts.is_valid(*row).then(|| texts.value(*row)));
            let mut expected: Vec<usize> = (0..moments.len()).collect();
            expected.sort_by_key(rows);
            assert_eq!(order_of(&columns).unwrap(), expected, "{least}");
        }
    }

    #[test]
    fn p2_columns_of_one_value_are_told_from_those_that_only_begin_and_end_alike() {
        let lists = |rows: [&[i64]; 3]| {
            let rows = rows.map(|row| Some(row.iter().copied().map(Some).collect::<Vec<_>>()));
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows)) as ArrayRef
        };
        let batch = |middle: i64| {
            let columns: [(&str, ArrayRef); 9] = [
                ("one text", Arc::new(StringArray::from_iter_values(["run"; 3]))),
                ("one number", Arc::new(Int64Array::from_value(7, 3))),
                ("no text", Arc::new(StringArray::new_null(3))),
                ("no truth", Arc::new(BooleanArray::new_null(3))),
                ("another text", Arc::new(StringArray::from(vec!["a", if middle > 1 { "b" } else { "a" }, "a"]))),
                ("another number", Arc::new(Int64Array::from_iter_values([1, middle, 1]))),
                ("a number or none", Arc::new(Int64Array::from_iter([Some(1), None, Some(1)]))),
                ("zeros", Arc::new(Float64Array::from_iter_values([0.0, -0.0, 0.0]))),
                ("lists", lists([&[1], &[middle], &[1]])),
            ];
            RecordBatch::try_from_iter(columns).unwrap()
        };
        let batches = vec![batch(1), batch(2)];
        let one_value = |at: usize| {
            let column: Vec<_> = batches.iter().map(|batch| batch.column(at).as_ref()).collect();
            has_one_value(&column)
        };
        assert_eq!((0..9).map(one_value).collect::<Vec<_>>(), [[true; 4].as_slice(), &[false; 5]].concat());
        let places = vec![(1, 1), (0, 2), (1, 0), (0, 0), (0, 1), (1, 2)];
        let expected = interleave_record_batch(&batches.iter().collect::<Vec<_>>(), &places).unwrap();
        let sorted = Sorted { batches, places };
        for rows in [1, 4, 6, 100] {
            let chunks: Vec<_> = sorted.chunks(rows).map(Result::unwrap).collect();
            assert_eq!(concat_batches(&expected.schema(), &chunks).unwrap(), expected, "{rows} at once");
        }
    }
}
