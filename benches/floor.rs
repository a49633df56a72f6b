//! The least that a load in this way can cost: saved pages received over loopback, parsed by serde_json into borrowed structs, compressed
//! and written to a file, and hashed; the cells that flatten makes of them written into columns, and appended to a DuckDB file. Each alone
//! and in its barest form: no HTTP, no comparison, no ledger, and what one part finds out costs the next nothing.
//!
//! `floor FOLDER SCRATCH` reads the pages `*.json` of the folder, and prints CPU seconds as one JSON object; it writes into the scratch
//! folder. `make bench` runs it; it is no benchmark of the program.

use std::{
    borrow::Cow,
    error::Error,
    fmt,
    fs::{self, File},
    hint::black_box,
    io::{Read, Write},
    marker::PhantomData,
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
};

use arrow::{
    array::{
        Array, ArrowPrimitiveType, AsArray, BooleanBuilder, Int64Array, Int64Builder, ListBuilder, PrimitiveBuilder,
        RecordBatch, StringBuilder,
    },
    compute::take_record_batch,
    datatypes::{DataType, Float64Type, Int64Type, TimestampMicrosecondType},
};
use duckdb::{Config, Connection};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use xxhash_rust::xxh3::xxh3_64;

use studysync::{
    flatten::flatten_page,
    model::{DriftRules, Stream, TableBatch},
    schema::{self, RECORD_COLUMN, quote_identifier},
};

/// Rows that the appender takes at once, as `load` does it: handed over whole, a list column is copied once for each piece.
const CHUNK_ROWS: usize = 2048;
/// The level of zstd at which the archive keeps pages.
const ARCHIVE_LEVEL: i32 = 1;
/// Bytes that are read from a socket at once.
const RECEIVE_BYTES: usize = 256 * 1024;
/// Units of the times in `/proc/self/stat`, the same on every Linux.
const TICKS_PER_SEC: f64 = 100.0;

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo hands `--bench` to every benchmark.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [folder, scratch] = arguments.as_slice() else {
        println!("usage: floor FOLDER SCRATCH (see `make bench`)");
        return Ok(());
    };
    let (pages, scratch) = (read_pages(Path::new(folder))?, Path::new(scratch));
    let receive = received(&pages)?;
    let (rows, parse) = costed(|| pages.iter().map(|page| parse(page)).sum::<Result<usize, _>>())?;
    let ((), flatten) =
        costed(|| pages.iter().try_for_each(|page| flattened(page).map(|batches| drop(black_box(batches)))))?;
    let (_, hash) = costed(|| Ok(pages.iter().fold(0, |all, page| black_box(all ^ xxh3_64(page)))))?;
    let ((), keep) = costed(|| keep(&pages, &scratch.join("pages")))?;
    let mut batches = Vec::new();
    for page in &pages {
        batches.extend(flattened(page)?);
    }
    let ((), columns) = costed(|| batches.iter().try_for_each(|batch| write_columns(&batch.rows)))?;
    let ((), append) = costed(|| load(&scratch.join("append.duckdb"), &batches))?;
    println!(
        r#"{{"rows":{rows},"receive_cpu_secs":{receive:.3},"parse_cpu_secs":{parse:.3},"hash_cpu_secs":{hash:.3},"flatten_cpu_secs":{flatten:.3},"keep_cpu_secs":{keep:.3},"columns_cpu_secs":{columns:.3},"append_cpu_secs":{append:.3}}}"#
    );
    Ok(())
}

/// What the work gives, and the CPU seconds that this process spent on it.
fn costed<T>(work: impl FnOnce() -> Result<T, Box<dyn Error>>) -> Result<(T, f64), Box<dyn Error>> {
    let begun = cpu_secs()?;
    let done = work()?;
    Ok((done, cpu_secs()? - begun))
}

fn read_pages(folder: &Path) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths.iter().map(fs::read).collect::<Result<_, _>>()?)
}

/// CPU seconds of this process, all threads.
fn cpu_secs() -> Result<f64, Box<dyn Error>> {
    stat_secs(&fs::read_to_string("/proc/self/stat")?)
}

/// CPU seconds in a text of `/proc/…/stat`.
fn stat_secs(stat: &str) -> Result<f64, Box<dyn Error>> {
    // The name may hold anything; behind its bracket user and system time are the fields 11 and 12, from 0.
    let (_, fields) = stat.rsplit_once(')').ok_or("no bracket in stat")?;
    let ticks: Vec<f64> = fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_SEC)
}

