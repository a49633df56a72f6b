//! What becomes a part: at once, or with the rows that wait for more. What a part is made of is [`super::part`]'s matter.

use super::{
    Digest, LoadError, ParquetDestination, Pending, RowCounts, ScanId, TableDelta, TreeTargets, ledger,
    part::{self, NewPart},
    publish::LEDGER_TABLE,
};
use crate::load::diff::take_at_once;

impl ParquetDestination {
    /// Runs something that changes the disk; if it fails, the disk is looked at again before the next one.
    pub(super) fn change<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T, LoadError>) -> Result<T, LoadError> {
        self.refresh()?;
        self.is_stale = true;
        let changed = change(self)?;
        self.is_stale = false;
        Ok(changed)
    }

    /// Commits a part: its number is only used up if that works.
    pub(super) fn commit_part(&mut self, id: &str, pending: &Pending, tables: &[TableDelta]) -> Result<(), LoadError> {
        self.change(|this| {
            let (whole, fills) = this.take_whole(pending.tables())?;
            let scans = pending.scans().iter().map(|waiting| waiting.applied.clone()).collect();
            let (number, whole, fills) = (this.next_number, &whole, &fills);
            let new = NewPart { number, id, scans, whole, fills, tables, identity: &this.identity };
            let part = part::write(&this.engine, &this.root, &this.disk, new)?;
            this.waiting.push(part);
            this.next_number += 1;
            Ok(())
        })
    }

    /// See [`super::Destination::stage_if_held`].
    pub(super) fn stage_all_if_held(&mut self, digest: Digest, repeated: u64) -> Result<bool, LoadError> {
        self.commit_pending()?;
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        let stage = self.stage.as_mut().ok_or_else(|| LoadError::Contract("pages came before their scan".into()))?;
        take_at_once(&self.engine, stage, &mut targets, digest, repeated)
    }

    /// Commits a part that tells of no scan.
    pub(super) fn commit_tables(&mut self, id: &str, tables: &[TableDelta]) -> Result<(), LoadError> {
        self.commit_part(id, &Pending::default(), tables)
    }

    /// Commits the rows that wait. If that fails, they go on waiting.
    pub(super) fn commit_pending(&mut self) -> Result<(), LoadError> {
        self.refresh()?;
        let mut pending = std::mem::take(&mut self.pending);
        // An earlier try may have come as far as the rename.
        pending.take_out(|waiting| self.counts_in_parts(&waiting.applied.scan.id).is_some());
        let Some(last) = pending.scans().last().map(|waiting| waiting.applied.scan.id.clone()) else { return Ok(()) };
        let committed = self.commit_part(&last.0, &pending, &[]);
        if committed.is_err() {
            self.pending = pending;
        }
        committed
    }

    /// The counts of a scan in a commit that waits for publish.
    fn counts_in_parts(&self, scan: &ScanId) -> Option<RowCounts> {
        let mut scans = self.waiting.iter().flat_map(|part| &part.manifest.scans);
        scans.find(|held| held.scan.id == *scan).map(|held| held.counts)
    }

    /// The counts of a scan that was applied before.
    pub(super) fn held_counts(&mut self, scan: &ScanId) -> Result<Option<RowCounts>, LoadError> {
        self.refresh()?;
        if let Some(counts) = self.pending.counts_of(scan).or_else(|| self.counts_in_parts(scan)) {
            return Ok(Some(counts));
        }
        let known = match self.tree.scans.take() {
            Some(known) => known,
            None => {
                let relation = self.targets().published(LEDGER_TABLE)?;
                ledger::scans(&self.engine, &relation)?
            }
        };
        // Most that are asked about are new.
        if !self.tree.scans.insert(known).contains(scan) {
            return Ok(None);
        }
        let relation = self.targets().published(LEDGER_TABLE)?;
        ledger::counts_of(&self.engine, &relation, scan)
    }
}
