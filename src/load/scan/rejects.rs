//! The table `rejects`: records that do not fit their table. Each stream stores each record once.
//!
//! A record is recognised by its values ([`record_hash`]), without the parts that flags request. So neither a new flag
//! nor another spelling of the JSON makes a known reject new.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use foldhash::HashSet;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    records::rows_where,
    stamps::{rows_of, stamp, text},
};
use crate::{
    json::{Entry, read_entries, unescaped, write_canonical},
    load::{
        LoadError,
        contract::contract,
        store::{BufferedStore, Filter, KeySet, TableChange, number_column, text_column, with_column},
    },
    model::{Reject, RejectReason, Scan, Stream},
    schema::{Column, TableKind, tables},
};

/// Numbers of rejects that a scan wrote, by their cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RejectCounts {
    /// Records that do not fit their table.
    pub rejected: u64,
    /// Records that lost a collision.
    pub collisions: u64,
}

/// Returns the hash by which a rejected record is recognised: of the values of its fields, without the fields that only
/// scans with certain flags return. Signed, because the column `raw_hash` is. `raw` is the text of the record. If it is
/// not JSON, the hash covers the texts of its fields as far as they can be told apart.
pub(super) fn record_hash(stream: Stream, raw: &str) -> i64 {
    let flagged = flagged_fields(stream);
    let mut entries = Vec::new();
    let mut bytes = Vec::with_capacity(raw.len());
    if read_entries(raw, &mut entries).is_some() {
        let is_kept = |entry: &&Entry<'_>| !flagged.contains(unescaped(entry.key).text.as_ref());
        let members: Vec<String> =
            entries.iter().filter(is_kept).map(|entry| format!("\"{}\":{}", entry.key, entry.value)).collect();
        write_canonical(&format!("{{{}}}", members.join(",")), &[], &mut bytes);
    } else if let Some(members) = broken_members(raw) {
        for (_, text) in members.iter().filter(|(name, _)| !flagged.contains(*name)) {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(b',');
        }
    } else {
        write_canonical(raw, &[], &mut bytes);
    }
    xxh3_64(&bytes).cast_signed()
}

/// Returns the names of the fields of a stream's records that only scans with certain flags return.
fn flagged_fields(stream: Stream) -> BTreeSet<&'static str> {
    let of_stream = tables().iter().filter(|table| table.stream.as_deref() == Some(stream.name()));
    let paths = of_stream.filter(|table| table.kind == TableKind::Base).flat_map(|table| {
        // A further base table, such as that of visitor snapshots, is filled from an object inside the records.
        let is_nested = table.name != stream.name();
        let is_flagged = move |path: &&str, column: &Column| column.flag.is_some() || (is_nested && path.contains('.'));
        table.columns.iter().filter_map(move |column| column.json.as_deref().filter(|path| is_flagged(path, column)))
    });
    paths.filter_map(|path| path.split('.').next()).collect()
}

/// Splits the text of an object that is not JSON into its members, each with its name and complete text. Returns `None`
/// if the names cannot be told apart from the values.
fn broken_members(raw: &str) -> Option<Vec<(&str, &str)>> {
    let inner = raw.trim().strip_prefix('{')?.strip_suffix('}')?;
    let (mut members, mut start, mut depth, mut in_text, mut is_escaped) = (Vec::new(), 0, 0_usize, false, false);
    for (at, byte) in inner.bytes().chain([b',']).enumerate() {
        match byte {
            _ if std::mem::take(&mut is_escaped) => {}
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => depth += 1,
            b'}' | b']' if !in_text => depth = depth.checked_sub(1)?,
            b',' if !in_text && depth == 0 => {
                let text = inner.get(start..at)?.trim();
                let (name, _) = text.strip_prefix('"')?.split_once('"')?;
                members.push((name, text));
                start = at + 1;
            }
            _ => {}
        }
    }
    (!in_text && depth == 0).then_some(members)
}

/// Rejects of an earlier version of the program, which computed `raw_hash` from the exact text.
#[derive(Debug, Default)]
pub(super) struct OlderRejects {
    /// The stored rows with all columns, and their new hashes.
    rows: Vec<(RecordBatch, Vec<i64>)>,
}