/// CPU seconds of the thread that reads the pages from a socket into one buffer. Sending them is another's work.
fn received(pages: &[Vec<u8>]) -> Result<f64, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let reader = scope.spawn(move || -> std::io::Result<String> {
            let (mut connection, mut buffer) = (TcpStream::connect(address)?, vec![0; RECEIVE_BYTES]);
            while connection.read(&mut buffer)? > 0 {
                black_box(&buffer);
            }
            fs::read_to_string("/proc/thread-self/stat")
        });
        let (mut connection, _) = listener.accept()?;
        pages.iter().try_for_each(|page| connection.write_all(page))?;
        drop(connection);
        let stat = reader.join().map_err(|_| "the reader died")??;
        stat_secs(&stat)
    })
}

/// A text without a copy, unless it holds escapes.
#[derive(Deserialize)]
#[allow(dead_code, reason = "what counts is that it is parsed")]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    data: Vec<Record<'a>>,
}

/// A value whose shape another field decides, or none: each text, number and truth value in it is read as what it is, and none is kept.
struct Leaves<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Deserialize<'de> for Leaves<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LeafVisitor(PhantomData))
    }
}

struct LeafVisitor<'a>(PhantomData<&'a ()>);

impl<'a> LeafVisitor<'a> {
    fn seen<E>(leaf: impl Sized) -> Result<Leaves<'a>, E> {
        black_box(leaf);
        Ok(Leaves(PhantomData))
    }
}

impl<'de: 'a, 'a> Visitor<'de> for LeafVisitor<'a> {
    type Value = Leaves<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Self::seen(())
    }

    fn visit_bool<E>(self, leaf: bool) -> Result<Self::Value, E> {
        Self::seen(leaf)
    }

    fn visit_i64<E>(self, leaf: i64) -> Result<Self::Value, E> {
        Self::seen(leaf)
    }

    fn visit_u64<E>(self, leaf: u64) -> Result<Self::Value, E> {
        Self::seen(leaf)
    }

    fn visit_f64<E>(self, leaf: f64) -> Result<Self::Value, E> {
        Self::seen(leaf)
    }

    /// With escapes: in a buffer of serde_json.
    fn visit_str<E>(self, leaf: &str) -> Result<Self::Value, E> {
        Self::seen(leaf)
    }

    fn visit_borrowed_str<E>(self, leaf: &'de str) -> Result<Self::Value, E> {
        Self::seen(leaf)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<Leaves<'de>>()?.is_some() {}
        Self::seen(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        while entries.next_entry::<Leaves<'de>, Leaves<'de>>()?.is_some() {}
        Self::seen(())
    }
}

/// A response record, as a client would write it down from the contract.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "what counts is that the fields are parsed")]
struct Record<'a> {
    #[serde(borrow)]
    created_at: Text<'a>,
    #[serde(borrow)]
    updated_at: Text<'a>,
    #[serde(borrow)]
    deleted_at: Option<Text<'a>>,
    #[serde(borrow)]
    external_user_id: Option<Text<'a>>,
    #[serde(borrow)]
    partner_anonymous_id: Option<Text<'a>>,
    /// Rough data has records without one.
    question_id: Option<i64>,
    #[serde(borrow)]
    question_text: Option<Text<'a>>,
    #[serde(borrow)]
    question_type: Text<'a>,
    #[serde(borrow)]
    response: Option<Leaves<'a>>,
    #[serde(borrow)]
    response_group_uid: Text<'a>,
    #[serde(borrow)]
    selected_indexes: Option<Leaves<'a>>,
    survey_id: i64,
    visitor_id: i64,
    #[serde(borrow)]
    visitor_uuid: Text<'a>,
    #[serde(borrow)]
    url: Option<Text<'a>>,
    #[serde(borrow)]
    meta: Option<Meta<'a>>,
    #[serde(borrow)]
    custom_metadata: Option<Leaves<'a>>,
    #[serde(borrow)]
    visitor_snapshot: Option<Leaves<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "what counts is that the fields are parsed")]
struct Meta<'a> {
    #[serde(borrow)]
    browser: Option<Text<'a>>,
    client: Option<Area>,
    #[serde(borrow)]
    href: Option<Text<'a>>,
    #[serde(borrow)]
    language: Option<Text<'a>>,
    #[serde(borrow)]
    os: Option<Text<'a>>,
    screen: Option<Area>,
    #[serde(borrow)]
    user_agent: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "what counts is that the fields are parsed")]
