//! The disks of the configured files: their free space, and the space that a backfill needs.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    config::{ArchiveChoice, Settings},
    files::files_below,
    model::WarehouseKind,
};

/// Free space that every disk needs, in bytes. With less space, a run soon fills the disk.
pub(super) const FREE_MIN_BYTES: u64 = 256 << 20;

/// Minimum records of a store whose size says how many bytes a record takes. Files of fewer records are mostly empty.
const RECORDS_MIN: u64 = 50_000;
/// Bytes of a record in each store, for a store that has no size of its own yet: measured with `sandbox --data rough`
/// and all flags, as the difference between 20,000 and 150,000 responses. Without flags and with smooth data they are
/// 130, 52 and 44.
const DUCKDB_BYTES: u64 = 360;
const PARQUET_BYTES: u64 = 95;
const ARCHIVE_BYTES: u64 = 140;

/// A disk, with an existing folder on it and the paths of files and folders on it.
pub(super) struct Disk<'a> {
    pub folder: PathBuf,
    pub paths: Vec<&'a PathBuf>,
}

impl<'a> Disk<'a> {
    /// Returns the disks of these paths. A path whose disk is unknown is left out.
    pub fn of_paths(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<Disk<'a>> {
        let mut disks: BTreeMap<u64, Disk<'_>> = BTreeMap::new();
        for path in paths {
            let Some(folder) = existing_folder(path) else { continue };
            let Ok(device) = folder.metadata().map(|folder| folder.dev()) else { continue };
            disks.entry(device).or_insert_with(|| Disk { folder, paths: Vec::new() }).paths.push(path);
        }
        disks.into_values().collect()
    }

    /// Returns the free space in bytes; `None` if it is unknown.
    pub fn free_bytes(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.folder).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

/// What new records need on a disk.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DiskEstimate {
    /// A folder on the disk.
    pub folder: PathBuf,
    /// Expected bytes in warehouses, copies and archive together.
    pub bytes: u64,
    /// True if the size of a record is that of stored records, false if it is that of generated data.
    pub is_measured: bool,
    /// `None` if the free space is unknown.
    pub free_bytes: Option<u64>,
}

impl DiskEstimate {
    /// Estimates what new records need on each disk of this machine: in DuckDB files, Parquet folders and the archive,
    /// not in catalogs. `stored` is the number of records that the warehouses and the archive have.
    pub fn of_records(settings: &Settings, new: u64, stored: u64) -> Vec<DiskEstimate> {
        let bytes_of = |kind: &WarehouseKind| match kind {
            WarehouseKind::DuckDb => DUCKDB_BYTES,
            _ => PARQUET_BYTES,
        };
        let locations = settings.warehouse.locations.iter().filter(|(_, location)| location.is_path());
        let stores = locations.map(|(kind, location)| (&location.path, bytes_of(kind)));
        let stores = stores.chain(settings.warehouse.publish.paths.iter().map(|(kind, path)| (path, bytes_of(kind))));
        let archive = &settings.archive_location;
        let is_kept = settings.archive != ArchiveChoice::Nothing && archive.bucket.is_none();
        let stores: BTreeMap<&PathBuf, u64> = stores.chain(is_kept.then_some((&archive.path, ARCHIVE_BYTES))).collect();
        let estimate = |disk: Disk<'_>| {
            let measured = |path: &PathBuf| Some(bytes_below(path)).filter(|bytes| *bytes > 0 && stored >= RECORDS_MIN);
            let needs = disk.paths.iter().map(|path| match measured(path) {
                Some(bytes) => (bytes as f64 / stored as f64, true),
                None => (stores.get(path).copied().unwrap_or_default() as f64, false),
            });
            let (bytes, is_measured) =
                needs.fold((0.0, true), |(sum, all), (bytes, is_measured)| (sum + bytes, all && is_measured));
            let free_bytes = disk.free_bytes();
            DiskEstimate { bytes: (bytes * new as f64) as u64, is_measured, free_bytes, folder: disk.folder }
        };
        let disks = if new > 0 { Disk::of_paths(stores.keys().copied()) } else { Vec::new() };
        disks.into_iter().map(estimate).collect()
    }

    /// Returns true if the disk has too little free space.
    pub fn is_too_small(&self) -> bool {
        self.free_bytes.is_some_and(|free| free < self.bytes + FREE_MIN_BYTES)
    }

    /// Returns the estimate as a sentence without its end.
    pub fn sentence(&self) -> String {
        let free = self.free_bytes.map(|free| format!("; {} are free", size(free))).unwrap_or_default();
        let basis = if self.is_measured { "the stored records" } else { "generated data" };
        let (bytes, folder) = (size(self.bytes.max(1 << 20)), self.folder.display());
        format!("about {bytes} more on the disk of {folder}, by the size of {basis}{free}")
    }
}

/// Returns the size of a file or of all files in a folder; 0 if it is missing or cannot be read.
fn bytes_below(path: &Path) -> u64 {
    let files = files_below(path).unwrap_or_default();
    files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// Formats a number of bytes: `12 MiB`, `3.4 GiB`.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0x4000_0000.. => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Returns the nearest existing folder: the path itself or a folder above it. A relative path begins in the working
/// folder. `None` if no folder exists.
pub(super) fn existing_folder(path: &Path) -> Option<PathBuf> {
    with_ancestors(path).find(|path| path.is_dir()).map(Path::to_owned)
}

/// Returns the path itself and the folders above it. A relative path ends with the working folder.
pub(super) fn with_ancestors(path: &Path) -> impl Iterator<Item = &Path> {
    path.ancestors().map(|path| if path == Path::new("") { Path::new(".") } else { path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};

    #[test]
    fn stores_of_many_records_show_the_size_of_a_record() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("studysync.toml");
        let text = "[warehouse]\nduckdb = 'w.duckdb'\nparquet = 'files'\n[archive]\npath = 'none'\n";
        std::fs::write(&file, text).unwrap();
        let settings = config::resolve(Overrides { config: Some(file), ..Overrides::default() }).unwrap();
        std::fs::write(folder.path().join("w.duckdb"), vec![0; 9_000_000]).unwrap();
        std::fs::create_dir_all(folder.path().join("files/2026")).unwrap();
        std::fs::write(folder.path().join("files/2026/a.parquet"), vec![0; 1_000_000]).unwrap();
        let of_records = |new, stored| DiskEstimate::of_records(&settings, new, stored);
        assert!(of_records(0, 100_000).is_empty());
        let [few] = &of_records(1000, RECORDS_MIN - 1)[..] else { panic!("one disk") };
        assert_eq!((few.bytes, few.is_measured), (1000 * (DUCKDB_BYTES + PARQUET_BYTES), false));
        let [many] = &of_records(1_000_000, 100_000)[..] else { panic!("one disk") };
        assert_eq!((many.bytes, many.is_measured), (100_000_000, true));
        let small = DiskEstimate { free_bytes: Some(many.bytes + FREE_MIN_BYTES - 1), ..many.clone() };
        assert!(small.is_too_small());
        assert!(!DiskEstimate { free_bytes: Some(many.bytes + FREE_MIN_BYTES), ..many.clone() }.is_too_small());
        assert!(!DiskEstimate { free_bytes: None, ..many.clone() }.is_too_small());
        assert!(small.sentence().starts_with("about 95 MiB more on the disk of /"), "{}", small.sentence());
    }
}
