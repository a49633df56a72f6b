//! Checks that the disks have enough free space.

use std::{collections::BTreeMap, os::unix::fs::MetadataExt as _, path::PathBuf};

use crate::{config::Settings, model::WarehouseKind};

use super::{finding::Finding, writable::existing_folder};

/// Free space that every file system needs, in bytes. With less space, a run soon fills the disk.
const FREE_MIN_BYTES: u64 = 256 << 20;

/// Returns a finding for each file system that has a configured file or folder. File systems whose free space is
/// unknown are left out.
pub(super) fn findings(settings: &Settings) -> Vec<Finding> {
    let warehouse = &settings.warehouse;
    let paths = [&settings.state_path, &settings.archive_root].into_iter();
    let paths = paths.chain(warehouse.paths.values()).chain(&warehouse.publish);
    let paths = paths.chain(settings.recordings.is_enabled.then_some(&settings.recordings.path));
    let mut disks: BTreeMap<u64, Disk> = BTreeMap::new();
    for path in paths {
        let Some(folder) = existing_folder(path) else { continue };
        let Ok(device) = folder.metadata().map(|folder| folder.dev()) else { continue };
        disks.entry(device).or_insert_with(|| Disk { folder, paths: Vec::new() }).paths.push(path);
    }
    disks.into_values().filter_map(|disk| disk.finding(settings)).collect()
}

/// A file system, with an existing folder on it and the configured paths on it.
struct Disk<'a> {
    folder: PathBuf,
    paths: Vec<&'a PathBuf>,
}

impl Disk<'_> {
    /// Compares the free space with the needed space. Returns `None` if the free space is unknown.
    fn finding(&self, settings: &Settings) -> Option<Finding> {
        let disk = rustix::fs::statvfs(&self.folder).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let folder = self.folder.display();
        // The new copy for readers is written next to the old copy before it replaces the old one, so it needs its own
        // space.
        let copy = settings.warehouse.publish.as_ref().filter(|copy| self.paths.contains(copy));
        let copied =
            copy.and(settings.warehouse.paths.get(&WarehouseKind::DuckDb)).and_then(|file| file.metadata().ok());
        let needed = FREE_MIN_BYTES + copied.map_or(0, |file| file.len());
        let found = format!("{} free at {folder}", size(free));
        if free >= needed {
            return Some(Finding::ok("disk", found));
        }
        Some(Finding::problem("disk", found, format!("make room: {} are needed there", size(needed)), 1))
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0x4000_0000.. => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        _ => format!("{} MiB", bytes >> 20),
    }
}
