//! Decides how each column of a result reaches a format, by the column's type in the engine. Arrow, JSON or Parquet
//! cannot hold some of the engine's types: the engine casts such a column, or the format refuses it.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, RecordBatch,
        types::{
            Date32Type, Decimal128Type, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
            TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
        },
    },
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Field, FieldRef, Schema, TimeUnit},
};
use duckdb::{
    Connection,
    core::{LogicalTypeHandle, LogicalTypeId as Id},
};

use super::seal::explained;
use crate::{load::LoadError, schema::quote_identifier};

/// A group of formats with the same types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// A cell is one text: a table, or CSV.
    Text,
    /// JSON.
    Json,
    /// Parquet.
    Parquet,
}

/// A checked statement, and how its columns reach a format.
pub struct RowsQuery {
    pub(super) sql: String,
    format: RowFormat,
    /// One for each column of the result; empty for EXPLAIN, which has only texts.
    columns: Vec<Column>,
    /// Columns that were renamed because another column has the same name: the name, and the new name.
    pub renamed: Vec<(String, String)>,
    /// True if the statement is an EXPLAIN: the result is a plan, in the second column.
    pub is_plan: bool,
}

struct Column {
    name: String,
    kind: LogicalTypeHandle,
}

/// Digits of the largest integers of the engine fit into this type.
const WIDE_INTEGER: DataType = DataType::Decimal256(76, 0);
/// The type of 128-bit integers in Arrow and in Parquet. The values of the engine can have one more digit.
const INTEGER: DataType = DataType::Decimal128(38, 0);
/// The smallest integer that is too large for [`INTEGER`].
const INTEGER_END: i128 = 10_i128.pow(38);

impl RowsQuery {
    /// Reads the types of the columns, and casts columns whose type the format cannot hold. `sql` was checked.
    ///
    /// # Errors
    /// `Column` for a column that the format cannot hold after a cast either; `Engine` if the statement is wrong.
    pub(super) fn new(connection: &Connection, sql: &str, format: RowFormat) -> Result<RowsQuery, LoadError> {
        let failed = LoadError::engine("run the query");
        let statement = connection.prepare(sql).map_err(failed)?;
        if explained(sql).is_some() {
            return Ok(RowsQuery {
                sql: sql.to_owned(),
                format,
                columns: Vec::new(),
                renamed: Vec::new(),
                is_plan: true,
            });
        }
        // A prepared statement knows the types, and not the number of columns or their names.
        let described = describe(connection, sql).map_err(failed)?;
        let mut casts = Vec::new();
        let mut columns = Vec::new();
        for (at, (name, type_name)) in described.into_iter().enumerate() {
            let kind = statement.column_logical_type(at);
            let cell = if type_name == "TYPE" { Ok(cast_to_text()) } else { carrier(&kind, format, true) };
            let cast = cell.map_err(|hint| LoadError::Column {
                column: name.clone(),
                why: format!("{} has no values of the type {type_name}", format.name()),
                hint: hint.replace("NAME", &quote_identifier(&name)),
            })?;
            casts.push(cast.is_changed.then_some(cast.sql));
            columns.push(Column { name, kind });
        }
        let renamed = if format == RowFormat::Text { Vec::new() } else { rename(&mut columns) };
        let sql = if casts.iter().any(Option::is_some) { with_casts(sql, &casts) } else { sql.to_owned() };
        Ok(RowsQuery { sql, format, columns, renamed, is_plan: false })
    }

