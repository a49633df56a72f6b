//! The request for a run: what it should read.

use crate::model::Window;

/// The end, in epoch milliseconds, of a backfill without a named end. Such a run ends at the service's time minus the
/// lag.
pub const OPEN_END_MS: i64 = i64::MAX;

/// What a run should read.
#[derive(Clone, Debug)]
pub struct Request {
    /// "sync" or "backfill": for the lease, the history and the report.
    pub command: &'static str,
    /// The window of a backfill, which may end at [`OPEN_END_MS`]. `None` for a sync.
    pub backfill: Option<Window>,
    /// True if any number of vanished rows is accepted (promise P4).
    pub accept_vanished: bool,
    /// The users to request.
    pub people: PeopleSelection,
}

/// The users that a run requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeopleSelection {
    /// Reads the lists, and afterwards requests the users who are due, if the stream of users is enabled.
    #[default]
    AfterLists,
    /// Requests the users who are due, and reads no list.
    Due,
    /// Requests these users, due or not, and reads no list.
    These(Vec<String>),
}
