//! Signals and closed terminals: a run stops cleanly and resumes, and `serve` keeps running without a terminal.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};
use serde_json::json;

use crate::{
    harness::{ALL_FLAGS, Done, Place, Service, assert_warehouses_equal, days_ago, expected::Expected, small},
    serve::{IDLE, place_for, until},
};

/// A service that answers slowly, and a place that requests small pages.
fn slow() -> (Service, Place) {
    let service = Service::start(small(800, 24));
    service.control().merge_faults(json!({"latency": {"ms": 60}})).unwrap();
    let place = Place::new(&service).with_config(&format!("{ALL_FLAGS}page_rows = 25\n"));
    (service, place)
}

fn backfill(place: &Place) -> Command {
    place.command(&["backfill", "--from", &days_ago(26)])
}

fn piped(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits until the service has received this many more requests.
fn until_asked(service: &Service, requests: usize) {
    let before = service.log().len();
    until("the run is in the middle", || service.log().len() >= before + requests);
}

/// The next run resumes, and ends equal to the service.
fn assert_resumes(service: &Service, place: &Place, when: &str) {
    let status = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!(status["runs"][0]["outcome"], "interrupted", "{when}: {status}");
    service.set_faults(Default::default());
    place.run(&["backfill", "--from", &days_ago(26)]).expect(0);
    assert_warehouses_equal(place, &Expected::now(service), when);
}

/// Returns a program from `PATH`; if it is missing, prints a line and returns `None`.
fn tool(name: &str) -> Option<&str> {
    let is_there = ["/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(name).exists());
    if !is_there {
        println!("SKIPPED: {name} is missing");
    }
    is_there.then_some(name)
}

/// Returns the command as the leader of a session, and the terminal of that session. Dropping the terminal closes it.
fn in_a_terminal(command: &Command) -> (Command, OwnedFd) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let side = || File::options().read(true).write(true).open(&name).unwrap();
    let mut inside = started_by(&["setsid", "--ctty"], command);
    inside.stdin(side()).stdout(side()).stderr(side());
    (inside, terminal)
}

/// Returns the command, started by another program.
fn started_by(starter: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(starter[0]);
    outer.args(&starter[1..]).arg(command.get_program()).args(command.get_args()).env("TERM", "xterm");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        outer.current_dir(folder);
    }
    outer
}

#[test]
fn p2_exit_130_sighup_stops_cleanly_and_the_run_resumes() {
    let (service, place) = slow();
    let child = piped(backfill(&place));
    until_asked(&service, 12);
    // When a terminal closes, both the kernel and the shell send SIGHUP.
    for _ in 0..3 {
        send(&child, Signal::HUP);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let done = Done::from(child.wait_with_output().unwrap()).expect(130);
    assert!(done.stderr.contains("SIGHUP") && done.stderr.contains("interrupted"), "{}", done.stderr);
    assert_resumes(&service, &place, "after SIGHUP");
}

#[test]
fn p2_a_closed_terminal_ends_a_run_in_order() {
    if tool("setsid").is_none() {
        return;
    }
    let (service, place) = slow();
    let (mut command, terminal) = in_a_terminal(&backfill(&place));
    let mut child = command.spawn().unwrap();
    // The command struct holds the terminal's other side open, too.
    drop(command);
    until_asked(&service, 12);
    drop(terminal);
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(130), None), "no panic, no signal: {status}");
    assert_resumes(&service, &place, "after the terminal has closed");
}

#[test]
fn a_run_whose_stderr_is_closed_ends_as_it_would() {
    let service = Service::start(small(200, 10));
    let place = Place::new(&service);
    let mut command = place.command(&["-v", "sync"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_warehouses_equal(&place, &Expected::now(&service), "stderr is closed");
}

#[test]
fn a_closed_stdout_hides_no_exit_code() {
    let service = Service::start(small(60, 3));
    let place = Place::new(&service).with_env(crate::harness::KEY_VARIABLE, "not-the-key");
    for arguments in [&["sync", "--json"][..], &["verify", "--from", "7d", "--json"], &["check", "--json"]] {
        let code = place.run(arguments).code;
        assert!([1, 4].contains(&code), "{arguments:?}: {code}");
        let mut child = place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn nohup_and_user_signals_change_no_run() {
    if tool("nohup").is_none() {
        return;
    }
    let (service, place) = slow();
    let child = piped(started_by(&["nohup"], &backfill(&place)));
    for signal in [Signal::HUP, Signal::USR1, Signal::USR2] {
        until_asked(&service, 6);
        send(&child, signal);
    }
    until_asked(&service, 6);
    service.set_faults(Default::default());
    let done = Done::from(child.wait_with_output().unwrap()).expect(0);
    assert!(done.stderr.contains("SIGUSR1") && done.stderr.contains("SIGUSR2"), "{}", done.stderr);
    assert_warehouses_equal(&place, &Expected::now(&service), "after signals that change nothing");
}

/// Starts `serve`, and reads the line that says that it listens.
fn serving(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on"), "{line}");
    child
}

#[test]
fn serve_goes_on_after_sighup_without_a_terminal() {
    if tool("setsid").is_none() {
        return;
    }
    let service = Service::start(small(60, 3));
    let place = place_for(&service, IDLE);
    // A session of its own has no terminal.
    let mut command = started_by(&["setsid"], &place.command(&["serve"]));
    let mut child = serving(command.stderr(Stdio::piped()));
    for signal in [Signal::HUP, Signal::USR1, Signal::HUP, Signal::USR2] {
        send(&child, signal);
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(child.try_wait().unwrap().is_none(), "{signal:?} has ended it");
    }
    send(&child, Signal::TERM);
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{told}");
    assert!(told.contains("received SIGHUP: serve goes on"), "{told}");
}

#[test]
fn serve_ends_in_order_when_its_terminal_closes() {
    if tool("setsid").is_none() {
        return;
    }
    let service = Service::start(small(60, 3));
    let place = place_for(&service, IDLE);
    let (mut command, terminal) = in_a_terminal(&place.command(&["serve"]));
    let mut child = serving(&mut command);
    drop(command);
    drop(terminal);
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(0), None), "{status}");
}