    /// Returns the rows as the format writes them, with the names of the columns.
    ///
    /// # Errors
    /// `Column` for a value that the format does not have.
    pub(super) fn present(&self, batch: &RecordBatch) -> Result<RecordBatch, LoadError> {
        if self.columns.is_empty() {
            return Ok(batch.clone());
        }
        let present = |((column, field), values): ((&Column, &FieldRef), &ArrayRef)| {
            let refused = |why: &str| LoadError::Column {
                column: column.name.clone(),
                why: why.to_owned(),
                hint: text_hint().replace("NAME", &quote_identifier(&column.name)),
            };
            if let (RowFormat::Parquet, Some(why)) = (self.format, unfit(values)) {
                return Err(refused(why));
            }
            let wanted = with_integers(&column.kind, values.data_type(), self.format);
            let values = match &wanted == values.data_type() {
                true => Arc::clone(values),
                false => cast_with_options(values, &wanted, &CastOptions { safe: false, ..CastOptions::default() })
                    .map_err(|_| refused(TOO_MANY_DIGITS))?,
            };
            let field = Field::new(&column.name, wanted, true).with_metadata(field.metadata().clone());
            Ok((Arc::new(field), values))
        };
        let schema = batch.schema();
        let presented: Result<Vec<(FieldRef, ArrayRef)>, LoadError> =
            self.columns.iter().zip(schema.fields()).zip(batch.columns()).map(present).collect();
        let (fields, values): (Vec<FieldRef>, Vec<ArrayRef>) = presented?.into_iter().unzip();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), values).map_err(|error| LoadError::Bug(error.to_string()))
    }
}

impl RowFormat {
    fn name(self) -> &'static str {
        match self {
            RowFormat::Text => "a text",
            RowFormat::Json => "JSON",
            RowFormat::Parquet => "Parquet",
        }
    }
}

/// Returns the name and the type of each column of a statement.
fn describe(connection: &Connection, sql: &str) -> duckdb::Result<Vec<(String, String)>> {
    let describe = |question: &str| -> duckdb::Result<Vec<(String, String)>> {
        let sql = format!("SELECT column_name, column_type FROM (DESCRIBE {question}\n)");
        connection.prepare(&sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    };
    // The engine does not describe SHOW, DESCRIBE and SUMMARIZE, except inside a FROM, which renames columns.
    describe(sql).or_else(|_| describe(&format!("FROM ({sql}\n)")))
}

fn with_casts(sql: &str, casts: &[Option<String>]) -> String {
    let cell = |(at, cast): (usize, &Option<String>)| match cast {
        Some(cast) => format!("CAST(c{at} AS {cast})"),
        None => format!("c{at}"),
    };
    let cells: Vec<String> = casts.iter().enumerate().map(cell).collect();
    let names: Vec<String> = (0..casts.len()).map(|at| format!("c{at}")).collect();
    format!("SELECT {} FROM ({sql}\n) AS result({})", cells.join(", "), names.join(", "))
}

/// Gives columns of one name different names, because readers of JSON and Parquet refuse two columns of one name. Many
/// of them ignore case. The names are those that DuckDB gives such columns.
fn rename(columns: &mut [Column]) -> Vec<(String, String)> {
    let mut renamed = Vec::new();
    for at in 1..columns.len() {
        let is_taken = |name: &str, end: usize| {
            columns[..end].iter().any(|column| column.name.to_lowercase() == name.to_lowercase())
        };
        if !is_taken(&columns[at].name, at) {
            continue;
        }
        let old = columns[at].name.clone();
        let free = (1..).map(|number| format!("{old}_{number}")).find(|name| !is_taken(name, columns.len()));
        if let Some(new) = free {
            columns[at].name.clone_from(&new);
            renamed.push((old, new));
        }
    }
    renamed
}

/// The type in which the engine passes a value.
struct Carrier {
    /// The type in SQL.
    sql: String,
    /// True if the type is not the value's own, so that a cast is needed.
    is_changed: bool,
}

impl Carrier {
    fn own(sql: impl Into<String>) -> Result<Carrier, String> {
        Ok(Carrier { sql: sql.into(), is_changed: false })
    }

    fn cast(sql: impl Into<String>) -> Result<Carrier, String> {
        Ok(Carrier { sql: sql.into(), is_changed: true })
    }
}

fn cast_to_text() -> Carrier {
    Carrier { sql: "VARCHAR".to_owned(), is_changed: true }
}

/// The advice for a type that has a text. `NAME` stands for the column.
fn text_hint() -> String {
    "write CAST(NAME AS VARCHAR) in place of NAME".to_owned()
}

/// Returns the type in which values of the type `kind` reach the format. `is_column` is false inside other values.
///
/// # Errors
/// The advice to the user, if the format cannot hold such values.
fn carrier(kind: &LogicalTypeHandle, format: RowFormat, is_column: bool) -> Result<Carrier, String> {
    let is_text = format == RowFormat::Text;
    match kind.id() {
        // A cell of a text is the engine's text of the complete value.
        Id::List | Id::Array | Id::Struct | Id::Map | Id::Union | Id::Variant if is_text => Carrier::cast("VARCHAR"),
        Id::List | Id::Array | Id::Struct | Id::Map => nested(kind, format),
        Id::Bit | Id::UHugeint => Carrier::cast("VARCHAR"),
        Id::Interval | Id::TimeTZ | Id::Bignum | Id::Geometry if format != RowFormat::Parquet => {
            Carrier::cast("VARCHAR")
        }
        Id::Interval | Id::Bignum | Id::Geometry | Id::Union | Id::Variant => Err(text_hint()),
        Id::TimeTZ => Err("write CAST(NAME AS TIME) or CAST(NAME AS VARCHAR) in place of NAME".to_owned()),
        Id::TimestampS if format == RowFormat::Parquet => Carrier::cast("TIMESTAMP_MS"),
        Id::TimestampTZ if !is_column => Carrier::cast("TIMESTAMP"),
        Id::Decimal => Carrier::own(format!("DECIMAL({},{})", kind.decimal_width(), kind.decimal_scale())),
        id => match sql_name(id) {
            Some(name) => Carrier::own(name),
            None => Err("write an expression of another type in place of NAME; finalize(NAME) is the value of an \
                         aggregate state"
                .to_owned()),
        },
    }
}

/// Returns the name of a type that has no parameters and reaches every format; `None` for other types. An enum inside
/// another value is passed as its text.
fn sql_name(id: Id) -> Option<&'static str> {
    Some(match id {
        Id::Boolean => "BOOLEAN",
        Id::Tinyint => "TINYINT",
        Id::Smallint => "SMALLINT",
        Id::Integer => "INTEGER",
        Id::Bigint => "BIGINT",
        Id::Hugeint => "HUGEINT",
        Id::UTinyint => "UTINYINT",
        Id::USmallint => "USMALLINT",
        Id::UInteger => "UINTEGER",
        Id::UBigint => "UBIGINT",
        Id::Float => "FLOAT",
        Id::Double => "DOUBLE",
        Id::Varchar | Id::Enum | Id::StringLiteral => "VARCHAR",
        Id::Blob => "BLOB",
        Id::Uuid => "UUID",
        Id::Date => "DATE",
        Id::Time => "TIME",
        Id::TimeNs => "TIME_NS",
        Id::Timestamp => "TIMESTAMP",
        Id::TimestampS => "TIMESTAMP_S",
        Id::TimestampMs => "TIMESTAMP_MS",
        Id::TimestampNs => "TIMESTAMP_NS",
        Id::TimestampTZ => "TIMESTAMP WITH TIME ZONE",
        Id::SqlNull => "INTEGER",
        _ => return None,
    })
}

