//! Runs a script act by act, checks after each act, and compares with the service at the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use studysync::{
    clock::Clock,
    model::{DAY_MS, Flag, FlagSet, HOUR_MS, MINUTE_MS, Rng, Window},
    pipeline::{PeopleSelection, PipelineError, Progress, Request, Run, RunReport, System, chain, fetch_state},
};
use studysync_sandbox::{Faults, ListName, Order};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{
    bucket::{BUCKET, ScriptedBucket},
    checks::{self, Ended, Likeness},
    contents::{Contents, ContentsReader},
    killer::{Watch, spools},
    oracle::Oracle,
    script::{Act, BucketPlan, RunPlan, Script, Warehouses, Weather},
    service::ScriptedService,
    settings::settings_of,
};
use crate::harness::{
    Catalog, CatalogKind, WarehousePlace, assert_rows_equal, connect, expected::settled_ms, put_empty_warehouse,
};

/// Longer than the re-scan interval of the oldest rows.
const ALL_IS_DUE_MS: u64 = 40 * DAY_MS as u64;
/// Most seeds end with this rule and two more hours instead, because forty more days are many empty windows.
const SHORT_RULE: &str = "rescan = [\"all every 1h\"]\n";
const SHORT_RULE_IS_DUE_MS: u64 = 2 * HOUR_MS as u64;

/// The result of a script.
#[derive(Clone, Debug, Default)]
pub struct Played {
    pub runs: u64,
    pub kills: u64,
    pub requests: u64,
    pub durable_steps: u64,
    /// A digest of every request. It shows whether a seed is replayed exactly.
    pub digest: u64,
}

/// A script in progress.
struct Play<'a> {
    script: &'a Script,
    service: ScriptedService,
    folder: TempDir,
    bucket: Option<ScriptedBucket>,
    catalog: Option<Catalog>,
    /// How far this machine's clock is ahead of the service's.
    ahead_ms: Arc<AtomicI64>,
    rng: Rng,
    is_calm: bool,
    /// Whether both warehouses took part in every run and must therefore be equal.
    are_twins: bool,
    /// Whether the histories of runs must be equal too: no run was killed between the two commits.
    are_runs_twins: bool,
    oracle: Oracle<'a>,
    reader: ContentsReader,
    /// Whether no run has ended in order since the last kill.
    was_killed: bool,
    /// Whether the last run that opened the Parquet warehouse was killed, maybe while it published. The next run that
    /// opens it completes that publish.
    is_parquet_torn: bool,
    /// Whether a run scanned single surveys without deleted answers. An answer that was deleted after the scan of all
    /// surveys has vanished for such a run, and a backfill does not re-scan what all surveys cover.
    was_blind_to_deleted: bool,
    /// The scan ids of each ledger.
    ledgers: BTreeMap<&'static str, BTreeSet<String>>,
    /// The notes of the last run.
    last_notes: Vec<String>,
    /// The re-scan rule; empty for the default.
    rescan: &'static str,
    played: Played,
}

/// The folder of a DuckLake in the folder of the machine.
const VOLUME: &str = "lake";

/// In one of this many scripts with DuckDB only, the first run creates the warehouse. Creating tables and views takes
/// longer than the runs of a light script.
const CREATED_BY_RUN: u64 = 8;

