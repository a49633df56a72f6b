//! The table `rejects`: records that do not fit their table. Each stream stores each text once.

use std::{collections::BTreeMap, sync::Arc};

use arrow::array::{ArrayRef, Int64Array, StringArray};
use foldhash::HashSet;

use super::stamps::{rows_of, stamp, text};
use crate::{
    load::{
        LoadError,
        contract::contract,
        store::{BufferedStore, Filter, KeySet, TableChange, number_column, text_column},
    },
    model::{Reject, RejectReason, Scan},
};

/// Numbers of rejects that a scan wrote, by their cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RejectCounts {
    /// Records that do not fit their table.
    pub rejected: u64,
    /// Records that lost a collision.
    pub collisions: u64,
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
