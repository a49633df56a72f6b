//! Read-only folders and files, and paths that cannot be folders. Root can write everywhere except on a read-only
//! mount.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use crate::harness::{Done, Place, Service, small};

use super::{assert_mended, assert_says, full_disk::may_mount};

const PARTS: [&str; 4] = ["state", "warehouse.duckdb", "parquet", "archive"];

/// Runs the command with one of its paths below a regular file.
fn run_with(service: &Service, place: &Place, part: &str, path: &str) -> Done {
    let at = |of: &str, name: &str| place.path(if of == part { path } else { "." }).join(name);
    let mut command = place.bare(&["sync", "--base-url", &service.base_url()]);
    command.arg("--state").arg(at("state", "checkpoints.sqlite"));
    command.arg("--duckdb").arg(at("warehouse.duckdb", "w.duckdb"));
    command.arg("--parquet").arg(at("parquet", "tables"));
    command.arg("--archive").arg(at("archive", "pages"));
    Done::from(command.output().unwrap())
}

#[test]
fn exit_1_the_error_names_a_path_below_a_file() {
    let service = Service::start(small(100, 4));
    let place = Place::new(&service);
    fs::write(place.path("a-file"), "not a folder").unwrap();
    for part in PARTS {
        let done = run_with(&service, &place, part, "a-file").expect(1);
        assert_says(&done, &["a-file", "writable"]);
    }
    assert!(service.log().is_empty(), "the service was asked before anything could be kept");
}

#[test]
fn missing_parent_folders_are_created() {
    let service = Service::start(small(100, 4));
    for part in PARTS {
        let place = Place::new(&service);
        let deep = format!("deep-{part}/er");
        let is_warehouse = matches!(part, "warehouse.duckdb" | "parquet");
        let done = run_with(&service, &place, part, &deep).expect(if is_warehouse { 2 } else { 0 });
        if is_warehouse {
            // A flag may be mistyped, so it creates no folder. A setting does.
            for words in ["there is no folder", &deep, "mkdir -p"] {
                assert!(done.stderr.contains(words), "{words:?} is missing in: {}", done.stderr);
            }
            assert!(!place.path(&format!("deep-{part}")).exists(), "{part}");
            let name = if part == "parquet" { "STUDYSYNC_WAREHOUSE_PARQUET" } else { "STUDYSYNC_WAREHOUSE_DUCKDB" };
            let mut command = place.bare(&["sync", "--base-url", &service.base_url()]);
            command.env(name, place.path(&deep).join("warehouse")).current_dir(place.root());
            Done::from(command.output().unwrap()).expect(0);
        }
        assert!(!place.files(&deep).is_empty(), "{part}");
    }
}

/// Mounts a file or folder over itself, read-only, and runs the command.
const READ_ONLY: &str = r#"
set -eu
path=$1; shift
mount --make-rprivate /
mount --bind "$path" "$path"
mount -o remount,ro,bind "$path"
cd "$(pwd)"
exec "$@"
"#;

/// Runs the command with a path that cannot be written: for root by a read-only mount, for other users by permissions.
/// `None` if root may not mount.
fn run_without_right_to(place: &Place, part: &Path, command: &str) -> Option<Done> {
    let run = place.command(&[command]);
    if !rustix::process::geteuid().is_root() {
        set_mode(part, 0o555);
        let done = Done::from(place.command(&[command]).output().unwrap());
        set_mode(part, 0o755);
        return Some(done);
    }
    if !may_mount() {
        return None;
    }
    let mut wrapped = Command::new("unshare");
    wrapped.args(["-m", "sh", "-c", READ_ONLY, "sh"]).arg(part);
    wrapped.arg(run.get_program()).args(run.get_args()).current_dir(place.root());
    wrapped.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(Done::from(wrapped.stdin(Stdio::null()).output().unwrap()))
}

fn set_mode(part: &Path, mode: u32) {
    let below = if part.is_dir() {
        fs::read_dir(part).unwrap().map(|entry| entry.unwrap().path()).collect()
    } else {
        Vec::new()
    };
    let restores = mode & 0o200 != 0;
    if restores {
        fs::set_permissions(part, fs::Permissions::from_mode(mode)).unwrap();
    }
    below.iter().for_each(|path| set_mode(path, mode));
    fs::set_permissions(part, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn exit_1_the_error_names_the_unwritable_path() {
    let service = Service::start(small(100, 4));
    for part in PARTS {
        let place = Place::new(&service);
        place.report(&["sync"], 0);
        let Some(done) = run_without_right_to(&place, &place.path(part), "sync") else {
            println!("SKIPPED: root may write anywhere here, and may not mount; a path below a file is tried instead");
            fs::write(place.path("a-file"), "").unwrap();
            assert_says(&run_with(&service, &place, part, "a-file").expect(1), &["a-file", "writable"]);
            continue;
        };
        assert_says(&done.expect(1), &[part, "writable"]);
        assert_mended(&service, &place, part);
    }
}

#[test]
fn check_names_each_folder_that_a_run_cannot_write() {
    let service = Service::start(small(100, 4));
    let place = Place::new(&service).with_env("STUDYSYNC_WAREHOUSE_PUBLISH", "copy/readers.duckdb");
    place.report(&["sync"], 0);
    fs::create_dir(place.path("state/checkpoints.sqlite.erasures")).unwrap();
    let archived = "archive/responses";
    let month = fs::read_dir(place.path(archived)).unwrap().next().unwrap().unwrap().file_name();
    let month = format!("{archived}/{}", month.to_str().unwrap());
    for (what, folder) in [
        ("archive", "archive"),
        ("archive", "archive/under-way"),
        ("archive", &month),
        ("state", "state/checkpoints.sqlite.erasures"),
        ("warehouse", "copy"),
        ("warehouse", "parquet/.studysync/parts"),
        ("warehouse", "parquet/responses"),
    ] {
        let Some(done) = run_without_right_to(&place, &place.path(folder), "check") else {
            println!("SKIPPED: root may write anywhere here, and may not mount");
            return;
        };
        let failed = done.expect(1).stdout;
        assert!(failed.contains(&format!("FAIL {what:<10} cannot create a file in ")), "{folder}: {failed}");
        assert!(failed.contains(folder) && failed.contains("\n     hint: "), "{folder}: {failed}");
        assert_eq!(failed.matches("FAIL").count(), 1, "{folder}: {failed}");
    }
    let well = place.run(&["check"]).expect(0).stdout;
    assert!(well.contains("ok   archive "), "{well}");
}

#[test]
fn p10_check_refuses_the_archive_of_another_state_file() {
    let service = Service::start(small(100, 4));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    let mut check = place.bare(&["check", "--base-url", &service.base_url(), "--state", "other.sqlite"]);
    check.args(["--duckdb", "w.duckdb", "--archive", "archive"]);
    let failed = Done::from(check.output().unwrap()).expect(2).stdout;
    assert!(failed.contains("FAIL archive ") && failed.contains("hint: name another folder"), "{failed}");
}