/// Runs a script to its end; panics if an assertion fails.
pub async fn play(script: &Script) -> Played {
    let folder = TempDir::with_prefix_in("simulation-", "/dev/shm").or_else(|_| TempDir::new()).unwrap();
    let root = folder.path().join("place");
    fs::create_dir_all(root.join(VOLUME)).unwrap();
    let catalog = script.catalog.map(|kind| match kind {
        CatalogKind::DuckLakeFile => Catalog::new(kind, &root.join(VOLUME)),
        // A commit may reach the server after the copy of a kill.
        _ => Catalog::new(kind, folder.path()),
    });
    let mut play = Play {
        script,
        catalog,
        service: ScriptedService::start(script),
        folder,
        bucket: script.bucket.map(|_| ScriptedBucket::start()),
        ahead_ms: Arc::default(),
        rng: Rng::seeded(script.seed),
        is_calm: true,
        are_twins: true,
        are_runs_twins: true,
        oracle: Oracle::new(script),
        reader: ContentsReader::default(),
        was_killed: false,
        is_parquet_torn: false,
        was_blind_to_deleted: false,
        ledgers: BTreeMap::new(),
        last_notes: Vec::new(),
        rescan: "",
        played: Played::default(),
    };
    // A kill after the first durable step leaves such a warehouse too.
    if script.only == Some(Warehouses::DuckDb) && !script.seed.is_multiple_of(CREATED_BY_RUN) {
        put_empty_warehouse(&play.root().join("warehouse.duckdb"));
    }
    // Records that arrive during the first run did not exist from the beginning.
    play.oracle.learn(&play.service);
    for (at, act) in script.acts.iter().enumerate() {
        super::say(|| format!("{:>2}. {act}", at + 1));
        play.act(act).await;
    }
    play.finale().await;
    play.catalog.iter().for_each(|catalog| catalog.remove(&connect()));
    play.played
}

