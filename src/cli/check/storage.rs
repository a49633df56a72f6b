//! Findings of checks, and the checks of storage: state, archive, warehouses and recordings can be written, the disks
//! have space, and DuckDB's extension can be loaded.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    slice,
};

use serde::Serialize;

use crate::{
    archive::Archive,
    bucket::{Bucket, BucketCheck},
    config::Settings,
    files::{self, FileAccess, refusal_hint},
    load::Place,
    model::{Failpoints, Fault, Location, WarehouseKind},
    pipeline::{self, PipelineError, Session, System},
    state::State,
    sync_status::HealthReason,
};

use super::super::{
    CommandError,
    disk::{Disk, FREE_MIN_BYTES, size, with_ancestors},
    terminal::{hanging_for_terminal, styled_error, styled_hint},
};

/// Checks the state file, its folder, and the folder of erasures. A missing file is not created, because a new file
/// would be bound to the configured service.
pub(super) fn state(settings: &Settings) -> Finding {
    let path = settings.state_path.display();
    let folders = [files::folder_of(&settings.state_path).to_owned(), settings.erasures_folder()];
    if !settings.state_path.exists() {
        return writable("state", &folders, format!("the first run can create {path}"));
    }
    let opened = pipeline::identity(settings).and_then(|identity| {
        let opened = Session::open(settings, &identity, "check", &System::default());
        opened.map(drop).map_err(PipelineError::State)
    });
    match opened {
        Ok(()) => writable("state", &folders, format!("{path} can be written, and no run is active")),
        Err(error) => Finding::error("state", error),
    }
}

/// Checks the archive: each folder of an existing archive, also if pages are not kept, because every scan writes its
/// pages there first. A missing archive is not created.
pub(super) fn archive(settings: &Settings) -> Finding {
    let location = &settings.archive_location;
    if let Some(address) = &location.bucket {
        let checked = Bucket::connect(address, &Failpoints::default()).and_then(|bucket| bucket.check());
        match checked.map_err(|error| PipelineError::Archive(error.into())) {
            Err(error) => return Finding::error("archive", error),
            Ok(found) => {
                if let Some(finding) = clock_finding("archive", location, found) {
                    return finding;
                }
            }
        }
    }
    match Archive::exists(location).map_err(PipelineError::Archive) {
        Err(error) => return Finding::error("archive", error),
        Ok(false) => {
            let found = format!("the first run can create {location}");
            return writable("archive", slice::from_ref(&location.path), found);
        }
        Ok(true) => {}
    }
    let opened = pipeline::identity(settings).and_then(|identity| pipeline::archive(settings, &identity));
    match opened.and_then(|archive| Ok(archive.folders()?)) {
        Ok(folders) => writable("archive", &folders, format!("{location} can be written")),
        Err(error) => Finding::error("archive", error),
    }
}

/// Checks the configured warehouses and the folder of the copy for readers. Opens the warehouses that exist; for the
/// others, only checks that they could be created. After runs, a missing warehouse is a problem.
pub(super) fn warehouse(settings: &Settings) -> Finding {
    if let Err(error) = settings.require_warehouse() {
        return Finding::error("warehouse", error);
    }
    if let Some(finding) = buckets(settings) {
        return finding;
    }
    let covered = State::open_if_current(&settings.state_path)
        .and_then(|state| state.map_or(Ok(Vec::new()), |state| state.covered_scopes()));
    // The check of the state reports a state file that cannot be read.
    let has_coverage = covered.is_ok_and(|covered| !covered.is_empty());
    let missing = HealthReason::missing_warehouses(settings, has_coverage).into_iter().next();
    if let Some(HealthReason { text, hint, .. }) = missing {
        return Finding::problem("warehouse", text, hint.unwrap_or_default(), 1);
    }
    let mut existing = settings.clone();
    existing.warehouse.locations = pipeline::existing_warehouses(&settings.warehouse);
    let missing =
        settings.warehouse.locations.iter().filter(|(kind, _)| !existing.warehouse.locations.contains_key(kind));
    let mut results: Vec<String> =
        missing.map(|(_, location)| format!("the first run can create {location}")).collect();
    if existing.require_warehouse().is_ok() {
        let opened = pipeline::identity(settings).and_then(|identity| pipeline::open_warehouses(&existing, &identity));
        match opened {
            Ok(warehouses) => results.extend(
                warehouses
                    .iter()
                    .map(|warehouse| format!("{} at {} can be written", warehouse.name(), warehouse.location())),
            ),
            Err(error) => return Finding::error("warehouse", error),
        }
    }
    writable("warehouse", &pipeline::warehouse_folders(&settings.warehouse), results.join(", "))
}

