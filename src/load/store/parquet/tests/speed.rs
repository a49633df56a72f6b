//! Measurements, run by hand:
//! `cargo test --release --lib -- --ignored --nocapture store::parquet::tests::speed`.

use std::{sync::Arc, time::Instant};

use arrow::{
    array::{
        ArrayRef, BooleanArray, Float64Array, Int64Array, ListBuilder, PrimitiveBuilder, RecordBatch, StringArray,
        TimestampMicrosecondArray,
    },
    datatypes::Int64Type,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::*;
use crate::{load::store::BufferedStore, schema::table};

/// Months of the answers.
const MONTHS: i64 = 12;
/// Answers of a change.
const CHANGE_ROWS: usize = 20_000;
/// Bytes of buffered changes.
const WAITING_BYTES_MAX: usize = 64 << 20;
const NARROW: [&str; 7] =
    ["response_group_uid", "question_id", "created_at", "_row_hash", "_flags", "deleted_at", "_vanished_at"];

/// Time of an answer: all are spread evenly over the months.
fn at_us(at: usize, rows: usize) -> i64 {
    let span_us = MONTHS * 365 * DAY_US / 12;
    START_US + (at as i128 * i128::from(span_us) / rows as i128) as i64
}

/// Answers with the columns that a live service and a scan fill.
fn answers(ids: &[usize], rows: usize, edition: i64) -> RecordBatch {
    let ids = || ids.iter().copied();
    let text = |make: &dyn Fn(usize) -> String| Arc::new(StringArray::from_iter_values(ids().map(make))) as ArrayRef;
    let number = |make: &dyn Fn(usize) -> i64| Arc::new(Int64Array::from_iter_values(ids().map(make))) as ArrayRef;
    let time = |make: &dyn Fn(usize) -> i64| {
        Arc::new(TimestampMicrosecondArray::from_iter_values(ids().map(make))) as ArrayRef
    };
    let group = |at: usize| {
        let bits = xxh3_128(&(at / 4).to_le_bytes());
        let (a, b, c) = (bits >> 96, bits >> 80 & 0xffff, bits >> 64 & 0xfff);
        format!("{a:08x}-{b:04x}-4{c:03x}-a{:03x}-{:012x}", bits >> 48 & 0xfff, bits & 0xffff_ffff_ffff)
    };
    let mut lists = ListBuilder::new(PrimitiveBuilder::<Int64Type>::new());
    ids().for_each(|at| lists.append_option((at % 4 == 3).then_some([Some(at as i64 % 5)])));
    let answer =
        |at: usize| format!("It is a fine product, but the {at}th step takes me too long every day, {edition}");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("response_group_uid", text(&group)),
        ("question_id", number(&|at| at as i64 % 4)),
        ("survey_id", number(&|at| at as i64 / 4 % 30)),
        ("visitor_id", number(&|at| at as i64 / 4)),
        ("visitor_uuid", text(&group)),
        ("external_user_id", text(&|at| format!("user-{}", at / 8))),
        ("question_type", text(&|at| ["OPEN", "NPS", "LIKERT", "MULTIPLECHOICE"][at % 4].to_owned())),
        ("question_text", text(&|at| format!("How likely are you to recommend the product number {}?", at % 120))),
        ("created_at", time(&|at| at_us(at, rows))),
        ("updated_at", time(&|at| at_us(at, rows))),
        ("answer_text", text(&answer)),
        ("answer_number", Arc::new(Float64Array::from_iter(ids().map(|at| (at % 4 == 1).then_some((at % 11) as f64))))),
        ("answer_json", text(&|at| format!("\"{}\"", answer(at)))),
        ("is_skipped", Arc::new(BooleanArray::from(vec![false; ids().count()]))),
        ("selected_indexes", Arc::new(lists.finish())),
        ("url", text(&|at| format!("https://shop.example/products/{}?ref=mail", at % 5000))),
        ("meta_browser", text(&|at| format!("Firefox {}", at % 20))),
        ("meta_os", text(&|at| format!("Linux {}", at % 5))),
        ("meta_language", text(&|at| ["en", "de", "fr"][at % 3].to_owned())),
        ("meta_client_width", number(&|at| 1000 + at as i64 % 900)),
        ("_row_hash", number(&|at| xxh3_64(&(at as i64 + edition).to_le_bytes()).cast_signed())),
        ("_flags", number(&|_| 16)),
        ("_first_seen_at", time(&|at| at_us(at / 1000 * 1000, rows) + DAY_US)),
        ("_run_id", text(&|_| "0198c0de-0000-7000-8000-000000000001".to_owned())),
        ("_synced_at", time(&|at| at_us(at / 1000 * 1000, rows) + DAY_US)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn peak_mib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM unknown").to_owned()
}

fn folder_mib(folder: &Path) -> u64 {
    all_files(folder).iter().map(|path| path.metadata().unwrap().len()).sum::<u64>() >> 20
}

/// Numbers of answers and of windows.
#[derive(Clone, Copy)]
struct Size {
    rows: usize,
    windows: usize,
}

impl Size {
    fn ids(self, window: usize) -> std::ops::Range<usize> {
        window * self.rows / self.windows..(window + 1) * self.rows / self.windows
    }

    fn range(self, window: usize) -> TimeRange {
        let ids = self.ids(window);
        TimeRange { start_us: at_us(ids.start, self.rows), end_us: at_us(ids.end, self.rows) }
    }
}

/// Writes and commits all answers in the order of time, and returns the seconds without those to make them.
fn load(store: &mut BufferedStore, rows: usize) -> f64 {
    let mut seconds = 0.0;
    let ids: Vec<usize> = (0..rows).collect();
    for ids in ids.chunks(CHANGE_ROWS) {
        let mut change = TableChange::new(table("responses").unwrap());
        // A thousand rows each, as pages have.
        ids.chunks(1000).for_each(|page| change.add(answers(page, rows, 0)));
        let start = Instant::now();
        store.change(change).unwrap();
        seconds += start.elapsed().as_secs_f64();
    }
    let start = Instant::now();
    store.commit("load").unwrap();
    seconds + start.elapsed().as_secs_f64()
}

/// Reads each window as a re-scan does.
fn look(store: &mut BufferedStore, size: Size) -> f64 {
    let (start, mut found) = (Instant::now(), 0);
    for window in 0..size.windows {
        let mut count = |batch: RecordBatch| {
            found += batch.num_rows();
            Ok(())
        };
        store
            .read(table("responses").unwrap(), &NARROW, &Filter::within(Some(size.range(window))), &mut count)
            .unwrap();
    }
    assert_eq!(found, size.rows);
    start.elapsed().as_secs_f64()
}

/// Replaces some answers of each window, as a re-scan with edits does, and commits each window.
fn edit(store: &mut BufferedStore, size: Size, edits: usize, edition: i64) -> f64 {
    let (responses, mut seconds) = (table("responses").unwrap(), 0.0);
    for window in 0..size.windows {
        let ids = size.ids(window);
        let step = ids.len() / edits;
        let edited = answers(&ids.step_by(step).take(edits).collect::<Vec<_>>(), size.rows, edition);
        let within = Filter::within(Some(size.range(window)));
        let start = Instant::now();
        store.read(responses, &NARROW, &within, &mut |_| Ok(())).unwrap();
        let keys = KeySet::of(vec!["response_group_uid", "question_id"], std::slice::from_ref(&edited)).unwrap();
        let before = store.full_rows(responses, &within.with_keys(&keys)).unwrap();
        assert_eq!(before.iter().map(RecordBatch::num_rows).sum::<usize>(), edits);
        let mut change = TableChange::new(responses);
        change.remove(&edited).unwrap();
        change.add(edited);
        store.change(change).unwrap();
        store.commit("edits").unwrap();
        seconds += start.elapsed().as_secs_f64();
    }
    seconds
}

fn publish(store: &mut BufferedStore) -> f64 {
    let start = Instant::now();
    store.store().publish().unwrap();
    start.elapsed().as_secs_f64()
}

fn measure(size: Size) {
    let root = TempDir::new().unwrap();
    let (patience, failpoints) = Default::default();
    let options = ParquetOptions { memory_limit_bytes: 1 << 30, threads: 2, ..options() };
    let store = ParquetStore::open(root.path(), &identity(), &options, &patience, &failpoints);
    let mut store = BufferedStore::new(Box::new(store.unwrap()), WAITING_BYTES_MAX);
    let written = load(&mut store, size.rows);
    println!("{} rows: write and commit {written:.2} s; {} MiB; {}", size.rows, folder_mib(root.path()), peak_mib());
    let published = publish(&mut store);
    let rate = size.rows as f64 / (written + published);
    println!("publish {published:.2} s = {rate:.0} rows/s; {} MiB; {}", folder_mib(root.path()), peak_mib());
    println!("look at {} windows {:.2} s; {}", size.windows, look(&mut store, size), peak_mib());
    for (edits, edition) in [(17, 1), (833, 2)] {
        let edited = edit(&mut store, size, edits, edition);
        let published = publish(&mut store);
        println!("{edits} edits a window {edited:.2} s, publish {published:.2} s; {}", peak_mib());
    }
}

#[test]
#[ignore = "a measurement, not a check"]
fn a_million_answers() {
    measure(Size { rows: 1_000_000, windows: 60 });
}

#[test]
#[ignore = "a measurement, not a check: minutes of work"]
fn ten_million_answers() {
    measure(Size { rows: 10_000_000, windows: 480 });
}
