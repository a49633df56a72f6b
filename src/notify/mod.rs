//! Tells people how runs end: a command or a webhook, when a run fails, needs a look, or works again.
//!
//! In reading order: [`after_run`] (what follows a run: the textfile, then this), [`decision`] (what is worth telling),
//! [`message`] (in which words), [`ledger`] (what was told, and what waits, on disk),
//! [`delivery`] (how it goes out: [`command`], [`webhook`]).
//!
//! A run is never held up by it and never fails for it: it begins when the lease is free again, takes a bounded time,
//! and what is not delivered waits for the next run.
//! A message may arrive twice, if the process is killed in the moment after it was sent.

mod after_run;
mod channel;
mod command;
mod decision;
mod delivery;
mod ledger;
mod message;
mod webhook;

pub use after_run::{EndedRun, conclude, refresh};
pub use channel::Channel;
pub use delivery::{TestSent, send_test};
