//! The transaction in which scans are applied, from the first change to the seal.

use super::{Below, DuckDbDestination, Engine, LoadError, TableDelta, apply};
use crate::{
    load::{
        Delta,
        pending::{AppliedScan, Pending},
    },
    model::Scan,
};

/// Bytes of rows that may wait to be written: an `INSERT` costs as much as a statement does, whatever it brings.
pub(super) const PENDING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What was applied and is not durable yet.
#[derive(Debug, Default)]
pub(super) struct Unsealed {
    /// Whether a transaction is open.
    is_open: bool,
    /// Rows that are still to be written in it.
    pub(super) rows: Pending,
    /// Whole scans in it.
    scans: u32,
    /// One was given up that had scans in it, and nobody asked yet.
    has_lost: bool,
}

impl DuckDbDestination {
    /// Seals what was applied, and opens the file if it is not.
    pub(super) fn ready(&mut self) -> Result<(), LoadError> {
        self.close_transaction()?;
        self.attach()
    }

    /// Changes the file, which is attached, in the transaction that is open, or in a new one. It is left open.
    pub(super) fn change(&mut self, tables: &[TableDelta]) -> Result<(), LoadError> {
        if !self.unsealed.is_open {
            apply::open(&self.engine)?;
            self.unsealed.is_open = true;
        }
        self.is_dirty = true;
        apply::apply(&self.engine, &self.path, tables)
    }

    /// Lets the rows that a scan adds wait for more, in the transaction, which is open.
    pub(super) fn add_pending(&mut self, scan: &Scan, delta: Delta) -> Result<(), LoadError> {
        if !delta.fills.is_empty() {
            self.unsealed.rows.add(AppliedScan { scan: scan.clone(), counts: delta.counts }, delta.fills);
        }
        if self.unsealed.rows.bytes() >= self.pending_bytes_max { self.write_pending() } else { Ok(()) }
    }

    /// Writes them, so that whatever reads the tables finds them.
    pub(super) fn write_pending(&mut self) -> Result<(), LoadError> {
        let rows = std::mem::take(&mut self.unsealed.rows);
        let fills = match &mut self.below {
            Some(below) => {
                below.fill(rows.tables(), rows.scans().iter().map(|waiting| waiting.applied.scan.clone()))?
            }
            None => rows.tables(),
        };
        apply::fill(&self.engine, &self.path, &fills)
    }

    /// The same, and in every table: what another transaction has filled is to be read as well.
    pub(super) fn show_pending(&mut self) -> Result<(), LoadError> {
        self.write_pending()?;
        if self.below.as_ref().is_some_and(Below::is_filled) { self.close_transaction() } else { Ok(()) }
    }

    /// Changes the file durably.
    pub(super) fn change_now(&mut self, tables: &[TableDelta]) -> Result<(), LoadError> {
        let changed = self.change(tables);
        self.kept(changed)?;
        self.close_transaction()
    }

    /// A scan is in the transaction, if one is open.
    pub(super) fn applied_one(&mut self) {
        self.unsealed.scans += u32::from(self.unsealed.is_open);
    }

    /// After an error nothing of what was not sealed is kept.
    pub(super) fn kept<T>(&mut self, outcome: Result<T, LoadError>) -> Result<T, LoadError> {
        if outcome.is_err() && self.unsealed.is_open {
            self.abandon();
        }
        outcome
    }

    /// An error when scans were lost since the last seal.
    pub(super) fn require_none_lost(&self) -> Result<(), LoadError> {
        match self.unsealed.has_lost {
            true => Err(LoadError::Contract("what was applied before an error is lost with it".into())),
            false => Ok(()),
        }
    }

    /// See [`crate::load::Destination::seal`].
    pub(super) fn seal_transaction(&mut self) -> Result<(), LoadError> {
        let sealed = self.require_none_lost().and_then(|()| self.close_transaction());
        // Whatever was lost is told now.
        self.unsealed.has_lost = false;
        sealed
    }

    pub(super) fn close_transaction(&mut self) -> Result<(), LoadError> {
        if !self.unsealed.is_open {
            return Ok(());
        }
        let closed = self.write_pending().and_then(|()| {
            let close = || apply::close(&self.engine, &self.path);
            self.below.as_mut().map_or_else(close, |below| below.close_beside(close))
        });
        match &closed {
            Ok(()) => (self.unsealed.is_open, self.unsealed.scans) = (false, 0),
            Err(_) => self.abandon(),
        }
        closed
    }

    /// After some failures, a full disk among them, the engine refuses everything until the file is opened anew.
    fn abandon(&mut self) {
        apply::abandon(&self.engine);
        self.unsealed = Unsealed { has_lost: self.unsealed.has_lost || self.unsealed.scans > 0, ..Unsealed::default() };
        (self.stage, self.below) = (None, None);
        // The error that led here is the one to tell; an engine that cannot be opened has its own at the next step.
        if let Ok(engine) = Engine::open(&self.options) {
            self.engine = engine.watched(self.steps.clone());
            self.claim = None;
        }
    }
}
