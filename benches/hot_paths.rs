//! Runs one hot path once, so that its instructions can be counted: `hot_paths PATH` under callgrind, by `make
//! instructions`.
//!
//! It reads no clock. Each path runs once before it is counted, so that one-time initialization is left out.

use std::hint::black_box;

use studysync::{
    flatten::flatten_page,
    model::{DriftRules, FlagSet, IntervalSet, Stream, Window},
    source::envelope,
};

use pages::Pages;

#[expect(dead_code, reason = "the pages of one question type are for `micro`")]
mod pages;

/// Windows in each of the two sets that are merged.
const WINDOWS: i64 = 10_000;

/// The paths: name, function that makes the input, function that is counted.
const PATHS: [(&str, fn() -> Vec<u8>, fn(&[u8]) -> usize); 6] = [
    ("flatten_1000_responses", plain_page, flatten),
    ("flatten_1000_responses_all_flags", flagged_page, flatten),
    ("envelope_1000_responses", plain_page, walk_envelope),
    ("envelope_1000_responses_all_flags", flagged_page, walk_envelope),
    ("intervals_union_10000", no_page, unite_windows),
    ("intervals_gaps_10000", no_page, find_gaps),
];

fn main() {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let Some((_, input, path)) = PATHS.iter().find(|(name, ..)| Some(*name) == wanted.as_deref()) else {
        PATHS.iter().for_each(|(name, ..)| println!("{name}"));
        return;
    };
    let input = input();
    black_box(path(&input));
    black_box(counted_path(*path, &input));
}

/// The function that callgrind counts, from its call to its return.
#[inline(never)]
fn counted_path(path: fn(&[u8]) -> usize, input: &[u8]) -> usize {
    black_box(path)(black_box(input))
}

fn plain_page() -> Vec<u8> {
    Pages::new().responses(FlagSet::EMPTY)
}

fn flagged_page() -> Vec<u8> {
    Pages::new().responses(FlagSet::ALL)
}

fn no_page() -> Vec<u8> {
    Vec::new()
}

fn flatten(body: &[u8]) -> usize {
    let page = flatten_page(Stream::Responses, body, DriftRules::default()).expect("the sandbox sends pages");
    black_box(&page).records
}

fn walk_envelope(body: &[u8]) -> usize {
    envelope::parse(body).expect("the sandbox sends pages").rows
}

/// One-second windows with gaps of one second between them.
fn comb(first: i64) -> impl Iterator<Item = Window> {
    (0..WINDOWS).map(move |number| {
        let start_ms = (number * 2 + first) * 1000;
        Window::new(start_ms, start_ms + 1000)
    })
}

fn unite_windows(_: &[u8]) -> usize {
    let set: IntervalSet = comb(0).chain(comb(1)).collect();
    black_box(&set).windows().len()
}

fn find_gaps(_: &[u8]) -> usize {
    let set: IntervalSet = comb(0).collect();
    black_box(&set).gaps_in(Window::new(0, WINDOWS * 2000)).len()
}
