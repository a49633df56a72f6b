//! Checks that state, archive, warehouse and recordings can be written, and that DuckDB's extension can be loaded.

use std::slice;

use crate::{
    config::Settings,
    files,
    pipeline::{self, PipelineError, Session, System},
};

use super::{finding::Finding, writable};

/// Checks the state file, its folder, and the folder of erasures. A missing file is not created, because a new file
/// would be bound to the configured service.
pub(super) fn state(settings: &Settings) -> Finding {
    let path = settings.state_path.display();
    let folders = [files::folder_of(&settings.state_path).to_owned(), settings.erasures_folder()];
    if !settings.state_path.exists() {
        return writable::folders("state", &folders, format!("the first run can create {path}"));
    }
    let opened = pipeline::identity(settings).and_then(|identity| {
        let opened = Session::open(settings, &identity, "check", &System::default());
        opened.map(drop).map_err(PipelineError::State)
    });
    match opened {
        Ok(()) => writable::folders("state", &folders, format!("{path} can be written, and no run is active")),
        Err(error) => Finding::error("state", error),
    }
}

/// Checks the archive: each folder of an existing archive, also if pages are not kept, because every scan writes its
/// pages there first. A missing archive is not created.
pub(super) fn archive(settings: &Settings) -> Finding {
    let root = &settings.archive_root;
    if !root.exists() {
        return writable::folders(
            "archive",
            slice::from_ref(root),
            format!("the first run can create {}", root.display()),
        );
    }
    let opened = pipeline::identity(settings).and_then(|identity| pipeline::archive(settings, &identity));
    match opened.and_then(|archive| Ok(archive.folders()?)) {
        Ok(folders) => writable::folders("archive", &folders, format!("{} can be written", root.display())),
        Err(error) => Finding::error("archive", error),
    }
}

/// Checks the configured warehouses and the folder of the copy for readers. Opens the warehouses that exist; for the
/// others, only checks that they could be created.
pub(super) fn warehouse(settings: &Settings) -> Finding {
    if let Err(error) = settings.require_warehouse() {
        return Finding::error("warehouse", error);
    }
    let mut existing = settings.clone();
    existing.warehouse.paths.retain(|_, path| path.exists());
    let missing = settings.warehouse.paths.values().filter(|path| !path.exists());
    let mut results: Vec<String> = missing.map(|path| format!("the first run can create {}", path.display())).collect();
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
    writable::folders("warehouse", &pipeline::warehouse_folders(&settings.warehouse), results.join(", "))
}

/// Checks the folder of recordings. Returns `None` if recordings are off.
pub(super) fn recordings(settings: &Settings) -> Option<Finding> {
    if !settings.recordings.is_enabled {
        return None;
    }
    let path = &settings.recordings.path;
    Some(writable::folders("recordings", slice::from_ref(path), format!("{} can be written", path.display())))
}

/// Checks that DuckDB can build the full-text index. Returns `None` if the index is off.
pub(super) fn full_text_search(settings: &Settings) -> Option<Finding> {
    let search = pipeline::full_text_search(&settings.warehouse);
    search.is_on.then(|| match search.check() {
        Ok(path) => Finding::ok("search", format!("DuckDB's extension fts at {} can be loaded", path.display())),
        Err(error) => Finding::error("search", error),
    })
}
