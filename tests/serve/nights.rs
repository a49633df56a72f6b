//! Thirty nights of `serve` in simulated time: answers, edits, deletions and status changes all day; webhooks that are
//! lost, repeated and reordered; faults, rate limits, kills during runs, and hours without the process. Each morning
//! the nightly run is done once, and the warehouses equal the service. No operator helps.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use axum::{
    body::Body,
    http::{Request, header},
};
use futures::FutureExt as _;
use studysync::{
    clock::Clock,
    config::{ArchiveChoice, Overrides, Settings, resolve},
    flatten::{body_hash, summarize_body},
    model::{DAY_MS, Failpoints, HOUR_MS, MINUTE_MS, Rng, WarehouseKind},
    pipeline::System,
    serve::{Daemon, ServeState},
    source::{Failure, Reply, Transport},
    state::{DeliveryReceipt, Inbox, NewDelivery, State},
};
use studysync_sandbox::{ChangeRequest, Control, Faults, InProcess, ListName, Sandbox, ServerError, When};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::harness::{
    KEY, NOW_MS, Tables, assert_rows_equal,
    expected::{Expected, Seen, settled_ms},
    small,
};

const BASE_URL: &str = "http://127.0.0.1:9";
const TWO_MS: i64 = 2 * HOUR_MS;

/// SplitMix64, a random number generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The machine: a folder, a clock, a network, and a process that can be killed.
struct Machine {
    folder: TempDir,
    sandbox: InProcess,
    /// The start of this machine's time. Tokio's paused clock stands still until a task waits.
    begun: tokio::time::Instant,
    is_down: Arc<Mutex<bool>>,
    rng: Rng,
    process: Option<Process>,
}

struct Process {
    state: Arc<ServeState>,
    task: tokio::task::JoinHandle<()>,
    stop: CancellationToken,
    killed: Arc<Notify>,
    /// The process is killed before this durable step, counted from now; 0: never.
    kill_in: Arc<AtomicI64>,
}

impl Machine {
    fn new() -> Machine {
        let folder = TempDir::with_prefix_in("thirty-nights-", "/dev/shm").or_else(|_| TempDir::new()).unwrap();
        let sandbox = Sandbox::in_process(studysync_sandbox::Settings { frozen_clock: true, ..small(500, 6) }).unwrap();
        fs::create_dir(folder.path().join("place")).unwrap();
        let (begun, rng) = (tokio::time::Instant::now(), Rng::seeded(30));
        Machine { folder, sandbox, begun, is_down: Arc::default(), rng, process: None }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("place")
    }

    fn control(&self) -> &Control {
        self.sandbox.control()
    }

    fn now_ms(&self) -> i64 {
        NOW_MS + self.begun.elapsed().as_millis() as i64
    }

    /// Advances the time. The service's clock follows this machine's clock.
    async fn sleep_until(&mut self, at_ms: i64) {
        while self.now_ms() < at_ms {
            let step_ms = (at_ms - self.now_ms()).min(5 * MINUTE_MS) as u64;
            let killed = self.process.as_ref().map(|process| Arc::clone(&process.killed));
            let was_killed = tokio::select! {
                biased;
                () = async { killed.as_ref().unwrap().notified().await }, if killed.is_some() => true,
                () = tokio::time::sleep(Duration::from_millis(step_ms)) => false,
            };
            self.set_clock();
            if was_killed {
                self.bury().await;
                // Restarts the process, as systemd would.
                self.start().await;
            }
        }
    }

    fn set_clock(&self) {
        let behind_ms = self.now_ms() - self.control().now_ms();
        self.control().advance_clock(behind_ms.max(0) as u64);
    }

    fn transport(&self) -> Transport {
        let (sandbox, is_down, begun) = (self.sandbox.clone(), Arc::clone(&self.is_down), self.begun);
        Transport::from_handler(move |request| {
            let (sandbox, is_down) = (sandbox.clone(), Arc::clone(&is_down));
            async move {
                let control = sandbox.control();
                let now_ms = NOW_MS + begun.elapsed().as_millis() as i64;
                control.advance_clock((now_ms - control.now_ms()).max(0) as u64);
                if *is_down.lock().unwrap() {
                    return Err(Failure::Connect { detail: "the simulated network is down".into() });
                }
                let target = request.url().as_str().strip_prefix(BASE_URL).unwrap().to_owned();
                let asked = Request::get(target).header(header::AUTHORIZATION, format!("Bearer {KEY}"));
                let (head, body) = sandbox.answer(asked.body(Body::empty()).unwrap()).await.into_parts();
                let body = reqwest::Body::wrap_stream(body.into_data_stream());
                Ok(Reply::from(axum::http::Response::from_parts(head, body)))
            }
            .boxed()
        })
    }