/// Milliseconds by which the clock of a bucket may differ from this machine's clock. Stores refuse requests beyond.
const SKEW_MAX_MS: u64 = 5 * 60 * 1000;

/// Tries each right that a warehouse in a bucket needs. Returns `None` if all are there.
fn buckets(settings: &Settings) -> Option<Finding> {
    let problem = |place: Place| match place.check_bucket() {
        Ok(found) => found.and_then(|found| clock_finding("warehouse", &place.location, found)),
        Err(error) => {
            Some(Finding::error("warehouse", PipelineError::Load { destination: place.name(), source: error }))
        }
    };
    pipeline::places(&settings.warehouse).into_iter().find_map(problem)
}

/// Returns the problem of a bucket whose clock differs too much from this machine's clock.
fn clock_finding(what: &'static str, location: &Location, found: BucketCheck) -> Option<Finding> {
    if found.clock_ahead_ms.unsigned_abs() <= SKEW_MAX_MS {
        return None;
    }
    let seconds = found.clock_ahead_ms / 1000;
    let text = format!("the clock of {location} is {seconds} seconds ahead of this machine's");
    Some(Finding::problem(what, text, "set this machine's clock, for example with NTP", 1))
}

/// Checks the folder of recordings. Returns `None` if recordings are off.
pub(super) fn recordings(settings: &Settings) -> Option<Finding> {
    if !settings.recordings.is_enabled {
        return None;
    }
    let path = &settings.recordings.path;
    Some(writable("recordings", slice::from_ref(path), format!("{} can be written", path.display())))
}

/// Describes the copies for readers, and checks that the key of pseudonyms can be read. Returns `None` if there is no
/// copy.
pub(super) fn copies(settings: &Settings) -> Option<Finding> {
    let publish = &settings.warehouse.publish;
    let paths: Vec<String> = publish.paths.values().map(|path| path.display().to_string()).collect();
    let paths = paths.join(" and ");
    let what = match &publish.analysts {
        _ if paths.is_empty() => return None,
        None => "a complete copy".to_owned(),
        Some(analysts) if analysts.has_pseudonyms => match analysts.key() {
            Ok(key) => format!("without personal data; pseudonyms with {key}"),
            Err(error) => return Some(Finding::error("publish", error)),
        },
        Some(_) => "without personal data and without pseudonyms".to_owned(),
    };
    Some(match pipeline::analyst_copy(&settings.warehouse) {
        Ok(_) => Finding::ok("publish", format!("{paths}: {what}")),
        Err(error) => Finding::error("publish", error),
    })
}

/// Checks that DuckDB can build the full-text index. Returns `None` if the index is off.
pub(super) fn full_text_search(settings: &Settings) -> Option<Finding> {
    let search = pipeline::full_text_search(&settings.warehouse);
    search.is_on.then(|| match search.check() {
        Ok(path) => Finding::ok("search", format!("DuckDB's extension fts at {} can be loaded", path.display())),
        Err(error) => Finding::error("search", error),
    })
}

/// Checks that DuckDB can load the extensions that catalogs need: of its version and platform, and signed.
pub(super) fn extensions(settings: &Settings) -> Vec<Finding> {
    let of_place = |place: Place| match place.check_extensions() {
        Err(error) => Some(Finding::error("extensions", error)),
        Ok(None) => None,
        Ok(Some(found)) => {
            let files: Vec<String> = found.iter().map(|(name, file)| format!("{name} at {}", file.display())).collect();
            Some(Finding::ok("extensions", format!("DuckDB can load {}", files.join(", "))))
        }
    };
    pipeline::places(&settings.warehouse).into_iter().filter_map(of_place).collect()
}