impl OlderRejects {
    /// Finds the stored rejects whose hash is not their [`record_hash`]. Reads the complete table.
    pub fn find(store: &mut BufferedStore) -> Result<Self, LoadError> {
        let table = contract("rejects")?;
        let mut older = Self::default();
        store.read(table, &table.column_names(), &Filter::all(), &mut |rows| {
            let (streams, texts) = (text_column(&rows, "stream")?, text_column(&rows, "raw")?);
            let (stored, reasons) = (number_column(&rows, "raw_hash")?, text_column(&rows, "reason")?);
            let hash = |row: usize| {
                let stream = streams.value(row).parse::<Stream>().ok();
                // The hash of a record that lost a collision is that of its content.
                let is_text = reasons.value(row) != RejectReason::KeyCollision.to_string();
                let hash = stream.filter(|_| is_text).map(|stream| record_hash(stream, texts.value(row)));
                hash.filter(|hash| *hash != stored.value(row))
            };
            let hashes: Vec<Option<i64>> = (0..rows.num_rows()).map(hash).collect();
            let found = rows_where(table, &rows, |row| hashes.get(row).copied().flatten().is_some())?;
            older.rows.extend((found.num_rows() > 0).then(|| (found, hashes.into_iter().flatten().collect())));
            Ok(())
        })?;
        Ok(older)
    }

    fn hashes(&self, stream: Stream) -> Result<HashSet<i64>, LoadError> {
        let mut hashes = HashSet::default();
        for (rows, of_rows) in &self.rows {
            let streams = text_column(rows, "stream")?.iter().zip(of_rows);
            hashes.extend(streams.filter(|(name, _)| *name == Some(stream.name())).map(|(_, hash)| *hash));
        }
        Ok(hashes)
    }

    /// Writes the new hashes. Of several rejects that are the same record, one stays.
    fn upgrade(&self, store: &mut BufferedStore) -> Result<(), LoadError> {
        let table = contract("rejects")?;
        let mut written = HashSet::default();
        for (rows, hashes) in &self.rows {
            let streams = text_column(rows, "stream")?;
            let mut is_kept = Vec::with_capacity(rows.num_rows());
            for (row, hash) in hashes.iter().enumerate() {
                is_kept.push(written.insert((streams.value(row).to_owned(), *hash)));
            }
            let kept = rows_where(table, rows, |row| is_kept.get(row).copied().unwrap_or_default())?;
            let hashes = hashes.iter().zip(&is_kept).filter(|(_, is_kept)| **is_kept).map(|(hash, _)| *hash);
            let hashes: ArrayRef = Arc::new(Int64Array::from_iter_values(hashes));
            let mut change = TableChange::new(table);
            change.remove(rows)?;
            let upgraded = with_column(&kept, "raw_hash", &hashes)?;
            change.remove(&upgraded)?;
            change.add(upgraded);
            store.change(change)?;
        }
        Ok(())
    }
}

/// Returns the rejects that are not stored yet, also not with the hash of an earlier version. Changes nothing.
pub(super) fn find_unknown<'r>(
    store: &mut BufferedStore,
    scan: &Scan,
    rejects: impl IntoIterator<Item = (&'r i64, &'r Reject)>,
) -> Result<Vec<(i64, &'r Reject)>, LoadError> {
    let mut new = find_new(store, scan, rejects)?;
    if !new.is_empty() {
        let older = OlderRejects::find(store)?.hashes(scan.scope.stream)?;
        new.retain(|(hash, _)| !older.contains(hash));
    }
    Ok(new)
}

/// Writes the hashes of stored rejects anew that an earlier version of the program computed.
pub(super) fn upgrade(store: &mut BufferedStore) -> Result<(), LoadError> {
    OlderRejects::find(store)?.upgrade(store)
}

