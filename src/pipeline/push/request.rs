//! What a push is asked to do.

use std::path::PathBuf;

use super::input::PushInput;

/// The command, as the lease and the history of runs name it.
pub(in super::super) const COMMAND: &str = "users push";
/// What a push is asked to do.
#[derive(Clone, Debug)]
pub struct PushRequest {
    pub input: PushInput,
    /// Where each row's fate is written.
    pub results: PathBuf,
    /// Say what would be sent, and send nothing.
    pub is_dry_run: bool,
    /// Send events once more whose fate is unknown.
    pub resends_events: bool,
    /// Send rows once more whose answer is known; without their events, unless those are to be sent again too.
    pub sends_again: bool,
}
