//! A low limit of open files: connections of strangers do not use up the files that a run needs, and the errors do not
//! report a damaged file.

use std::{
    net::TcpStream,
    process::{Command, Stdio},
};

use super::{
    Serving, answer_body, in_each, place_for,
    schedules::{NIGHTLY, last_run_was},
    until,
};
use crate::harness::{Done, Place, Service, days_ago, small};

/// Returns the command with this limit of open files.
fn with_few_files(command: &Command, files: u32) -> Command {
    let mut limited = Command::new("sh");
    limited.arg("-c").arg(format!("ulimit -n {files}; exec \"$0\" \"$@\""));
    limited.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    command.get_current_dir().map(|folder| limited.current_dir(folder));
    limited
}

fn run_with(place: &Place, files: u32, arguments: &[&str]) -> Done {
    Done::from(with_few_files(&place.command(arguments), files).output().unwrap())
}

#[test]
fn p8_strangers_take_no_file_that_serve_needs() {
    let service = Service::start(small(600, 6));
    let place = place_for(&service, NIGHTLY);
    // A scheduled run was missed, so `serve` starts one at once.
    last_run_was(&place, &service, 3);
    let serving = Serving::of(with_few_files(&place.command(&["serve"]), 256));
    // More connections than the limit. Connections that the server evicted stay open on this side.
    let mut strangers = Vec::new();
    for _ in 0..400 {
        strangers.push(TcpStream::connect(serving.address).unwrap());
    }
    assert_eq!(serving.post(answer_body(1).as_bytes()), 200);
    until("the run that was missed", || !serving.health()["last_outcome"].is_null());
    serving.wait_until_flushed();
    assert_eq!(serving.health()["last_outcome"], "done", "{:#}", serving.health());
    let open = std::fs::read_dir(format!("/proc/{}/fd", serving.pid())).unwrap().count();
    assert!(open < 200, "{open} files are open");
    assert_eq!(serving.stop(), 0);
    in_each(&place, |name, tables| assert!(tables.count("SELECT count(*) FROM responses") > 0, "{name}"));
}

#[test]
fn check_says_that_the_limit_of_open_files_is_low() {
    let service = Service::start(small(60, 3));
    let place = Place::new(&service);
    let check = |files, code| run_with(&place, files, &["check"]).expect(code).stdout;
    let low = check(256, 0);
    assert!(low.contains("only 256 files") && low.contains("128 connections"), "{low}");
    assert!(low.contains("LimitNOFILE="), "{low}");
    assert!(check(100, 1).contains("FAIL open files"));
    assert!(!check(1024, 0).contains("open files"));
}

#[test]
fn p2_no_file_is_damaged_for_want_of_file_handles() {
    let service = Service::start(small(600, 6));
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(8)]).expect(0);
    let (mut failed, mut done) = (0, 0);
    for files in (8..48).step_by(2) {
        let run = run_with(&place, files, &["sync"]);
        let said = format!("{} {}", run.stdout, run.stderr);
        // The shell, the library loader or the runtime may fail first.
        assert!(!said.contains("damaged") || said.contains("No file is damaged"), "with {files} files: {said}");
        failed += u32::from(run.code != 0);
        done += u32::from(run.code == 0);
    }
    assert!(failed > 3 && done > 3, "{failed} failed, {done} done");
    assert!(!place.files("state").iter().any(|file| file.to_string_lossy().contains("damaged")));
    place.run(&["sync"]).expect(0);
    place.run(&["verify", "--from", &days_ago(8)]).expect(0);
}
