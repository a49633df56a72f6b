//! A disk that is full at any write: the run ends with exit code 1 and says so. With free space again, the same command
//! ends equal to the service.
//!
//! Full disks are small memory file systems in a mount namespace, which not every user may create. If it is refused,
//! the test says so. The other test needs no privilege: it limits the size of files.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use studysync_sandbox::ChangeRequest;

use crate::harness::{
    DAY_MS, Done, Place, Service, assert_each_warehouse_equals, copy_folder, days_ago, expected::Expected, small,
};

const DAYS: u32 = 12;

/// The words in messages that say which file was being written.
const PLACES: [&str; 4] = ["under-way", "checkpoints.sqlite", "warehouse.duckdb", "parquet"];

/// Mounts a small file system over a folder, runs the command, adds space, and runs it again. Then copies the content
/// of the folder out.
const ON_A_FULL_DISK: &str = r#"
set -eu
full=$1 room_kib=$2 out=$3 home=$(pwd); shift 3
mount --make-rprivate /
mkdir -p "$full" "$out/below"
mount --bind "$full" "$out/below"
mount -t tmpfs -o size=1g,mode=755 none "$full"
cp -a "$out/below/." "$full/"
used_kib=$(df -k --output=used "$full" | tail -1)
mount -o remount,size=$((used_kib + room_kib + 4))k "$full"
cd "$home"
set +e
"$@" > "$out/first.out" 2> "$out/first.err"; echo $? > "$out/first.code"
mount -o remount,size=1g "$full"
"$@" > "$out/second.out" 2> "$out/second.err"; echo $? > "$out/second.code"
set -e
find "$out/below" -mindepth 1 -delete
cp -a "$full/." "$out/below/"
"#;

/// Returns whether this user may create a mount namespace and mount in it.
pub fn may_mount() -> bool {
    let tried =
        Command::new("unshare").args(["-m", "sh", "-c", "mount -t tmpfs none /mnt"]).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Runs a command on a full disk, and again with free space. Returns both results.
fn on_a_full_disk(place: &Place, full: &str, room_kib: u64, command: &[&str]) -> (Done, Done) {
    let out = tempfile::tempdir().unwrap();
    let full = if full == "." { place.root().to_owned() } else { place.path(full) };
    let run = place.command(command);
    let mut wrapped = Command::new("unshare");
    wrapped.args(["-m", "sh", "-c", ON_A_FULL_DISK, "sh"]).arg(&full).arg(room_kib.to_string()).arg(out.path());
    wrapped.arg(run.get_program()).args(run.get_args()).current_dir(place.root());
    wrapped.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let status = wrapped.stdin(Stdio::null()).status().unwrap();
    assert!(status.success(), "the disk could not be set up");
    let done = |run: &str| {
        let read = |what: &str| fs::read_to_string(out.path().join(format!("{run}.{what}"))).unwrap();
        Done { code: read("code").trim().parse().unwrap(), stdout: read("out"), stderr: read("err") }
    };
    (done("first"), done("second"))
}

/// Asserts that the error says that the disk is full, names the file, and says what to do.
fn assert_tells(done: &Done, when: &str) -> Vec<&'static str> {
    assert_eq!(done.code, 1, "{when}: {}", done.stderr);
    assert!(!done.stderr.contains("panicked"), "{when}: {}", done.stderr);
    assert!(done.stderr.contains("no space is left"), "{when}: {}", done.stderr);
    assert!(done.stderr.contains("free disk space and run the same command again"), "{when}: {}", done.stderr);
    let told: Vec<&str> = PLACES.into_iter().filter(|place| done.stderr.contains(place)).collect();
    assert!(!told.is_empty(), "{when}: no file is named: {}", done.stderr);
    told
}

/// Asserts that the history has the end of each run: a full disk must not look like a kill.
fn assert_no_run_counts_as_killed(place: &Place, when: &str) {
    let status = place.run(&["status", "--json"]);
    if status.code == 0 {
        let runs = status.json()["runs"].as_array().cloned().unwrap_or_default();
        let killed: Vec<_> = runs.iter().filter(|run| run["outcome"] == "killed").collect();
        assert!(killed.is_empty(), "{when}: {killed:?}");
    }
}

fn kib_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return fs::metadata(folder).map_or(0, |file| file.len().div_ceil(1024));
    };
    entries.map(|entry| kib_below(&entry.unwrap().path())).sum()
}

/// The parameters of a sweep.
struct Tried<'a> {
    responses: u64,
    /// The folders on the full disk.
    folders: &'a [&'a str],
    /// The number of disk sizes to test, between nothing and what a run needs.
    sizes: u64,
    /// The number of [`PLACES`] that must be full at least once.
    places: usize,
}

/// Runs a command with several disk sizes for a folder. Returns what was full, and the number of failures.
fn sweep(
    tried: &Tried<'_>,
    service: &Service,
    place: &Place,
    full: &str,
    command: &[&str],
) -> (BTreeSet<&'static str>, u64) {
    let before = tempfile::tempdir().unwrap();
    copy_folder(place.root(), before.path());
    let path = if full == "." { place.root().to_owned() } else { place.path(full) };
    let held_kib = kib_below(&path);
    place.run(command).expect(0);
    // While a file is rewritten, its old version still takes space.
    let needed_kib = kib_below(&path).saturating_sub(held_kib) * 5 / 4 + 64;
    let expected = Expected::now(service);
    assert_each_warehouse_equals(place, &expected, "with room");
    let (mut told, mut failures) = (BTreeSet::new(), 0);
    for step in 0..tried.sizes {
        // The sizes are not all multiples of a page.
        let room_kib = needed_kib * step / tried.sizes + step * 3 % 7;
        place.restore(before.path());
        let when = format!("{full} with {room_kib} of {needed_kib} KiB");
        let (first, second) = on_a_full_disk(place, full, room_kib, command);
        if first.code != 0 {
            failures += 1;
            told.extend(assert_tells(&first, &when));
        }
        assert_eq!(second.code, 0, "{when}: {}", second.stderr);
        assert_no_run_counts_as_killed(place, &when);
        assert_each_warehouse_equals(place, &expected, &when);
    }
    place.restore(before.path());
    place.run(command).expect(0);
    (told, failures)
}

