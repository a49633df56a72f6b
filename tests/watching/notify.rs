//! `[notify]`: who is notified of which events and how often, and that a run never waits for a notification.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Answer, Receiver, place_at, place_for, with_wrong_key};
use crate::harness::{KEY, KEY_VARIABLE, Service, days_ago, small};

/// A command that writes its message and environment into the place's folder.
const TELLS: &str =
    "command = [\"/bin/sh\", \"-c\", \"cat > told.json; env > told.env; echo $STUDYSYNC_EVENT >> told.events\"]\n";

fn webhook(receiver: &Receiver, more: &str) -> String {
    format!("[notify]\nurl = \"{}\"\ntimeout_secs = 5\n{more}", receiver.url())
}

fn events(posted: &[Value]) -> Vec<&str> {
    posted.iter().map(|body| body["event"].as_str().unwrap()).collect()
}

/// Waits for the first messages.
fn first_messages(receiver: &Receiver) -> Vec<Value> {
    let mut posted = Vec::new();
    crate::serve::until("the message", || {
        posted.extend(receiver.take());
        !posted.is_empty()
    });
    posted
}

#[test]
fn a_failure_and_its_recovery_are_notified_once() {
    let service = Service::start(small(120, 4));
    let receiver = Receiver::start();
    let place = with_wrong_key(place_for(&service, &webhook(&receiver, TELLS)));
    let report = place.report(&["sync"], 4);
    let posted = receiver.take();
    assert_eq!(events(&posted), ["failed"]);
    let (why, hint) = (report["why"].as_str().unwrap(), report["hint"].as_str().unwrap());
    let text = posted[0]["text"].as_str().unwrap();
    assert!(text.contains(why) && text.contains(hint), "{text}");
    assert_eq!(posted[0]["run"], report, "the run's JSON");
    assert_eq!(posted[0]["health"]["reasons"][0]["code"], "key_refused");
    assert!(!posted[0].to_string().contains("another-key"));
    // The command receives the same message.
    let told: Value = serde_json::from_slice(&std::fs::read(place.path("told.json")).unwrap()).unwrap();
    assert_eq!(told, report);
    let environment = std::fs::read_to_string(place.path("told.env")).unwrap();
    for line in ["STUDYSYNC_OUTCOME=failed", "STUDYSYNC_EXIT_CODE=4", &format!("STUDYSYNC_SUMMARY={why}")] {
        assert!(environment.lines().any(|found| found == line), "{line} in {environment}");
    }
    assert!(!environment.contains("another-key"), "p11: it needs no key");
    // The same failure does not notify again; the recovery notifies once.
    place.run(&["sync"]).expect(4);
    let place = place.with_env(KEY_VARIABLE, KEY);
    place.run(&["sync"]).expect(0);
    assert_eq!(events(&receiver.take()), ["recovered"]);
    place.run(&["sync"]).expect(0);
    assert!(receiver.take().is_empty());
    assert_eq!(std::fs::read_to_string(place.path("told.events")).unwrap(), "failed\nrecovered\n");
}

#[test]
fn a_run_without_requests_counts_as_no_recovery() {
    let service = Service::start(small(60, 3));
    let receiver = Receiver::start();
    let place = place_for(&service, &webhook(&receiver, ""));
    let (from, to) = (days_ago(20), days_ago(10));
    place.run(&["backfill", "--from", &from]).expect(0);
    let covered = ["backfill", "--from", &from, "--to", &to];
    // A run that cannot begin leaves no scan for the next run to resume.
    let place = place.with_env(KEY_VARIABLE, "");
    assert_ne!(place.run(&["sync"]).code, 0);
    assert_eq!(events(&receiver.take()), ["failed"]);
    let place = with_wrong_key(place);
    let report = place.report(&covered, 0);
    assert_eq!(report["requests"]["total"], 0, "all of it is covered");
    let is_still_failed = |place: &super::Place, what: &str| {
        assert!(receiver.take().is_empty(), "{what}");
        assert_eq!(super::metric(place, "healthy"), Some(0.0), "{what}");
        assert_eq!(super::metric(place, "failed_runs_in_a_row"), Some(1.0), "{what}");
    };
    is_still_failed(&place, "no request");
    let place = place.with_env(KEY_VARIABLE, KEY);
    let report = place.report(&["sync", "--stream", "themes"], 0);
    assert_eq!(report["narrowed_to"], "--stream themes");
    is_still_failed(&place, "one stream of three");
    place.run(&["sync"]).expect(0);
    assert_eq!(events(&receiver.take()), ["recovered"]);
    assert_eq!(super::metric(&place, "healthy"), Some(1.0));
}

