//! `studysync serve`: receives the service's webhooks and runs `sync` by a schedule. `serve` speaks no TLS; a proxy in
//! front of it has to.
//!
//! In reading order: [`schedule`] (cron expressions), [`due_jobs`] (decides the next job), [`daemon`] (does one job at
//! a time); [`receiver`] (accepts deliveries), [`delivery_queue`] (stores each before it is answered), [`connections`]
//! (limits connections); [`serve_state`] (shared state), [`monitoring`] (derives the health; endpoints for machines),
//! [`status_page`] (page for people), [`notifier`] (notifies about runs).
//!
//! The module `pipeline` does the scans and flushes, as for single commands. A webhook only starts a run earlier.
//! Without the webhook the next run finds the same records, so a lost webhook costs only time.

mod changing_secret;
mod connections;
mod daemon;
mod delivery_queue;
mod due_jobs;
mod error;
mod monitoring;
mod notifier;
mod receiver;
mod report_job;
mod schedule;
mod serve_state;
mod server;
mod status_page;
mod timely_read;

pub use connections::ConnectionLimit;
pub use daemon::Daemon;
pub use delivery_queue::{DeliveryQueue, Storage};
pub use due_jobs::{DueJobs, Job, JobDelays, JobOutcome};
pub use error::ServeError;
pub use monitoring::{HealthMonitor, health_rules};
pub use report_job::WriteReport;
pub use schedule::{Schedule, check_schedule};
pub use serve_state::{Counter, ServeState};
pub use server::{Server, check_status_page, serve_receiver};
