//! `sync`, `backfill` and `users pull`: a run scans what is due, and commits it to every warehouse.
//!
//! [`run`] opens a run, [`execute`] lists its steps, and [`scheduler`] scans its windows in parallel. [`people`] pulls
//! the users, and [`recordings`] downloads recorded answers.

pub mod backlog;
mod commit_queue;
pub mod deliveries;
pub mod execute;
pub mod findings;
pub mod named_surveys;
pub mod people;
pub mod purged;
mod reconcile;
pub mod recordings;
pub mod run;
pub mod sample;
pub mod scan_pool;
mod scheduler;
mod service_checks;
mod untrusted;
mod window_queue;
