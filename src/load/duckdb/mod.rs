//! The warehouse as one DuckDB file.
//!
//! The file is attached to the in-memory engine while there is something to do, and let go by [`Destination::publish`]: DuckDB
//! locks a file against every other process for as long as one has it open for writing, and analysts want to read it between
//! runs. A process must not read the file by other means while it is attached here: closing that other handle would drop the
//! lock, which belongs to the process and not to the handle.

mod apply;
mod catalog;
mod file;

pub(super) use file::explain;

use std::path::{Path, PathBuf};

use super::{
    Applied, CommitOptions, Destination, Identity, LedgerEntry, LoadError, RunRecord, Stage, Targets, TimeBounds,
    diff::{diff, stage_run},
    engine::{Engine, EngineOptions},
    ledger,
};
use crate::{
    model::{FlatPage, Scan, ScanId},
    schema::{Table, quote_identifier},
};

/// Under which name the file is attached.
const CATALOG: &str = "warehouse";

/// The warehouse in one DuckDB file.
pub struct DuckDbDestination {
    engine: Engine,
    path: PathBuf,
    identity: Identity,
    stage: Option<Stage>,
    is_attached: bool,
    /// Whether something was committed since the last checkpoint.
    is_dirty: bool,
}

impl DuckDbDestination {
    /// Opens the warehouse; creates the file, its folder and the tables on first use. The file stays open until
    /// [`Destination::publish`] or [`DuckDbDestination::release`], and is opened again when needed.
    ///
    /// # Errors
    /// `Locked` if another process has the file open, `OtherIdentity`, `Newer` or `NotOurs` if it is not this warehouse.
    pub fn open(path: &Path, identity: &Identity, options: &EngineOptions) -> Result<Self, LoadError> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|source| LoadError::Io {
                action: "create the folder",
                path: folder.to_owned(),
                source,
            })?;
        }
        let mut destination = Self {
            engine: Engine::open(options)?,
            path: path.to_owned(),
            identity: identity.clone(),
            stage: None,
            is_attached: false,
            is_dirty: false,
        };
        destination.attach()?;
        Ok(destination)
    }

    /// Closes the file, so that other processes can open it. A scan that is being staged is not touched.
    pub fn release(&mut self) -> Result<(), LoadError> {
        if self.is_attached {
            file::detach(&self.engine, &self.path)?;
            self.is_attached = false;
        }
        Ok(())
    }

    fn attach(&mut self) -> Result<(), LoadError> {
        if self.is_attached {
            return Ok(());
        }
        file::attach(&self.engine, &self.path)?;
        self.is_attached = true;
        let ready = catalog::make_ready(&self.engine, &self.path, &self.identity);
        match ready {
            Ok(()) => Ok(()),
            Err(error) => {
                // The first error is the one to tell.
                self.release().ok();
                Err(error)
            }
        }
    }
}

impl Destination for DuckDbDestination {
    fn name(&self) -> &'static str {
        "duckdb"
    }

    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn holds(&mut self, scan: &ScanId) -> Result<bool, LoadError> {
        self.attach()?;
        Ok(ledger::counts_of(&self.engine, &qualified("sync_windows"), scan)?.is_some())
    }

    fn ledger(&mut self) -> Result<Vec<LedgerEntry>, LoadError> {
        self.attach()?;
        ledger::entries(&self.engine, &qualified("sync_windows"))
    }

    fn begin(&mut self, scan: &Scan) -> Result<(), LoadError> {
        self.stage = None;
        self.stage = Some(Stage::begin(&self.engine, scan)?);
        Ok(())
    }

    fn stage(&mut self, page: &FlatPage) -> Result<(), LoadError> {
        let stage = self.stage.as_mut().ok_or_else(|| LoadError::Contract("a page before begin".into()))?;
        stage.add(&self.engine, page)
    }

    fn commit(&mut self, scan: &Scan, options: &CommitOptions) -> Result<Applied, LoadError> {
        let stage = self.stage.take().filter(|stage| stage.scan() == scan);
        self.attach()?;
        if let Some(counts) = ledger::counts_of(&self.engine, &qualified("sync_windows"), &scan.id)? {
            Stage::clear(&self.engine)?;
            return Ok(Applied { counts, wrote: false, was_held: true });
        }
        let stage = stage.ok_or_else(|| LoadError::Contract("a commit of a scan that was not staged".into()))?;
        let delta = diff(&self.engine, &stage, &mut Attached, options)?;
        let wrote = !delta.is_empty();
        if wrote {
            apply::apply(&self.engine, &self.path, &delta.tables)?;
            self.is_dirty = true;
        }
        Stage::clear(&self.engine)?;
        Ok(Applied { counts: delta.counts, wrote, was_held: false })
    }

    fn publish(&mut self) -> Result<(), LoadError> {
        if self.is_dirty {
            self.attach()?;
            file::checkpoint(&self.engine, &self.path)?;
            self.is_dirty = false;
        }
        self.release()
    }

    fn record_run(&mut self, run: &RunRecord) -> Result<(), LoadError> {
        self.attach()?;
        let table = stage_run(&self.engine, run)?;
        apply::apply(&self.engine, &self.path, &[table])?;
        self.is_dirty = true;
        Ok(())
    }
}

/// The attached file's tables, as the comparison reads them. Their zone maps prune by constant bounds.
struct Attached;

impl Targets for Attached {
    fn relation(&mut self, table: &'static Table, _bounds: Option<TimeBounds>) -> Result<String, LoadError> {
        Ok(qualified(&table.name))
    }
}

/// The name of one of our tables as SQL.
fn qualified(table: &str) -> String {
    format!("{CATALOG}.main.{}", quote_identifier(table))
}

#[cfg(test)]
mod tests;
