//! Recordings that are not downloaded: too many, too large, refused, or not a recording. And media hosts with rate
//! limits.

use super::*;

fn statuses(place: &Place) -> BTreeMap<Option<String>, i64> {
    let (_, tables) = place.warehouses().remove(0);
    let sql = "SELECT m.recording_status, count(*) FROM response_media m \
               JOIN responses r USING (response_group_uid, question_id) WHERE r.deleted_at IS NULL GROUP BY 1";
    tables.rows_of(sql).into_iter().map(|row| (row[0].clone(), row[1].clone().unwrap().parse().unwrap())).collect()
}

#[test]
fn p8_a_run_keeps_its_download_limit_and_the_next_continues() {
    let service = Service::start(settings(Media { bytes: 400_000, ..Media::default() }));
    let place = place(&service, &format!("{ON}run_limit_mb = 2\n"));
    let all = links(&service).len() as u64;
    let report = backfill(&place);
    let mut fetched = report["recordings"]["fetched"].as_u64().unwrap();
    assert!((3..=5).contains(&fetched), "{report:#}");
    assert!(requests(&service).len() < 20, "the recordings that wait cost no request");
    assert!(report["recordings"]["bytes"].as_u64().unwrap() <= 2_000_000);
    assert_eq!(report["recordings"]["waiting"], all - fetched);
    assert!(report["notes"].to_string().contains("run_limit_mb = 2 is used up"), "{report:#}");
    for _ in 0..all {
        let more = place.report(&["sync"], 0);
        fetched += more["recordings"]["fetched"].as_u64().unwrap();
        if more["recordings"]["waiting"] == 0 {
            break;
        }
    }
    assert_eq!(fetched, all);
    assert_all_kept(&service, &place);
}

#[test]
fn a_too_large_recording_is_fetched_after_the_limit_is_raised() {
    let service = Service::start(settings(Media { bytes: 900_000, ..Media::default() }));
    let place = place(&service, &format!("{ON}file_limit_mb = 1\n"));
    backfill(&place);
    let told = statuses(&place);
    let large = told[&Some("too_large".to_owned())];
    assert!(large > 10 && told[&Some("stored".to_owned())] > 3 && told.len() == 2, "{told:?}");
    let asked = requests(&service).len();
    place.report(&["sync"], 0);
    assert_eq!(requests(&service).len(), asked, "nothing is asked for again");
    let place = place.with_config(&format!("{ALL_FLAGS}\n{ON}file_limit_mb = 2\n"));
    let report = place.report(&["sync"], 0);
    assert_eq!(report["recordings"]["fetched"], large);
    assert_all_kept(&service, &place);
}

#[test]
fn a_missing_recording_is_reported_and_rarely_retried() {
    let service = Service::start(settings(Media { lost_percent: 100, ..Media::default() }));
    let place = place(&service, ON);
    let report = backfill(&place);
    let all = links(&service).len() as i64;
    assert_eq!(statuses(&place), BTreeMap::from([(Some("refused".to_owned()), all)]));
    assert_eq!((&report["recordings"]["missing"], &report["recordings"]["waiting"]), (&json!(all), &json!(0)));
    let asked = service.log().len();
    place.report(&["sync"], 0);
    assert!(service.log().len() - asked < 10, "not asked for again on the same day");
    assert_eq!(kept(&place).len(), 0);
}

#[test]
fn p1_a_web_page_is_not_stored_as_a_recording() {
    let service = Service::start(settings(Media { is_web_page: true, ..Media::default() }));
    let place = place(&service, ON);
    backfill(&place);
    assert_eq!(statuses(&place).into_keys().collect::<Vec<_>>(), [Some("not_media".to_owned())]);
    assert_eq!(kept(&place).len(), 0);
}

#[test]
fn p5_the_rate_limit_of_a_media_host_stays_its_own() {
    for (host, is_of_service) in [("", true), ("localhost", false)] {
        let service = Service::start(settings(Media { host: host.to_owned(), ..Media::default() }));
        let wait = json!({"when": {"count": 1, "skip": 3, "path": "/media"}, "retry_after": {"wait_ms": 2000}});
        set(&service, &json!({"too_many_requests": wait}));
        let place = place(&service, ON);
        let report = backfill(&place);
        let all = links(&service).len() as u64;
        let counts = &report["recordings"];
        assert!(counts["fetched"].as_u64().unwrap() >= 3, "{report:#}");
        assert_eq!(counts["fetched"].as_u64().unwrap() + counts["waiting"].as_u64().unwrap(), all);
        assert!(counts["waiting"].as_u64().unwrap() > 0 && report["notes"].to_string().contains("429"), "{report:#}");
        // No request is sent before the time that the service itself set.
        if is_of_service {
            let early = service.log().iter().filter(|entry| entry.told_us_ago.is_some_and(|ago| ago > 500_000)).count();
            assert_eq!(early, 0);
        }
        place.report(&["sync"], 0);
        for (name, tables) in place.warehouses() {
            let stored = "SELECT count(*) FROM response_media WHERE recording_status = 'stored'";
            assert_eq!(tables.count(stored) as u64, all, "{name}, host {host:?}");
        }
    }
}

