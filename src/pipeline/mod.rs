//! Connects the stages of a run: pull -> archive -> flatten -> load -> checkpoint.
//!
//! A [`Session`] is a command that holds the lease; a [`Run`] is one execution of `sync` or `backfill`.
//! [`Run::execute`] lists the steps of a run. The scheduler scans windows in parallel, each into a spool, and commits
//! complete scans one after the other. [`commit`](commit::apply_and_commit) defines the steps of a commit. The next run
//! resumes a run that was stopped or killed.

mod assemble;
mod backlog;
mod clock_skew;
mod clocks;
mod commit;
mod commit_note;
mod commit_queue;
mod deliveries;
mod drift;
mod error;
mod execute;
mod failed_start;
mod findings;
mod freeze;
mod frozen;
mod known_lists;
mod limits;
mod list_end;
mod memory;
mod meter;
mod named_surveys;
mod page_buffer;
mod people;
mod pull;
mod pulled_pages;
mod purged;
mod push;
mod rebind;
mod reconcile;
mod recordings;
mod replay;
mod report;
mod request;
mod run;
mod sample;
mod scan;
mod scan_pool;
mod scheduler;
mod service_profile;
mod session;
mod shared_destination;
mod survey_statuses;
mod sync_context;
mod system;
mod theme_measure;
mod theme_times;
mod threads;
mod ties;
mod unknown_surveys;
mod verify;
mod window_queue;

pub use assemble::{
    archive, clear_leftovers, full_text_search, identity, open_warehouses, places, proxies, source_settings,
    warehouse_folders,
};
pub use backlog::{ScopeBacklog, backlog};
pub use clock_skew::{clock_skew_ms, service_time_ms};
pub use clocks::{ClockComparison, ClockSample, compare_clocks, is_clock_in_doubt};
pub use deliveries::{FlushResult, flush_deliveries};
pub use drift::{DriftReport, drift_lines};
pub use error::{Failure, PipelineError, chain};
pub use failed_start::FailedStart;
pub use frozen::Frozen;
pub use limits::{LEARNED_RATE, recall, remember, retry_after_until_ms};
pub use memory::{ByteBudget, Memory, Reservation};
pub use meter::{Meter, Progress, Reach, Reading, Snapshot, Wait, log_progress};
pub use named_surveys::{unknown_in_warehouse, unknown_surveys};
pub use people::{PeopleDue, people_due, refresh_intervals};
pub use purged::edit_receipt_file;
pub use push::{
    ErasedPeople, InputFormat, Push, PushFormat, PushInput, PushReport, PushRequest, PushRows, ResultsFound,
    clean_results, push_dry, search_results,
};
pub use rebind::{is_same_identity, rebind};
pub use recordings::{RecordingsReport, recordings_folders};
pub use replay::{
    RebuiltWarehouse, ReplacedRange, Replay, ReplayProgress, ReplayReport, ReplayRequest, ReplayResult, ReplaySnapshot,
    is_carried_events,
};
pub use report::{Reached, ReportHeader, RunReport, RunTimes, StreamReport};
pub use request::{OPEN_END_MS, PeopleSelection, Request};
pub use run::Run;
pub use sample::{SAMPLE_REQUESTS_MAX, Sample, sample};
pub use service_profile::{KnownBehaviour, MEASURE_REQUESTS_MAX, Measured, known_behaviours, measure_service_profile};
pub use session::Session;
pub use system::System;
pub use threads::until_stopped;
pub use unknown_surveys::{SurveyNames, UnknownSurveys};
pub use verify::{StreamRange, VerifiedWindow, Verify, VerifyReport, VerifyRequest, VerifyTotals};

pub use crate::model::{Outcome, RunReason};
