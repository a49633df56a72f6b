//! Measures the cost of one page on one core: flatten by question type and by flag, parse an envelope, merge sets of
//! windows, hash.
//!
//! `cargo bench --bench micro` (with the flags of CONTRIBUTING.md) measures each stage alone. `make bench` measures the
//! speed of the program, and `make instructions` shows whether it became slower.

use std::{hint::black_box, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput};
use studysync::{
    flatten::flatten_page,
    model::{DriftRules, Flag, FlagSet, IntervalSet, Stream, Window},
    source::envelope,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use pages::{PAGE_ROWS, Pages};

mod pages;

/// Sizes of sets, in windows: a first night, some years by day, and the largest size to test.
const WINDOWS: [i64; 3] = [1, 100, 10_000];
/// Bytes that one row contributes to a hash: a key, a plain answer, an answer with all flags.
const HASHED_BYTES: [usize; 3] = [48, 400, 1600];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let pages = Pages::new();
    flatten_by_question_type(&mut criterion, &pages);
    flatten_by_flag(&mut criterion, &pages);
    flatten_other_streams(&mut criterion, &pages);
    walk_envelopes(&mut criterion, &pages);
    unite_windows(&mut criterion);
    hash_rows(&mut criterion);
    criterion.final_summary();
}

fn flatten(stream: Stream, body: &[u8]) -> usize {
    let page = flatten_page(stream, black_box(body), DriftRules::default()).expect("the sandbox sends pages");
    black_box(&page);
    page.records
}

fn flatten_by_question_type(criterion: &mut Criterion, pages: &Pages) {
    let mut group = criterion.benchmark_group("flatten/question_type");
    for (question_type, body) in pages.by_question_type(FlagSet::EMPTY) {
        group.throughput(Throughput::Elements(PAGE_ROWS as u64));
        group.bench_with_input(BenchmarkId::from_parameter(question_type), &body, |bencher, body| {
            bencher.iter(|| flatten(Stream::Responses, body));
        });
    }
    group.finish();
}

fn flatten_by_flag(criterion: &mut Criterion, pages: &Pages) {
    let mut group = criterion.benchmark_group("flatten/flags");
    let alone = Flag::ALL.map(|flag| (flag.name(), FlagSet::EMPTY.with(flag)));
    for (name, flags) in [("none", FlagSet::EMPTY)].into_iter().chain(alone).chain([("all", FlagSet::ALL)]) {
        let body = pages.responses(flags);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(name), &body, |bencher, body| {
            bencher.iter(|| flatten(Stream::Responses, body));
        });
    }
    group.finish();
}

fn flatten_other_streams(criterion: &mut Criterion, pages: &Pages) {
    let mut group = criterion.benchmark_group("flatten/streams");
    for stream in [Stream::Surveys, Stream::Themes] {
        let body = pages.list(stream.name());
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(stream.name()), &body, |bencher, body| {
            bencher.iter(|| flatten(stream, body));
        });
    }
    group.finish();
}

fn walk_envelopes(criterion: &mut Criterion, pages: &Pages) {
    let mut group = criterion.benchmark_group("envelope");
    for (name, flags) in [("none", FlagSet::EMPTY), ("all", FlagSet::ALL)] {
        let body = pages.responses(flags);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(name), &body, |bencher, body| {
            bencher.iter(|| envelope::parse(black_box(body)).expect("a page").rows);
        });
    }
    group.finish();
}

/// Windows with gaps between them, and the windows that fill the gaps. Together they merge into one.
fn combs(windows: i64) -> (Vec<Window>, Vec<Window>) {
    const LENGTH_MS: i64 = 1000;
    let at = |number: i64| Window::new(number * LENGTH_MS, (number + 1) * LENGTH_MS);
    let even = (0..windows).map(|number| at(number * 2)).collect();
    let odd = (0..windows).map(|number| at(number * 2 + 1)).collect();
    (even, odd)
}

fn unite_windows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("intervals");
    for windows in WINDOWS {
        let (even, odd) = combs(windows);
        let whole = Window::new(0, windows * 2000);
        group.throughput(Throughput::Elements(windows as u64));
        group.bench_function(BenchmarkId::new("union", windows), |bencher| {
            bencher.iter(|| black_box(&even).iter().chain(black_box(&odd)).copied().collect::<IntervalSet>());
        });
        let set: IntervalSet = even.iter().copied().collect();
        group.bench_function(BenchmarkId::new("gaps", windows), |bencher| {
            bencher.iter(|| black_box(&set).gaps_in(black_box(whole)));
        });
        group.bench_function(BenchmarkId::new("intersect", windows.min(1000)), |bencher| {
            let few: IntervalSet = even.iter().take(1000).copied().collect();
            bencher.iter(|| black_box(&few).intersect(black_box(&few)));
        });
    }
    group.finish();
}

fn hash_rows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hash");
    for length in HASHED_BYTES {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function(BenchmarkId::new("xxh3_64", length), |bencher| {
            bencher.iter(|| xxh3_64(black_box(&bytes)));
        });
        group.bench_function(BenchmarkId::new("xxh3_128", length), |bencher| {
            bencher.iter(|| xxh3_128(black_box(&bytes)));
        });
    }
    group.finish();
}
