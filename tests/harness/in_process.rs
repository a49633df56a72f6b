//! Work of the program in this process, which a test stops before a durable step, as a kill would.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use studysync::{
    config,
    model::{DurableStep, Failpoints, WarehouseKind},
};

use super::{KEY, Place};

/// The durable steps that were begun, in their order.
pub type Steps = Arc<Mutex<Vec<DurableStep>>>;

/// Copies a folder with its content.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

impl Place {
    /// Replaces the content of the place by a copy of it.
    pub fn restore(&self, copy: &Path) {
        for entry in fs::read_dir(self.root()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
        copy_folder(copy, self.root());
    }

    /// Returns the settings of work in this process: those of the place's files, without its flags.
    pub fn settings(&self, service: &str) -> config::Settings {
        fs::write(self.path("key"), KEY).unwrap();
        let overrides = config::Overrides {
            config: Some(self.path("studysync.toml")),
            base_url: Some(service.to_owned()),
            api_key_file: Some(self.path("key")),
            warehouses: [(WarehouseKind::DuckDb, self.duckdb()), (WarehouseKind::Parquet, self.parquet())].into(),
            state: Some(self.state()),
            archive: Some(config::ArchiveChoice::Folder(self.path("archive"))),
            ..config::Overrides::default()
        };
        config::resolve(overrides).unwrap()
    }

    /// Returns failpoints that stop before the step that `stops` selects by its number, from 1, and copy the place to
    /// `killed` then: later writes of the process do not count.
    pub fn killed_before(
        &self,
        killed: &Path,
        stops: impl Fn(usize, DurableStep) -> bool + Send + Sync + 'static,
    ) -> (Failpoints, Steps) {
        let taken = Steps::default();
        let (seen, root, killed) = (Arc::clone(&taken), self.root().to_owned(), killed.to_owned());
        let failpoints = Failpoints::with_hook(move |step| {
            let mut seen = seen.lock().unwrap();
            seen.push(step);
            let is_killed = stops(seen.len(), step);
            if is_killed {
                copy_folder(&root, &killed);
            }
            is_killed
        });
        (failpoints, taken)
    }
}
