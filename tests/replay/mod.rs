//! `replay` restores every table from the archive without a request (P2), and refuses to rebuild what it cannot rebuild
//! without a loss.

mod kills;
mod stretch;

use std::path::{Path, PathBuf};

use studysync_sandbox::{ChangeRequest, ListName, Settings};

use crate::harness::{
    DAY_MS, Done, KEY_VARIABLE, NOW_MS, Place, Service, Tables, assert_equal, days_ago, notes, small,
};

const DAYS: u32 = 40;

/// The content of a place's warehouses at one time.
pub struct Before {
    duckdb: PathBuf,
    parquet: PathBuf,
}

impl Before {
    pub fn of(place: &Place, name: &str) -> Before {
        let folder = place.path(name);
        std::fs::create_dir_all(&folder).unwrap();
        let (duckdb, parquet) = (folder.join("w.duckdb"), folder.join("parquet"));
        std::fs::copy(place.duckdb(), &duckdb).unwrap();
        copy_folder(&place.parquet(), &parquet);
        Before { duckdb, parquet }
    }

    pub fn duckdb(&self) -> Tables {
        Tables::duckdb(&self.duckdb)
    }

    pub fn parquet(&self) -> Tables {
        Tables::parquet(&self.parquet)
    }

    /// Asserts that both warehouses have the same content as before, in every table and column.
    pub fn assert_is(&self, place: &Place, when: &str) {
        assert_equal(&self.duckdb(), &place.duckdb_tables(), &format!("{when}, DuckDB"));
        assert_equal(&self.parquet(), &place.parquet_tables(), &format!("{when}, Parquet"));
    }
}

pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// Returns the temporary files that an interrupted replay leaves next to the warehouses.
pub fn leftovers(place: &Place) -> Vec<PathBuf> {
    let entries =
        [place.root().to_owned(), place.path("state")].into_iter().flat_map(|at| std::fs::read_dir(at).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_string_lossy().contains(".replay")).collect()
}

/// A service with every question type, and some records that break the contract.
pub fn hostile_service(responses: u64) -> Service {
    Service::start(Settings { hostile_share: 0.05, ..small(responses, DAYS) })
}

/// Makes a night's changes, of every kind.
pub fn night(service: &Service, seed: u64) {
    service.advance_days(1);
    service.change(&ChangeRequest {
        seed,
        new_answers: 60,
        edits: 60,
        soft_deletes: 15,
        vanish_visitors: 3,
        late: 12,
        status_changes: 3,
        question_edits: 2,
        theme_edits: 2,
        new_themes: 5,
        within_ms: Some(20 * DAY_MS),
        ..ChangeRequest::default()
    });
}