impl Play<'_> {
    fn root(&self) -> PathBuf {
        self.folder.path().join("place")
    }

    async fn act(&mut self, act: &Act) {
        match act {
            Act::Pass { ms } => drop(self.service.control().advance_clock(*ms)),
            Act::SetClock { ahead_ms } => self.ahead_ms.store(*ahead_ms, Ordering::SeqCst),
            Act::Weather(weather) => self.set_weather(weather),
            Act::Change(change) => self.service.change(change),
            Act::Restore { rows } => self.service.restore(*rows),
            Act::LoseState => {
                // The state file recorded that a killed scan is in one warehouse and not in the other.
                self.are_twins = false;
                for suffix in ["", "-wal", "-shm"] {
                    let _ = fs::remove_file(self.root().join(format!("state/checkpoints.sqlite{suffix}")));
                }
            }
            Act::Run(plan) => {
                let ended = self.run(plan).await;
                self.check_after(plan, &ended);
                let report = ended.report.as_ref();
                let is_finished =
                    report.is_some_and(|report| matches!(report.header.exit_code, 0 | 3)) && !ended.was_killed;
                let waiting = report.and_then(|report| report.recordings).map_or(0, |recordings| recordings.waiting);
                if plan.again && is_finished && waiting == 0 {
                    self.ask_for_nothing(plan).await;
                }
            }
        }
    }

    /// Removes the files of the machine, except recordings and a DuckLake, which are on volumes of their own.
    fn lose_disk(&self) {
        for entry in fs::read_dir(self.root()).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("recordings") || path.ends_with(VOLUME) => {}
                true => fs::remove_dir_all(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }
    }

    fn set_weather(&mut self, weather: &Weather) {
        self.is_calm = weather.unconnected_percent == 0 && weather.faults == self.script.service.faults;
        self.service.set_weather(weather);
    }

    /// Returns whether the service answers 404 for a list that had rows and has none now. A key that may no longer read
    /// the list receives the same answer, so the program fails and deletes nothing (promise P4).
    fn looks_like_a_lost_permission(&self) -> bool {
        self.service.control().faults().not_found_when_empty && self.service.truth(ListName::Responses).is_empty()
    }

    /// Asserts that the same backfill again sends no request (promise P6).
    async fn ask_for_nothing(&mut self, plan: &RunPlan) {
        let settled_ms = self.service.control().now_ms() - 30 * MINUTE_MS;
        let Some(window) = plan.backfill.filter(|window| window.end_ms < settled_ms) else { return };
        let again = RunPlan {
            backfill: Some(window),
            max_requests: None,
            deadline_ms: None,
            kill: None,
            bucket: BucketPlan::default(),
            // A new machine scans surveys without rows again: their ids may be mistyped.
            is_new_machine: plan.is_new_machine && plan.surveys.is_empty(),
            cancel_at: None,
            changes: Vec::new(),
            ..plan.clone()
        };
        super::say(|| format!("    {again}"));
        let mut may_ask = self.is_in_doubt();
        while self.is_anything_asked(&again).await {
            assert!(may_ask, "a finished backfill asked again: {:?}", self.last_notes);
            // Every run scans a window that needs a recheck, until a scan is certain.
            may_ask = self.is_in_doubt();
            if may_ask {
                return;
            }
        }
    }

    async fn is_anything_asked(&mut self, again: &RunPlan) -> bool {
        let ended = self.run(again).await;
        self.check_after(again, &ended);
        ended.report.is_some_and(|report| report.requests.total > 0 && matches!(report.header.exit_code, 0 | 3))
    }

    fn is_in_doubt(&self) -> bool {
        let is_doubt = |note: &String| note.contains("every run probes again") || note.contains("--accept-vanished");
        self.last_notes.iter().any(is_doubt)
    }

    fn survey_ids(&self) -> Vec<i64> {
        let records = self.service.truth(ListName::Surveys);
        let ids = records.iter().filter_map(|record| {
            let value: serde_json::Value = serde_json::from_str(record).ok()?;
            value["id"].as_i64()
        });
        ids.collect()
    }

    /// Executes one run of the program and returns its result.
    async fn run(&mut self, plan: &RunPlan) -> Ended {
        self.are_twins &= plan.warehouses == Warehouses::Both;
        self.was_blind_to_deleted |= !plan.surveys.is_empty() && !plan.flags.contains(Flag::WithDeletedResponses);
        let stop = CancellationToken::new();
        self.service.expect_run(&plan.changes, plan.cancel_at.map(|at| (at, stop.clone())));
        self.service.control().clear_log();
        let left_spools = spools(&self.root()).len();
        let settled_ms = settled_ms(self.service.control().now_ms());
        let real = std::time::Instant::now();
        if plan.is_new_machine {
            self.lose_disk();
        }
        if plan.is_new_machine || self.catalog.is_some() {
            // A ledger cannot tell the order of scans that began in the same millisecond.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let (watch, steps, die) = Watch::over(&self.root(), plan.kill, self.bucket.clone());
        self.bucket.iter().for_each(|bucket| bucket.expect_run(plan.bucket, plan.is_new_machine, Arc::clone(&die)));
        let (control, ahead_ms) = (self.service.control(), self.ahead_ms.clone());
        let system = System {
            clock: Clock::simulated(move || control.now_ms() + ahead_ms.load(Ordering::SeqCst)),
            rng: self.rng.clone(),
            transport: self.service.transport(),
            failpoints: steps,
            engine_threads: Some(1),
            last_warehouse_first: plan.last_warehouse_first,
        };
        let request = Request {
            command: if plan.backfill.is_some() { "backfill" } else { "sync" },
            backfill: plan.backfill,
            accept_vanished: plan.accept_vanished,
            people: PeopleSelection::AfterLists,
        };
        let (folder, surveys) = (self.folder.path(), self.survey_ids());
        let (bucket, catalog) = (self.bucket.as_ref(), self.catalog.as_ref());
        let settings = settings_of(self.script, plan, folder, self.rescan, &surveys, bucket, catalog);
        // A command does without the state of the last run if it cannot have it.
        let _ = fetch_state(&settings);
        let run = Run::open_in(settings, request, stop, Arc::new(Progress::default()), system).await;
        let (report, error): (Option<RunReport>, Option<PipelineError>) = match run {
            Ok(run) => {
                let (report, outcome) = run.execute().await;
                (Some(report), outcome.err())
            }
            Err(failed) => (None, Some(failed.error)),
        };
        let log = self.service.log();
        self.played.runs += 1;
        self.played.requests += log.len() as u64;
        self.played.durable_steps += watch.taken();
        for entry in &log {
            let text = format!("{} {:?} {} {}", entry.arrived_us, entry.query, entry.status, entry.rows);
            self.played.digest = text
                .bytes()
                .fold(self.played.digest, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        }
        let spools_max = watch.spools_max();
        self.bucket.iter().for_each(ScriptedBucket::end_run);
        let is_of_bucket = |error: &PipelineError| plan.bucket.percent > 0 && chain(error).contains(BUCKET);
        let was_killed = watch.bury() || error.as_ref().is_some_and(is_of_bucket);
        self.played.kills += u64::from(was_killed);
        self.are_runs_twins &= !was_killed;
        if plan.warehouses != Warehouses::DuckDb && (was_killed || report.is_some()) {
            self.is_parquet_torn = was_killed;
        }
        super::say(|| checks::line(report.as_ref(), error.as_ref(), was_killed));
        super::say(|| format!("       {} ms real", real.elapsed().as_millis()));
        Ended { report, error, was_killed, log, settled_ms, left_spools, spools_max }
    }

    /// Reads the warehouses as readers see them.
    fn warehouses(&mut self) -> Vec<Contents> {
        let root = self.root();
        let (duckdb, mut parquet) = (root.join("warehouse.duckdb"), root.join("parquet"));
        if let Some(bucket) = &self.bucket {
            parquet = root.with_extension("bucket");
            bucket.mirror(&parquet);
        }
        let second = match &self.catalog {
            Some(catalog) => (catalog.warehouse_kind().name(), WarehousePlace::Catalog(catalog)),
            None => ("Parquet", WarehousePlace::Parquet(&parquet)),
        };
        self.reader.read(self.script, &[("DuckDB", WarehousePlace::DuckDb(&duckdb)), second])
    }

    fn likeness(&self) -> Likeness {
        match (self.are_runs_twins, self.script.plants_edges) {
            (true, _) => Likeness::InAll,
            // The killed run had recorded the recording in only one of the warehouses.
            (false, _) if self.script.has_recordings => Likeness::InContent,
            (false, false) => Likeness::ButRuns,
            (false, true) => Likeness::InContent,
        }
    }

    /// Returns whether the list can be read completely. A shuffled list that changes during paging can move a row to a
    /// page that was already read.
    fn is_readable(&self) -> bool {
        let changes = self.script.acts.iter().any(|act| matches!(act, Act::Run(plan) if !plan.changes.is_empty()));
        self.script.service.faults.order != Order::Shuffled || !changes
    }

    /// The assertions after every run.
    fn check_after(&mut self, plan: &RunPlan, ended: &Ended) {
        let is_calm = self.is_calm && !self.looks_like_a_lost_permission();
        ended.check(plan, is_calm, &self.root(), self.bucket.as_ref());
        let real = std::time::Instant::now();
        self.oracle.learn(&self.service);
        self.last_notes = ended.report.as_ref().map(|report| report.notes.clone()).unwrap_or_default();
        let exit_code = ended.report.as_ref().map(|report| report.header.exit_code).filter(|_| !ended.was_killed);
        let is_backfilled = plan.backfill.is_some() && matches!(exit_code, Some(0 | 3));
        // Rows that the run did not change were checked before.
        let has_changed = ended.changes().values().any(|rows| *rows > 0);
        if !ended.was_killed && !has_changed && !is_backfilled && !self.was_killed {
            return;
        }
        self.was_killed = ended.was_killed || (self.was_killed && !matches!(exit_code, Some(0 | 3 | 6)));
        let (contents, root) = (self.warehouses(), self.root());
        let is_torn = |name: &str| self.is_parquet_torn && name == "Parquet";
        for warehouse in &contents {
            let known = self.ledgers.entry(warehouse.name).or_default();
            *known = checks::ledger(warehouse, known, !plan.accept_vanished);
            if let Some(bucket) = self.bucket.as_ref().filter(|_| self.script.has_archive_in_bucket()) {
                checks::archive(known, &bucket.archived(), &root);
            }
            self.oracle.check(warehouse, is_torn(warehouse.name));
            let took_part = plan.warehouses == Warehouses::Both
                || (plan.warehouses == Warehouses::DuckDb) == (warehouse.name == "DuckDB");
            if let Some(window) = plan.backfill.filter(|_| is_backfilled && took_part && self.is_readable()) {
                let settled = Window::new(window.start_ms, window.end_ms.min(ended.settled_ms));
                let survey_ids = self.survey_ids();
                let surveys: Vec<i64> = plan.surveys.iter().filter_map(|at| survey_ids.get(*at).copied()).collect();
                let with_deleted = plan.flags.contains(Flag::WithDeletedResponses) && !self.was_blind_to_deleted;
                self.oracle.is_whole(warehouse, settled, &surveys, with_deleted);
            }
        }
        super::say(|| format!("       {} ms checked", real.elapsed().as_millis()));
        let is_settled = ended.report.as_ref().is_some_and(|report| matches!(report.header.exit_code, 0 | 3 | 6));
        if let ([duckdb, parquet], true) = (contents.as_slice(), self.are_twins && is_settled && !ended.was_killed) {
            checks::twins(duckdb, parquet, self.likeness());
        }
    }

    /// Removes all faults, makes everything due, and runs the program until nothing is left to do. Then the warehouses
    /// must equal the service.
    async fn finale(&mut self) {
        let due_ms = if self.script.ends_by_tiers { ALL_IS_DUE_MS } else { SHORT_RULE_IS_DUE_MS };
        self.rescan = if self.script.ends_by_tiers { "" } else { SHORT_RULE };
        super::say(|| format!("    calm; {} hours go by; everything is looked at", due_ms / HOUR_MS as u64));
        // The service's operator confirms an empty list in the only way there is: the service answers with no rows.
        let not_found_when_empty =
            self.script.service.faults.not_found_when_empty && !self.looks_like_a_lost_permission();
        let faults = Faults { not_found_when_empty, ..self.script.service.faults.clone() };
        self.service.set_weather(&Weather { faults, unconnected_percent: 0 });
        self.is_calm = true;
        self.service.control().advance_clock(due_ms);
        let now_ms = self.service.control().now_ms();
        let days = i64::from(self.script.service.days) + 1;
        let history = Window::new(self.script.service.now_ms - days * DAY_MS, now_ms);
        let plan = |backfill: Option<Window>| RunPlan {
            backfill,
            surveys: Vec::new(),
            flags: FlagSet::ALL,
            warehouses: self.script.only.unwrap_or(Warehouses::Both),
            last_warehouse_first: false,
            in_flight: 4,
            max_requests: None,
            deadline_ms: None,
            accept_vanished: true,
            kill: None,
            bucket: BucketPlan::default(),
            is_new_machine: self.script.ends_on_new_machine,
            cancel_at: None,
            changes: Vec::new(),
            again: false,
        };
        for plan in [plan(Some(history)), plan(None)] {
            super::say(|| format!("    {plan}"));
            let ended = self.run(&plan).await;
            self.check_after(&plan, &ended);
        }
        if self.script.seed.is_multiple_of(5) {
            self.nothing_is_left_to_do(&plan(None)).await;
        }
        self.oracle.learn(&self.service);
        let contents = self.warehouses();
        assert_eq!(contents.len(), if self.script.only.is_some() { 1 } else { 2 }, "warehouses");
        for warehouse in &contents {
            checks::ledger(warehouse, &BTreeSet::new(), false);
            checks::rejects(warehouse, &self.service.unplaceable());
            self.oracle.check(warehouse, false);
            let expected = self.oracle.expected(&self.service, warehouse);
            let when = format!("at the end, {}", warehouse.name);
            assert_rows_equal(|table| warehouse.tables[table].clone(), &expected, &when);
            checks::history(warehouse);
            if self.script.has_recordings {
                checks::recordings(warehouse, &self.root().join("recordings"), &self.script.service.faults.media);
            }
        }
        if let ([duckdb, parquet], true) = (contents.as_slice(), self.are_twins) {
            checks::twins(duckdb, parquet, self.likeness());
        }
    }

    async fn nothing_is_left_to_do(&mut self, plan: &RunPlan) {
        let ended = self.run(plan).await;
        ended.check(plan, true, &self.root(), self.bucket.as_ref());
        let changed: BTreeMap<_, _> = ended.changes().into_iter().filter(|(_, rows)| *rows > 0).collect();
        assert!(changed.is_empty(), "a sync of a service at rest changed something: {changed:?}");
    }
}