    fn settings(&self) -> Settings {
        let beside = |name: &str| self.folder.path().join(name);
        let since = NOW_MS - 7 * DAY_MS;
        let stream = format!("since = \"{since}\"\nrescan = [\"all every run\"]\n");
        let flags = crate::harness::ALL_FLAGS;
        let text = format!(
            "{flags}{stream}[streams.themes]\n{stream}[serve]\nwebhook = \"off\"\nschedule = \"0 2 * * *\"\njitter_secs = 600\n"
        );
        fs::write(beside("studysync.toml"), text).unwrap();
        fs::write(beside("key"), KEY).unwrap();
        let root = self.root();
        resolve(Overrides {
            config: Some(beside("studysync.toml")),
            base_url: Some(BASE_URL.into()),
            api_key_file: Some(beside("key")),
            warehouses: [
                (WarehouseKind::DuckDb, root.join("warehouse.duckdb")),
                (WarehouseKind::Parquet, root.join("parquet")),
            ]
            .into(),
            state: Some(root.join("state/checkpoints.sqlite")),
            archive: Some(ArchiveChoice::Nothing),
            ..Overrides::default()
        })
        .unwrap()
    }

    async fn start(&mut self) {
        let (killed, kill_in) = (Arc::new(Notify::new()), Arc::new(AtomicI64::new(0)));
        let (root, copy) = (self.root(), self.folder.path().join("killed"));
        let (told, counted) = (Arc::clone(&killed), Arc::clone(&kill_in));
        let failpoints = Failpoints::with_hook(move |_| {
            let is_killed = counted.load(Ordering::SeqCst) > 0 && counted.fetch_sub(1, Ordering::SeqCst) == 1;
            if is_killed {
                copy_folder(&root, &copy);
                told.notify_one();
            }
            is_killed
        });
        let begun = self.begun;
        let system = System {
            clock: Clock::simulated(move || NOW_MS + begun.elapsed().as_millis() as i64),
            rng: self.rng.clone(),
            transport: self.transport(),
            failpoints,
            engine_threads: Some(1),
            last_warehouse_first: false,
        };
        let state = Arc::new(ServeState::new(self.now_ms()));
        let daemon = Daemon::new(self.settings(), system, Arc::clone(&state)).unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        // The result of a killed process does not matter: its folder is discarded.
        let task = tokio::spawn(async move { drop(daemon.run(stopped).await) });
        self.process = Some(Process { state, task, stop, killed, kill_in });
    }

    /// Completes a kill: replaces the folder with the copy from the time of the kill.
    async fn bury(&mut self) {
        let process = self.process.take().unwrap();
        process.task.abort();
        let _ = process.task.await;
        fs::remove_dir_all(self.root()).unwrap();
        fs::rename(self.folder.path().join("killed"), self.root()).unwrap();
    }

    async fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop.cancel();
            process.task.await.unwrap();
        }
    }

    /// Posts these bodies as the service does. If the process is not running, they are lost and not posted again.
    fn post(&self, bodies: &[String], dice: &mut Dice, stored: &mut Vec<String>) {
        let Some(process) = &self.process else { return };
        let mut inbox = Inbox::open(&self.root().join("state/checkpoints.sqlite"), BASE_URL, "default").unwrap();
        let mut posts: Vec<&String> = bodies.iter().filter(|_| !dice.percent(15)).collect();
        posts.extend(bodies.iter().filter(|_| dice.percent(20)));
        for at in (1..posts.len()).rev() {
            posts.swap(at, dice.below(at as u64 + 1) as usize);
        }
        for body in posts {
            let told = summarize_body(body.as_bytes());
            let delivery = NewDelivery {
                received_ms: self.now_ms(),
                body_hash: body_hash(body.as_bytes()),
                undated_subject: told.timeless_subject,
                body: body.as_bytes().to_vec(),
            };
            if inbox.store(&[delivery]).unwrap() == [DeliveryReceipt::Stored] {
                stored.push(body.clone());
                process.state.add_delivery(told.kind, body.len() as u64);
            }
        }
    }

    fn records(&self, list: ListName) -> Vec<String> {
        let mut records = Vec::new();
        self.control().truth(list, |record| records.push(record.to_owned()));
        records
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let copy = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_folder(&entry.path(), &copy),
            false => assert!(fs::copy(entry.path(), copy).is_ok()),
        }
    }
}

