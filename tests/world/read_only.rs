//! Folders that cannot be written, and paths that cannot be folders. Root may write anywhere, so that as root a file stands in the
//! way of a folder, and the run is also started as an unprivileged user where that is possible.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use crate::harness::{Done, Place, Service, small};

use super::{assert_mended, assert_says};

const PARTS: [&str; 4] = ["state", "warehouse.duckdb", "parquet", "archive"];

/// The run's command, with the path of one part below a regular file.
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
fn exit_1_a_path_below_a_file_is_named() {
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
fn missing_parent_folders_are_made() {
    let service = Service::start(small(100, 4));
    for part in PARTS {
        let place = Place::new(&service);
        let deep = format!("deep-{part}/er");
        run_with(&service, &place, part, &deep).expect(0);
        assert!(!place.files(&deep).is_empty(), "{part}");
    }
}

/// `setpriv` with another user's number, if this user may do that.
fn as_nobody(place: &Place) -> Option<Command> {
    let works = Command::new("setpriv").args(["--reuid=65534", "--clear-groups", "true"]).status();
    if !works.is_ok_and(|status| status.success()) {
        return None;
    }
    let run = place.command(&["sync"]);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups"]).arg(run.get_program()).args(run.get_args());
    command.current_dir(place.root());
    command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(command)
}

fn set_mode(place: &Place, mode: u32) {
    let mut folders = vec![place.root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o666)).unwrap();
            }
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn exit_1_folders_that_may_not_be_written_are_named() {
    let service = Service::start(small(100, 4));
    for part in PARTS {
        let place = Place::new(&service);
        place.report(&["sync"], 0);
        set_mode(&place, 0o777);
        let Some(mut run) = as_nobody(&place) else {
            println!("SKIPPED: this user cannot become another one; a path below a file is tried instead");
            fs::write(place.path("a-file"), "").unwrap();
            assert_says(&run_with(&service, &place, part, "a-file").expect(1), &["a-file", "writable"]);
            continue;
        };
        let refused = place.path(part);
        let refused = if refused.is_file() { vec![refused, place.root().to_owned()] } else { folders_below(&refused) };
        for path in refused.iter() {
            let mode = if path.is_dir() { 0o555 } else { 0o444 };
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        if part == "state" {
            fs::set_permissions(place.state(), fs::Permissions::from_mode(0o444)).unwrap();
        }
        let done = Done::from(run.output().unwrap()).expect(1);
        assert_says(&done, &[part, "writable"]);
        set_mode(&place, 0o777);
        assert_mended(&service, &place, part);
    }
}

fn folders_below(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut all = vec![folder.to_owned()];
    let mut at = 0;
    while at < all.len() {
        let entries = fs::read_dir(&all[at]).unwrap().map(|entry| entry.unwrap().path());
        let folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
        all.extend(folders);
        at += 1;
    }
    all
}
