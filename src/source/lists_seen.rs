//! The lists of the service that are known to exist.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use crate::model::Stream;

/// The lists that are known to exist, because they have answered.
#[derive(Debug, Default)]
pub(super) struct ListsSeen {
    lists: Mutex<BTreeSet<Stream>>,
    /// Locked while a list is checked, so that concurrent pulls do not send the same check.
    pub asking: tokio::sync::Mutex<()>,
}

impl ListsSeen {
    /// Records that a list exists; `None` is ignored.
    pub fn note(&self, list: Option<Stream>) {
        if let Some(list) = list {
            self.lists.lock().unwrap_or_else(PoisonError::into_inner).insert(list);
        }
    }

    pub fn has(&self, list: Stream) -> bool {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner).contains(&list)
    }

    pub fn is_empty(&self) -> bool {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}
