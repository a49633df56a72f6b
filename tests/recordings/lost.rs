//! Recordings whose files were deleted, and recordings that never fit into the limit of a run.

use super::*;

/// Deletes the files of this many recordings, and returns the keys of their answers.
fn delete(place: &Place, count: usize) -> Vec<(String, i64)> {
    let (_, tables) = place.warehouses().remove(0);
    let stored = rows(&tables).into_iter().filter(|(_, row)| row["recording_path"].is_some()).take(count);
    let deleted = stored.map(|(key, row)| {
        let path = place.path("parquet/recordings").join(row["recording_path"].clone().unwrap());
        std::fs::remove_file(path).unwrap();
        key
    });
    deleted.collect()
}

#[test]
fn p1_a_deleted_file_is_fetched_again() {
    let service = Service::start(settings(Media::default()));
    let place = place(&service, ON);
    backfill(&place);
    let deleted = delete(&place, 3);
    // One file is truncated.
    let cut = kept(&place).pop().unwrap();
    std::fs::write(&cut, b"cut").unwrap();
    service.clear_log();
    let report = place.report(&["sync"], 0);
    assert_eq!(report["recordings"]["fetched"], deleted.len() + 1, "{report:#}");
    assert_eq!(requests(&service).len(), deleted.len() + 1);
    assert!(report["notes"].to_string().contains("the files of 4 recordings were gone"), "{report:#}");
    assert_all_kept(&service, &place);
    service.clear_log();
    let report = place.report(&["sync"], 0);
    assert_eq!((&report["recordings"]["fetched"], requests(&service).len()), (&json!(0), 0));

    // A recording that cannot be downloaded again is not reported as stored.
    let deleted = delete(&place, 2);
    set(&service, &json!({"media": {"lost_percent": 100}}));
    let report = place.report(&["sync"], 0);
    assert_eq!(report["recordings"]["missing"], 2, "{report:#}");
    for (name, tables) in place.warehouses() {
        let rows = rows(&tables);
        for key in &deleted {
            let told = ["recording_status", "recording_sha256"].map(|column| rows[key][column].clone());
            assert_eq!(told, [Some("refused".to_owned()), None], "{name}");
        }
    }
}

#[test]
fn p4_a_deleted_file_of_a_deleted_answer_is_reported() {
    let service = Service::start(settings(Media::default()));
    let place = place(&service, ON);
    backfill(&place);
    service.advance_days(1);
    service.change(&ChangeRequest { seed: 5, soft_deletes: 900, ..ChangeRequest::default() });
    place.report(&["sync"], 0);
    let (_, tables) = place.warehouses().remove(0);
    let sql = "SELECT m.response_group_uid, m.question_id, recording_path FROM response_media m \
               JOIN responses r USING (response_group_uid, question_id) \
               WHERE r.deleted_at IS NOT NULL AND recording_path IS NOT NULL LIMIT 1";
    let row = tables.rows_of(sql).remove(0);
    drop(tables);
    std::fs::remove_file(place.path("parquet/recordings").join(row[2].clone().unwrap())).unwrap();
    service.clear_log();
    let report = place.report(&["sync"], 0);
    assert_eq!((&report["recordings"]["missing"], requests(&service).len()), (&json!(1), 0), "{report:#}");
    let key = (row[0].clone().unwrap(), row[1].clone().unwrap().parse().unwrap());
    for (name, tables) in place.warehouses() {
        assert_eq!(rows(&tables)[&key]["recording_status"].as_deref(), Some("lost"), "{name}");
    }
    let report = place.report(&["sync"], 0);
    assert_eq!(report["recordings"]["missing"], 0, "it is said once: {report:#}");
}

#[test]
fn p4_a_folder_that_is_not_mounted_is_not_filled_again() {
    let service = Service::start(settings(Media::default()));
    let place = place(&service, ON);
    backfill(&place);
    let (folder, elsewhere) = (place.path("parquet/recordings"), place.path("elsewhere"));
    std::fs::rename(&folder, &elsewhere).unwrap();
    service.clear_log();
    let report = place.report(&["sync"], 3);
    assert!(report["notes"].to_string().contains("Make sure that this folder is mounted"), "{report:#}");
    assert_eq!(requests(&service).len(), 0);
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::rename(&elsewhere, &folder).unwrap();
    place.report(&["sync"], 0);
    assert_all_kept(&service, &place);
    std::fs::remove_dir_all(&folder).unwrap();
    place.report(&["sync", "--accept-vanished"], 0);
    assert_all_kept(&service, &place);
}

#[test]
fn p8_a_recording_as_large_as_the_limit_does_not_wait_for_ever() {
    let service = Service::start(settings(Media { large_bytes: 990_000, ..Media::default() }));
    // The oldest recording is nearly as large as the limit, and each night newer recordings use all of the limit.
    let records = service.truth(ListName::Responses).into_iter();
    let records = records.map(|record| serde_json::from_str::<Value>(&record).unwrap());
    let linked = records.filter(|record| record["deletedAt"].is_null() && record["questionType"] == "VIDEOVOICE");
    let linked = linked.filter_map(|record| {
        let link = record["response"]["downloadUrl"].as_str()?.strip_prefix("https://media.example.com/")?;
        Some((record["createdAt"].as_str()?.to_owned(), link.strip_suffix("/download")?.to_owned()))
    });
    let (_, oldest) = linked.min().unwrap();
    set(&service, &json!({"media": {"large_upload": oldest}}));
    let place = place(&service, &format!("{ON}run_limit_mb = 1\nfile_limit_mb = 1\n"));
    backfill(&place);
    let is_stored = || {
        let (_, tables) = place.warehouses().remove(0);
        tables.count("SELECT count(*) FROM response_media WHERE recording_bytes = 990000") == 1
    };
    for night in 0..3 {
        assert!(night > 0 || !is_stored(), "it fits at once, so this proves nothing");
        service.advance_days(1);
        service.change(&ChangeRequest { seed: 7 + night, new_answers: 2500, ..ChangeRequest::default() });
        let report = place.report(&["sync"], 0);
        assert!(report["recordings"]["waiting"].as_u64().unwrap() > 0, "{report:#}");
    }
    assert!(is_stored(), "it waits for ever");
}
