//! `--out` writes to devices, pipes and descriptors, follows links, and keeps the mode of a file.

use std::{
    fs,
    io::Read,
    os::unix::fs::{FileTypeExt, PermissionsExt, symlink},
    process::{Command, Stdio},
};

use super::mode;
use crate::harness::{Done, Place, Service, days_ago, small};

const SQL: &str = "SELECT count(*) AS rows FROM responses";

fn filled(service: &Service) -> Place {
    let place = Place::new(service).without_parquet();
    place.run(&["backfill", "--from", &days_ago(6)]).expect(0);
    place
}

fn query(place: &Place, out: &str) -> Command {
    place.command(&["query", SQL, "--format", "json", "--out", out])
}

fn done(mut command: Command) -> Done {
    Done::from(command.output().unwrap())
}

#[test]
fn out_writes_to_devices_pipes_and_descriptors() {
    let service = Service::start(small(60, 3));
    let place = filled(&service);
    let expected = done(query(&place, "rows.json")).expect(0);
    assert_eq!(expected.stdout, "");
    let rows = fs::read_to_string(place.path("rows.json")).unwrap();
    for stdout in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        assert_eq!(done(query(&place, stdout)).expect(0).stdout, rows, "{stdout}");
    }
    // The test makes its own devices: a fault of the program, run as root, could replace those of the machine.
    for (name, number, code) in [("null", "3", 0), ("full", "7", 1)] {
        let made = Command::new("mknod").arg(place.path(name)).args(["c", "1", number]).output().unwrap();
        if !made.status.success() || fs::File::options().write(true).open(place.path(name)).is_err() {
            println!("SKIPPED: no device can be made here");
            continue;
        }
        let told = done(query(&place, name)).expect(code);
        assert!(fs::metadata(place.path(name)).unwrap().file_type().is_char_device());
        assert!(code == 0 || told.stderr.contains("full") && told.stderr.contains("No space"), "{}", told.stderr);
    }
    let pipe = place.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = query(&place, "pipe").stderr(Stdio::null()).spawn().unwrap();
    let mut read = String::new();
    fs::File::open(&pipe).unwrap().read_to_string(&mut read).unwrap();
    Done::from(writer.wait_with_output().unwrap()).expect(0);
    assert!(read == rows && fs::metadata(&pipe).unwrap().file_type().is_fifo(), "{read}");
    // The output is redirected to the end of a file: the existing content stays.
    let log = place.path("log");
    fs::write(&log, "before\n").unwrap();
    let mut appended = query(&place, "/dev/stdout");
    let status = appended.stdout(fs::File::options().append(true).open(&log).unwrap()).status().unwrap();
    assert!(status.success());
    assert_eq!(fs::read_to_string(&log).unwrap(), format!("before\n{rows}"));
}

#[test]
fn out_follows_links_keeps_modes_and_leaves_no_temp_file() {
    let service = Service::start(small(60, 3));
    let place = filled(&service);
    fs::create_dir(place.path("disk")).unwrap();
    symlink("disk/rows.json", place.path("link.json")).unwrap();
    let file = place.path("disk/rows.json");
    done(query(&place, "link.json")).expect(0);
    assert!(place.path("link.json").is_symlink() && fs::read_to_string(&file).unwrap().contains("rows"));
    assert_eq!(mode(&file), 0o600, "a new file is private");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    done(query(&place, "link.json")).expect(0);
    done(place.command(&["report", "--out", "link.json"])).expect(0);
    assert_eq!(mode(&file), 0o640, "an old one keeps its mode");
    for (out, says) in [("disk", "folder"), ("none/rows.json", "none")] {
        let refused = done(query(&place, out)).expect(1);
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
    let failed = done(place.command(&["query", "SELECT error('no')", "--out", "link.json"])).expect(1);
    assert!(fs::read_to_string(&file).unwrap().contains("<html"), "{}", failed.stderr);
    assert_eq!(place.files("disk"), [file]);
    assert!(!place.files("").iter().any(|path| path.to_string_lossy().ends_with(".part")));
}
