//! State files that are lost, torn, old or of a newer program: the ledgers restore the coverage, and no proof is lost.

use std::{fs, path::PathBuf};

use crate::harness::{Done, Place, Service, assert_warehouses_equal, copy_folder, days_ago, expected::Expected, small};

use super::{assert_mended, assert_says};

const DAYS: u32 = 12;

/// A service and a filled place, with a copy.
fn filled() -> (Service, Place, tempfile::TempDir) {
    let service = Service::start(small(900, DAYS));
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(i64::from(DAYS))], 0);
    let copy = tempfile::tempdir().unwrap();
    copy_folder(place.root(), copy.path());
    (service, place, copy)
}

fn backfill(place: &Place) -> Done {
    place.run(&["backfill", "--from", &days_ago(i64::from(DAYS))])
}

/// Returns the requests for windows, without the requests that check the key and the clock: the state file also stored
/// the service's clock.
fn windows_asked(service: &Service) -> Vec<String> {
    let is_about_key = |query: &[(String, String)]| query == [("limit".to_owned(), "1".to_owned())];
    // One request asks for rows that are newer than the service's clock. Only that request has no end.
    let is_about_clock = |query: &[(String, String)]| query.iter().all(|(name, _)| name != "end");
    let asked = service.log().into_iter().filter(|entry| match entry.path.as_str() {
        "/v1/surveys" => !is_about_key(&entry.query),
        "/v1/responses" => !is_about_clock(&entry.query),
        _ => true,
    });
    asked.map(|entry| format!("{} {:?}", entry.path, entry.query)).collect()
}

/// Returns the damaged files that were moved aside.
fn kept_aside(place: &Place) -> Vec<PathBuf> {
    let is_aside = |path: &PathBuf| path.to_string_lossy().contains(".damaged-");
    place.files("state").into_iter().filter(is_aside).collect()
}

/// Every kind of damage that a disk, a full quota or an editor can cause.
fn damages(whole: &[u8]) -> Vec<(String, Vec<u8>)> {
    const PAGE: usize = 4096;
    let mut damages = Vec::new();
    for cut in [1, 16, 99, 100, 1000, PAGE - 1, PAGE, PAGE + 1, whole.len() / 2, whole.len() - PAGE, whole.len() - 1] {
        damages.push((format!("cut at byte {cut}"), whole[..cut].to_vec()));
    }
    for page in 0..whole.len() / PAGE {
        let mut zeroed = whole.to_vec();
        zeroed[page * PAGE..(page + 1) * PAGE].fill(0);
        damages.push((format!("page {page} zeroed"), zeroed));
    }
    damages.push(("zeroed whole".into(), vec![0; whole.len()]));
    damages.push(("garbage".into(), (0..whole.len()).map(|at| (at * 7919 % 251) as u8).collect()));
    damages.push(("a text".into(), b"[service]\nbase_url = \"https://api.example.com\"\n".repeat(40)));
    damages
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_p6_slow_a_torn_state_file_is_rebuilt_without_requests() {
    let (service, place, copy) = filled();
    let whole = fs::read(place.state()).unwrap();
    let expected = Expected::now(&service);
    let mut put_aside = 0;
    for (damage, bytes) in damages(&whole) {
        place.restore(copy.path());
        fs::write(place.state(), &bytes).unwrap();
        service.clear_log();
        let done = backfill(&place);
        assert_eq!(done.code, 0, "{damage}: {}", done.stderr);
        assert_eq!(
            windows_asked(&service),
            Vec::<String>::new(),
            "{damage}: what the ledgers prove was asked for again"
        );
        match kept_aside(&place).as_slice() {
            // Damage of an unused page is not noticed.
            [] => assert!(damage.starts_with("page "), "{damage} was not noticed"),
            [aside, ..] => {
                put_aside += 1;
                assert_eq!(fs::read(aside).unwrap(), bytes, "{damage}: the damaged file is kept as it was");
                let name = aside.display().to_string();
                let told = done.stderr.contains(&name) && done.stderr.contains("damaged");
                assert!(told, "{damage}: nobody was told: {}", done.stderr);
            }
        }
        assert_warehouses_equal(&place, &expected, &damage);
    }
    assert!(put_aside > 15, "only {put_aside} damages were noticed");
    assert_mended(&service, &place, "after the last damage");
}

#[test]
fn read_only_commands_name_a_damaged_state_file() {
    let (_service, place, _copy) = filled();
    fs::write(place.state(), b"no database at all, but long enough to be looked at as one. ".repeat(40)).unwrap();
    for command in ["status", "plan"] {
        let done = place.run(&[command]).expect(1);
        assert_says(&done, &["checkpoints.sqlite", "damaged", "run sync"]);
    }
    let done = place.run(&["check"]).expect(1);
    assert!(done.stdout.contains("damaged") && done.stdout.contains("run sync"), "{}", done.stdout);
    assert!(kept_aside(&place).is_empty(), "a command that only reads put it aside");
}

#[test]
fn p2_p6_a_missing_state_file_is_rebuilt_from_the_ledgers() {
    let (service, place, _copy) = filled();
    fs::remove_dir_all(place.path("state")).unwrap();
    service.clear_log();
    backfill(&place).expect(0);
    assert_eq!(windows_asked(&service), Vec::<String>::new(), "what the ledgers prove was asked for again");
    assert_mended(&service, &place, "after the state was lost");
}

#[test]
fn p1_a_restored_older_state_file_loses_nothing() {
    let service = Service::start(small(900, DAYS));
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(5), "--to", &days_ago(3)], 0);
    let backup = tempfile::tempdir().unwrap();
    copy_folder(&place.path("state"), backup.path());
    place.report(&["backfill", "--from", &days_ago(i64::from(DAYS))], 0);
    fs::remove_dir_all(place.path("state")).unwrap();
    copy_folder(backup.path(), &place.path("state"));
    let report = place.report(&["backfill", "--from", &days_ago(i64::from(DAYS))], 0);
    assert_eq!(report["streams"]["responses"]["inserted"], 0, "what the warehouse holds was written again: {report}");
    assert_mended(&service, &place, "with the checkpoints of a backup");
}

#[test]
fn exit_2_the_state_file_of_a_newer_program_is_untouched() {
    let (_service, place, _copy) = filled();
    let newer = rusqlite::Connection::open(place.state()).unwrap();
    newer.pragma_update(None, "user_version", 1000).unwrap();
    drop(newer);
    let before = fs::read(place.state()).unwrap();
    let done = backfill(&place).expect(2);
    assert_says(&done, &["newer version of studysync", "checkpoints.sqlite"]);
    assert_says(&place.run(&["status"]).expect(2), &["newer version"]);
    assert_eq!(fs::read(place.state()).unwrap(), before, "it was changed");
    assert!(kept_aside(&place).is_empty());
}
