//! Checks that state, warehouse and recordings can be written, and that DuckDB's extension can be loaded.

use std::path::{Path, PathBuf};

use crate::{
    config::Settings,
    pipeline::{self, PipelineError, Session, System},
};

use super::{finding::Finding, writable::check_can_create};

/// Checks the state file. A missing file is not created, because a new file would be bound to the configured service.
pub(super) fn state(settings: &Settings) -> Finding {
    let path = settings.state_path.display();
    if !settings.state_path.exists() {
        return created_by_first_run("state", &settings.state_path);
    }
    let opened = pipeline::identity(settings).and_then(|identity| {
        let opened = Session::open(settings, &identity, "check", &System::default());
        opened.map(drop).map_err(PipelineError::State)
    });
    match opened {
        Ok(()) => Finding::ok("state", format!("{path} can be written, and no run is active")),
        Err(error) => Finding::error("state", error),
    }
}

/// Checks the configured warehouses. Opens the warehouses that exist; for the others, only checks that they could be
/// created.
pub(super) fn warehouse(settings: &Settings) -> Finding {
    if let Err(error) = settings.require_warehouse() {
        return Finding::error("warehouse", error);
    }
    let exists = |path: &PathBuf| path.exists();
    let mut existing = settings.clone();
    existing.warehouse.duckdb = existing.warehouse.duckdb.filter(exists);
    existing.warehouse.parquet = existing.warehouse.parquet.filter(exists);
    let configured = settings.warehouse.duckdb.iter().chain(&settings.warehouse.parquet);
    let mut results = Vec::new();
    for path in configured.filter(|path| !exists(path)) {
        let finding = created_by_first_run("warehouse", path);
        if !finding.is_well {
            return finding;
        }
        results.push(finding.found);
    }
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
    Finding::ok("warehouse", results.join(", "))
}

/// Checks the folder of recordings. Returns `None` if recordings are off.
pub(super) fn recordings(settings: &Settings) -> Option<Finding> {
    if !settings.recordings.is_enabled {
        return None;
    }
    let path = &settings.recordings.path;
    let trial = if path.is_dir() { path.join("trial") } else { path.clone() };
    Some(match check_can_create(&trial) {
        Ok(()) => Finding::ok("recordings", format!("{} can be written", path.display())),
        Err(error) => Finding::error("recordings", error),
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

fn created_by_first_run(what: &'static str, path: &Path) -> Finding {
    match check_can_create(path) {
        Ok(()) => Finding::ok(what, format!("the first run can create {}", path.display())),
        Err(error) => Finding::error(what, error),
    }
}
