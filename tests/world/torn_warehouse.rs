//! Warehouses that are torn, overwritten, lost or foreign. A run that finds one reports it and changes nothing. Once it
//! is moved away, the next run fills a new one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::harness::{
    Place, Service, assert_each_warehouse_equals, assert_warehouses_equal, copy_folder, days_ago, expected::Expected,
    small,
};

use studysync_sandbox::ChangeRequest;

use super::{assert_mended, assert_says};

const DAYS: u32 = 12;

fn filled(with: impl Fn(Place) -> Place) -> (Service, Place, tempfile::TempDir) {
    let service = Service::start(small(900, DAYS));
    let place = with(Place::new(&service));
    place.report(&["backfill", "--from", &days_ago(i64::from(DAYS))], 0);
    // The history is so short that the next run scans all of it again.
    service.advance_days(1);
    let copy = tempfile::tempdir().unwrap();
    copy_folder(place.root(), copy.path());
    (service, place, copy)
}

fn garbage(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7919 % 251) as u8).collect()
}

/// Asserts that the error names the damaged file and the way to repair it, that the file stays unchanged, and that the
/// repair restores everything.
fn assert_way_out(service: &Service, place: &Place, damaged: &Path, away: &Path, damage: &str) {
    let before = fs::read(damaged).ok();
    let done = place.run(&["sync"]);
    assert!(matches!(done.code, 1 | 2), "{damage}: exit code {}: {}", done.code, done.stderr);
    assert_says(&done, &[away.file_name().unwrap().to_str().unwrap(), "move it away and run `studysync replay`"]);
    assert_eq!(fs::read(damaged).ok(), before, "{damage}: the damaged file was changed");
    let aside = tempfile::tempdir().unwrap();
    fs::rename(away, aside.path().join("damaged")).unwrap();
    let _ = fs::remove_file(place.path("warehouse.duckdb.wal"));
    assert_mended(service, place, damage);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_slow_a_torn_duckdb_file_is_refilled_once_moved_away() {
    let (service, place, copy) = filled(Place::without_parquet);
    let whole = fs::read(place.duckdb()).unwrap();
    let mut damages: Vec<(String, Vec<u8>)> = [1, 8, 100, 4096, 8192, 12_288, 100_000, whole.len() / 2]
        .into_iter()
        .map(|cut| (format!("cut at byte {cut} of {}", whole.len()), whole[..cut].to_vec()))
        .collect();
    damages.push(("garbage".into(), garbage(whole.len())));
    damages.push(("zeroed".into(), vec![0; whole.len()]));
    let mut beheaded = whole.clone();
    beheaded[4096..12_288].fill(0);
    damages.push(("both headers zeroed".into(), beheaded));
    for (damage, bytes) in damages {
        place.restore(copy.path());
        fs::write(place.duckdb(), bytes).unwrap();
        assert_way_out(&service, &place, &place.duckdb(), &place.duckdb(), &damage);
    }
}

#[test]
fn p1_a_deleted_duckdb_file_is_refilled_and_reported() {
    let (service, place, _copy) = filled(|place| place);
    fs::remove_file(place.duckdb()).unwrap();
    let done = place.run(&["sync"]).expect(0);
    let ledger =
        format!("did not fit the ledger of duckdb at {} (this warehouse is new, or its", place.duckdb().display());
    assert!(done.stderr.contains(&ledger), "{}", done.stderr);
    assert!(done.stderr.contains("`studysync replay`, now or after this run"), "{}", done.stderr);
    // From now on the columns about the writing run and its time differ between the two warehouses; the content does
    // not.
    assert_each_warehouse_equals(&place, &Expected::now(&service), "after the file was deleted");
}

#[test]
fn p1_a_damaged_warehouse_is_rebuilt_with_its_history_by_replay() {
    let (service, place, _copy) = filled(Place::without_parquet);
    service.change(&ChangeRequest { edits: 40, ..ChangeRequest::default() });
    place.run(&["sync"]).expect(0);
    let edits = |place: &Place| place.duckdb_tables().count("SELECT count(*) FROM response_history");
    let before = edits(&place);
    assert!(before > 0, "no edit was found");
    let bytes = fs::read(place.duckdb()).unwrap();
    fs::write(place.duckdb(), &bytes[..bytes.len() / 2]).unwrap();
    let refused = place.run(&["sync"]);
    assert!(matches!(refused.code, 1 | 2), "{refused:?}");
    assert_says(&refused, &["move it away and run `studysync replay`", "without a request and with the history"]);
    // What the hint says.
    fs::rename(place.duckdb(), place.path("damaged")).unwrap();
    service.clear_log();
    place.run(&["replay"]).expect(0);
    assert_eq!((service.log(), edits(&place)), (Vec::new(), before), "no request, and every edit");
}

#[test]
fn a_lost_state_file_is_named_as_the_cause() {
    let (_service, place, _copy) = filled(|place| place);
    fs::remove_dir_all(place.path("state")).unwrap();
    let done = place.run(&["sync"]).expect(0);
    assert!(done.stderr.contains("(the state file is new, or was lost)"), "{}", done.stderr);
    assert!(!done.stderr.contains("studysync replay"), "a replay would not help: {}", done.stderr);
}

#[test]
fn exit_2_a_newer_or_foreign_duckdb_file_is_untouched() {
    let (_service, place, copy) = filled(Place::without_parquet);
    let meta = |sql: &str| duckdb::Connection::open(place.duckdb()).unwrap().execute_batch(sql).unwrap();
    meta("UPDATE _studysync SET value = '999' WHERE key = 'format_version'");
    let before = fs::read(place.duckdb()).unwrap();
    assert_says(&place.run(&["sync"]).expect(2), &["warehouse.duckdb", "newer version"]);
    assert_eq!(fs::read(place.duckdb()).unwrap(), before);

    place.restore(copy.path());
    fs::remove_file(place.duckdb()).unwrap();
    meta("CREATE TABLE sales (amount INTEGER); INSERT INTO sales VALUES (1)");
    assert_says(&place.run(&["sync"]).expect(2), &["warehouse.duckdb", "studysync did not create", "another path"]);
    let tables = place.duckdb_tables();
    assert_eq!(
        (tables.count("SELECT count(*) FROM sales"), tables.count("SELECT count(*) FROM duckdb_tables()")),
        (1, 1)
    );
}

/// Leaves a log with one commit that is not merged into the file, as a kill does. The commit changes nothing.
fn leave_a_log(place: &Place, copy: &Path) -> Vec<u8> {
    let connection = duckdb::Connection::open(place.duckdb()).unwrap();
    let sql = "PRAGMA disable_checkpoint_on_shutdown; SET checkpoint_threshold = '1GB'; \
        CREATE TEMP TABLE kept AS SELECT * FROM sync_runs; BEGIN; DELETE FROM sync_runs; \
        INSERT INTO sync_runs SELECT * FROM kept; COMMIT";
    connection.execute_batch(sql).unwrap();
    drop(connection);
    let log = fs::read(place.path("warehouse.duckdb.wal")).expect("the engine left no log");
    fs::copy(place.duckdb(), copy.join("warehouse.duckdb")).unwrap();
    log
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_a_write_ahead_log_is_replayed_without_its_torn_end() {
    let (service, place, copy) = filled(Place::without_parquet);
    let log = leave_a_log(&place, copy.path());
    assert!(log.len() > 100);
    for cut in [log.len(), log.len() - 1, log.len() - 9, log.len() / 2, log.len() / 4, 20, 1, 0] {
        place.restore(copy.path());
        fs::write(place.path("warehouse.duckdb.wal"), &log[..cut]).unwrap();
        assert_mended(&service, &place, &format!("with {cut} of {} bytes of the log", log.len()));
        assert_eq!(
            place.duckdb_tables().count("SELECT count(*) FROM sync_runs WHERE command = 'backfill'"),
            1,
            "{cut}"
        );
    }
    // Checksums in the log distinguish damage in the middle from a torn end.
    for at in [log.len() / 3, log.len() / 2, log.len() * 2 / 3] {
        place.restore(copy.path());
        let mut damaged = log.clone();
        damaged[at] ^= 0x55;
        fs::write(place.path("warehouse.duckdb.wal"), damaged).unwrap();
        let done = place.run(&["sync"]);
        if done.code != 0 {
            assert_says(&done, &["warehouse.duckdb", "move it away"]);
        } else {
            assert_warehouses_equal(&place, &Expected::now(&service), "with a log damaged in the middle");
        }
    }
}

fn partitions(place: &Place) -> Vec<PathBuf> {
    let is_partition = |path: &PathBuf| path.to_string_lossy().contains("/responses/created_month=");
    place.files("parquet").into_iter().filter(is_partition).collect()
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_slow_a_damaged_parquet_folder_is_refilled_once_moved_away() {
    let (service, place, copy) = filled(Place::without_duckdb);
    let file = partitions(&place).pop().unwrap();
    let whole = fs::read(&file).unwrap();
    let children = place.path("parquet/response_choices").join(file.parent().unwrap().file_name().unwrap());
    let damages = [
        ("cut in half", &file, Some(whole[..whole.len() / 2].to_vec())),
        ("its last byte cut", &file, Some(whole[..whole.len() - 1].to_vec())),
        ("empty", &file, Some(Vec::new())),
        ("garbage", &file, Some(garbage(whole.len()))),
        ("missing", &file, None),
        ("a child's file missing", &children.join("data.parquet"), None),
        ("the ledger missing", &place.path("parquet/sync_windows/data.parquet"), None),
        ("the ledger garbage", &place.path("parquet/sync_windows/data.parquet"), Some(garbage(1000))),
        ("its own description garbage", &place.path("parquet/.studysync/warehouse.json"), Some(garbage(100))),
    ];
    for (damage, path, bytes) in damages {
        place.restore(copy.path());
        match bytes {
            Some(bytes) => fs::write(path, bytes).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        assert_way_out(&service, &place, path, &place.parquet(), damage);
    }
}

#[test]
fn p2_leftovers_of_a_killed_parquet_writer_are_removed() {
    let (service, place, _copy) = filled(Place::without_duckdb);
    let private = place.path("parquet/.studysync");
    for folder in ["parts/00000999-half.tmp", "scratch/spill"] {
        fs::create_dir_all(private.join(folder)).unwrap();
        fs::write(private.join(folder).join("half.parquet"), garbage(5000)).unwrap();
    }
    fs::write(private.join("scratch/responses.parquet"), garbage(5000)).unwrap();
    assert_mended(&service, &place, "with leftovers");
    let left = place.files("parquet/.studysync").into_iter().filter(|path| path.to_string_lossy().contains("half"));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<PathBuf>::new());
    // An unreadable list of files does not stop a run.
    fs::write(private.join("files.json"), "{").unwrap();
    assert_mended(&service, &place, "without a list of files");
}
