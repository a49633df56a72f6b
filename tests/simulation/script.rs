//! What a seed plays, as data: the service, and one act after the other. `draw` makes it, `play` plays it.

use std::fmt;

use studysync::model::{DurableStep, FlagSet, Window, format_ms};
use studysync_sandbox::{ChangeRequest, Faults, Settings};

/// All that a seed decides.
#[derive(Clone, Debug)]
pub struct Script {
    pub seed: u64,
    /// The service's data; its faults here are its habits, which never change.
    pub service: Settings,
    /// The only warehouse that there ever is; `None`: each run says which it is told of.
    pub only: Option<Warehouses>,
    pub parquet_by_day: bool,
    pub keeps_pages: bool,
    /// Where a first sync begins: days back from the service's first now.
    pub first_sync_days: u32,
    /// Rows asked for in one call.
    pub page_rows: u32,
    /// Whether there are answers on both probe_pages of every midnight, where windows meet.
    pub plants_edges: bool,
    /// Records that no table can hold.
    pub unplaceable: u64,
    /// Whether everything becomes due by the default tiers at the end, forty days later.
    pub ends_by_tiers: bool,
    /// Whether recordings are fetched.
    pub has_recordings: bool,
    pub acts: Vec<Act>,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Act {
    /// Time goes by for all.
    Pass { ms: u64 },
    /// This machine's clock is set, so far ahead of the service's.
    SetClock { ahead_ms: i64 },
    /// How the service answers from here on.
    Weather(Box<Weather>),
    /// The service's data changes.
    Change(ChangeRequest),
    /// So many rows that had vanished are back.
    Restore { rows: u64 },
    /// The state file is lost.
    LoseState,
    /// The program runs.
    Run(Box<RunPlan>),
}

/// Faults, and the share of requests that find no connection.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    pub faults: Faults,
    pub unconnected_percent: u64,
}

/// Which warehouses a run is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warehouses {
    Both,
    DuckDb,
    Parquet,
}

/// One run of the program.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// `None` syncs.
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
    /// Killed before some durable step, if it comes to it.
    pub kill: Option<Kill>,
    /// Ctrl-C when the n-th request is sent.
    pub cancel_at: Option<u64>,
    /// The service's data changes when the n-th request is sent.
    pub changes: Vec<(u64, ChangeRequest)>,
    /// After a finished backfill, the same again must ask for nothing.
    pub again: bool,
}

/// How a run is killed.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// The n-th of these steps; `None` counts all.
    pub at: Option<DurableStep>,
    pub step: u64,
    /// The last bytes of a spool are lost too: so many thousandths of its last part.
    pub tear: Option<u64>,
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
                Some(_) => "Parquet alone",
            },
            if self.parquet_by_day { "day" } else { "month" },
            if self.keeps_pages { "kept" } else { "not kept" },
        )?;
        writeln!(f, "  edges planted: {}, unplaceable records: {}", self.plants_edges, self.unplaceable)?;
        if self.has_recordings {
            writeln!(f, "  recordings are fetched")?;
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
            Warehouses::Both if self.last_warehouse_first => f.write_str(" Parquet, then DuckDB")?,
            Warehouses::Both => {}
            Warehouses::DuckDb => f.write_str(" DuckDB alone")?,
            Warehouses::Parquet => f.write_str(" Parquet alone")?,
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
        if let Some(count) = self.cancel_at {
            write!(f, "; Ctrl-C at request {count}")?;
        }
        for (at, change) in &self.changes {
            write!(f, "; at request {at}: {}", change_text(change))?;
        }
        if self.again { f.write_str("; and again") } else { Ok(()) }
    }
}

/// What differs from the default, as JSON.
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
