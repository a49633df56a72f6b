//! `serve` answers while a run or a flush waits for an event that never comes, and a signal still ends the process.

use std::{
    any::Any,
    fs::{self, File},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use studysync::{
    clock,
    model::DAY_MS,
    state::{Inbox, ScheduleEntry},
};

use super::{Serving, answer_body, place_for, until};
use crate::{
    harness::{KEY, Place, Service, small},
    world::locks::Holder,
};

/// A run starts at once, because the last one was missed. Webhooks trigger no other run.
const NIGHTLY: &str = "schedule = \"0 2 * * *\"\nwake_secs = 0\nflush_secs = 1\n";
/// Longer than the tests take.
const FOR_EVER: &str = "[warehouse]\nlock_wait_secs = 3600\n";

/// Keeps the wait going until it is dropped.
type Held = Box<dyn Any>;

/// Starts a wait.
type Hold = fn(&Place) -> Held;

/// Each step at the start of a run that can block, and how to block it forever.
const HOLDS: &[(&str, Hold)] = &[
    ("an analyst has the DuckDB file", |place| Box::new(Holder::of(place, "reads"))),
    ("another process writes the Parquet folder", |place| locked(&place.parquet().join(".studysync/lock"))),
    ("the key file does not answer", |place| pipe(&place.path("key.txt"))),
    ("the command of the key does not end", |place| {
        fs::write(place.path("is-slow"), "").unwrap();
        Box::new(())
    }),
    ("the suppression list does not answer", |place| {
        fs::create_dir_all(place.path("state/checkpoints.sqlite.erasures")).unwrap();
        pipe(&place.path("state/checkpoints.sqlite.erasures/suppressed.json"))
    }),
    ("the archive does not answer", |place| pipe(&place.path("archive/owner.json"))),
    ("the checkpoints do not answer", |place| {
        let state = rusqlite::Connection::open(place.state()).unwrap();
        state.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
        Box::new(state)
    }),
];

/// Replaces a file with a pipe that nobody writes to.
fn pipe(path: &Path) -> Held {
    let _ = fs::remove_file(path);
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    Box::new(())
}

fn locked(path: &Path) -> Held {
    let file = File::options().write(true).open(path).unwrap();
    file.lock().unwrap();
    Box::new(file)
}

/// A place after its first night. For the waits on a key, its key comes from the blocked source.
fn place_of(service: &Service, hold: &str) -> Place {
    let key = match hold {
        "the key file does not answer" => "[service]\napi_key_file = \"key.txt\"\n".to_owned(),
        "the command of the key does not end" => {
            format!("[service]\napi_key_command = \"while test -e '{{root}}/is-slow'; do sleep 1; done; echo {KEY}\"\n")
        }
        _ => String::new(),
    };
    let place = place_for(service, NIGHTLY);
    let key = key.replace("{root}", place.root().to_str().unwrap());
    let config = fs::read_to_string(place.path("studysync.toml")).unwrap();
    let place = place.with_config(&format!("{config}{FOR_EVER}{key}"));
    fs::write(place.path("key.txt"), KEY).unwrap();
    place.report(&["sync"], 0);
    place
}

/// Makes the run of three nights ago the last one of the schedule.
fn miss_nights(service: &Service, place: &Place) {
    let inbox = Inbox::open(&place.state(), &service.base_url(), "default").unwrap();
    let (expression, done_tick_ms) = ("0 2 * * * UTC".to_owned(), Some(clock::now_ms() - 3 * DAY_MS));
    inbox.store_schedule(&ScheduleEntry { expression, done_tick_ms, ..ScheduleEntry::default() }).unwrap();
}

/// Asserts that deliveries and probes are answered. The wait never ends, so any answer proves that the answer does not
/// depend on it. The fastest of several attempts does not depend on the load of the machine.
fn assert_answers(serving: &Serving, hold: &str) {
    let mut quickest = [Duration::MAX; 5];
    for attempt in 0..5 {
        let mut timed = |kind: usize, status: u16| {
            let begun = Instant::now();
            let answered = match kind {
                0 => serving.post(answer_body(1000 + attempt).as_bytes()),
                1 => serving.get("/healthz").0,
                2 => serving.get("/readyz").0,
                3 => serving.get("/metrics").0,
                _ => serving.get("/api/status").0,
            };
            // The health may be bad meanwhile; the answer says why.
            assert!(answered == status || (kind == 1 && answered == 503), "{hold}: {kind} is answered {answered}");
            quickest[kind] = quickest[kind].min(begun.elapsed());
        };
        (0..5).for_each(|kind| timed(kind, 200));
    }
    assert!(quickest.iter().all(|time| *time < Duration::from_secs(1)), "{hold}: {quickest:?}");
}

#[test]
fn p8_serve_answers_whatever_a_run_waits_for() {
    let service = Service::start(small(60, 3));
    std::thread::scope(|scope| {
        for (hold, begin) in HOLDS {
            let service = &service;
            scope.spawn(move || {
                let place = place_of(service, hold);
                miss_nights(service, &place);
                let _held = begin(&place);
                let serving = Serving::start(&place);
                until(hold, || serving.health()["running"] == "sync");
                assert_answers(&serving, hold);
                assert_eq!(serving.health()["running"], "sync", "{hold}: the run did not wait");
                assert_eq!(serving.stop(), 0, "{hold}");
            });
        }
    });
}

#[test]
fn p8_serve_answers_while_a_flush_waits() {
    let service = Service::start(small(60, 3));
    let place = place_of(&service, "an analyst has the DuckDB file");
    let holder = Holder::of(&place, "reads");
    let serving = Serving::start(&place);
    assert_eq!(serving.post(answer_body(1).as_bytes()), 200);
    until("the flush", || serving.health()["running"] == "flush");
    assert_answers(&serving, "a flush");
    drop(holder);
    serving.wait_until_flushed();
    assert_eq!(serving.stop(), 0);
    // Readers of Parquet see deliveries after the next run, which publishes them.
    place.run(&["sync"]).expect(0);
    super::in_each(&place, |name, tables| assert_eq!(tables.count("SELECT count(*) FROM webhook_events"), 6, "{name}"));
}

#[test]
fn p8_files_of_a_monitor_that_hang_delay_nothing() {
    let service = Service::start(small(60, 3));
    let place = place_of(&service, "none");
    let config = fs::read_to_string(place.path("studysync.toml")).unwrap();
    let place = place.with_config(&format!(
        "{config}[metrics]\ntextfile = \"metrics.prom\"\n[notify]\ncommand = [\"sh\", \"-c\", \"sleep 3600\"]\n"
    ));
    let _held = pipe(&place.path("state/checkpoints.sqlite.notifications"));
    let serving = Serving::start(&place);
    assert_answers(&serving, "the notifications do not answer");
    assert_eq!(serving.stop(), 0);
}

#[test]
fn a_signal_ends_a_command_whose_key_does_not_come() {
    let service = Service::start(small(20, 3));
    let place = place_of(&service, "the key file does not answer");
    let _held = pipe(&place.path("key.txt"));
    for arguments in [&["sync"][..], &["verify", "--from", "7d"], &["serve"]] {
        let mut child = place.spawn(arguments);
        std::thread::sleep(Duration::from_millis(if arguments[0] == "serve" { 500 } else { 1500 }));
        assert!(child.try_wait().unwrap().is_none(), "{arguments:?} did not wait");
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
        let begun = Instant::now();
        let code = child.wait().unwrap().code();
        assert!(matches!(code, Some(0 | 130)), "{arguments:?}: {code:?}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{arguments:?}");
    }
}

#[test]
fn a_command_that_is_ended_takes_its_children_with_it() {
    let service = Service::start(small(20, 3));
    let place = place_of(&service, "none");
    let begun_file = place.path("begun");
    let config = fs::read_to_string(place.path("studysync.toml")).unwrap();
    let command = format!("sh -c 'touch {}; exec sleep 300' | cat", begun_file.display());
    let place = place.with_config(&format!("{config}[service]\napi_key_command = \"{command}\"\n"));
    for arguments in [&["sync"][..], &["check"], &["plan", "--probe"]] {
        let run = place.spawn(arguments);
        until("the command", || begun_file.exists());
        rustix::process::kill_process(rustix::process::Pid::from_child(&run), rustix::process::Signal::TERM).unwrap();
        let begun = Instant::now();
        // The child processes share the program's standard error, so it is closed only after the last of them ends.
        let output = run.wait_with_output().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(55), "a child of {arguments:?} is left: {:?}", begun.elapsed());
        assert_eq!(output.status.code(), Some(130), "{arguments:?}");
        fs::remove_file(&begun_file).unwrap();
    }
}
