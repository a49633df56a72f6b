//! Downloads that the network or a kill interrupts resume after their last byte.

use std::time::{Duration, Instant};

use super::*;

#[test]
fn p2_a_cut_download_resumes_at_its_last_byte() {
    for has_no_ranges in [false, true] {
        let service = Service::start(settings(Media { has_no_ranges, ..Media::default() }));
        let place = place(&service, ON);
        set(&service, &json!({"cut_body": {"when": {"every": 4, "path": "/media"}, "sent_share": 0.7}}));
        let report = backfill(&place);
        assert!(report["recordings"]["waiting"].as_u64().unwrap() < 10, "{report:#}");
        set(&service, &json!({"cut_body": {"when": {"every": 0}}}));
        let asked = requests(&service);
        let parts = asked.iter().filter(|entry| entry.status == 206).count();
        let cut = asked.iter().filter(|entry| entry.fault.as_deref() == Some("cut_body")).count();
        assert!(cut > 5, "{cut}");
        assert_eq!(parts > 0, !has_no_ranges, "{parts} parts of {}", asked.len());
        let report = place.report(&["sync"], 0);
        assert_eq!(report["recordings"]["waiting"], 0, "{report:#}");
        assert_all_kept(&service, &place);
        let left =
            place.files("parquet/recordings").into_iter().filter(|path| path.to_string_lossy().contains(".part"));
        assert_eq!(left.count(), 0, "no part is left");
    }
}

#[test]
fn p2_a_host_that_sends_another_range_sends_the_whole_file() {
    let answers = [
        RangeAnswer::Whole,
        RangeAnswer::Earlier,
        RangeAnswer::Fewer,
        RangeAnswer::UnknownLength,
        RangeAnswer::Unnamed,
        RangeAnswer::Status200,
        RangeAnswer::Status400,
        RangeAnswer::Status500,
    ];
    // The cases mostly wait between attempts, so they run in parallel.
    std::thread::scope(|scope| {
        for answer in answers {
            scope.spawn(move || sends_the_whole_file(answer));
        }
    });
}

fn sends_the_whole_file(answer: RangeAnswer) {
    let service = Service::start(Settings { responses: 400, ..settings(Media::default()) });
    let place = place(&service, ON);
    // Every download is interrupted, so that some have partial files.
    set(&service, &json!({"cut_body": {"when": {"every": 1, "path": "/media"}, "sent_share": 0.6}}));
    let report = backfill(&place);
    assert!(report["recordings"]["waiting"].as_u64().unwrap() > 5 && !part_lengths(&place).is_empty(), "{report:#}");
    set(&service, &json!({"cut_body": {"when": {"every": 0}}, "media": {"range_answer": answer}}));
    service.clear_log();
    let report = place.report(&["sync"], 0);
    assert_eq!(report["recordings"]["waiting"], 0, "{answer:?}: {report:#}");
    let asked = requests(&service);
    assert!(asked.len() <= links(&service).len() + 20, "{answer:?}: {} requests", asked.len());
    assert!(part_lengths(&place).is_empty(), "{answer:?}");
    assert_stored(&service, &place, 5);
}

#[test]
fn p1_a_compressed_recording_is_unpacked() {
    let service = Service::start(settings(Media::default()));
    let contents: Vec<_> = links(&service).into_iter().map(|(key, link)| (key, content(&link))).collect();
    set(&service, &json!({"media": {"is_gzip": true}}));
    let place = place(&service, ON);
    let report = backfill(&place);
    assert_eq!(report["recordings"]["waiting"], 0, "{report:#}");
    for (name, tables) in place.warehouses() {
        let rows = rows(&tables);
        for (key, content) in &contents {
            assert_eq!(rows[key]["recording_sha256"].as_deref(), Some(sha256(content).as_str()), "{name}");
        }
    }
}

fn is_hung(entry: &LogEntry) -> bool {
    entry.fault.as_deref() == Some("hung_body")
}

/// Returns the sizes of the partial files of downloads.
fn part_lengths(place: &Place) -> Vec<u64> {
    let files = place.files("parquet/recordings").into_iter();
    let parts = files.filter(|path| path.extension().is_some_and(|ending| ending == "part"));
    parts.filter_map(|path| path.metadata().ok()).map(|found| found.len()).filter(|length| *length > 0).collect()
}

#[test]
fn p2_a_run_killed_during_downloads_resumes_and_loses_none() {
    let service = Service::start(settings(Media { bytes: 300_000, ..Media::default() }));
    let place = place(&service, ON);
    let hang =
        json!({"when": {"skip": 5, "count": 1_000_000, "path": "/media"}, "sent_share": 0.6, "silent_ms": 300_000});
    set(&service, &json!({"hung_body": hang}));
    for _ in 0..3 {
        let before = requests(&service).len();
        let mut run = place.spawn(&["backfill", "--from", &days_ago(14)]);
        // Other downloads complete. Only a partial file that does not grow belongs to the download that hangs.
        let (begun, mut still, mut seen) = (Instant::now(), 0, Vec::new());
        while still < 25 {
            assert!(begun.elapsed() < Duration::from_secs(240), "no download hangs");
            assert!(run.try_wait().unwrap().is_none(), "it ended");
            std::thread::sleep(Duration::from_millis(20));
            let has_hung = requests(&service)[before..].iter().any(is_hung);
            let parts = part_lengths(&place);
            still = if has_hung && !parts.is_empty() && parts == seen { still + 1 } else { 0 };
            seen = parts;
        }
        run.kill().unwrap();
        run.wait().unwrap();
        set(&service, &json!({"hung_body": {"when": {"skip": 5, "count": 1_000_000}}}));
    }
    set(&service, &json!({"hung_body": {"when": {"skip": 0, "count": 0}}}));
    let before = requests(&service).len();
    let report = backfill(&place);
    assert_eq!(report["recordings"]["waiting"], 0, "{report:#}");
    assert!(requests(&service)[before..].iter().any(|entry| entry.status == 206), "parts were gone on with");
    assert_all_kept(&service, &place);
}

#[test]
fn a_failing_media_host_does_not_fail_the_run() {
    let service = Service::start(settings(Media::default()));
    let place = place(&service, ON);
    set(&service, &json!({"server_error": {"when": {"every": 1, "path": "/media"}}}));
    let report = place.report(&["backfill", "--from", &days_ago(7)], 0);
    assert!(report["recordings"]["waiting"].as_u64().unwrap() > 0 && report["outcome"] == "done", "{report:#}");
    assert!(report["notes"].to_string().contains("recordings wait for the next run: status 500"), "{report:#}");
    set(&service, &json!({"server_error": {"when": {"every": 0}}}));
    backfill(&place);
    assert_all_kept(&service, &place);
}
