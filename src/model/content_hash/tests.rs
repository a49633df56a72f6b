//! Different rows have different hashes, and the encoding never changes between versions.

use std::collections::HashSet;

use super::*;

fn hash(write: impl Fn(&mut RowContent)) -> (i64, u128) {
    let mut content = RowContent::default();
    write(&mut content);
    (content.hash_64(), content.hash_128())
}

#[test]
fn different_rows_have_different_hashes() {
    let hashes = [
        hash(|_| {}),
        hash(|content| content.text(1, "")),
        hash(|content| content.text(1, "ab")),
        hash(|content| content.text(2, "ab")),
        hash(|content| {
            content.text(1, "a");
            content.text(2, "b");
        }),
        hash(|content| {
            content.text(1, "ab");
            content.text(2, "");
        }),
        hash(|content| content.bigint(1, 1)),
        hash(|content| content.timestamp(1, 1)),
        hash(|content| content.double(1, f64::from_bits(1))),
        hash(|content| content.boolean(1, true)),
        hash(|content| content.bigints(1, &[])),
        hash(|content| content.bigints(1, &[1])),
        hash(|content| content.bigints(1, &[1, 1])),
    ];
    let distinct: HashSet<_> = hashes.iter().collect();
    assert_eq!(distinct.len(), hashes.len());
}

#[test]
fn a_written_text_is_hashed_like_a_text() {
    let written = hash(|content| content.written_text(1, |bytes| bytes.extend_from_slice("é, twice".as_bytes())));
    assert_eq!(written, hash(|content| content.text(1, "é, twice")));
}

/// Warehouses store these hashes. If they change, every row looks edited once.
#[test]
fn the_encoding_of_values_is_pinned() {
    assert_eq!(column_name_hash("question_text"), QUESTION_TEXT);
    let (hash_64, hash_128) = hash(|content| {
        content.text(1, "text é");
        content.bigint(2, -3);
        content.double(3, 1.5);
        content.boolean(4, true);
        content.timestamp(5, 1_769_847_330_123_000);
        content.bigints(6, &[0, 2]);
    });
    assert_eq!((hash_64, hash_128), PINNED);
}

const QUESTION_TEXT: u32 = 1982386924;
const PINNED: (i64, u128) = (5242622008003849576, 93060277651368219110360813566382278436);