/// Returns the type in which lists, structs and maps reach JSON or Parquet.
fn nested(kind: &LogicalTypeHandle, format: RowFormat) -> Result<Carrier, String> {
    let child = |at: usize| carrier(&kind.child(at), format, false);
    match kind.id() {
        Id::List | Id::Array => {
            let item = child(0)?;
            Ok(Carrier { sql: format!("{}[]", item.sql), is_changed: item.is_changed })
        }
        Id::Map => {
            let (key, value) = (child(0)?, child(1)?);
            // The keys of an object in JSON are texts.
            let is_text = format != RowFormat::Json || kind.child(0).id() == Id::Varchar;
            let key_sql = if is_text { &key.sql } else { "VARCHAR" };
            let is_changed = !is_text || key.is_changed || value.is_changed;
            Ok(Carrier { sql: format!("MAP({key_sql}, {})", value.sql), is_changed })
        }
        _ => {
            let (mut fields, mut is_changed) = (Vec::new(), false);
            for at in 0..kind.num_children() {
                let (value, name) = (child(at)?, kind.child_name(at));
                // The fields of row(...) have no names.
                let (name, is_named) = if name.is_empty() { ((at + 1).to_string(), false) } else { (name, true) };
                is_changed |= value.is_changed || !is_named;
                fields.push(format!("{} {}", quote_identifier(&name), value.sql));
            }
            Ok(Carrier { sql: format!("STRUCT({})", fields.join(", ")), is_changed })
        }
    }
}