/// A place after three nights: edits, soft deletes, vanished rows that were withheld and then accepted, bad records,
/// and a run that was killed.
pub fn place_after_three_nights(service: &Service) -> Place {
    // Records that fit no table, one of them in two windows.
    for (days, record) in [(10, r#"{"questionId":1}"#), (10, r#"{"n":2}"#), (30, r#"{"n":2}"#)] {
        service.control().plant(ListName::Responses, record, Some(NOW_MS - days * DAY_MS)).unwrap();
    }
    let place = Place::new(service);
    place.run(&["backfill", "--from", &days_ago(i64::from(DAYS))]).expect(3);
    night(service, 1);
    place.run(&["sync"]);
    night(service, 2);
    let now_ms = service.control().now_ms();
    let window = (now_ms - 12 * DAY_MS, now_ms - 6 * DAY_MS);
    let gone = service.change(&ChangeRequest { vanish_window_ms: Some(window), ..ChangeRequest::default() });
    assert!(gone.vanished.len() > 30, "{}", gone.vanished.len());
    // Kills the run after some requests, and then runs it to its end.
    let mut child = place.spawn(&["sync", "--quiet"]);
    std::thread::sleep(std::time::Duration::from_millis(400));
    let _ = child.kill();
    let _ = child.wait();
    place.run(&["sync"]).expect(3);
    night(service, 3);
    place.run(&["sync", "--accept-vanished"]);
    let tables = place.duckdb_tables();
    for (table, rows) in [("response_history", 100), ("survey_history", 5), ("sync_runs", 3), ("sync_windows", 10)] {
        assert!(tables.count(&format!("SELECT count(*) FROM {table}")) >= rows, "{table} is poor");
    }
    assert!(tables.count("SELECT count(*) FROM sync_windows WHERE withheld > 0") > 0, "nothing was withheld");
    assert!(tables.count("SELECT count(*) FROM sync_windows WHERE vanished > 20") > 0, "nothing was accepted");
    assert!(tables.count("SELECT count(*) FROM rejects") > 0, "nothing was rejected");
    place
}

/// Runs a replay, which gets no key and must send no request.
pub fn replay(service: &Service, place: &Place, more: &[&str]) -> Done {
    service.clear_log();
    let arguments = [&["replay", "--json"], more].concat();
    let done = Done::from(place.command(&arguments).env_remove(KEY_VARIABLE).output().unwrap());
    assert_eq!(service.log(), [], "a replay asked for something");
    done
}

#[test]
fn p2_replay_equals_the_original_in_every_table() {
    equals_the_original(1200);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_a_large_replay_equals_the_original() {
    equals_the_original(2000);
}

fn equals_the_original(responses: u64) {
    let service = hostile_service(responses);
    let place = place_after_three_nights(&service);
    let before = Before::of(&place, "before");
    let status = place.run(&["status", "--json"]).expect(0).json();
    let report = replay(&service, &place, &[]).expect(0).json();
    before.assert_is(&place, "after a replay");
    assert!(report["scans"].as_u64().unwrap() > 10 && report["records"].as_u64().unwrap() > responses, "{report}");
    assert_eq!(report["warehouses"].as_array().unwrap().len(), 2, "{report}");
    assert_eq!(leftovers(&place), Vec::<PathBuf>::new());
    // The coverage is unchanged, and no covered range is requested again.
    let after = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!(after["proofs"], status["proofs"]);
    service.clear_log();
    place.run(&["backfill", "--from", &days_ago(i64::from(DAYS) - 1), "--to", &days_ago(0)]).expect(0);
    assert_eq!(service.log(), [], "what was replayed was pulled again");
    // The next night changes the new warehouses as it would have changed the old ones.
    night(&service, 4);
    let report = place.run(&["sync", "--json"]).json();
    assert_eq!(notes(&report), [""; 0], "{report}");
    assert_equal(&place.duckdb_tables(), &place.parquet_tables(), "the night after");
    let again = Before::of(&place, "again");
    replay(&service, &place, &[]).expect(0);
    again.assert_is(&place, "after a second replay");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_replay_restores_lost_warehouses() {
    let service = hostile_service(1500);
    let place = place_after_three_nights(&service);
    let before = Before::of(&place, "before");
    std::fs::remove_file(place.duckdb()).unwrap();
    replay(&service, &place, &[]).expect(0);
    // A replay takes the rows about runs from the history of runs, which also has the runs that wrote nothing.
    let runs = "SELECT run_id, command, outcome, exit_code, started_at::VARCHAR FROM sync_runs ORDER BY ALL";
    let (known, found) = (before.duckdb().rows_of(runs), place.duckdb_tables().rows_of(runs));
    assert!(known.iter().all(|run| found.contains(run)), "{known:?}\n{found:?}");
    let without_runs = |tables: &Tables| {
        let sql = "SELECT (SELECT count(*) FROM responses), (SELECT bit_xor(_row_hash) FROM response_history), \
                   (SELECT count(*) FROM sync_windows), (SELECT count(*) FROM rejects)";
        tables.rows_of(sql)
    };
    assert_eq!(without_runs(&before.duckdb()), without_runs(&place.duckdb_tables()));
    assert_equal(&before.parquet(), &place.parquet_tables(), "Parquet, which was not lost");

    // Only the archive is left: the replay also restores the checkpoints that it proves.
    std::fs::remove_file(place.duckdb()).unwrap();
    std::fs::remove_dir_all(place.parquet()).unwrap();
    std::fs::remove_dir_all(place.path("state")).unwrap();
    let report = replay(&service, &place, &[]).expect(0).json();
    assert!(report["notes"][0].as_str().unwrap().contains("checkpoints"), "{report}");
    assert_eq!(without_runs(&before.duckdb()), without_runs(&place.duckdb_tables()));
    assert_eq!(without_runs(&before.parquet()), without_runs(&place.parquet_tables()));
    service.clear_log();
    place.run(&["backfill", "--from", &days_ago(i64::from(DAYS) - 1), "--to", &days_ago(0)]).expect(0);
    // A recheck that changed nothing is in no ledger. The windows that needed it are scanned once more, and no others.
    assert!(service.log().len() <= 4, "what was replayed was pulled again: {:?}", service.log());
}

#[test]
fn p1_replay_fills_a_new_column_of_a_contract() {
    let service = Service::start(small(800, 20));
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(20)]).expect(0);
    let before = Before::of(&place, "before");
    // Simulates a warehouse that was filled by a version without these columns.
    let file = duckdb::Connection::open(place.duckdb()).unwrap();
    file.execute_batch("ALTER TABLE responses DROP COLUMN url; ALTER TABLE sync_windows DROP COLUMN end_style")
        .unwrap();
    drop(file);
    service.advance_days(1);
    place.run(&["sync", "--stream", "themes"]).expect(0);
    assert_eq!(place.duckdb_tables().count("SELECT count(url) FROM responses"), 0, "a sync alone fills no old rows");
    replay(&service, &place, &[]).expect(0);
    let filled = "SELECT count(url), count(DISTINCT url) FROM responses";
    let old = before.duckdb().rows_of(filled);
    assert_ne!(old[0][0].as_deref(), Some("0"));
    assert_eq!(place.duckdb_tables().rows_of(filled), old);
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM sync_windows WHERE end_style IS NULL"), 0);
    assert_equal(&place.duckdb_tables(), &place.parquet_tables(), "after the column was filled");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_slow_replay_refuses_to_lose_rows() {
    let service = Service::start(small(800, 20));
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(20)]).expect(0);
    let before = Before::of(&place, "before");
    let pages = |place: &Place| -> Vec<PathBuf> { place.files("archive/responses") };
    let (victim, aside) = (pages(&place)[1].clone(), place.path("aside"));

    std::fs::rename(&victim, &aside).unwrap();
    let refused = replay(&service, &place, &[]).expect(1);
    assert!(
        refused.stderr.contains("lacks the pages of 1 scan") && refused.stderr.contains("responses"),
        "{}",
        refused.stderr
    );
    before.assert_is(&place, "after a refusal");

    // Damaged: one byte of a page has changed.
    let mut bytes = std::fs::read(&aside).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&victim, &bytes).unwrap();
    let refused = replay(&service, &place, &[]).expect(1);
    assert!(refused.stderr.contains("damaged") && refused.stderr.contains(".pages"), "{}", refused.stderr);
    before.assert_is(&place, "after a damaged page");
    assert_eq!(leftovers(&place), Vec::<PathBuf>::new());

    // Torn: the end is missing.
    bytes[at] ^= 1;
    std::fs::write(&victim, &bytes[..at]).unwrap();
    replay(&service, &place, &[]).expect(1);
    before.assert_is(&place, "after a torn file");

    std::fs::rename(&aside, &victim).unwrap();
    replay(&service, &place, &[]).expect(0);
    before.assert_is(&place, "whole again");

    let none = Done::from(
        place
            .bare(&["replay", "--base-url", &service.base_url(), "--archive", "none", "--duckdb", "w.duckdb"])
            .output()
            .unwrap(),
    );
    assert!(none.code == 1 && none.stderr.contains("no pages are kept"), "{none:?}");
}

