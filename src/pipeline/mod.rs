//! Connects the stages of a run: pull -> archive -> flatten -> load -> checkpoint.
//!
//! A [`Session`] is a command that holds the lease; a [`Run`] is one execution of `sync` or `backfill`.
//! [`Run::execute`] lists the steps of a run. The scheduler scans windows in parallel, each into a spool, and commits
//! complete scans one after the other. [`commit`](scan::commit::apply_and_commit) defines the steps of a commit. The
//! next run resumes a run that was stopped or killed.
//!
//! One folder for each thing that a person asks for: [`sync`], [`verify`], [`push`], [`replay`], and the
//! [`service_profile`] of `check --behaviours`. [`scan`] is what a run and a verification share. The files of this
//! folder are for all of them.

mod assemble;
mod drift;
mod error;
mod kept_state;
mod key_test;
mod known_lists;
mod limits;
mod memory;
mod meter;
mod push;
mod rebind;
mod replay;
mod report;
mod scan;
mod service_profile;
mod session;
mod sync;
mod threads;
mod verify;
mod workers_wait;

pub use assemble::{
    System, analyst_copy, archive, clear_leftovers, existing_warehouses, full_text_search, has_archive, identity,
    open_warehouses, places, proxies, source_settings, warehouse_folders,
};
pub use drift::{DriftReport, Frozen, drift_lines};
pub use error::{Failure, PipelineError, SurveyNames, UnknownSurveys, chain};
pub use kept_state::fetch_state;
pub use key_test::{short_lived_source, store_rate_limits, test_key};
pub use limits::{LEARNED_RATE, recall, remember, retry_after_until_ms};
pub use memory::{ByteBudget, Memory, Reservation};
pub use meter::{Meter, Progress, Reach, Reading, Snapshot, Wait, log_progress};
pub use push::{
    ErasedPeople, InputFormat, Push, PushFormat, PushInput, PushReport, PushRequest, PushRows, ResultsFound,
    clean_results, export_results, push_dry, search_results,
};
pub use rebind::{is_same_identity, rebind};
pub use replay::{
    RebuiltWarehouse, ReplacedRange, Replay, ReplayProgress, ReplayReport, ReplayRequest, ReplayResult, ReplaySnapshot,
    is_carried_events,
};
pub use report::{Reached, RecordingsReport, ReportHeader, RunReport, RunTimes, StreamReport};
pub use service_profile::{
    MEASURE_REQUESTS_MAX,
    clocks::{ClockComparison, ClockSample, clock_skew_ms, compare_clocks, is_clock_in_doubt, service_time_ms},
    measure_service_profile,
    report::{KnownBehaviour, Measured, known_behaviours},
};
pub use session::Session;
pub use sync::{
    backlog::{ScopeBacklog, ValidCoverage, backlog},
    deliveries::{FlushResult, flush_deliveries},
    execute::SNAPSHOTS,
    named_surveys::{unknown_in_warehouse, unknown_surveys},
    people::{PeopleDue, people_due, refresh_intervals},
    purged::edit_receipt_file,
    recordings::progress::recordings_folders,
    run::{FailedStart, OPEN_END_MS, PeopleSelection, Request, Run},
    sample::{SAMPLE_REQUESTS_MAX, Sample, sample},
};
pub use threads::until_stopped;
pub use verify::{StreamRange, VerifiedWindow, Verify, VerifyReport, VerifyRequest, VerifyTotals};

pub use crate::model::{Outcome, RunReason};
