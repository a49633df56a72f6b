//! What a verify is asked to do, and one window of it.

use crate::{
    model::{FlagSet, Scope, Window},
    plan::{Due, Reason},
};

/// What a verify is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct VerifyRequest {
    pub from_ms: i64,
    /// `None`: where the coverage ends.
    pub to_ms: Option<i64>,
    /// Rows that are named of each kind of difference of a window.
    pub keys_max: usize,
}

/// One window to look at.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub scope: Scope,
    pub window: Window,
    /// What its last scan asked for, and so what the warehouse can know.
    pub flags: FlagSet,
    pub page_rows: u32,
    /// When it was last read, by the service's clock; epoch milliseconds.
    pub read_ms: i64,
    /// Whether this is a part of a window that did not come.
    pub is_part: bool,
    /// Whether the settings ask for some states of surveys alone.
    pub is_part_of_all: bool,
}

impl Task {
    pub fn due(&self) -> Due {
        Due { window: self.window, reason: Reason::Rescan }
    }
}
