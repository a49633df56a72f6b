//! The script of a seed as data: the service, and a list of acts. `draw` makes it, `play` executes it.

use std::fmt;

use studysync::model::{DurableStep, FlagSet, Window, format_ms};
use studysync_sandbox::{ChangeRequest, Faults, Settings};

use crate::harness::CatalogKind;

/// Everything that a seed determines.
#[derive(Clone, Debug)]
pub struct Script {
    pub seed: u64,
    /// The service's data, and the behaviours that never change, as faults.
    pub service: Settings,
    /// The only warehouse of all runs; `None`: each run names its warehouses.
    pub only: Option<Warehouses>,
    pub parquet_by_day: bool,
    pub keeps_pages: bool,
    /// The start of the first sync: days before the service's initial time.
    pub first_sync_days: u32,
    /// Rows per page.
    pub page_rows: u32,
    /// Whether there are answers on both sides of every midnight, where windows meet.
    pub plants_edges: bool,
    /// The number of records that fit no table.
    pub unplaceable: u64,
    /// Whether everything becomes due by the default re-scan rules at the end, forty days later.
    pub ends_by_tiers: bool,
    /// Whether recordings are downloaded.
    pub has_recordings: bool,
    /// The Parquet warehouse is in a bucket.
    pub bucket: Option<BucketWorld>,
    /// A catalog has the place of the Parquet warehouse.
    pub catalog: Option<CatalogKind>,
    /// Whether a machine without files runs the last backfill and the last sync.
    pub ends_on_new_machine: bool,
    pub acts: Vec<Act>,
}

/// One act of a script.
#[derive(Clone, Debug)]
pub enum Act {
    /// Time passes for the service and this machine.
    Pass { ms: u64 },
    /// Sets this machine's clock to this time ahead of the service's.
    SetClock { ahead_ms: i64 },
    /// Changes how the service answers from now on.
    Weather(Box<Weather>),
    /// Changes the service's data.
    Change(ChangeRequest),
    /// Lists this many vanished rows again.
    Restore { rows: u64 },
    /// Deletes the state file.
    LoseState,
    /// Runs the program.
    Run(Box<RunPlan>),
}

/// Faults, and the share of requests whose connection fails.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    pub faults: Faults,
    pub unconnected_percent: u64,
}

/// The warehouses of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warehouses {
    Both,
    DuckDb,
    /// Parquet, or the catalog.
    Second,
}

/// One run of the program.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// A backfill of this window; `None`: a sync.
    pub backfill: Option<Window>,
    /// Indexes into the service's surveys.
    pub surveys: Vec<usize>,
    pub flags: FlagSet,
    pub warehouses: Warehouses,
    pub last_warehouse_first: bool,
    pub in_flight: usize,
    pub max_requests: Option<u64>,
    pub deadline_ms: Option<u64>,
    pub accept_vanished: bool,
    /// Kills the run before a durable step, if it reaches the step.
    pub kill: Option<Kill>,
    pub bucket: BucketPlan,
    /// Whether the run is on a machine without files of earlier runs.
    pub is_new_machine: bool,
    /// Sends Ctrl-C at the n-th request.
    pub cancel_at: Option<u64>,
    /// Changes the service's data at the n-th request.
    pub changes: Vec<(u64, ChangeRequest)>,
    /// After a finished backfill, the same backfill must send no request.
    pub again: bool,
}

/// A script with a bucket.
#[derive(Clone, Copy, Debug)]
pub struct BucketWorld {
    /// Whether the archive is in the bucket too.
    pub has_archive: bool,
}

/// What a run meets in the bucket. Without a bucket, nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct BucketPlan {
    /// Decides which requests fail.
    pub seed: u64,
    /// The percentage of requests with a fault.
    pub percent: u64,
    /// The last request before a kill.
    pub last: Option<LastRequest>,
}

/// The last request of a killed run to the bucket. It takes effect.
#[derive(Clone, Copy, Debug)]
pub struct LastRequest {
    pub number: usize,
    /// Whether the run receives the answer.
    pub is_answered: bool,
}

/// How a run is killed.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// Counts only these steps; `None` counts all.
    pub at: Option<DurableStep>,
    pub step: u64,
    /// The last bytes of a spool are lost too: this many thousandths of its last part.
    pub tear: Option<u64>,
}

