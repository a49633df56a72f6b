//! The request for a push.

use std::path::PathBuf;

use super::input::PushInput;

/// The command name in the lease and in the history of runs.
pub(in super::super) const COMMAND: &str = "users push";

/// What a push should send.
#[derive(Clone, Debug)]
pub struct PushRequest {
    pub input: PushInput,
    /// The results file, with the outcome of each row.
    pub results: PathBuf,
    /// True to report what would be sent, and to send nothing.
    pub is_dry_run: bool,
    /// True to send events again if no answer says whether the service has them.
    pub resends_events: bool,
    /// True to send rows again whose answer is known. Their events are not sent again unless `resends_events` is true.
    pub sends_again: bool,
}
