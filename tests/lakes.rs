//! Warehouses in catalogs: the real binary against DuckLake, PostgreSQL and Iceberg. `scripts/lakes.sh` starts the
//! servers and installs the extensions.

use std::path::Path;

use studysync_sandbox::ChangeRequest;

use crate::{
    harness::{Catalog, CatalogKind, Place, Service, days_ago, small, variable},
    workers::{assert_same, obey_a_wait_of_one, share_a_backfill},
};

/// A place whose warehouse is in a catalog.
fn place(service: &Service, catalog: &Catalog) -> Place {
    Place::new(service)
        .in_catalog(&format!("--{}", catalog.warehouse_kind().name()), &catalog.address)
        .with_env("STUDYSYNC_WAREHOUSE_EXTENSION_DIRECTORY", &variable("STUDYSYNC_TEST_EXTENSIONS"))
        .with_env("STUDYSYNC_ICEBERG_CREDENTIAL", &variable("STUDYSYNC_ICEBERG_CREDENTIAL"))
}

fn answer(place: &Place, sql: &str) -> String {
    place.run(&["query", sql, "--format", "csv"]).expect(0).stdout
}

/// Loads the history and two nights with edits and deletions, builds all again from the archive, and forgets a person.
/// After each step a catalog has what a DuckDB file has.
fn nights(kind: CatalogKind) {
    let service = Service::start(small(300, 40));
    let file = Place::new(&service).without_parquet();
    // Files of a DuckLake are in the folder of its place.
    let catalog = place(&service, &Catalog::new(kind, Path::new("")));
    let both = [&file, &catalog];
    for place in both {
        place.run(&["backfill", "--from", &days_ago(30)]).expect(0);
    }
    for _ in 0..2 {
        service.advance_days(1);
        service.change(&ChangeRequest {
            new_answers: 30,
            edits: 12,
            soft_deletes: 5,
            late: 3,
            ..ChangeRequest::default()
        });
        for place in both {
            place.run(&["sync"]).expect(0);
        }
    }
    assert_same(&catalog, &file, "after two nights");
    service.clear_log();
    for arguments in
        [&["status"][..], &["check"], &["plan"], &["verify", "--from", &days_ago(20), "--to", &days_ago(10)]]
    {
        catalog.run(arguments).expect(0);
    }
    let shown = catalog.run(&["status", "--json"]).expect(0);
    assert!(!shown.stdout.contains(&variable("AWS_SECRET_ACCESS_KEY")));
    // PostgreSQL keeps no snapshots that somebody must remove.
    let snapshots = shown.json()["maintenance"]["snapshots"].as_i64();
    assert_eq!(snapshots.is_some_and(|snapshots| snapshots > 2), kind != CatalogKind::Postgres, "{snapshots:?}");
    for place in both {
        place.run(&["replay"]).expect(0);
    }
    assert_same(&catalog, &file, "after a replay");
    let person = answer(&catalog, "SELECT min(visitor_id) FROM responses").lines().nth(1).unwrap().to_owned();
    file.run(&["erase", "--visitor-id", &person, "--local-only", "--yes"]).expect(0);
    let erased = catalog.run(&["erase", "--visitor-id", &person, "--local-only", "--yes"]);
    // DuckDB cannot remove the old snapshots of Iceberg, and the receipt says so.
    erased.expect(if kind == CatalogKind::Iceberg { 3 } else { 0 });
    let left = answer(&catalog, &format!("SELECT count(*) FROM responses WHERE visitor_id = '{person}'"));
    assert_eq!(left.lines().nth(1), Some("0"));
    assert_same(&catalog, &file, "after an erasure");
    catalog.run(&["sync"]).expect(0);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn a_ducklake_with_a_catalog_file_has_what_a_file_has() {
    nights(CatalogKind::DuckLakeFile);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn a_ducklake_in_postgres_has_what_a_file_has() {
    nights(CatalogKind::DuckLakeInPostgres);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn postgres_has_what_a_file_has() {
    nights(CatalogKind::Postgres);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn iceberg_has_what_a_file_has() {
    nights(CatalogKind::Iceberg);
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn a_catalog_that_refuses_the_keys_is_not_lost() {
    let service = Service::start(small(50, 10));
    let catalog = place(&service, &Catalog::new(CatalogKind::Iceberg, Path::new("")));
    catalog.run(&["backfill", "--from", &days_ago(12)]).expect(0);
    let catalog = catalog.with_env("STUDYSYNC_ICEBERG_TOKEN", "expired");
    let refused = |arguments: &[&str], catalog: &Place| {
        let done = catalog.run(arguments);
        assert!(done.code != 0 && done.stderr.contains("STUDYSYNC_ICEBERG_TOKEN"), "{arguments:?}: {done:?}");
        assert!(!done.stderr.contains("no warehouse"), "{arguments:?}: {done:?}");
    };
    let all =
        [&["sync"][..], &["query", "SELECT 1"], &["check"], &["erase", "--user-id", "u", "--local-only", "--yes"]];
    all.into_iter().for_each(|arguments| refused(arguments, &catalog));
    let status = catalog.run(&["status"]);
    assert!(!status.stdout.contains("was lost"), "{}", status.stdout);
    refused(
        &["query", "SELECT 1"],
        &catalog.with_env("STUDYSYNC_ICEBERG_TOKEN", "").with_env("STUDYSYNC_ICEBERG_CREDENTIAL", ""),
    );
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn four_workers_share_an_iceberg_catalog() {
    let catalog = Catalog::new(CatalogKind::Iceberg, Path::new(""));
    share_a_backfill(|service| place(service, &catalog));
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn four_workers_share_a_postgres_schema() {
    let catalog = Catalog::new(CatalogKind::Postgres, Path::new(""));
    share_a_backfill(|service| place(service, &catalog));
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn p5_a_wait_that_one_worker_is_told_binds_the_other() {
    let folder = tempfile::tempdir().unwrap();
    for kind in CatalogKind::ALL.into_iter().skip(1) {
        let catalog = Catalog::new(kind, folder.path());
        obey_a_wait_of_one(|service| place(service, &catalog));
    }
}
