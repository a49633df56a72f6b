//! `erase` and files besides the tables: spools of open scans, a damaged state file, the reader copy, a restored
//! archive.

use studysync_sandbox::{Faults, Latency, ListName};

use super::{
    erase,
    grep::{Needle, found},
    people::{VISITOR, ZOE, ZOE_MAIL, plant},
    receipt,
};
use crate::harness::{ALL_FLAGS, Place, Service, copy_folder, days_ago, small};

fn needles() -> Vec<Needle> {
    [ZOE, ZOE_MAIL, "7c1c9d6e-0b7a-4c55-9a40-1d2e3f405163"].map(Needle::new).into()
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_erase_cleans_spools_and_the_backfill_resumes() {
    let service = Service::start(small(400, 12));
    plant(&service);
    let place = Place::new(&service).with_config(&format!("{ALL_FLAGS}page_rows = 20\n"));
    place.run(&["backfill", "--from", &days_ago(2)]).expect(0);
    let backfill = ["backfill", "--from", &days_ago(14)];
    for budget in ["12", "9", "14"] {
        place.run(&[&backfill[..], &["--max-requests", budget]].concat()).expect(6);
    }
    let spools = place.files("archive/under-way");
    let is_spooled = |needles: &[Needle]| found(&place, needles).iter().any(|place| place.contains("under-way"));
    assert!(!spools.is_empty() && is_spooled(&needles()), "{spools:?}");
    receipt(&erase(&place, &["--user-id", ZOE]));
    assert_eq!(found(&place, &needles()), [""; 0]);
    place.run(&backfill).expect(0);
    assert_eq!(found(&place, &needles()), [""; 0]);
    for (name, tables) in place.warehouses() {
        let rows = tables.count("SELECT count(*) FROM responses");
        assert_eq!(rows as usize, service.truth(ListName::Responses).len() - 5, "{name}");
    }
    place.run(&["verify", "--from", &days_ago(14)]).expect(0);
}

#[test]
fn p9_erase_cleans_damaged_state_copies_and_run_reports() {
    let service = Service::start(small(60, 12));
    plant(&service);
    let place =
        Place::new(&service).with_config(&format!("{ALL_FLAGS}\n[warehouse]\npublish = \"analytics.duckdb\"\n"));
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    let in_copy = || {
        crate::harness::Tables::duckdb(&place.path("analytics.duckdb"))
            .count(&format!("SELECT count(*) FROM responses WHERE external_user_id = '{ZOE}'"))
    };
    assert_eq!(in_copy(), 4);
    let aside = place.path("state/checkpoints.sqlite.damaged-20260131T080000Z");
    std::fs::write(&aside, format!("garbage {ZOE} garbage")).unwrap();
    let harmless = place.path("state/checkpoints.sqlite.damaged-20260131T090000Z");
    std::fs::write(&harmless, "garbage").unwrap();
    // The report of a run quotes a text of the service.
    let report = serde_json::json!({ "notes": [format!("the service says: no answer for {ZOE_MAIL}")] }).to_string();
    let state = rusqlite::Connection::open(place.state()).unwrap();
    state.execute("UPDATE runs SET report = ?1", [report]).unwrap();
    // A deleted report whose bytes are still in the file.
    state.execute_batch("PRAGMA secure_delete = OFF").unwrap();
    let forgotten = ["run_id", "command", "report"].map(|_| format!("{ZOE_MAIL} ").repeat(2000));
    state.execute("INSERT INTO runs (run_id, command, started_ms, report) VALUES (?1, ?2, 1, ?3)", forgotten).unwrap();
    state.execute("DELETE FROM runs WHERE started_ms = 1", []).unwrap();
    drop(state);
    assert!(Needle::new(ZOE_MAIL).is_in(&std::fs::read(place.state()).unwrap()));
    let receipt = receipt(&erase(&place, &["--user-id", ZOE]));
    assert_eq!(receipt["removed"]["damaged state files"], 1);
    assert_eq!(receipt["removed"]["state reports"], 1);
    assert!(!aside.exists() && harmless.exists());
    assert_eq!(in_copy(), 0);
    assert_eq!(found(&place, &needles()), [""; 0]);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_a_restored_archive_does_not_restore_the_erased() {
    let service = Service::start(small(60, 12));
    plant(&service);
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    copy_folder(&place.path("archive"), &place.path("backup"));
    receipt(&erase(&place, &["--user-id", ZOE, "--visitor-id", VISITOR]));
    std::fs::remove_dir_all(place.path("archive")).unwrap();
    std::fs::rename(place.path("backup"), place.path("archive")).unwrap();
    place.run(&["replay"]).expect(0);
    for (name, tables) in place.warehouses() {
        assert_eq!(tables.count("SELECT count(*) FROM responses WHERE survey_id = 990"), 0, "{name}");
        assert_eq!(tables.count("SELECT count(*) FROM erasures"), 1, "{name}: a replay keeps the receipts");
    }
    // The same command again cleans the restored backup.
    receipt(&erase(&place, &["--user-id", ZOE, "--visitor-id", VISITOR, "--email", ZOE_MAIL]));
    assert_eq!(found(&place, &needles()), [""; 0]);
    // Without the key of the suppression list, no command accepts rows.
    std::fs::remove_file(place.path("state/checkpoints.sqlite.erasures/key")).unwrap();
    for command in [&["sync"][..], &["replay"], &["verify", "--from", "2026-01-20"]] {
        let done = place.run(command).expect(1);
        assert!(done.stderr.contains("restore the key from a backup"), "{}", done.stderr);
    }
}

#[test]
fn p9_no_run_starts_without_the_suppression_list() {
    let service = Service::start(small(40, 6));
    plant(&service);
    for only_parquet in [false, true] {
        let place = Place::new(&service);
        let place = if only_parquet { place.without_duckdb() } else { place };
        place.run(&["backfill", "--from", &days_ago(6)]).expect(0);
        place.run(&["erase", "--yes", "--user-id", ZOE]).expect(0);
        let folder = place.path("state/checkpoints.sqlite.erasures");
        std::fs::remove_dir_all(&folder).unwrap();
        for refused in [&["sync"][..], &["replay"], &["erase", "--yes", "--user-id", "nobody-7"]] {
            let done = place.run(refused).expect(1);
            assert!(done.stderr.contains("suppressed.json is missing"), "{refused:?}: {}", done.stderr);
            assert!(
                done.stderr.contains(r#"write an empty list ({"format_version":1,"erasures":[]})"#),
                "{}",
                done.stderr
            );
            assert_eq!(found(&place, &needles()), [""; 0], "{refused:?}");
        }
        // Queries do not need the suppression list.
        place.run(&["query", "SELECT count(*) FROM responses"]).expect(0);
        // The documented repair: an empty list, then the same erasure again.
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("suppressed.json"), r#"{"format_version":1,"erasures":[]}"#).unwrap();
        place.run(&["erase", "--yes", "--user-id", ZOE, "--email", ZOE_MAIL]).expect(0);
        place.run(&["sync"]).expect(0);
        assert_eq!(found(&place, &needles()[..2]), [""; 0]);
    }
}

#[test]
fn p9_erased_rows_at_page_edges_hide_no_other_row() {
    // Pairs of rows share a millisecond, with the erased row first or second. If a page ends between the two, a service
    // that loses ties never sends the second row. Only a tie probe at the page boundary finds it.
    let service = Service::start(small(30, 6));
    for at in 0..120u32 {
        let is_erased = (at % 2 == 0) == ((at / 2) % 2 == 0);
        let user = if is_erased { "erased-00001" } else { "other-00001" };
        let session = format!("dddddddd-0000-4000-8000-{at:012}");
        let moment = format!("2026-01-29T08:00:{:02}.123Z", at / 2);
        let record = serde_json::json!({
            "createdAt": moment, "updatedAt": moment, "deletedAt": null, "questionId": 1, "questionText": "How?", "questionType": "OPEN",
            "response": "x", "responseGroupUid": session, "surveyId": 990, "visitorId": 900_000 + u32::from(is_erased),
            "visitorUuid": format!("eeeeeeee-0000-4000-8000-{:012}", u32::from(is_erased)), "externalUserId": user,
        });
        service.control().plant(ListName::Responses, &record.to_string(), None).unwrap();
    }
    let place =
        Place::new(&service).with_config("[streams.responses]\nflags = [\"with_deleted_responses\"]\npage_rows = 9\n");
    place.run(&["backfill", "--from", &days_ago(1)]).expect(0);
    erase(&place, &["--user-id", "erased-00001"]);
    let mut faults = Faults { latency: Latency { ms: 1, jitter_ms: 1, per_row_us: 0 }, ..Faults::default() };
    faults.ties = serde_json::from_value(serde_json::json!("lost")).unwrap();
    service.set_faults(faults);
    place.run(&["backfill", "--from", &days_ago(8)]).expect(0);
    for (name, tables) in place.warehouses() {
        let of =
            |user: &str| tables.count(&format!("SELECT count(*) FROM responses WHERE external_user_id = '{user}'"));
        assert_eq!((of("erased-00001"), of("other-00001")), (0, 60), "{name}");
    }
}
