//! A push that fails keeps the results of an earlier push.

use std::{fs, os::unix::fs::symlink};

use studysync_sandbox::{Auth, Faults};

use super::push::{results, service, write};
use crate::harness::{KEY_VARIABLE, Place};

const ROWS: &str = "userId,attributes.plan\na,pro\nb,pro\nc,pro\n";

fn text(place: &Place, name: &str) -> String {
    fs::read_to_string(place.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn a_push_that_fails_at_once_keeps_the_earlier_results() {
    let service = service(Faults { auth: Auth::Strict, ..Faults::default() });
    let mut place = Place::new(&service);
    let file = write(&place, "users.csv", ROWS);
    place.report(&["users", "push", &file], 0);
    let before = text(&place, "users.csv.results.csv");
    assert_eq!(results(&format!("{file}.results.csv")).len(), 3);
    let push = ["users", "push", file.as_str()];
    write(&place, "users.csv", &ROWS.replace("userId", "who"));
    place.run(&push).expect(2);
    place.run(&[&push[..], &["--dry-run"]].concat()).expect(2);
    write(&place, "users.csv", &ROWS.replace("pro", "free"));
    place = place.with_env(KEY_VARIABLE, "another");
    let refused = place.run(&push).expect(4);
    assert!(!refused.stderr.contains("result of each row"), "{}", refused.stderr);
    place = place.with_env(KEY_VARIABLE, crate::harness::KEY);
    place.set_base_url("http://127.0.0.1:1");
    assert_ne!(place.run(&push).code, 0);
    assert_eq!(text(&place, "users.csv.results.csv"), before);
    let left = place.files("").iter().filter(|path| path.to_string_lossy().contains(".results.csv")).count();
    assert_eq!(left, 1);
}

#[test]
fn a_push_that_ends_early_sets_earlier_results_aside() {
    let service = service(Faults::default());
    let place = Place::new(&service);
    let file = write(&place, "users.csv", ROWS);
    // The results file is behind a link, as on another disk.
    fs::create_dir(place.path("disk")).unwrap();
    symlink("disk/fates.csv", place.path("users.csv.results.csv")).unwrap();
    let push = ["users", "push", file.as_str()];
    place.report(&push, 0);
    let before = text(&place, "disk/fates.csv");
    write(&place, "users.csv", &ROWS.replace("pro", "free"));
    place.report(&[&push[..], &["--max-requests", "1", "--concurrency", "1"]].concat(), 6);
    assert_eq!(text(&place, "disk/fates.csv.1"), before);
    let early = text(&place, "disk/fates.csv");
    assert!(early.contains("accepted") && place.path("users.csv.results.csv").is_symlink(), "{early}");
    // The temporary file of a push that was killed.
    fs::write(place.path("disk/fates.csv.part"), "row,userId\n1,a\n").unwrap();
    place.report(&push, 0);
    assert_eq!(text(&place, "disk/fates.csv.2"), "row,userId\n1,a\n");
    assert_eq!(results(&format!("{file}.results.csv")).len(), 3);
    assert_eq!(place.files("disk").len(), 3);
}

#[test]
fn a_push_that_reads_no_row_leaves_no_results_and_claims_none() {
    let service = service(Faults::default());
    let place = Place::new(&service);
    let wrong = write(&place, "wrong.csv", "id,foo\n1,2\n");
    let missing = place.path("missing.csv").display().to_string();
    for (file, said) in [
        (&wrong, "hint: see `studysync users push --help` for the columns; no row was sent\n"),
        (&missing, "missing.csv"),
    ] {
        let done = place.run(&["users", "push", file]).expect(2);
        assert!(done.stderr.contains(said) && !done.stderr.contains("result of each row"), "{}", done.stderr);
        assert!(!done.stderr.contains("sent again"), "{}", done.stderr);
    }
    let left = place.files("").iter().filter(|path| path.to_string_lossy().contains(".results.csv")).count();
    assert_eq!(left, 0);
}
