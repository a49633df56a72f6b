//! Errors about files that are unreadable, missing or locked: each cause has its own message.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Stdio,
};

use crate::harness::{Done, Place, Service, days_ago, small};

const NOBODY: u32 = 65_534;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns a copy of the program, with its library, in a place that every user can enter. The build folder may be
/// closed to other users.
fn reachable_program(place: &Place) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_studysync"));
    for name in ["studysync", "libduckdb.so"] {
        let (from, to) = (built.with_file_name(name), place.path(name));
        if from.exists() && !to.exists() {
            fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop)).unwrap();
        }
    }
    place.path("studysync")
}

/// Runs the command as a user without privileges.
fn as_another(place: &Place, arguments: &[&str]) -> Done {
    let of_place = place.command(arguments);
    let mut command = std::process::Command::new(reachable_program(place));
    command.current_dir(place.root()).args(of_place.get_args()).stdin(Stdio::null());
    for (name, value) in of_place.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    set_mode(place.root(), 0o755);
    Done::from(command.output().unwrap())
}

fn filled(service: &Service) -> Place {
    let place = Place::new(service);
    place.run(&["backfill", "--from", &days_ago(6)]).expect(0);
    place
}

fn assert_says(done: &Done, words: &[&str], not: &[&str]) {
    for word in words {
        assert!(done.stderr.contains(word), "no '{word}' in {}", done.stderr);
    }
    for word in not {
        assert!(
            !format!("{}{}", done.stderr, done.stdout).contains(word),
            "'{word}' in {}{}",
            done.stderr,
            done.stdout
        );
    }
}

#[test]
fn an_unreadable_file_is_not_reported_as_missing() {
    let service = Service::start(small(60, 3));
    let place = filled(&service);
    let status = as_another(&place, &["status"]);
    // Other users cannot enter the folder of the state file.
    assert_says(
        &status.expect(1),
        &["checkpoints.sqlite", "Permission denied", "let this user enter", "chown -R"],
        &["Nothing was synced"],
    );
    assert_says(&as_another(&place, &["plan"]).expect(1), &["Permission denied"], &[]);
    let place = place.without_parquet();
    let query = as_another(&place, &["query", "FROM responses"]).expect(1);
    assert_says(&query, &["warehouse.duckdb", "let this user read it"], &["writable"]);
    let place = place.without_duckdb().with_parquet();
    let query = as_another(&place, &["query", "FROM responses"]).expect(1);
    assert_says(&query, &["parquet", "let this user enter"], &["writable"]);
    // One unreadable partition of many: the engine would silently leave it out.
    for (path, mode) in [("parquet", 0o755), ("parquet/responses", 0o755)] {
        set_mode(&place.path(path), mode);
    }
    let query = as_another(&place, &["query", "SELECT count(*) FROM responses"]).expect(1);
    assert_says(&query, &["created_month"], &["writable"]);
}

#[test]
fn status_works_on_read_only_files() {
    let service = Service::start(small(60, 3));
    let place = filled(&service);
    set_mode(&place.path("state"), 0o755);
    set_mode(&place.state(), 0o644);
    if rustix::process::geteuid().is_root() {
        chown(place.path("state"), Some(0), Some(0)).unwrap();
    } else {
        set_mode(&place.path("state"), 0o555);
    }
    let status = as_another(&place, &["status"]);
    set_mode(&place.path("state"), 0o755);
    assert!(status.expect(0).stdout.contains("complete"));
}

#[test]
fn a_run_after_one_as_root_is_told_to_chown() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can leave files of another user");
        return;
    }
    let service = Service::start(small(60, 3));
    let place = filled(&service).without_parquet();
    // The state file and the warehouse are readable, and belong to root.
    set_mode(&place.path("state"), 0o755);
    set_mode(&place.state(), 0o644);
    set_mode(&place.path("warehouse.duckdb"), 0o644);
    for arguments in [&["sync"][..], &["replay"]] {
        assert_says(&as_another(&place, arguments).expect(1), &["cannot be written", "chown -R"], &[]);
    }
    // The state file belongs to the user again; the archive and the warehouse belong to root.
    for path in [place.path("state")].into_iter().chain(place.files("state")) {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    assert_says(&as_another(&place, &["sync"]).expect(1), &["Permission denied", "chown -R"], &[]);
}

#[test]
fn a_missing_file_is_reported_as_missing() {
    let service = Service::start(small(60, 3));
    let place = Place::new(&service).without_parquet();
    for command in [&["query", "FROM responses"][..], &["report", "--out", "r.html"]] {
        let done = place.run(command).expect(2);
        assert_says(
            &done,
            &["no warehouse at", "warehouse.duckdb", "studysync sync", "studysync replay"],
            &["backup", "writable"],
        );
    }
    let done = place.run_on_parquet(&["query", "FROM responses"]).expect(2);
    assert_says(&done, &["no warehouse at", "parquet"], &["backup"]);
    fs::create_dir(place.path("warehouse.duckdb")).unwrap();
    let done =
        Done::from(place.bare(&["query", "SELECT 1", "--duckdb", "warehouse.duckdb"]).output().unwrap()).expect(2);
    assert_says(&done, &["it is not a file"], &[]);
}

/// Runs the command while the system refuses every lock on a whole file; `None` if that cannot be arranged.
fn without_locks(place: &Place, arguments: &[&str]) -> Option<Done> {
    let strace = |command: &std::process::Command| {
        let mut traced = std::process::Command::new("strace");
        traced.args(["-f", "-o", "/dev/null", "-e", "trace=flock", "-e", "inject=flock:error=ENOLCK"]);
        traced.arg(command.get_program()).args(command.get_args()).current_dir(place.root());
        traced.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        traced.output().ok()
    };
    strace(&std::process::Command::new("true")).filter(|tried| tried.status.success())?;
    strace(&place.command(arguments)).map(Done::from)
}

#[test]
fn an_unsupported_lock_is_not_reported_as_held() {
    let service = Service::start(small(60, 3));
    let place = Place::new(&service);
    let Some(refused) = without_locks(&place, &["sync"]) else { return println!("SKIPPED: there is no strace") };
    assert_says(
        &refused.expect(1),
        &["no lock on", "No locks available", "supports file locks"],
        &["another process", "writable"],
    );
    place.run(&["sync"]).expect(0);
    // Commands that only read need no lock.
    without_locks(&place, &["status"]).unwrap().expect(0);
    without_locks(&place, &["query", "FROM responses"]).unwrap().expect(0);
}