/// Draws the service's faults of a night.
fn weather(dice: &mut Dice) -> Faults {
    let calm = Faults::default();
    match dice.below(5) {
        0 => Faults { server_error: ServerError { when: When { every: 7, ..When::default() }, status: 502 }, ..calm },
        1 => calm.merged(serde_json::json!({"too_many_requests": {"when": {"probability": 0.2}, "retry_after": {"form": "seconds", "wait_ms": 30_000}}})).unwrap(),
        2 => calm.merged(serde_json::json!({"cut_body": {"when": {"every": 9}}})).unwrap(),
        3 => calm.merged(serde_json::json!({"too_many_requests": {"when": {"count": 1, "skip": 4}, "retry_after": {"form": "seconds", "wait_ms": 7_200_000}}})).unwrap(),
        _ => calm,
    }
}

/// The minimum number of each event in a number of nights.
struct Troubles {
    kills: u64,
    absences: u64,
    deliveries: usize,
}

fn nights_pass(nights: i64, at_least: &Troubles) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(play_nights(nights, at_least));
}

#[test]
fn p2_p4_nights_of_serve_need_no_operator() {
    nights_pass(4, &Troubles { kills: 1, absences: 0, deliveries: 100 });
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_p4_slow_thirty_nights_of_serve_need_no_operator() {
    nights_pass(30, &Troubles { kills: 9, absences: 3, deliveries: 1001 });
}

async fn play_nights(nights: i64, at_least: &Troubles) {
    let (mut machine, mut dice) = (Machine::new(), Dice(30));
    let (mut held, mut stored, mut kills, mut absences) = (None::<Expected>, Vec::new(), 0, 0);
    let midnight_ms = NOW_MS.div_euclid(DAY_MS) * DAY_MS;
    machine.start().await;
    for night in 1..=nights {
        let day_ms = midnight_ms + (night - 1) * DAY_MS;
        // The day; the first one begins at eight.
        for hour in [10, 14, 19] {
            machine.sleep_until(day_ms + hour * HOUR_MS + dice.below(HOUR_MS as u64) as i64).await;
            let summary = machine.control().apply_changes(&ChangeRequest {
                seed: dice.below(1 << 40),
                new_answers: 5 + dice.below(12),
                edits: dice.below(4),
                soft_deletes: dice.below(2),
                late: dice.below(3),
                status_changes: dice.below(3),
                new_themes: dice.below(2),
                ..ChangeRequest::default()
            });
            let bodies = machine.control().webhook_bodies(&summary);
            machine.post(&bodies, &mut dice, &mut stored);
        }
        // The night: faults, a network that fails for a while, a kill during the run, or no process at two o'clock.
        let tick_ms = day_ms + DAY_MS + TWO_MS;
        machine.sleep_until(tick_ms - 30 * MINUTE_MS).await;
        machine.control().set_faults(weather(&mut dice)).unwrap();
        *machine.is_down.lock().unwrap() = dice.percent(20);
        let is_absent = dice.percent(20);
        if is_absent {
            absences += 1;
            machine.stop().await;
        } else if dice.percent(60) {
            kills += 1;
            let process = machine.process.as_ref().unwrap();
            process.kill_in.store(1 + dice.below(60) as i64, Ordering::SeqCst);
        }
        machine.sleep_until(tick_ms + HOUR_MS).await;
        *machine.is_down.lock().unwrap() = false;
        if is_absent {
            machine.start().await;
        }
        machine.sleep_until(tick_ms + 5 * HOUR_MS).await;
        // The morning.
        let when = format!("morning {night}");
        machine.control().set_faults(Faults::default()).unwrap();
        assert_the_run_was_done_once(&machine, tick_ms, &when);
        let seen = Seen { until_ms: settled_ms(tick_ms), with_flags: true };
        let today = Expected::of_records(
            machine.records(ListName::Responses),
            machine.records(ListName::Themes),
            machine.records(ListName::Surveys),
            seen,
        );
        let morning = match held.take() {
            Some(held) => held.next_morning(today),
            None => today,
        };
        assert_warehouses(&machine, &morning, &when);
        held = Some(morning);
    }
    machine.stop().await;
    machine.start().await;
    machine.sleep_until(midnight_ms + (nights + 1) * DAY_MS + 12 * HOUR_MS).await;
    machine.stop().await;
    let had = format!("{nights} nights: {kills} kills, {absences} absences, {} deliveries", stored.len());
    let is_enough = kills >= at_least.kills && absences >= at_least.absences && stored.len() >= at_least.deliveries;
    assert!(is_enough, "{had}");
    eprintln!("{had}");
    assert_deliveries(&machine, &stored);
}

#[test]
fn p5_a_retry_after_of_a_month_costs_one_night() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut machine = Machine::new();
        let tick_ms = NOW_MS.div_euclid(DAY_MS) * DAY_MS + DAY_MS + TWO_MS;
        let told = serde_json::json!({"too_many_requests": {"when": {"count": 1}, "retry_after": {"form": "seconds", "wait_ms": 30 * DAY_MS}}});
        machine.control().set_faults(Faults::default().merged(told).unwrap()).unwrap();
        machine.start().await;
        machine.sleep_until(tick_ms + 8 * HOUR_MS).await;
        let state = machine.root().join("state/checkpoints.sqlite");
        let outcomes = || {
            let runs = State::open_read_only(&state).unwrap().unwrap().runs(200).unwrap();
            runs.into_iter().rev().filter_map(|run| run.outcome).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(), ["stopped_early"], "nothing is asked before it may be");
        machine.sleep_until(tick_ms + DAY_MS + 8 * HOUR_MS).await;
        machine.stop().await;
        assert_eq!(outcomes()[..2], ["stopped_early", "done"]);
    });
}

