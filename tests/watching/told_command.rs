//! The command of `[notify]`: its environment, and that it ends with the program.

use super::{place_for, with_wrong_key};
use crate::harness::{Service, small};

#[test]
fn p11_the_notify_command_gets_no_secret() {
    let service = Service::start(small(60, 3));
    let tells = "[service]\napi_key_file = \"key\"\n\
                 [serve]\nstatus_token_env = \"MY_PAGE\"\n\
                 [notify]\ncommand = [\"/bin/sh\", \"-c\", \"env > told.env\"]\nattempts = 1\n";
    let mut place = place_for(&service, tells);
    std::fs::write(place.path("key"), "another-key").unwrap();
    let secrets = [
        "STUDYSYNC_API_KEY",
        "STUDYSYNC_WEBHOOK_SECRET",
        "STUDYSYNC_STATUS_TOKEN",
        "STUDYSYNC_SERVE_TOKEN_COMMAND",
        "STUDYSYNC_ANOTHER_KEY",
        "OTEL_EXPORTER_OTLP_HEADERS",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        "MY_PAGE",
    ];
    for name in secrets {
        place = place.with_env(name, "s3cret-s3cret-s3cret");
    }
    let place = place.with_env("STUDYSYNC_NOTIFY_URL", "http://127.0.0.1:9/s3cret").with_env("MY_OWN", "stays");
    let done = place.run(&["sync"]).expect(4);
    let environment = std::fs::read_to_string(place.path("told.env")).unwrap_or_else(|_| panic!("{}", done.stderr));
    assert!(!environment.contains("s3cret"), "{environment}");
    let ours = environment.lines().filter_map(|line| Some(line.split_once('=')?.0));
    let mut ours: Vec<&str> = ours.filter(|name| name.starts_with("STUDYSYNC_")).collect();
    ours.sort_unstable();
    let told = ["STUDYSYNC_EVENT", "STUDYSYNC_EXIT_CODE", "STUDYSYNC_OUTCOME", "STUDYSYNC_SUMMARY"];
    assert_eq!(ours, told);
    assert!(environment.contains("MY_OWN=stays"));
}

#[test]
fn a_signal_ends_the_notify_command_with_its_children() {
    let service = Service::start(small(60, 3));
    let hangs = "[notify]\ncommand = [\"/bin/sh\", \"-c\", \"sleep 1000 & echo $$ $! > pids.part; mv pids.part pids; wait\"]\n\
                 timeout_secs = 300\n";
    let place = with_wrong_key(place_for(&service, hangs));
    let run = place.spawn(&["sync"]);
    crate::serve::until("the command", || place.path("pids").exists());
    let pid = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(run.wait_with_output().unwrap().status.code(), Some(4), "the run's own end");
    let pids = std::fs::read_to_string(place.path("pids")).unwrap();
    assert_eq!(pids.split_whitespace().count(), 2);
    let lives = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        !status.is_empty() && !status.contains("State:\tZ")
    };
    crate::serve::until("the end of the command", || !pids.split_whitespace().any(lives));
}