struct Area {
    height: i64,
    width: i64,
}

fn parse(page: &[u8]) -> Result<usize, Box<dyn Error>> {
    let page: Page = serde_json::from_str(std::str::from_utf8(page)?)?;
    Ok(black_box(&page).data.len())
}

fn flattened(page: &[u8]) -> Result<Vec<TableBatch>, Box<dyn Error>> {
    Ok(flatten_page(Stream::Responses, page, DriftRules::default())?.batches)
}

/// Compressed as the archive does it, into one file that is synced once.
fn keep(pages: &[Vec<u8>], path: &Path) -> Result<(), Box<dyn Error>> {
    let mut compressor = zstd::bulk::Compressor::new(ARCHIVE_LEVEL)?;
    let mut file = File::create(path)?;
    for page in pages {
        file.write_all(&compressor.compress(page)?)?;
    }
    Ok(file.sync_all()?)
}

/// Writes each cell once into a column of its type, as whoever has read a page must before the rows go anywhere: the cells of a column are
/// spread over the page. Where the cells come from costs nothing here.
fn write_columns(rows: &RecordBatch) -> Result<(), Box<dyn Error>> {
    fn numbers<T: ArrowPrimitiveType>(column: &dyn Array) {
        let mut cells = PrimitiveBuilder::<T>::with_capacity(column.len());
        column.as_primitive::<T>().iter().for_each(|cell| cells.append_option(cell));
        black_box(cells.finish());
    }
    for column in rows.columns() {
        match column.data_type() {
            DataType::Utf8 => {
                let column = column.as_string::<i32>();
                let mut cells = StringBuilder::with_capacity(column.len(), column.values().len());
                column.iter().for_each(|cell| cells.append_option(cell));
                black_box(cells.finish());
            }
            DataType::Boolean => {
                let mut cells = BooleanBuilder::with_capacity(column.len());
                column.as_boolean().iter().for_each(|cell| cells.append_option(cell));
                black_box(cells.finish());
            }
            DataType::Int64 => numbers::<Int64Type>(column),
            DataType::Float64 => numbers::<Float64Type>(column),
            DataType::Timestamp(..) => numbers::<TimestampMicrosecondType>(column),
            DataType::List(_) => {
                let mut cells = ListBuilder::with_capacity(Int64Builder::new(), column.len());
                for list in column.as_list::<i32>().iter() {
                    cells.append_option(list.as_ref().map(|list| list.as_primitive::<Int64Type>().iter()));
                }
                black_box(cells.finish());
            }
            other => return Err(format!("a column of type {other}").into()),
        }
    }
    Ok(())
}

fn load(database: &Path, batches: &[TableBatch]) -> Result<(), Box<dyn Error>> {
    // The form of the warehouse's file.
    let config = Config::default().with("storage_compatibility_version", "v1.4.0")?;
    let connection = Connection::open_with_flags(database, config)?;
    for table in schema::tables().iter().filter(|table| table.stream.as_deref() == Some("responses")) {
        let columns: Vec<String> = table
            .flat_columns()
            .map(|column| format!("{} {}", quote_identifier(&column.name), column.column_type.duckdb()))
            .collect();
        connection.execute_batch(&format!(
            "CREATE TABLE {} ({}, {RECORD_COLUMN} BIGINT)",
            table.name,
            columns.join(", ")
        ))?;
    }
    connection.execute_batch("BEGIN")?;
    for batch in batches {
        append(&connection, batch.table, &batch.rows)?;
    }
    connection.execute_batch("COMMIT; CHECKPOINT")?;
    Ok(())
}

/// Columns that are NULL throughout are left out, which is cheaper, and `load` does it too.
fn append(connection: &Connection, table: &str, rows: &RecordBatch) -> Result<(), Box<dyn Error>> {
    let filled: Vec<usize> =
        (0..rows.num_columns()).filter(|at| rows.column(*at).null_count() < rows.num_rows()).collect();
    let rows = rows.project(&filled)?;
    let schema = rows.schema();
    let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let mut appender = connection.appender_with_columns(table, &columns)?;
    for start in (0..rows.num_rows()).step_by(CHUNK_ROWS) {
        let end = rows.num_rows().min(start + CHUNK_ROWS);
        let picked = Int64Array::from_iter_values(start as i64..end as i64);
        appender.append_record_batch(take_record_batch(&rows, &picked)?)?;
    }
    Ok(appender.flush()?)
}