#[test]
fn p2_a_replay_of_an_empty_archive_is_no_success() {
    let service = Service::start(small(300, 5));
    let place = Place::new(&service);
    place.run(&["sync"]).expect(0);
    std::fs::remove_file(place.duckdb()).unwrap();
    std::fs::remove_dir_all(place.parquet()).unwrap();
    std::fs::rename(place.path("archive"), place.path("elsewhere")).unwrap();
    let done = place.run(&["replay"]).expect(1);
    assert!(done.stderr.contains("/archive contains no scan"), "{}", done.stderr);
    assert!(!place.duckdb().exists() && !place.parquet().exists());
    std::fs::remove_dir_all(place.path("archive")).unwrap();
    std::fs::rename(place.path("elsewhere"), place.path("archive")).unwrap();
    place.run(&["replay"]).expect(0);
    assert!(place.duckdb_tables().count("SELECT count(*) FROM responses") > 200);
}

#[test]
fn p10_replay_refuses_another_service() {
    let service = Service::start(small(300, 5));
    let place = Place::new(&service);
    place.run(&["sync"]).expect(0);
    let before = Before::of(&place, "before");
    // The checkpoints and warehouses are gone. The archive's own header names the service.
    let elsewhere = place
        .bare(&["replay", "--base-url", "http://127.0.0.1:9", "--duckdb", "other.duckdb", "--state", "other.sqlite"])
        .arg("--archive")
        .arg(place.path("archive"))
        .output()
        .unwrap();
    let done = Done::from(elsewhere).expect(2);
    assert!(done.stderr.contains("was pulled from"), "{}", done.stderr);
    before.assert_is(&place, "after a refusal");
}
