//! What a run is asked to do.

use crate::model::Window;

/// Where a backfill ends that is to bring all there is: what is settled by the service's clock. Epoch milliseconds.
pub const OPEN_END_MS: i64 = i64::MAX;

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct Request {
    /// "sync" or "backfill": for the lease, the history and the report.
    pub command: &'static str,
    /// The window of a backfill, to [`OPEN_END_MS`] for all there is; `None` syncs.
    pub backfill: Option<Window>,
    /// Whether all vanished rows are believed, however many (promise P4).
    pub accept_vanished: bool,
    /// Which people are asked for.
    pub people: PeopleAsk,
}

/// Which people a run asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeopleAsk {
    /// Those who are due, after the lists, if the stream is enabled.
    #[default]
    AfterLists,
    /// Those who are due, and no lists.
    Due,
    /// These, due or not, and no lists.
    These(Vec<String>),
}
