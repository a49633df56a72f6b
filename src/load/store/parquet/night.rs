//! Estimates what a night, a `sync` of a warehouse in a bucket, needs of the bucket. Makes no request: the files of
//! the working copy tell which objects there are.
//!
//! docs/formats/bucket.md has the formulas.

use std::{collections::BTreeMap, path::Path};

use serde::Serialize;

use super::{
    PartitionBy, inventory,
    remote::{PUBLISHED_KEPT, READ_BYTES},
    working_copy,
};
use crate::{
    bucket::WRITTEN_WHOLE_MAX,
    load::store::TimeRange,
    model::Stream,
    schema::{Table, tables},
};

/// Objects of one answer to a list.
const LIST_MAX: u64 = 1000;
/// Objects that are neither files of readers nor commits: the lease, the state and others.
const OTHER_OBJECTS: u64 = 8;
/// The commits of a night: that of the scans, and that of the row in `sync_runs`.
const COMMITS: u64 = 2;
/// Files that a run without a working copy reads: `warehouse.json`, the inventory, `sync_windows`, `erasures` and
/// `sync_runs`.
const FILES_OF_RUNS: u64 = 5;

/// Estimated requests and bytes of a night, as if each file of the scanned streams and partitions changed, and no
/// request were repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NightEstimate {
    /// Files of readers that may be replaced, without `sync_windows` and `sync_runs`.
    pub files: u64,
    pub lists: u64,
    pub reads: u64,
    pub writes: u64,
    pub removals: u64,
    /// Bytes of the replaced files; `None` if this machine does not know the size of each. New rows are not included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl NightEstimate {
    pub fn requests(&self) -> u64 {
        self.lists + self.reads + self.writes + self.removals
    }

    /// Estimates a night with these scans, by stream and time, from the working copy in `folder`. Without a working
    /// copy, all tables of the streams count.
    pub(in crate::load) fn of(
        folder: &Path,
        partition_by: PartitionBy,
        scans: &BTreeMap<Stream, Vec<TimeRange>>,
    ) -> NightEstimate {
        let (commits, listed) = inventory::listed(folder).unwrap_or_default();
        let here = working_copy::sizes(folder);
        let mut night = NightEstimate {
            lists: (listed.len() as u64 + commits.min(PUBLISHED_KEPT) + OTHER_OBJECTS).div_ceil(LIST_MAX),
            // The list of suppressed people.
            reads: if here.is_empty() { 1 + FILES_OF_RUNS } else { 1 },
            // The lease, the copy of the state, `sync_runs`, `sync_windows` and the inventory; for each commit its two
            // objects.
            writes: 5 + 2 * COMMITS,
            // The lease, and the data of the commits.
            removals: 2,
            bytes: Some(0),
            files: 0,
        };
        let files = scans.iter().flat_map(|(stream, ranges)| files_of(*stream, partition_by, ranges, &listed));
        files.for_each(|key| night.add(&key, &here, &listed));
        night
    }

    /// Adds a file that may be replaced.
    fn add(&mut self, key: &str, here: &BTreeMap<String, u64>, listed: &[String]) {
        self.files += 1;
        let is_missing = !listed.is_empty() && listed.binary_search_by(|file| file.as_str().cmp(key)).is_err();
        let Some(bytes) = here.get(key).copied().or(is_missing.then_some(0)) else {
            (self.reads, self.writes, self.bytes) = (self.reads + 1, self.writes + 1, None);
            return;
        };
        self.bytes = self.bytes.map(|sum| sum + bytes);
        if bytes > WRITTEN_WHOLE_MAX {
            // Two tests of the condition; begin, record and end; the removal of the record.
            self.reads += 2;
            self.writes += bytes.div_ceil(READ_BYTES) + 3;
            self.removals += 1;
        } else {
            self.writes += 1;
        }
    }
}

/// Returns the keys of the files that scans may change: of each table that the stream fills and the warehouse has.
fn files_of(stream: Stream, partition_by: PartitionBy, ranges: &[TimeRange], listed: &[String]) -> Vec<String> {
    let has = |table: &&Table| {
        let below = format!("{}/", table.name);
        listed.is_empty() || listed.iter().any(|file| file.starts_with(&below))
    };
    let of_stream = tables().iter().filter(|table| table.stream.as_deref() == Some(stream.name())).filter(has);
    let keys = of_stream.flat_map(|table| match &table.partition {
        None => vec![format!("{}/data.parquet", table.name)],
        Some(column) => {
            let folders = partition_by.within(ranges).into_iter();
            folders.map(|at| format!("{}/{}/data.parquet", table.name, partition_by.folder(column, at))).collect()
        }
    });
    keys.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_US: i64 = 86_400_000_000;

    #[test]
    fn a_night_replaces_the_partitions_of_its_ranges() {
        let folder = tempfile::TempDir::new().unwrap();
        let ranges = vec![TimeRange { start_us: 30 * DAY_US, end_us: 32 * DAY_US }];
        let scans = BTreeMap::from([(Stream::Themes, ranges)]);
        let themes = NightEstimate::of(folder.path(), PartitionBy::Month, &scans);
        // `themes` and `theme_history`, in January and February.
        assert_eq!(themes.files, 4);
        assert_eq!((themes.lists, themes.reads, themes.writes, themes.removals), (1, 6 + 4, 9 + 4, 2));
        assert_eq!((themes.requests(), themes.bytes), (26, None));
    }

    #[test]
    fn a_large_file_of_the_working_copy_is_written_in_parts() {
        let here = BTreeMap::from([("a".to_owned(), 100 << 20), ("b".to_owned(), 1 << 20)]);
        let listed = ["a".to_owned(), "b".to_owned()];
        let mut night = NightEstimate { bytes: Some(0), ..NightEstimate::default() };
        ["a", "b", "new"].iter().for_each(|key| night.add(key, &here, &listed));
        let expected =
            NightEstimate { files: 3, lists: 0, reads: 2, writes: 10 + 1 + 1, removals: 1, bytes: Some(101 << 20) };
        assert_eq!(night, expected);
    }
}
