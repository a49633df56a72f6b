//! The lists of the service, as far as this run has seen them answer.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::model::Stream;

/// A 404 counts as an empty result if the list has answered with a page this short a time ago. A service may lose a
/// list while a run is under way, for example by a deployment.
const FRESH: Duration = Duration::from_secs(10);

/// What the run has seen of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListState {
    /// The list has answered with a page, the last time at this moment.
    Answered(Instant),
    /// The list has refused an invalid request, so it exists. It has answered with no page.
    Exists,
    /// The list has answered every request with 404, also without a range, while other lists answered.
    Empty,
}

/// What the run has seen of each list.
#[derive(Debug, Default)]
pub(super) struct ListsSeen {
    lists: Mutex<BTreeMap<Stream, ListState>>,
    /// Locked while a list is checked, so that concurrent pulls do not send the same check.
    pub asking: tokio::sync::Mutex<()>,
}

impl ListsSeen {
    fn lists(&self) -> MutexGuard<'_, BTreeMap<Stream, ListState>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a list has answered with a page; `None` is ignored.
    pub fn note_page(&self, list: Option<Stream>) {
        if let Some(list) = list {
            self.lists().insert(list, ListState::Answered(Instant::now()));
        }
    }

    /// Records that a list exists although no page was seen.
    pub fn note_existing(&self, list: Stream) {
        self.lists().entry(list).or_insert(ListState::Exists);
    }

    /// Records that a list is taken as empty.
    pub fn note_empty(&self, list: Stream) {
        self.lists().insert(list, ListState::Empty);
    }

    /// Returns true if a 404 of this list is an empty result.
    pub fn is_settled(&self, list: Stream) -> bool {
        match self.lists().get(&list) {
            Some(ListState::Answered(at)) => at.elapsed() < FRESH,
            Some(ListState::Exists | ListState::Empty) => true,
            None => false,
        }
    }

    /// Returns true if the list has answered with a page.
    pub fn has_answered(&self, list: Stream) -> bool {
        matches!(self.lists().get(&list), Some(ListState::Answered(_)))
    }

    /// Returns true if the list is taken as empty.
    pub fn is_taken_as_empty(&self, list: Stream) -> bool {
        self.lists().get(&list) == Some(&ListState::Empty)
    }

    /// Returns true if no list has shown that it exists.
    pub fn is_empty(&self) -> bool {
        self.lists().values().all(|state| *state == ListState::Empty)
    }
}