impl Script {
    pub fn has_archive_in_bucket(&self) -> bool {
        self.keeps_pages && self.bucket.is_some_and(|bucket| bucket.has_archive)
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { responses, days, hostile_share, ties_per_ms, deleted_share, .. } = &self.service;
        writeln!(
            f,
            "seed {}: {responses} responses over {days} days, hostile {hostile_share:.2}, deleted {deleted_share:.2}, \
             {ties_per_ms} a millisecond; first sync of {} days; pages of {}; {}; Parquet by {}; pages {}",
            self.seed,
            self.first_sync_days,
            self.page_rows,
            match self.only {
                None => "both warehouses",
                Some(Warehouses::DuckDb) => "DuckDB alone",
                Some(_) => "the second warehouse alone",
            },
            if self.parquet_by_day { "day" } else { "month" },
            if self.keeps_pages { "kept" } else { "not kept" },
        )?;
        writeln!(f, "  edges planted: {}, unplaceable records: {}", self.plants_edges, self.unplaceable)?;
        if self.has_recordings {
            writeln!(f, "  recordings are fetched")?;
        }
        if let Some(bucket) = &self.bucket {
            writeln!(f, "  {bucket:?}")?;
        }
        if let Some(catalog) = &self.catalog {
            writeln!(f, "  {catalog:?} in place of Parquet")?;
        }
        if self.ends_on_new_machine {
            writeln!(f, "  ends on a new machine")?;
        }
        if let Some(rough) = &self.service.rough {
            writeln!(f, "  {rough:?}")?;
        }
        writeln!(f, "  habits: {}", faults_text(&self.service.faults))?;
        for (at, act) in self.acts.iter().enumerate() {
            writeln!(f, "  {:>2}. {act}", at + 1)?;
        }
        Ok(())
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Pass { ms } => write!(f, "{:.2} hours go by", *ms as f64 / 3.6e6),
            Act::SetClock { ahead_ms } => {
                write!(f, "the machine's clock is set {:.2} hours ahead", *ahead_ms as f64 / 3.6e6)
            }
            Act::Weather(weather) => {
                write!(f, "weather: {}, {} % no connection", faults_text(&weather.faults), weather.unconnected_percent)
            }
            Act::Change(change) => write!(f, "change: {}", change_text(change)),
            Act::Restore { rows } => write!(f, "up to {rows} vanished rows are back"),
            Act::LoseState => f.write_str("the state file is lost"),
            Act::Run(plan) => plan.fmt(f),
        }
    }
}

impl fmt::Display for RunPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.backfill {
            None => f.write_str("sync")?,
            Some(window) => {
                write!(f, "backfill --from {} --to {}", format_ms(window.start_ms), format_ms(window.end_ms))?
            }
        }
        self.surveys.iter().try_for_each(|at| write!(f, " --survey #{at}"))?;
        write!(f, " --concurrency {} [{}]", self.in_flight, self.flags)?;
        match self.warehouses {
            Warehouses::Both if self.last_warehouse_first => f.write_str(" second warehouse first")?,
            Warehouses::Both => {}
            Warehouses::DuckDb => f.write_str(" DuckDB alone")?,
            Warehouses::Second => f.write_str(" second warehouse alone")?,
        }
        if let Some(count) = self.max_requests {
            write!(f, " --max-requests {count}")?;
        }
        if let Some(ms) = self.deadline_ms {
            write!(f, " --deadline {ms}ms")?;
        }
        if self.accept_vanished {
            f.write_str(" --accept-vanished")?;
        }
        if let Some(Kill { at, step, tear }) = self.kill {
            let at = at.map_or("step".to_owned(), |at| format!("{at:?}"));
            write!(f, "; killed before {at} {step}")?;
            tear.map_or(Ok(()), |share| write!(f, ", spool torn at {share} ‰"))?;
        }
        if self.is_new_machine {
            f.write_str("; on a new machine")?;
        }
        let BucketPlan { percent, last, .. } = self.bucket;
        if percent > 0 {
            write!(f, "; faults at {percent} % of the requests to the bucket")?;
        }
        if let Some(LastRequest { number, is_answered }) = last {
            let answered = if is_answered { "" } else { ", without an answer" };
            write!(f, "; killed after request {number} to the bucket{answered}")?;
        }
        if let Some(count) = self.cancel_at {
            write!(f, "; Ctrl-C at request {count}")?;
        }
        for (at, change) in &self.changes {
            write!(f, "; at request {at}: {}", change_text(change))?;
        }
        if self.again { f.write_str("; and again") } else { Ok(()) }
    }
}

/// Returns the members that differ from the default, as JSON.
fn difference(all: serde_json::Value, default: serde_json::Value) -> String {
    let (Some(all), Some(default)) = (all.as_object(), default.as_object()) else { return String::new() };
    let changed = all.iter().filter(|(name, value)| default.get(*name) != Some(value));
    let texts: Vec<String> = changed.map(|(name, value)| format!("{name} {value}")).collect();
    if texts.is_empty() { "nothing special".to_owned() } else { texts.join(", ") }
}

fn faults_text(faults: &Faults) -> String {
    difference(serde_json::json!(faults), serde_json::json!(Faults::default()))
}

fn change_text(change: &ChangeRequest) -> String {
    difference(serde_json::json!(change), serde_json::json!(ChangeRequest::default()))
}
