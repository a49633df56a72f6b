//! The speed of a million answers, loaded and found unchanged. Run by hand: `cargo test --release -- --ignored
//! --nocapture a_million_answers`.

use std::{path::Path, sync::Arc, time::Instant};

use arrow::{
    array::{
        ArrayRef, BooleanArray, Float64Array, Int64Array, ListBuilder, PrimitiveBuilder, RecordBatch, StringArray,
        TimestampMicrosecondArray, new_null_array,
    },
    datatypes::{DataType, Int64Type},
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::{answers_scan, day, pages::with_keys};
use crate::{
    load::{CommitOptions, Warehouse},
    model::{FlatPage, TableBatch},
    schema,
};

/// Memory of the engine in this measurement, in bytes.
pub(in crate::load) const MEMORY_LIMIT_BYTES: u64 = 1 << 30;

const PAGE_ROWS: usize = 1000;
const PAGES: usize = 50;
const SCANS: usize = 20;

/// Builds page number `page` of the responses of one day, with the columns that a live service fills.
fn page_of(on_day: usize, page: usize) -> FlatPage {
    let first = (on_day * PAGES + page) * PAGE_ROWS;
    let ids = first..first + PAGE_ROWS;
    let text =
        |make: &dyn Fn(usize) -> String| Arc::new(StringArray::from_iter_values(ids.clone().map(make))) as ArrayRef;
    let group = |at: usize| {
        let bits = xxh3_128(&(at / 4).to_le_bytes());
        format!(
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            bits >> 96,
            bits >> 80 & 0xffff,
            bits >> 64 & 0xfff,
            bits >> 48 & 0xfff,
            bits & 0xffff_ffff_ffff
        )
    };
    let created = |at: usize| (day(on_day as i64) * 1000) + (at - on_day * PAGES * PAGE_ROWS) as i64 * 1_500_000;
    let schema = schema::table("responses").unwrap().flat_schema();
    let columns = schema.fields().iter().map(|field| -> ArrayRef {
        match field.name().as_str() {
            "response_group_uid" | "visitor_uuid" => text(&group),
            "question_id" => Arc::new(Int64Array::from_iter_values(ids.clone().map(|at| (at % 4) as i64))),
            "survey_id" => Arc::new(Int64Array::from_iter_values(ids.clone().map(|at| (at / 4 % 30) as i64))),
            "visitor_id" => Arc::new(Int64Array::from_iter_values(ids.clone().map(|at| at as i64 / 4))),
            "created_at" | "updated_at" => {
                Arc::new(TimestampMicrosecondArray::from_iter_values(ids.clone().map(created)))
            }
            "external_user_id" => text(&|at| format!("user-{}", at / 8)),
            "question_type" => text(&|at| ["OPEN", "NPS", "LIKERT", "MULTIPLECHOICE"][at % 4].to_owned()),
            "question_text" => text(&|at| format!("How likely are you to recommend the product number {}?", at % 120)),
            "answer_text" => {
                text(&|at| format!("It is a fine product, but the {at}th step takes me too long every single day"))
            }
            "answer_json" => {
                text(&|at| format!("\"It is a fine product, but the {at}th step takes me too long every single day\""))
            }
            "answer_number" => {
                Arc::new(Float64Array::from_iter(ids.clone().map(|at| (at % 4 == 1).then_some((at % 11) as f64))))
            }
            "is_skipped" => Arc::new(BooleanArray::from(vec![false; PAGE_ROWS])),
            "selected_indexes" => {
                let mut lists = ListBuilder::new(PrimitiveBuilder::<Int64Type>::new());
                ids.clone().for_each(|at| lists.append_option((at % 4 == 3).then_some([Some(at as i64 % 5)])));
                Arc::new(lists.finish())
            }
            "url" => text(&|at| format!("https://shop.example/products/{}?ref=mail", at % 5000)),
            "_row_hash" => {
                Arc::new(Int64Array::from_iter_values(ids.clone().map(|at| xxh3_64(&at.to_le_bytes()).cast_signed())))
            }
            "_record" => Arc::new(Int64Array::from_iter_values(0..PAGE_ROWS as i64)),
            name => {
                assert!(field.is_nullable(), "{name}");
                let data_type: &DataType = field.data_type();
                new_null_array(data_type, PAGE_ROWS)
            }
        }
    });
    let rows = RecordBatch::try_new(Arc::clone(&schema), columns.collect()).unwrap();
    with_keys(FlatPage {
        batches: vec![TableBatch { table: "responses", rows }],
        records: PAGE_ROWS,
        ..FlatPage::default()
    })
}

/// Returns the line of the system with the highest memory use of this process.
fn peak_mib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM unknown").to_owned()
}

/// Loads a million answers into an empty warehouse, scans them twice more, and prints the times.
pub(in crate::load) fn a_million_answers(warehouse: &mut Warehouse, folder: &Path) {
    for (round, hour) in [("load", 0), ("re-scan", 1), ("re-scan", 2)] {
        let mut committing = 0.0;
        for window in 0..SCANS {
            let pages: Vec<FlatPage> = (0..PAGES).map(|page| page_of(window, page)).collect();
            let scan = answers_scan(hour, window as i64, window as i64 + 1);
            let start = Instant::now();
            let applied = warehouse.apply_and_commit(&scan, &pages.as_slice(), &CommitOptions::default()).unwrap();
            committing += start.elapsed().as_secs_f64();
            let expected = (PAGE_ROWS * PAGES) as u64;
            assert_eq!(if hour == 0 { applied.counts.inserted } else { applied.counts.unchanged }, expected);
        }
        let start = Instant::now();
        warehouse.publish().unwrap();
        let publishing = start.elapsed().as_secs_f64();
        let rows = (SCANS * PAGES * PAGE_ROWS) as f64;
        let rate = rows / (committing + publishing);
        let file_mib = folder_bytes(folder) >> 20;
        println!(
            "{round}: commit {committing:.2} s, publish {publishing:.2} s = {rate:.0} rows/s; files {file_mib} MiB; {}",
            peak_mib()
        );
    }
}

fn folder_bytes(folder: &Path) -> u64 {
    let bytes = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        if path.is_dir() { folder_bytes(&path) } else { path.metadata().unwrap().len() }
    };
    std::fs::read_dir(folder).unwrap().map(bytes).sum()
}
