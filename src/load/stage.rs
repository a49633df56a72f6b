//! The pages of one scan, as tables of the engine's schema `stage`.
//!
//! One table for each table that `flatten` fills: its flat columns and `_seq`, the place of the row's record in the scan. It
//! compares nothing; [`super::diff`] does.

use std::collections::{BTreeMap, HashSet};

use crate::model::{FlatPage, Scan};

use super::{LoadError, engine::Engine};

/// The staged pages of one scan. The rows are in the engine; this is what is known of them.
pub struct Stage {
    scan: Scan,
    pages: i64,
    records: u64,
    rejects: u64,
    rows: BTreeMap<&'static str, u64>,
    keys_seen: HashSet<u128>,
    may_repeat: bool,
}

impl Stage {
    /// Makes ready for the pages of a scan; whatever the engine's schemas `stage` and `delta` held is dropped.
    pub fn begin(engine: &Engine, scan: &Scan) -> Result<Self, LoadError> {
        let _ = engine;
        Ok(Self {
            scan: scan.clone(),
            pages: 0,
            records: 0,
            rejects: 0,
            rows: BTreeMap::new(),
            keys_seen: HashSet::new(),
            may_repeat: false,
        })
    }

    /// Takes the next page.
    pub fn add(&mut self, engine: &Engine, page: &FlatPage) -> Result<(), LoadError> {
        let _ = (engine, page, &self.rows, &self.keys_seen, self.pages, self.rejects, self.may_repeat);
        Err(LoadError::Contract("the stage is being written".into()))
    }

    /// The scan whose pages these are.
    pub fn scan(&self) -> &Scan {
        &self.scan
    }

    /// Records of all pages.
    pub fn records(&self) -> u64 {
        self.records
    }
}
