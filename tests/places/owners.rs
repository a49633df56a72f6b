//! Two configurations in one folder: each has its own pages, and neither removes the pages of the other.

use std::{fs, path::PathBuf};

use studysync_sandbox::ChangeRequest;

use crate::harness::{Done, Place, Service, days_ago, small};

/// Runs a command with the configuration of this name.
fn run(place: &Place, service: &Service, name: &str, arguments: &[&str]) -> Done {
    let mut command = place.bare(arguments);
    command.args(["--base-url", &service.base_url(), "--state", &format!("state/{name}.sqlite")]);
    command.args(["--duckdb", &format!("{name}.duckdb")]);
    Done::from(command.output().unwrap())
}

fn services() -> (Place, [Service; 2]) {
    let services = [1, 2].map(|_| Service::start(small(120, 6)));
    (Place::new(&services[0]).with_config("[streams.responses]\npage_rows = 10\n"), services)
}

#[test]
fn two_state_files_in_one_folder_keep_separate_pages() {
    let (place, [eu, us]) = services();
    let backfill = ["backfill", "--from", &days_ago(6)];
    run(&place, &eu, "eu", &[&backfill[..], &["--max-requests", "9"]].concat()).expect(6);
    let spools = place.files("state/eu.sqlite.archive/under-way");
    assert!(!spools.is_empty());
    run(&place, &us, "us", &backfill).expect(0);
    assert_eq!(place.files("state/eu.sqlite.archive/under-way"), spools, "one run removed the other's pages");
    run(&place, &eu, "eu", &backfill).expect(0);
    for (name, service) in [("eu", &eu), ("us", &us)] {
        run(&place, service, name, &["replay"]).expect(0);
    }
    assert!(!place.path("state/archive").exists());
}

#[test]
fn p10_the_folder_of_another_owner_is_refused_untouched() {
    let (place, [eu, us]) = services();
    let backfill = ["backfill", "--from", &days_ago(6), "--archive", "pages"];
    run(&place, &eu, "eu", &[&backfill[..], &["--max-requests", "9"]].concat()).expect(6);
    let pages = place.files("pages");
    // A configuration for another service, and one for the same service with another state file.
    for (service, name) in [(&us, "us"), (&eu, "other")] {
        for arguments in [&backfill[..], &["sync", "--archive", "pages"]] {
            let refused = run(&place, service, name, arguments).expect(2);
            assert!(refused.stderr.contains("pages") && refused.stderr.contains("--archive"), "{}", refused.stderr);
        }
    }
    // Without the owner file, the pages themselves identify their owner.
    fs::remove_file(place.path("pages/owner.json")).unwrap();
    run(&place, &us, "us", &backfill).expect(2);
    let without_mark: Vec<PathBuf> = pages.iter().filter(|path| !path.ends_with("owner.json")).cloned().collect();
    assert_eq!(place.files("pages"), without_mark);
    run(&place, &eu, "eu", &backfill).expect(0);
    // A state file of the same name that belongs to another service.
    fs::remove_file(place.path("state/eu.sqlite")).unwrap();
    run(&place, &us, "eu", &["sync", "--archive", "pages", "--duckdb", "new.duckdb"]).expect(2);
}

#[test]
fn an_archive_of_an_earlier_version_stays_usable() {
    let (place, [eu, _]) = services();
    run(&place, &eu, "eu", &["backfill", "--from", &days_ago(6), "--archive", "state/archive"]).expect(0);
    fs::remove_file(place.path("state/archive/owner.json")).unwrap();
    let before = place.files("state/archive").len();
    eu.advance_days(1);
    eu.change(&ChangeRequest { seed: 3, new_answers: 20, ..ChangeRequest::default() });
    run(&place, &eu, "eu", &["sync"]).expect(0);
    assert!(place.files("state/archive").len() > before && !place.path("state/eu.sqlite.archive").exists());
}