/// Asserts that one run of the night's schedule ended, after any number of attempts.
fn assert_the_run_was_done_once(machine: &Machine, tick_ms: i64, when: &str) {
    let state = machine.root().join("state/checkpoints.sqlite");
    let noted = Inbox::open_read_only(&state).unwrap().unwrap().schedule().unwrap().unwrap();
    assert_eq!(noted.done_tick_ms, Some(tick_ms), "{when}: {noted:?}");
    let runs = State::open_read_only(&state).unwrap().unwrap().runs(200).unwrap();
    let of_night: Vec<_> = runs.iter().filter(|run| run.command == "sync" && run.started_ms >= tick_ms).collect();
    let done = of_night.iter().filter(|run| matches!(run.exit_code, Some(0 | 3))).count();
    let outcomes: Vec<_> = of_night.iter().map(|run| (run.started_ms - tick_ms, &run.outcome)).collect();
    // A kill between the end of the run and its record lets the run repeat. The repetition changes nothing.
    assert!((1..=2).contains(&done), "{when}: {outcomes:?}");
}

fn assert_warehouses(machine: &Machine, expected: &Expected, when: &str) {
    let root = machine.root();
    for (name, tables) in [
        ("DuckDB", Tables::duckdb(&root.join("warehouse.duckdb"))),
        ("Parquet", Tables::parquet(&root.join("parquet"))),
    ] {
        assert_rows_equal(|table| tables.rows(table), expected, &format!("{when}, {name}"));
    }
}

/// Asserts that each stored delivery is in both warehouses once, and that status changes are consecutive.
fn assert_deliveries(machine: &Machine, stored: &[String]) {
    let root = machine.root();
    for (name, tables) in [
        ("DuckDB", Tables::duckdb(&root.join("warehouse.duckdb"))),
        ("Parquet", Tables::parquet(&root.join("parquet"))),
    ] {
        let mut found: Vec<String> =
            tables.rows_of("SELECT raw FROM webhook_events").into_iter().filter_map(|row| row[0].clone()).collect();
        // The product id is a number or a text; both forms are the same event.
        let normal = |body: &String| body.replace("\"productId\":\"17\"", "\"productId\":17");
        let mut wanted: Vec<String> = stored.iter().map(normal).collect();
        found = found.iter().map(normal).collect();
        let is_timeless = |body: &String| body.contains("\"oldStatus\"");
        found.sort();
        wanted.sort();
        // The same status change on another day is another event.
        wanted.dedup_by(|left, right| left == right && !is_timeless(left));
        let missing = wanted.iter().find(|body| found.binary_search(body).is_err());
        assert!(found == wanted, "{name}: {} events, {} were stored, not {missing:?}", found.len(), wanted.len());
        let breaks =
            "SELECT count(*) FROM (SELECT old_status, lag(new_status) OVER (PARTITION BY survey_id ORDER BY changed_at)
                      AS before FROM survey_status_changes) WHERE before IS NOT NULL AND before <> old_status";
        assert_eq!(tables.count(breaks), 0, "{name}");
        let both = tables.count("SELECT count(*) FROM survey_status_changes WHERE seen_by <> 'scan'");
        assert!(both > 5, "{name}: webhooks told {both} changes of status");
        let last = "SELECT count(*) FROM surveys s JOIN (SELECT survey_id, arg_max(new_status, changed_at) AS status
                    FROM survey_status_changes GROUP BY ALL) c ON c.survey_id = s.id WHERE c.status <> s.status";
        assert_eq!(tables.count(last), 0, "{name}: the last change is not what the survey says");
    }
}