#[test]
fn p1_p2_exit_1_a_full_disk_loses_nothing() {
    fill_disks(&Tried { responses: 300, folders: &["."], sizes: 12, places: 3 });
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_p2_exit_1_slow_a_full_disk_at_any_write_loses_nothing() {
    // All folders on one disk, and each folder on its own disk.
    fill_disks(&Tried {
        responses: 900,
        folders: &[".", "state", "archive", "parquet"],
        sizes: 9,
        places: PLACES.len(),
    });
}

#[test]
fn a_disk_that_is_too_small_for_a_backfill_is_named() {
    if !may_mount() {
        println!("SKIPPED: this user may not mount");
        return;
    }
    let service = Service::start(small(2_000, 60));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    let from = days_ago(60);
    let room_kib = 150 << 10;
    let (small, large) = on_a_full_disk(&place, ".", room_kib, &["plan", "--from", &from]);
    for done in [&small, &large] {
        let words = done.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(done.code == 0 && words.contains("Needs about 1 MiB more on the disk of "), "{}", done.stdout);
        assert!(words.contains(", by the size of generated data; "), "{}", done.stdout);
    }
    assert!(small.stdout.contains("hint: make room before the run\n"), "{}", small.stdout);
    assert!(!large.stdout.contains("make room"), "{}", large.stdout);
    let (small, large) = on_a_full_disk(&place, ".", room_kib, &["backfill", "--from", &from]);
    let warning = "WARN the disk may be too small: this backfill needs about 1 MiB more on the disk of ";
    assert!(small.code == 0 && small.stderr.contains(warning), "{}", small.stderr);
    assert!(!large.stderr.contains("too small"), "{}", large.stderr);
}

fn fill_disks(tried: &Tried<'_>) {
    if !may_mount() {
        println!("SKIPPED: this user may not mount; limits on the size of files are tried instead");
        limits_on_file_size();
        return;
    }
    let service = Service::start(small(tried.responses, DAYS));
    let first = days_ago(i64::from(DAYS));
    let (mut told, mut failures) = (BTreeSet::new(), 0);
    for &full in tried.folders {
        let place = Place::new(&service);
        let (of_fill, failed) = sweep(tried, &service, &place, full, &["backfill", "--from", &first]);
        told.extend(of_fill);
        assert!(failed >= 3, "{full}: only {failed} runs met a full disk");
        failures += failed;
    }
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &first], 0);
    service.advance_days(1);
    let changes =
        ChangeRequest { edits: 200, new_answers: 200, within_ms: Some(10 * DAY_MS), ..ChangeRequest::default() };
    service.change(&changes);
    let (of_night, failed) = sweep(tried, &service, &place, ".", &["sync"]);
    told.extend(of_night);
    let runs = tried.sizes * (tried.folders.len() as u64 + 1);
    assert!(failures + failed >= runs * 4 / 9, "only {} of the runs met a full disk", failures + failed);
    assert!(told.len() >= tried.places, "only {told:?} failed");
}

/// `ulimit -f` counts blocks of 512 bytes. The signal of the limit is ignored, as a service manager may set it.
fn with_files_of_at_most(place: &Place, blocks: u64, command: &[&str]) -> Done {
    let run = place.command(command);
    let mut wrapped = Command::new("sh");
    wrapped.args(["-c", "trap '' XFSZ; ulimit -f \"$1\"; shift; exec \"$@\"", "sh"]).arg(blocks.to_string());
    wrapped.arg(run.get_program()).args(run.get_args()).current_dir(place.root());
    wrapped.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Done::from(wrapped.stdin(Stdio::null()).output().unwrap())
}

fn limits_on_file_size() {
    let service = Service::start(small(900, DAYS));
    let first = days_ago(i64::from(DAYS));
    let command = ["backfill", "--from", &first];
    let expected = Expected::now(&service);
    let mut failures = 0;
    for blocks in [0, 1, 2, 4, 9, 17, 40, 64, 100, 180, 300, 520, 1000, 2000, 4000, 6000, 9000] {
        let place = Place::new(&service);
        let when = format!("files of at most {blocks} blocks");
        let done = with_files_of_at_most(&place, blocks, &command);
        if done.code != 0 {
            failures += 1;
            assert_eq!(done.code, 1, "{when}: {}", done.stderr);
            assert!(!done.stderr.contains("panicked"), "{when}: {}", done.stderr);
            assert!(done.stderr.contains("hint:"), "{when}: {}", done.stderr);
            assert!(done.stderr.contains("run the same command again"), "{when}: {}", done.stderr);
            assert_no_run_counts_as_killed(&place, &when);
        }
        place.run(&command).expect(0);
        assert_each_warehouse_equals(&place, &expected, &when);
    }
    assert!(failures >= 10, "only {failures} runs met the limit");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_p2_exit_1_slow_a_file_size_limit_loses_nothing() {
    limits_on_file_size();
}