/// Returns the rejects whose hash is not stored yet for the scan's stream, sorted by hash. The scan that stored a
/// reject has reported it, so a later scan must not report it again. If two rejects have one hash, the later in
/// `rejects` is used.
pub(super) fn find_new<'r>(
    store: &mut BufferedStore,
    scan: &Scan,
    rejects: impl IntoIterator<Item = (&'r i64, &'r Reject)>,
) -> Result<Vec<(i64, &'r Reject)>, LoadError> {
    let mut rejects: BTreeMap<i64, &Reject> = rejects.into_iter().map(|(hash, reject)| (*hash, reject)).collect();
    if rejects.is_empty() {
        return Ok(Vec::new());
    }
    let table = contract("rejects")?;
    let hashes: ArrayRef = Arc::new(Int64Array::from_iter_values(rejects.keys().copied()));
    let keys = KeySet::of_values("raw_hash", hashes)?;
    let mut known = HashSet::default();
    let stream = scan.scope.stream.name();
    store.read(table, &["stream", "raw_hash"], &Filter::all().with_keys(&keys), &mut |rows| {
        let hashes = number_column(&rows, "raw_hash")?.values();
        let of_stream = text_column(&rows, "stream")?.iter().zip(hashes).filter(|(name, _)| *name == Some(stream));
        known.extend(of_stream.map(|(_, hash)| *hash));
        Ok(())
    })?;
    rejects.retain(|hash, _| !known.contains(hash));
    Ok(rejects.into_iter().collect())
}

/// Writes rejects with their hashes, and returns their numbers.
pub(super) fn write(
    store: &mut BufferedStore,
    scan: &Scan,
    rejects: &[(i64, &Reject)],
) -> Result<RejectCounts, LoadError> {
    let table = contract("rejects")?;
    let count = rejects.len();
    let texts = |text: &dyn Fn(&Reject) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rejects.iter().map(|(_, reject)| text(reject))))
    };
    let mut change = TableChange::new(table);
    change.add(rows_of(table, count, |column| {
        Ok(match (stamp(scan, column, count), column.name.as_str()) {
            (Some(stamp), _) => Some(stamp),
            (None, "stream") => Some(text(scan.scope.stream.name(), count)),
            (None, "scan_id") => Some(text(&scan.id.0, count)),
            (None, "raw_hash") => Some(Arc::new(Int64Array::from_iter_values(rejects.iter().map(|(hash, _)| *hash)))),
            (None, "reason") => Some(texts(&|reject| reject.reason.to_string())),
            (None, "field") => Some(texts(&|reject| reject.field.clone().into_owned())),
            (None, "raw") => Some(texts(&|reject| reject.raw.clone())),
            (None, _) => None,
        })
    })?);
    store.change(change)?;
    let collisions = rejects.iter().filter(|(_, reject)| reject.reason == RejectReason::KeyCollision).count() as u64;
    Ok(RejectCounts { rejected: count as u64 - collisions, collisions })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_same(one: &str, other: &str) -> bool {
        record_hash(Stream::Responses, one) == record_hash(Stream::Responses, other)
    }

    #[test]
    fn p1_a_reject_is_known_whatever_the_flags_and_the_spelling() {
        let plain = r#"{"response":"a, \"b\"","questionId":null}"#;
        for same in [
            r#"{ "questionId" : null, "response" : "a, \u0022b\u0022" }"#,
            r#"{"response":"a, \"b\"","url":"/x","meta":{"os":"x"},"customMetadata":{},"questionId":null}"#,
            r#"{"visitorSnapshot":{"events":{}},"response":"a, \"b\"","deletedAt":null,"questionId":null}"#,
        ] {
            assert!(is_same(plain, same), "{same}");
        }
        for other in [r#"{"response":"a, b","questionId":null}"#, r#"{"questionId":null}"#, "null", "[]"] {
            assert!(!is_same(plain, other), "{other}");
        }
    }

    #[test]
    fn p1_a_broken_record_is_known_whatever_the_flags() {
        let plain = r#"{"response":NaN,"questionText":"a, {b\"","questionId":1}"#;
        let flagged =
            r#"{"response":NaN,"questionText":"a, {b\"","questionId":1,"meta":{"os":["x",{"a":1}]}, "url":"/x"}"#;
        assert!(is_same(plain, flagged));
        assert!(!is_same(plain, r#"{"response":NaN,"questionText":"a, {b\"","questionId":2}"#));
        for torn in ["{\"a\":\"", "{\"a\":1}}", "{a:1}", "", "{,}"] {
            assert!(is_same(torn, torn) && !is_same(plain, torn), "{torn}");
        }
    }
}
