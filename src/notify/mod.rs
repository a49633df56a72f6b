//! Notifies people when a run fails, needs a look, or works again: by a command, a webhook, or both.
//!
//! In reading order: [`mod@after_run`] (writes the textfile and notifies after a run), [`decision`] (chooses the
//! events), [`message`] (words them), [`outbox`] (stores pending messages on disk), [`delivery`] (sends them by
//! [`command`] and [`webhook`]), [`receiver`] (the form of a message for each kind of webhook).
//!
//! Notifications start after the run released its lease, take a limited time and never fail a run. The next run sends
//! messages that could not be delivered. A message arrives twice if the process is killed directly after sending it.

mod after_run;
mod command;
mod decision;
mod delivery;
mod message;
mod outbox;
mod receiver;
mod webhook;

pub use after_run::{EndedRun, after_report, after_run, between_runs};
pub use delivery::{TestResult, send_test};
pub use outbox::Channel;