/// Returns a finding for each file system that has a configured file or folder. File systems whose free space is
/// unknown are left out.
pub(super) fn disks(settings: &Settings) -> Vec<Finding> {
    let warehouse = &settings.warehouse;
    let paths = [&settings.state_path, &settings.archive_location.path].into_iter();
    let of_warehouses = warehouse.locations.values().map(|location| &location.path);
    let paths = paths.chain(of_warehouses).chain(warehouse.publish.paths.values());
    let paths = paths.chain(settings.recordings.is_enabled.then_some(&settings.recordings.path));
    Disk::of_paths(paths).iter().filter_map(|disk| disk_finding(disk, settings)).collect()
}

/// Compares the free space of a disk with the needed space. Returns `None` if the free space is unknown.
fn disk_finding(disk: &Disk<'_>, settings: &Settings) -> Option<Finding> {
    let free = disk.free_bytes()?;
    let folder = disk.folder.display();
    // The new copy for readers is written next to the old copy before it replaces the old one, so it needs its own
    // space.
    let copy = settings.warehouse.publish.paths.get(&WarehouseKind::DuckDb);
    let copy = copy.filter(|copy| disk.paths.contains(copy));
    let warehouse = &settings.warehouse.locations;
    let copied = copy.and(warehouse.get(&WarehouseKind::DuckDb)).and_then(|file| file.path.metadata().ok());
    let needed = FREE_MIN_BYTES + copied.map_or(0, |file| file.len());
    let found = format!("{} free at {folder}", size(free));
    if free >= needed {
        return Some(Finding::ok("disk", found));
    }
    Some(Finding::problem("disk", found, format!("make room: {} are needed there", size(needed)), 1))
}

/// Returns the passed check `found` if a file can be created in each of these folders, else the failure of the first
/// folder that refuses. A run creates a missing folder, so the nearest existing folder above it is tried. To find out,
/// creates a file, and removes the file.
pub(super) fn writable(what: &'static str, folders: &[PathBuf], found: String) -> Finding {
    folders.iter().find_map(|folder| refusal(what, folder)).unwrap_or_else(|| Finding::ok(what, found))
}

/// Returns the failed check if no file can be created in this folder.
fn refusal(what: &'static str, folder: &Path) -> Option<Finding> {
    let folder = with_ancestors(folder).find(|path| path.exists()).unwrap_or(Path::new("."));
    let trial = folder.join(format!(".studysync-check-{}", std::process::id()));
    let created = OpenOptions::new().write(true).create_new(true).open(&trial);
    let error = created.and_then(|_| std::fs::remove_file(&trial)).err()?;
    let found = format!("cannot create a file in {}: {error}", folder.display());
    let what_to_do = refusal_hint(folder, &error, FileAccess::Write).map(str::to_owned);
    Some(Finding { what, is_well: false, found, what_to_do, exit_code: 1 })
}

/// The result of one check, as `check --json` prints it.
#[derive(Serialize)]
pub(super) struct Finding {
    /// The name of the checked thing, for example `warehouse`.
    pub what: &'static str,
    pub is_well: bool,
    /// What the check found, in a sentence.
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_to_do: Option<String>,
    /// The exit code of `check` if this is the first failure.
    #[serde(skip)]
    pub exit_code: u8,
}

impl Finding {
    pub fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, is_well: true, found: found.into(), what_to_do: None, exit_code: 0 }
    }

    /// Returns the finding for an error, with the exit code and the hint of the error.
    pub fn error(what: &'static str, error: impl Into<CommandError>) -> Self {
        let error: CommandError = error.into();
        let what_to_do = error.hint().map(str::to_owned);
        Self { what, is_well: false, exit_code: error.exit_code(), found: error.chain(), what_to_do }
    }

    /// Returns the finding for a problem that is not an error of the program. `exit_code` is that of `check`.
    pub fn problem(what: &'static str, found: String, what_to_do: impl Into<String>, exit_code: u8) -> Self {
        Self { what, is_well: false, found, what_to_do: Some(what_to_do.into()), exit_code }
    }

    /// Returns the finding and its hint as lines of text, wrapped on a terminal.
    pub fn describe(&self) -> String {
        let mark = if self.is_well { "ok  ".to_owned() } else { styled_error("FAIL") };
        let hint = self.what_to_do.as_ref().map(|hint| format!("     {} {hint}", styled_hint("hint:")));
        let hint = hint.map(|hint| hanging_for_terminal(&hint, 11)).unwrap_or_default();
        hanging_for_terminal(&format!("{mark} {:<10} {}", self.what, self.found), 16) + &hint
    }
}
