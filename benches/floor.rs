//! The least that a load in this way can cost: saved pages parsed by serde_json into borrowed structs, and the rows that flatten makes
//! of them appended to a DuckDB file. Nothing else: no network, no archive, no comparison, no ledger. What compressing the pages costs
//! is told beside it.
//!
//! `floor FOLDER DATABASE` reads the pages `*.json` of the folder, and prints CPU seconds as one JSON object. Flatten itself is not
//! counted: its rows are made between the two. `make bench` runs it; it is no benchmark of the program.

use std::{borrow::Cow, error::Error, fs, path::Path};

use arrow::{
    array::{Int64Array, RecordBatch},
    compute::take_record_batch,
};
use duckdb::{Config, Connection};
use serde::Deserialize;
use serde_json::value::RawValue;
use studysync::{
    flatten::flatten_page,
    model::{DriftRules, Stream, TableBatch},
    schema::{self, RECORD_COLUMN, quote_identifier},
};

/// Rows that the appender takes at once, as `load` does it: handed over whole, a list column is copied once for each piece.
const CHUNK_ROWS: usize = 2048;
/// The level of zstd at which the archive keeps pages.
const ARCHIVE_LEVEL: i32 = 1;
/// Units of the times in `/proc/self/stat`, the same on every Linux.
const TICKS_PER_SEC: f64 = 100.0;

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo hands `--bench` to every benchmark.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [folder, database] = arguments.as_slice() else {
        println!("usage: floor FOLDER DATABASE (see `make bench`)");
        return Ok(());
    };
    let pages = read_pages(Path::new(folder))?;
    let begun = cpu_secs()?;
    let mut rows = 0;
    for page in &pages {
        rows += parse(page)?;
    }
    let parsed = cpu_secs()?;
    let mut batches = Vec::new();
    for page in &pages {
        batches.extend(flatten_page(Stream::Responses, page, DriftRules::default())?.batches);
    }
    let flattened = cpu_secs()?;
    compress(&pages)?;
    let compressed = cpu_secs()?;
    load(Path::new(database), &batches)?;
    let loaded = cpu_secs()?;
    println!(
        r#"{{"rows":{rows},"parse_cpu_secs":{:.3},"flatten_cpu_secs":{:.3},"compress_cpu_secs":{:.3},"append_cpu_secs":{:.3}}}"#,
        parsed - begun,
        flattened - parsed,
        compressed - flattened,
        loaded - compressed
    );
    Ok(())
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
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name may hold anything; behind its bracket user and system time are the fields 11 and 12, from 0.
    let (_, fields) = stat.rsplit_once(')').ok_or("no bracket in /proc/self/stat")?;
    let ticks: Vec<f64> = fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_SEC)
}

/// A text without a copy, unless it holds escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    data: Vec<Record<'a>>,
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
    question_id: i64,
    #[serde(borrow)]
    question_text: Option<Text<'a>>,
    #[serde(borrow)]
    question_type: Text<'a>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    response_group_uid: Text<'a>,
    #[serde(borrow)]
    selected_indexes: Option<&'a RawValue>,
    survey_id: i64,
    visitor_id: i64,
    #[serde(borrow)]
    visitor_uuid: Text<'a>,
    #[serde(borrow)]
    url: Option<Text<'a>>,
    #[serde(borrow)]
    meta: Option<Meta<'a>>,
    #[serde(borrow)]
    custom_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    visitor_snapshot: Option<&'a RawValue>,
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
    Ok(std::hint::black_box(&page).data.len())
}

/// As the archive does it.
fn compress(pages: &[Vec<u8>]) -> Result<(), Box<dyn Error>> {
    let mut compressor = zstd::bulk::Compressor::new(ARCHIVE_LEVEL)?;
    for page in pages {
        std::hint::black_box(compressor.compress(page)?);
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
