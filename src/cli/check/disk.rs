//! Whether the disks have room.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::config::Settings;

use super::finding::Finding;

/// A run with less than this ends with a full disk sooner or later.
const FREE_MIN_BYTES: u64 = 256 << 20;

/// A finding for each file system that something is kept on.
pub(super) fn findings(settings: &Settings) -> Vec<Finding> {
    let warehouse = &settings.warehouse;
    let places = [&settings.state_path, &settings.archive_root].into_iter();
    let places = places.chain(&warehouse.duckdb).chain(&warehouse.parquet).chain(&warehouse.publish);
    let places = places.chain(settings.recordings.is_enabled.then_some(&settings.recordings.path));
    let mut disks: BTreeMap<u64, Disk> = BTreeMap::new();
    for place in places {
        let Some(folder) = existing_folder(place) else { continue };
        let Ok(device) = folder.metadata().map(|folder| folder.dev()) else { continue };
        disks.entry(device).or_insert_with(|| Disk { folder, places: Vec::new() }).places.push(place);
    }
    disks.into_values().filter_map(|disk| disk.finding(settings)).collect()
}

struct Disk<'a> {
    folder: PathBuf,
    places: Vec<&'a PathBuf>,
}

impl Disk<'_> {
    /// `None` if the system does not say how much is free.
    fn finding(&self, settings: &Settings) -> Option<Finding> {
        let disk = rustix::fs::statvfs(&self.folder).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let folder = self.folder.display();
        // A copy is written beside the one before, and then takes its place.
        let copy = settings.warehouse.publish.as_ref().filter(|copy| self.places.contains(copy));
        let copied = copy.and(settings.warehouse.duckdb.as_ref()).and_then(|file| file.metadata().ok());
        let needed = FREE_MIN_BYTES + copied.map_or(0, |file| file.len());
        let found = format!("{} free at {folder}", size(free));
        if free >= needed {
            return Some(Finding::well("disk", found));
        }
        let hint = format!("make room: {} are needed there", size(needed));
        Some(Finding::wrong("disk", found, hint, 1))
    }
}

/// The folder that something is in, or would be made in.
fn existing_folder(place: &Path) -> Option<PathBuf> {
    let above = place.ancestors().map(|path| if path == Path::new("") { Path::new(".") } else { path });
    above.into_iter().find(|path| path.is_dir()).map(Path::to_owned)
}

fn size(bytes: u64) -> String {
    match bytes {
        0x4000_0000.. => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        _ => format!("{} MiB", bytes >> 20),
    }
}