#[test]
fn a_failure_is_notified_after_so_many_failed_runs() {
    let service = Service::start(small(60, 3));
    let receiver = Receiver::start();
    let place = place_for(&service, &webhook(&receiver, "after_failures = 3\n"));
    let run = |code| {
        place.run(&["sync"]).expect(code);
        events(&receiver.take()).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(run(0).is_empty());
    let archive = place.path("archive");
    let (kept, broken) = (place.path("kept"), || std::fs::write(&archive, "a file").unwrap());
    let mend = || {
        std::fs::remove_file(&archive).unwrap();
        std::fs::rename(&kept, &archive).unwrap();
    };
    std::fs::rename(&archive, &kept).unwrap();
    broken();
    assert!(run(1).is_empty() && run(1).is_empty(), "two attempts failed");
    mend();
    assert!(run(0).is_empty(), "the failure was not told, so its end is not either");
    std::fs::rename(&archive, &kept).unwrap();
    broken();
    assert!(run(1).is_empty() && run(1).is_empty());
    assert_eq!(run(1), ["failed"], "the third failed run in a row");
    mend();
    assert_eq!(run(0), ["recovered"]);
    // No repetition helps against a refused key.
    let place = with_wrong_key(place);
    place.run(&["sync"]).expect(4);
    assert_eq!(events(&receiver.take()), ["failed"]);
}

#[test]
fn only_the_configured_events_are_notified() {
    let service = Service::start(small(60, 3));
    let receiver = Receiver::start();
    let place = with_wrong_key(place_for(&service, &webhook(&receiver, "on = [\"recovered\"]\n")));
    place.run(&["sync"]).expect(4);
    let place = place.with_env(KEY_VARIABLE, KEY);
    place.run(&["sync"]).expect(0);
    assert_eq!(events(&receiver.take()), ["recovered"]);
}

#[test]
fn a_refused_notification_is_kept_for_the_next_run() {
    let service = Service::start(small(60, 3));
    let receiver = Receiver::start();
    let place = with_wrong_key(place_for(&service, &webhook(&receiver, "attempts = 2\n")));
    receiver.answers(Answer::Status(500));
    let done = place.run(&["sync"]).expect(4);
    assert_eq!(events(&receiver.take()), ["failed", "failed"], "two attempts");
    assert!(done.stderr.contains("cannot notify") && done.stderr.contains("500"), "{}", done.stderr);
    assert!(!done.stderr.contains("s3cret-path"), "p11: the address is a secret: {}", done.stderr);
    receiver.answers(Answer::Status(200));
    let place = place.with_env(KEY_VARIABLE, KEY);
    place.run(&["sync"]).expect(0);
    assert_eq!(events(&receiver.take()), ["failed", "recovered"], "in their order");
    place.run(&["sync"]).expect(0);
    assert!(receiver.take().is_empty());
}

#[test]
fn a_refused_notification_blocks_no_other() {
    let service = Service::start(small(60, 3));
    let receiver = Receiver::start();
    let place = with_wrong_key(place_for(&service, &webhook(&receiver, "")));
    receiver.answers(Answer::Status(413));
    let done = place.run(&["sync"]).expect(4);
    assert_eq!(receiver.take().len(), 1, "it is not tried again");
    assert!(done.stderr.contains("413") && done.stderr.contains("this message is given up"), "{}", done.stderr);
    // An address that returns 404 may work again later: each message that it did not accept stays pending.
    receiver.answers(Answer::Status(404));
    let place = place.with_env(KEY_VARIABLE, "");
    assert_ne!(place.run(&["sync"]).code, 0, "another reason");
    assert_eq!(receiver.take().len(), 1, "the refused one is gone");
    let place = with_wrong_key(place);
    place.run(&["sync"]).expect(4);
    assert_eq!(receiver.take().len(), 2, "the second is tried after the first is refused");
    receiver.answers(Answer::Status(200));
    let place = place.with_env(KEY_VARIABLE, KEY);
    place.run(&["sync"]).expect(0);
    assert_eq!(events(&receiver.take()), ["failed", "failed", "recovered"]);
}

#[test]
fn a_hung_or_missing_receiver_changes_no_run() {
    let service = Service::start(small(60, 3));
    let receiver = Receiver::start();
    receiver.answers(Answer::Nothing);
    let hook = webhook(&receiver, "attempts = 1\n").replace("timeout_secs = 5", "timeout_secs = 1");
    let place = with_wrong_key(place_for(&service, &hook));
    let done = place.run(&["sync"]).expect(4);
    assert!(done.stderr.contains("did not answer within 1 s"), "{}", done.stderr);
    assert_eq!(receiver.take().len(), 1);
    drop(receiver);
    let done = place.with_env(KEY_VARIABLE, KEY).run(&["sync"]).expect(0);
    assert!(done.stderr.contains("cannot reach the webhook"), "{}", done.stderr);
    assert!(!done.stderr.contains("s3cret-path"), "{}", done.stderr);
}

#[test]
fn a_hung_command_is_killed_with_its_children() {
    let service = Service::start(small(60, 3));
    let hangs = "[notify]\ncommand = [\"/bin/sh\", \"-c\", \"sleep 1000 & echo $$ $! > pids; wait\"]\ntimeout_secs = 1\nattempts = 1\n";
    let place = with_wrong_key(place_for(&service, hangs));
    let done = place.run(&["sync"]).expect(4);
    assert!(done.stderr.contains("was killed after 1 s"), "{}", done.stderr);
    let pids = std::fs::read_to_string(place.path("pids")).unwrap();
    assert_eq!(pids.split_whitespace().count(), 2);
    let status_of = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let has_ended = |status: &str| status.is_empty() || status.contains("State:\tZ");
    for pid in pids.split_whitespace() {
        // The kernel ends a killed process only when the process gets a processor.
        let deadline = Instant::now() + Duration::from_secs(60);
        while !has_ended(&status_of(pid)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = status_of(pid);
        assert!(has_ended(&status), "{pid} lives: {status}");
    }
}

#[test]
fn unreadable_checkpoints_are_notified() {
    let service = Service::start(small(60, 3));
    let receiver = Receiver::start();
    let place = place_for(&service, &webhook(&receiver, ""));
    std::fs::create_dir_all(place.state()).unwrap();
    let done = place.run(&["sync"]);
    let posted = receiver.take();
    assert_eq!((done.code, events(&posted)), (1, vec!["failed"]), "{}", done.stderr);
    assert_eq!(posted[0]["run"]["exit_code"], 1);
    assert_eq!(super::metric(&place, "last_run_exit_code"), Some(1.0));
    place.run(&["sync"]).expect(1);
    assert!(receiver.take().is_empty(), "the same is no news");
}

#[test]
fn a_failure_is_notified_when_the_state_is_unwritable() {
    let receiver = Receiver::start();
    let service = Service::start(small(60, 3));
    let place = with_wrong_key(place_for(&service, &webhook(&receiver, "")));
    // Not even root can create the state's folder or the lock.
    std::fs::write(place.path("state"), "a file").unwrap();
    let done = place.run(&["sync"]);
    assert_ne!(done.code, 0);
    assert_eq!(events(&receiver.take()), ["failed"], "{}", done.stderr);
    assert!(done.stderr.contains("cannot record a notification"), "{}", done.stderr);
    // The folder exists, and the notification file cannot be replaced.
    std::fs::remove_file(place.path("state")).unwrap();
    std::fs::create_dir_all(place.path("state/checkpoints.sqlite.notifications")).unwrap();
    let done = place.run(&["sync"]).expect(4);
    assert_eq!(events(&receiver.take()), ["failed"], "{}", done.stderr);
}

#[test]
fn a_locked_notification_file_delays_no_run() {
    let receiver = Receiver::start();
    let service = Service::start(small(60, 3));
    let place = with_wrong_key(place_for(&service, &webhook(&receiver, "")));
    std::fs::create_dir_all(place.path("state")).unwrap();
    let lock = std::fs::File::create(place.path("state/checkpoints.sqlite.notifications.lock")).unwrap();
    lock.lock().unwrap();
    let done = place.run(&["sync"]).expect(4);
    assert!(done.stderr.contains("another process has locked the notifications"), "{}", done.stderr);
    assert_eq!(events(&receiver.take()), ["failed"], "it is told without the ledger");
    // After a signal, the program does not wait for the lock.
    let run = place.spawn(&["sync"]);
    let states = || studysync::state::State::open_read_only(&place.state()).unwrap().unwrap().runs(9).unwrap();
    crate::serve::until("the end of the run", || states().iter().filter(|run| run.finished_ms.is_some()).count() == 2);
    let done = crate::harness::Done::from(terminated(run));
    assert_eq!(done.code, 4, "{}", done.stderr);
    drop(lock);
    // If the signal came before the wait for the lock, the message was sent.
    receiver.take();
    place.run(&["sync"]).expect(4);
    assert_eq!(events(&receiver.take()).len(), 1, "nobody knows that it was told");
}

/// Ends a process with SIGTERM, as an operator does, and returns its output.
fn terminated(child: std::process::Child) -> std::process::Output {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn check_notify_sends_a_test_message() {
    let service = Service::start(small(60, 3));
    let receiver = Receiver::start();
    let place = place_for(&service, &webhook(&receiver, TELLS));
    let done = place.run(&["check", "--notify"]).expect(0);
    assert!(done.stdout.contains("the webhook accepted a test message"), "{}", done.stdout);
    assert_eq!(events(&receiver.take()), ["test"]);
    assert_eq!(std::fs::read_to_string(place.path("told.events")).unwrap(), "test\n");
    receiver.answers(Answer::Status(404));
    let done = place.run(&["check", "--notify"]).expect(1);
    assert!(done.stdout.contains("the webhook answered with 404"), "{}", done.stdout);
    let done = place_for(&service, "").run(&["check", "--notify"]).expect(2);
    assert!(done.stdout.contains("[notify] names neither"), "{}", done.stdout);
}

#[test]
fn serve_notifies_about_its_nights() {
    let service = Service::start(small(60, 3));
    let receiver = Receiver::start();
    let serve = "[serve]\nlisten = \"127.0.0.1:0\"\njitter_secs = 0\nwebhook = \"off\"\nschedule = \"* * * * *\"\n";
    let place = with_wrong_key(place_for(&service, &format!("{serve}{}", webhook(&receiver, ""))));
    let inbox = studysync::state::Inbox::open(&place.state(), &service.base_url(), "default");
    let missed = studysync::state::ScheduleEntry {
        expression: "* * * * * UTC".into(),
        done_tick_ms: Some(studysync::clock::now_ms() - 600_000),
        ..Default::default()
    };
    inbox.unwrap().store_schedule(&missed).unwrap();
    let serving = crate::serve::Serving::start(&place);
    let mut posted = Vec::new();
    crate::serve::until("the message", || {
        posted.extend(receiver.take());
        !posted.is_empty() && super::metric(&place, "healthy") == Some(0.0)
    });
    assert_eq!(events(&posted), ["failed"]);
    let health = serving.health();
    assert_eq!(posted[0]["health"]["reasons"][0], health["reasons"][0], "the same reason");
    serving.stop();
}

#[test]
fn serve_writes_a_report_by_schedule_and_notifies() {
    let service = Service::start(small(300, 5));
    let receiver = Receiver::start();
    let serve = "[serve]\nlisten = \"127.0.0.1:0\"\nwebhook = \"off\"\nschedule = \"off\"\nreport = \"page.html\"\n";
    let flags = |flags: &str| format!("{serve}report_schedule = \"* * * * *\"\nreport_flags = [{flags}]\n");
    let place = place_for(&service, &format!("{}{}", flags("\"--shoes\""), webhook(&receiver, "")));
    let refused = place.run(&["serve"]).expect(2);
    assert!(refused.stderr.contains("[serve] report_flags: unexpected argument '--shoes'"), "{}", refused.stderr);
    for (flag, what) in [
        ("\"--duckdb\", \"w.duckdb\"", "ignores --duckdb: remove it"),
        ("\"--parquet=w\"", "ignores --parquet: remove it"),
        ("\"--state\", \"s\"", "ignores --state: remove it"),
        ("\"--out\", \"x.html\"", "remove --out: report under [serve] names the file"),
        ("\"--time-zone\", \"UTC\"", "report_time_zone under [warehouse]"),
    ] {
        let place = place_for(&service, &flags(flag));
        let refused = place.run(&["serve"]).expect(2).stderr;
        let begin = "error: studysync.toml: [serve] report_flags: ";
        assert!(refused.contains(begin) && refused.contains(what), "{flag}: {refused}");
        let checked = place.run(&["check"]).expect(2).stdout;
        assert!(checked.contains("[serve] report_flags: ") && checked.contains("remove"), "{checked}");
    }
    let place = place_for(&service, &format!("{}{}", flags("\"--title\", \"Every minute\""), webhook(&receiver, "")));
    place.report(&["sync"], 0);
    let serving = crate::serve::Serving::start(&place);
    let mut posted = Vec::new();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while posted.is_empty() && std::time::Instant::now() < deadline {
        posted.extend(receiver.take());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(events(&posted), ["report"]);
    let path = place.path("page.html");
    assert!(posted[0]["text"].as_str().unwrap().contains(&path.display().to_string()), "{}", posted[0]);
    assert!(std::fs::read_to_string(&path).unwrap().contains("<h1><bdi>Every minute</bdi></h1>"));
    serving.stop();
}

#[test]
fn serve_shows_a_report_that_it_cannot_write() {
    let service = Service::start(small(60, 3));
    let receiver = Receiver::start();
    let serve = "[serve]\nlisten = \"127.0.0.1:0\"\nwebhook = \"off\"\nschedule = \"off\"\nreport = \"page.html\"\n\
                 report_schedule = \"* * * * *\"\n";
    let place = place_for(&service, &format!("{serve}{}", webhook(&receiver, "")));
    place.report(&["sync"], 0);
    // A folder is in the place of the file. An earlier process has tried twice.
    std::fs::create_dir(place.path("page.html")).unwrap();
    let inbox = studysync::state::Inbox::open(&place.state(), &service.base_url(), "default").unwrap();
    inbox.store_report_error(Some("earlier")).unwrap();
    drop(inbox);
    let earlier = place.run(&["status"]).expect(0).stdout;
    assert!(earlier.contains("FAILING") && earlier.contains("cannot be written: earlier"), "{earlier}");
    let serving = crate::serve::Serving::start(&place);
    let mut posted = first_messages(&receiver);
    assert_eq!(events(&posted), ["failed"]);
    let text = posted[0]["text"].as_str().unwrap();
    assert!(text.contains("studysync report failed on") && text.contains("page.html"), "{text}");
    assert!(text.contains("What to do: "), "{text}");
    let health = serving.health();
    assert_eq!((&health["healthy"], &health["reasons"][0]["code"]), (&false.into(), &"report_failed".into()));
    assert_eq!(posted[0]["health"]["reasons"][0], health["reasons"][0]);
    let status = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!(status["reasons"][0], health["reasons"][0]);
    assert_eq!(status["serve"]["schedule"], "off");
    // The next attempt succeeds.
    std::fs::remove_dir(place.path("page.html")).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
    while posted.len() < 3 && std::time::Instant::now() < deadline {
        posted.extend(receiver.take());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(events(&posted), ["failed", "recovered", "report"]);
    assert_eq!(serving.health()["healthy"], true);
    assert!(place.run(&["status"]).expect(0).stdout.contains("Healthy"));
    serving.stop();
}

#[test]
fn the_next_command_notifies_about_a_killed_run() {
    let service = Service::start(small(60, 3));
    let receiver = Receiver::start();
    let serve = "[serve]\nlisten = \"127.0.0.1:0\"\nwebhook = \"off\"\nschedule = \"0 0 29 2 *\"\n";
    let place = place_for(&service, &format!("{serve}{}", webhook(&receiver, "")));
    place.run(&["sync"]).expect(0);
    let kill_one = |ms_ago: i64| {
        let state = studysync::state::State::open(&place.state(), &service.base_url(), "default").unwrap();
        let begun_ms = studysync::clock::now_ms() - ms_ago;
        state.begin_run(&studysync::model::RunId::new(begun_ms), "sync", begun_ms).unwrap();
    };
    // The next run reports that a run was killed, and that it recovered. Later runs do not report it again.
    kill_one(2);
    service.advance_days(1);
    place.run(&["sync"]).expect(0);
    let posted = receiver.take();
    assert_eq!(events(&posted), ["failed", "recovered"]);
    assert_eq!(posted[0]["run"]["reason"], "run_killed");
    assert!(posted[0]["text"].as_str().unwrap().contains("the run was killed before its end"), "{}", posted[0]);
    service.advance_days(1);
    place.run(&["sync"]).expect(0);
    assert!(receiver.take().is_empty());
    // `serve` reports it too when it starts.
    kill_one(0);
    let serving = crate::serve::Serving::start(&place);
    let posted = first_messages(&receiver);
    assert_eq!(events(&posted), ["failed"]);
    serving.stop();
}

#[test]
fn invalid_notify_settings_are_refused() {
    let refused = |lines: &str, what: &str| {
        let done = place_at("http://127.0.0.1:9", &format!("[notify]\n{lines}\n")).run(&["status"]).expect(2);
        assert!(done.stderr.contains(what), "{lines}: {}", done.stderr);
        assert!(!done.stderr.contains("s3cret"), "{}", done.stderr);
    };
    refused("url = \"hooks.example.com/s3cret\"", "[notify] url");
    refused("url = \"https://a.example/s3cret\"\nurl_env = \"HOOK\"", "only one of");
    refused("url_env = \"https://a.example/s3cret\"", "name of an environment variable");
    refused("on = [\"success\"]", "neither 'failed'");
    refused("attempts = 0", "[notify] attempts");
    refused("timeout_secs = 9999", "[notify] timeout_secs");
    refused("again_after = \"soon\"", "[notify] again_after");
}
