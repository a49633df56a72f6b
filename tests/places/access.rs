//! Permissions of new files: private, unless the user has set another mode.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use studysync_sandbox::ChangeRequest;

use super::mode;
use crate::{
    harness::{ALL_FLAGS, DAY_MS, Done, Place, Service, days_ago, small},
    world::full_disk::may_mount,
};

fn set_mode(path: &PathBuf, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn place(service: &Service) -> Place {
    Place::new(service).with_config(&format!("{ALL_FLAGS}[warehouse]\npublish = \"analytics.duckdb\"\n"))
}

/// Runs the command with an umask that removes no permission.
fn in_the_open(place: &Place, arguments: &[&str]) -> Done {
    let command = place.command(arguments);
    let mut open = Command::new("sh");
    open.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    open.current_dir(place.root()).stdin(Stdio::null());
    open.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Done::from(open.output().unwrap())
}

#[test]
fn p9_new_files_are_private_under_any_umask() {
    let service = Service::start(small(60, 3));
    let place = place(&service);
    in_the_open(&place, &["backfill", "--from", &days_ago(6)]).expect(0);
    in_the_open(&place, &["erase", "--user-id", "nobody-0", "--local-only", "--yes"]);
    fs::write(place.path("users.csv"), "userId\na\n").unwrap();
    in_the_open(&place, &["users", "push", "users.csv"]).expect(0);
    in_the_open(&place, &["query", "FROM responses", "--out", "rows.txt"]).expect(0);
    let ours = ["studysync.toml", "users.csv"].map(|name| place.path(name));
    let files = place.files("");
    for kind in
        [".duckdb", "analytics.duckdb", "data.parquet", ".pages", ".sqlite", ".json", ".results.csv", "rows.txt"]
    {
        assert!(files.iter().any(|path| path.to_string_lossy().ends_with(kind)), "no {kind} in {files:?}");
    }
    let open: Vec<_> = files.iter().filter(|path| !ours.contains(path) && mode(path) & 0o077 != 0).collect();
    assert!(open.is_empty(), "{open:?}");
    for folder in ["state", "parquet", "parquet/responses", "archive", "archive/under-way"] {
        assert_eq!(mode(&place.path(folder)) & 0o077, 0, "{folder}");
    }
    // Files without personal data follow the umask.
    in_the_open(&place, &["report", "--out", "report.html"]).expect(0);
    assert_eq!(mode(&place.path("report.html")), 0o666);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_every_writer_keeps_file_modes_set_by_hand() {
    let service = Service::start(small(60, 3));
    let place = place(&service);
    place.run(&["backfill", "--from", &days_ago(6)]).expect(0);
    let copy = place.path("analytics.duckdb");
    assert_eq!(mode(&copy), 0o400, "a copy is only read");
    let table = place.files("parquet/responses");
    assert!(!table.is_empty());
    set_mode(&copy, 0o440);
    set_mode(&place.duckdb(), 0o640);
    table.iter().for_each(|file| set_mode(file, 0o640));
    let assert_kept = |when: &str| {
        assert_eq!((mode(&copy), mode(&place.duckdb())), (0o440, 0o640), "{when}");
        table.iter().for_each(|file| assert_eq!(mode(file), 0o640, "{when}: {}", file.display()));
    };
    service.advance_days(1);
    let changes = ChangeRequest { seed: 3, edits: 40, within_ms: Some(3 * DAY_MS), ..ChangeRequest::default() };
    assert!(!service.change(&changes).edits_bumped.is_empty());
    place.run(&["sync"]).expect(0);
    assert_kept("after a night");
    place.run(&["replay"]).expect(0);
    assert_kept("after a replay");
    let user = place.duckdb_tables().value("SELECT max(external_user_id) FROM responses").unwrap();
    let erased = place.run(&["erase", "--user-id", &user, "--local-only", "--yes"]);
    assert!([0, 3].contains(&erased.code), "{}", erased.stderr);
    assert_kept("after an erasure");
}

/// Mounts a file over itself, as containers mount a single file, and runs the command.
const MOUNTED: &str = r#"
set -eu
mount --make-rprivate /
for path in "$1" "$2"; do mount --bind "$path" "$path"; done
shift 2
exec "$@"
"#;

fn run_mounted(place: &Place, paths: [PathBuf; 2], arguments: &[&str]) -> Done {
    let run = place.command(arguments);
    let mut wrapped = Command::new("unshare");
    wrapped.args(["-m", "sh", "-c", MOUNTED, "sh"]).args(paths);
    wrapped.arg(run.get_program()).args(run.get_args()).current_dir(place.root());
    wrapped.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Done::from(wrapped.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn an_error_names_a_mounted_file_and_leaves_no_temp_file() {
    if !may_mount() {
        return println!("SKIPPED: this user may not mount");
    }
    let service = Service::start(small(60, 3));
    let place = place(&service);
    place.run(&["backfill", "--from", &days_ago(6)]).expect(0);
    fs::write(place.path("rows.txt"), "old").unwrap();
    let before = place.files("");
    let run = |arguments: &[&str], named: &str| {
        let mounted =
            [place.duckdb(), if named == "rows.txt" { place.path(named) } else { place.path("analytics.duckdb") }];
        let done = run_mounted(&place, mounted, arguments).expect(1);
        assert!(done.stderr.contains(named) && done.stderr.contains("mount its folder"), "{}", done.stderr);
    };
    run(&["query", "FROM responses", "--out", "rows.txt"], "rows.txt");
    assert_eq!(fs::read_to_string(place.path("rows.txt")).unwrap(), "old");
    assert_eq!(place.files(""), before);
    service.advance_days(1);
    service.change(&ChangeRequest { seed: 3, edits: 40, within_ms: Some(3 * DAY_MS), ..ChangeRequest::default() });
    run(&["sync"], "analytics.duckdb");
    run(&["erase", "--user-id", "nobody-0", "--local-only", "--yes"], "warehouse.duckdb");
    run(&["replay"], "warehouse.duckdb");
    let left = |path: &&PathBuf| {
        [".part", ".unfinished", ".rewrite", ".new", ".wal"].iter().any(|end| path.to_string_lossy().ends_with(end))
    };
    let files = place.files("");
    assert_eq!(files.iter().filter(left).collect::<Vec<_>>(), Vec::<&PathBuf>::new());
    assert!(!place.path("warehouse.duckdb.replay").exists());
}