#[test]
fn an_error_names_the_bad_setting() {
    let service = Service::start(small(10, 2));
    for (written, expected) in [
        ("run_limit_mb = 0", "[recordings] run_limit_mb"),
        ("file_limit_mb = 9\nrun_limit_mb = 8", "[recordings] file_limit_mb"),
        ("enable = true", "did you mean 'enabled'"),
        ("path = \"s3://bucket/x\"", "may be in a bucket"),
    ] {
        let place = place(&service, &format!("[recordings]\n{written}\n"));
        let done = place.run(&["sync"]).expect(2);
        assert!(done.stderr.contains(expected), "{written}: {}", done.stderr);
    }
}

#[test]
fn one_failed_recording_delays_no_other() {
    let service = Service::start(settings(Media::default()));
    let newest = links(&service).into_values().next().unwrap();
    let path =
        newest.split_once("/media/").map(|(_, path)| format!("/media/{}", path.split('?').next().unwrap())).unwrap();
    // The media host refuses this recording with 429. The run then skips the host's other recordings.
    let refuse = json!({"when": {"every": 1, "path": path}, "retry_after": {"form": "absent"}});
    set(&service, &json!({"media": {"host": "localhost"}, "too_many_requests": refuse}));
    let place = place(&service, ON);
    let all = links(&service).len() as u64;
    let mut fetched = backfill(&place)["recordings"]["fetched"].as_u64().unwrap();
    for _ in 0..2 {
        let report = place.report(&["sync"], 0);
        fetched += report["recordings"]["fetched"].as_u64().unwrap();
        assert_eq!(report["recordings"]["waiting"], all - fetched, "{report:#}");
    }
    assert_eq!(fetched, all - 1, "the one that fails is asked for last");
}

#[test]
fn p1_the_byte_count_includes_only_received_bytes() {
    let service = Service::start(settings(Media { has_no_ranges: true, ..Media::default() }));
    set(&service, &json!({"cut_body": {"when": {"every": 1, "path": "/media"}, "sent_share": 0.1}}));
    let place = place(&service, ON);
    let report = backfill(&place);
    let (bytes, asked) = (report["recordings"]["bytes"].as_u64().unwrap(), requests(&service).len() as u64);
    assert!(
        report["recordings"]["fetched"] == 0 && bytes > 0 && bytes <= asked * 6_000,
        "{bytes} bytes, {asked} requests"
    );
}

#[test]
fn an_unwritable_recordings_folder_stops_nothing_else() {
    let service = Service::start(settings(Media::default()));
    let place = place(&service, &format!("{ON}path = \"taken/recordings\"\n"));
    std::fs::write(place.path("taken"), "a file").unwrap();
    let report = place.report(&["backfill", "--from", &days_ago(14)], 3);
    assert!(report["notes"].to_string().contains("the recordings are left to the next run"), "{report:#}");
    assert!(report["streams"]["responses"]["inserted"].as_u64().unwrap() > 2000);
    std::fs::remove_file(place.path("taken")).unwrap();
    place.report(&["sync"], 0);
    let kept = place.files("taken/recordings").into_iter().filter(|path| path.extension().is_none()).count();
    assert_eq!(kept, links(&service).len());
}

#[test]
fn recordings_refuse_a_folder_with_other_data() {
    let service = Service::start(small(10, 2));
    for path in ["parquet", "parquet/responses", "parquet/recordings/more", ".", "archive", "archive/x", "state"] {
        let place = place(&service, &format!("[recordings]\npath = \"{path}\"\n"));
        let done = place.run(&["sync"]).expect(2);
        assert!(
            done.stderr.contains("[recordings] path") && done.stderr.contains("a folder of their own"),
            "{}",
            done.stderr
        );
    }
    let place = place(&service, "[recordings]\npath = \"parquet/recordings\"\n");
    place.run(&["sync"]).expect(0);
}