/// Returns the Arrow type `found` of values of the type `kind` with other types for 128-bit integers, which have up to
/// 39 digits. Arrow declares 38.
fn with_integers(kind: &LogicalTypeHandle, found: &DataType, format: RowFormat) -> DataType {
    let child = |at: usize, field: &FieldRef| {
        let data_type = with_integers(&kind.child(at), field.data_type(), format);
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    };
    let is_parquet = format == RowFormat::Parquet;
    match (kind.id(), found) {
        (Id::Hugeint, &INTEGER) if !is_parquet => WIDE_INTEGER,
        (Id::UHugeint, _) => {
            if is_parquet {
                INTEGER
            } else {
                WIDE_INTEGER
            }
        }
        (Id::List | Id::Array, DataType::List(item)) => DataType::List(child(0, item)),
        (Id::Array, DataType::FixedSizeList(item, size)) => DataType::FixedSizeList(child(0, item), *size),
        (Id::Struct, DataType::Struct(fields)) => {
            DataType::Struct(fields.iter().enumerate().map(|(at, field)| child(at, field)).collect())
        }
        (Id::Map, DataType::Map(entries, is_sorted)) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                // The keys of a map in JSON were cast to texts.
                let is_cast = fields[0].data_type() == &DataType::Utf8 && !is_parquet;
                let key = if is_cast { Arc::clone(&fields[0]) } else { child(0, &fields[0]) };
                let both = DataType::Struct(vec![key, child(1, &fields[1])].into());
                DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(both)), *is_sorted)
            }
            _ => found.clone(),
        },
        _ => found.clone(),
    }
}

const TOO_MANY_DIGITS: &str = "a number has more than 38 digits, which Parquet does not have";

/// Returns why Parquet cannot hold a value of the column, or `None` if it can hold all of them. The engine stores
/// infinite times as the ends of the integers, and a day can end at 24:00.
fn unfit(values: &ArrayRef) -> Option<&'static str> {
    const INFINITE: &str = "a time is infinite, which Parquet does not have";
    const MIDNIGHT: &str = "a time is 24:00:00, which Parquet does not have";
    const DAY_MICROS: i64 = 86_400_000_000;
    fn any<T: ArrowPrimitiveType>(values: &ArrayRef, is_unfit: impl Fn(T::Native) -> bool) -> bool {
        values.as_primitive::<T>().iter().flatten().any(is_unfit)
    }
    let is_end = |moment: i64| moment == i64::MAX || moment == -i64::MAX;
    let infinite = |is_any: bool| is_any.then_some(INFINITE);
    match values.data_type() {
        DataType::Date32 => infinite(any::<Date32Type>(values, |day| day == i32::MAX || day == -i32::MAX)),
        DataType::Timestamp(TimeUnit::Second, _) => infinite(any::<TimestampSecondType>(values, is_end)),
        DataType::Timestamp(TimeUnit::Millisecond, _) => infinite(any::<TimestampMillisecondType>(values, is_end)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => infinite(any::<TimestampMicrosecondType>(values, is_end)),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => infinite(any::<TimestampNanosecondType>(values, is_end)),
        DataType::Time64(TimeUnit::Microsecond) => {
            any::<Time64MicrosecondType>(values, |time| time >= DAY_MICROS).then_some(MIDNIGHT)
        }
        DataType::Time64(_) => {
            any::<Time64NanosecondType>(values, |time| time >= DAY_MICROS * 1000).then_some(MIDNIGHT)
        }
        &INTEGER => any::<Decimal128Type>(values, |number| number >= INTEGER_END || number <= -INTEGER_END)
            .then_some(TOO_MANY_DIGITS),
        DataType::List(_) => unfit(values.as_list::<i32>().values()),
        DataType::FixedSizeList(..) => unfit(values.as_fixed_size_list().values()),
        DataType::Struct(_) => values.as_struct().columns().iter().find_map(unfit),
        DataType::Map(..) => values.as_map().entries().columns().iter().find_map(unfit),
        _ => None,
    }
}
