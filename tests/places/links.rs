//! Warehouses, archive and state behind symbolic links: runs write to the targets, and an erasure cleans the targets.
//! It reports links and hard links that it cannot search.

use std::{fs, os::unix::fs::symlink};

use studysync_sandbox::ListName;

use crate::{
    erase::{
        grep::{Needle, found},
        people::{ZOE, ZOE_MAIL, plant},
    },
    harness::{ALL_FLAGS, Done, Place, Service, Tables, days_ago, small},
};

const COPY: &str = "analytics.duckdb";

fn needles() -> Vec<Needle> {
    [ZOE, ZOE_MAIL].map(Needle::new).into()
}

fn erase(place: &Place, arguments: &[&str]) -> Done {
    place.run(&[&["erase", "--user-id", ZOE, "--yes", "--json"], arguments].concat())
}

/// Moves a path to the folder `disk` and leaves a link.
fn to_disk(place: &Place, name: &str) {
    let target = place.path("disk").join(name.replace('/', "-"));
    fs::create_dir_all(place.path("disk")).unwrap();
    fs::rename(place.path(name), &target).unwrap();
    symlink(target, place.path(name)).unwrap();
}

fn service() -> Service {
    let service = Service::start(small(60, 12));
    plant(&service);
    service
}

#[test]
fn p9_erase_follows_links_and_cleans_their_targets() {
    let service = service();
    let place = Place::new(&service).with_config(&format!("{ALL_FLAGS}[warehouse]\npublish = \"{COPY}\"\n"));
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    // A page, a month of the archive, a table and one partition are on another disk.
    let month = fs::read_dir(place.path("archive/responses")).unwrap().next().unwrap().unwrap().file_name();
    let partition = place.files("parquet/response_choices").pop().unwrap();
    let partition = partition.strip_prefix(place.root()).unwrap().to_string_lossy().into_owned();
    let links = [
        "warehouse.duckdb",
        COPY,
        "parquet/responses",
        &partition,
        &format!("archive/responses/{}", month.to_string_lossy()),
        "state/checkpoints.sqlite",
    ];
    links.iter().for_each(|name| to_disk(&place, name));
    fs::rename(place.path("parquet"), place.path("disk/parquet")).unwrap();
    symlink(place.path("disk/parquet"), place.path("parquet")).unwrap();
    assert!(found(&place, &needles()).iter().any(|found| found.contains("disk/warehouse.duckdb")));
    service.advance_days(1);
    place.run(&["sync"]).expect(0);
    let done = erase(&place, &["--local-only"]);
    assert!([0, 3].contains(&done.code), "{}", done.stderr);
    assert_eq!(done.json()["verified"]["places"]["files of duckdb"]["searched"], 1, "{}", done.stdout);
    assert_eq!(found(&place, &needles()), [""; 0]);
    for name in links.iter().chain(&["parquet"]) {
        assert!(place.path(name).is_symlink(), "{name} is no link any more");
    }
    assert_eq!(Tables::duckdb(&place.path("disk/warehouse.duckdb")).count("SELECT count(*) FROM erasures"), 1);
    assert!(place.path("disk/state-checkpoints.sqlite.erasures").is_dir(), "beside the state file itself");
    service.advance_days(1);
    place.run(&["sync"]).expect(0);
    assert_eq!(found(&place, &needles()), [""; 0]);
}

#[test]
fn replay_follows_the_links_of_warehouses() {
    let service = service();
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    to_disk(&place, "warehouse.duckdb");
    to_disk(&place, "parquet");
    let rows = place.duckdb_tables().count("SELECT count(*) FROM responses");
    place.run(&["replay"]).expect(0);
    assert!(place.path("warehouse.duckdb").is_symlink() && place.path("parquet").is_symlink());
    assert_eq!(Tables::duckdb(&place.path("disk/warehouse.duckdb")).count("SELECT count(*) FROM responses"), rows);
    assert_eq!(Tables::parquet(&place.path("disk/parquet")).count("SELECT count(*) FROM responses"), rows);
}

#[test]
fn a_first_run_creates_a_link_target_or_names_its_folder() {
    let service = service();
    let place = Place::new(&service).without_parquet();
    symlink(place.path("disk/w.duckdb"), place.path("warehouse.duckdb")).unwrap();
    let refused = place.run(&["sync"]).expect(2);
    assert!(
        refused.stderr.contains("warehouse.duckdb") && refused.stderr.contains("does not exist"),
        "{}",
        refused.stderr
    );
    fs::create_dir(place.path("disk")).unwrap();
    place.run(&["sync"]).expect(0);
    assert!(place.path("warehouse.duckdb").is_symlink() && place.path("disk/w.duckdb").is_file());
    assert!(!service.truth(ListName::Responses).is_empty());
}

#[test]
fn p9_suppressions_survive_a_move_of_the_state_file() {
    let service = service();
    let place = Place::new(&service).without_parquet();
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    erase(&place, &[]);
    to_disk(&place, "state/checkpoints.sqlite");
    let refused = place.run(&["sync"]).expect(2);
    assert!(refused.stderr.contains("checkpoints.sqlite.erasures to"), "{}", refused.stderr);
    fs::rename(place.path("state/checkpoints.sqlite.erasures"), place.path("disk/state-checkpoints.sqlite.erasures"))
        .unwrap();
    place.run(&["sync"]).expect(0);
    assert_eq!(found(&place, &needles()), [""; 0]);
}

#[test]
fn p9_erase_fails_at_a_dangling_link() {
    let service = service();
    let place = Place::new(&service).without_duckdb();
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    symlink(place.path("unmounted"), place.path("archive/responses/2025-01")).unwrap();
    let done = erase(&place, &["--local-only"]).expect(1);
    assert!(done.stderr.contains("2025-01") && done.stderr.contains("leads nowhere"), "{}", done.stderr);
}

#[test]
fn p9_erase_reports_hard_links_that_keep_the_bytes() {
    let service = service();
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    fs::hard_link(place.duckdb(), place.path("snapshot.duckdb")).unwrap();
    let plan = place.run(&["erase", "--user-id", ZOE, "--dry-run"]);
    assert!(plan.stdout.contains("hard links") && plan.stdout.contains("warehouse.duckdb"), "{}", plan.stdout);
    let done = erase(&place, &["--local-only"]).expect(3);
    let receipt = done.json();
    assert_eq!(
        (&receipt["kept_under_other_names"], &receipt["outcome"]),
        (&1.into(), &"needs_a_look".into()),
        "{receipt}"
    );
    assert!(done.stderr.contains("hard links"), "{}", done.stderr);
    fs::remove_file(place.path("snapshot.duckdb")).unwrap();
    assert_eq!(found(&place, &needles()), [""; 0]);
}
