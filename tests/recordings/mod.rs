//! Recordings: files behind links that expire. The real binary downloads them, names them by their content, and stores
//! their names in the rows. The tests request the recordings from the service themselves.

mod forgotten;
mod interrupted;
mod limits;
mod lost;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use studysync_sandbox::{ChangeRequest, Faults, ListName, LogEntry, Media, RangeAnswer, Settings};

use crate::harness::{ALL_FLAGS, Place, Row, Service, days_ago, small};

const ON: &str = "[recordings]\nenabled = true\n";

fn settings(media: Media) -> Settings {
    let faults = Faults { media: Media { is_served: true, ..media }, ..Faults::default() };
    Settings { faults, ..small(2500, 10) }
}

fn place(service: &Service, recordings: &str) -> Place {
    Place::new(service).with_config(&format!("{ALL_FLAGS}\n{recordings}"))
}

fn backfill(place: &Place) -> Value {
    place.report(&["backfill", "--from", &days_ago(14)], 0)
}

fn set(service: &Service, patch: &Value) {
    service.set_faults(service.control().faults().merged(patch.clone()).unwrap());
}

/// Returns the links of the service's recordings by (session, question), for answers that are not deleted.
fn links(service: &Service) -> BTreeMap<(String, i64), String> {
    let media = service.control().faults().media;
    let host = service.base_url().trim_start_matches("http://").to_owned();
    let records = service.truth(ListName::Responses).into_iter().filter(|record| record.contains("VIDEOVOICE"));
    let found = records.filter_map(|record| {
        let record: Value = serde_json::from_str(&record).unwrap();
        let link = record["response"]["downloadUrl"].as_str()?;
        let upload = link.strip_prefix("https://media.example.com/")?.strip_suffix("/download")?;
        let key = (record["responseGroupUid"].as_str()?.to_owned(), record["questionId"].as_i64()?);
        let is_deleted = record["deletedAt"].as_str().is_some();
        let link = format!("http://{host}/media/{upload}/download?g={}", media.generation);
        (!is_deleted).then_some((key, link))
    });
    found.collect()
}

/// Downloads the content of a link without this program.
fn content(link: &str) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let reply = reqwest::Client::builder().no_proxy().build().unwrap().get(link).send().await.unwrap();
        assert!(reply.status().is_success(), "{link}: {}", reply.status());
        reply.bytes().await.unwrap().to_vec()
    })
}

fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the rows of recordings in a warehouse.
fn rows(tables: &crate::harness::Tables) -> BTreeMap<(String, i64), Row> {
    let rows = tables.rows("response_media").into_iter();
    rows.map(|row| {
        let text = |name: &str| row[name].clone().unwrap();
        ((text("response_group_uid"), text("question_id").parse().unwrap()), row.clone())
    })
    .collect()
}

fn requests(service: &Service) -> Vec<LogEntry> {
    service.log().into_iter().filter(|entry| entry.path.starts_with("/media/")).collect()
}

/// Returns the files with the content of recordings.
fn kept(place: &Place) -> Vec<PathBuf> {
    let is_content = |path: &PathBuf| path.extension().is_none();
    place.files("parquet/recordings").into_iter().filter(is_content).collect()
}

/// Asserts that every recording of the service is a file with its content, and that every warehouse names the file.
fn assert_all_kept(service: &Service, place: &Place) {
    assert_stored(service, place, 20);
}

/// As [`assert_all_kept`], and the service has more recordings than `more_than`.
fn assert_stored(service: &Service, place: &Place, more_than: usize) {
    let links = links(service);
    assert!(links.len() > more_than, "{} recordings", links.len());
    for (name, tables) in place.warehouses() {
        let rows = rows(&tables);
        for (key, link) in &links {
            let row = &rows[key];
            let wanted = content(link);
            let at = |column: &str| row[column].clone().unwrap_or_default();
            assert_eq!((at("recording_status"), at("recording_sha256")), ("stored".into(), sha256(&wanted)), "{name}");
            assert_eq!(at("recording_bytes"), wanted.len().to_string());
            assert!(["video/mp4", "audio/mpeg"].contains(&at("recording_media_type").as_str()), "{row:?}");
            assert!(row["recording_fetched_at"].is_some());
            let path = place.path("parquet/recordings").join(at("recording_path"));
            assert!(path.ends_with(sha256(&wanted)), "{}", path.display());
            assert_eq!(std::fs::read(&path).unwrap(), wanted, "{name}: {}", path.display());
        }
        let orphans = tables.count(
            "SELECT count(*) FROM response_media WHERE recording_status IS NOT NULL \
             AND _run_id NOT IN (SELECT run_id FROM sync_runs)",
        );
        assert_eq!(orphans, 0, "{name}");
    }
}

#[test]
fn p1_each_row_names_the_file_with_its_recording() {
    let service = Service::start(settings(Media::default()));
    service.change(&ChangeRequest { seed: 5, soft_deletes: 60, ..ChangeRequest::default() });
    let place = place(&service, ON);
    let report = backfill(&place);
    let asked = requests(&service);
    assert_all_kept(&service, &place);
    let fetched = links(&service).len();
    let bytes: u64 = kept(&place).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!(report["recordings"], json!({"fetched": fetched, "bytes": bytes, "missing": 0, "waiting": 0}));
    assert_eq!(kept(&place).len(), fetched, "nothing is fetched of deleted answers");
    let (_, tables) = place.warehouses().remove(0);
    let deleted = "SELECT count(*) FROM response_media m JOIN responses r USING (response_group_uid, question_id) \
                   WHERE r.deleted_at IS NOT NULL";
    assert!(tables.count(deleted) > 0);
    assert_eq!(tables.count(&format!("{deleted} AND m.recording_status IS NOT NULL")), 0);
    drop(tables);

    // One request per recording, and none with the key: the media host refuses requests with it.
    assert!(asked.iter().all(|entry| entry.status == 200), "{asked:?}");
    assert_eq!(asked.len(), fetched);
    // No recording is requested twice, and a run without changes writes nothing.
    service.clear_log();
    let before = std::fs::metadata(place.duckdb()).unwrap().modified().unwrap();
    let report = place.report(&["sync"], 0);
    assert_eq!(report["recordings"], json!({"fetched": 0, "bytes": 0, "missing": 0, "waiting": 0}));
    assert_eq!(requests(&service).len(), 0);
    assert_eq!(std::fs::metadata(place.duckdb()).unwrap().modified().unwrap(), before);
}

#[test]
fn recordings_are_off_by_default() {
    let service = Service::start(settings(Media::default()));
    let place = place(&service, "");
    let report = backfill(&place);
    assert!(report.get("recordings").is_none(), "{report:#}");
    assert_eq!((requests(&service).len(), kept(&place).len()), (0, 0));
    for (name, tables) in place.warehouses() {
        assert!(tables.count("SELECT count(*) FROM response_media") > 20);
        let told =
            "SELECT count(*) FROM response_media WHERE recording_status IS NOT NULL OR recording_path IS NOT NULL";
        assert_eq!(tables.count(told), 0, "{name}");
    }
}

#[test]
fn an_expired_link_is_requested_again() {
    let service = Service::start(settings(Media::default()));
    let place = place(&service, "");
    backfill(&place);
    set(&service, &json!({"media": {"generation": 1}}));
    service.clear_log();
    let place = place.with_config(&format!("{ALL_FLAGS}{ON}"));
    let report = place.report(&["sync"], 0);
    let fetched = links(&service).len();
    assert_eq!(report["recordings"]["fetched"], fetched);
    let asked = requests(&service);
    let refused = asked.iter().filter(|entry| entry.status == 403).count();
    let came = asked.iter().filter(|entry| entry.status == 200).count();
    // The run scanned the answers of the last days again first, so they have fresh links.
    assert!(came == fetched && refused > fetched / 2, "{refused} refused, {came} came of {fetched}");
    assert_all_kept(&service, &place);
}

#[test]
fn p4_a_new_link_does_not_count_as_an_edit() {
    let service = Service::start(settings(Media::default()));
    let place = place(&service, "");
    backfill(&place);
    set(&service, &json!({"media": {"generation": 1}}));
    let place = place.with_config(&format!("{ALL_FLAGS}rescan = [\"all every run\"]\n"));
    let report = place.report(&["sync"], 0);
    let counts = &report["streams"]["responses"];
    assert!(counts["rows_read"].as_u64().unwrap() > 2000 && counts["updated"] == 0, "{counts:#}");
    for (name, tables) in place.warehouses() {
        assert_eq!(tables.count("SELECT count(*) FROM response_history"), 0, "{name}");
    }
}

#[test]
fn a_rewritten_row_keeps_its_recording_without_a_request() {
    let service = Service::start(settings(Media::default()));
    let place = place(&service, ON);
    backfill(&place);
    let (asked, before) = (requests(&service).len(), links(&service));
    service.advance_days(1);
    let edited = service.change(&ChangeRequest { seed: 8, edits: 700, ..ChangeRequest::default() });
    let place = place.with_config(&format!("{ALL_FLAGS}rescan = [\"all every run\"]\n{ON}"));
    place.run(&["sync"]).expect(0);
    assert!(edited.edits_bumped.len() > 100);
    // An edited answer may have another recording.
    let before: BTreeSet<String> = before.into_values().collect();
    let new: BTreeSet<String> = links(&service).into_values().filter(|link| !before.contains(link)).collect();
    assert_eq!(requests(&service).len() - asked, new.len());
    assert!(new.len() < 10, "{new:?}");
    assert_all_kept(&service, &place);
    let (_, tables) = place.warehouses().remove(0);
    let history = "SELECT count(*) FROM response_history WHERE question_type = 'VIDEOVOICE'";
    assert!(tables.count(history) > 5, "recorded answers were edited");
}

#[test]
fn replay_restores_recording_columns_without_a_request() {
    let service = Service::start(settings(Media { lost_percent: 20, ..Media::default() }));
    let place = place(&service, ON);
    backfill(&place);
    let told = |place: &Place| -> Vec<_> { place.warehouses().iter().map(|(_, tables)| rows(tables)).collect() };
    let before = told(&place);
    let statuses: BTreeSet<_> = before[0].values().map(|row| row["recording_status"].clone()).collect();
    assert!(statuses.is_superset(&BTreeSet::from([Some("refused".into()), Some("stored".into())])), "{statuses:?}");
    service.stop();
    place.run(&["replay"]).expect(0);
    // All columns are equal, also the run that downloaded the recording, and its time.
    for (before, after) in before.iter().zip(told(&place)) {
        assert_eq!(before, &after);
    }
    place.run(&["replay", "--from", &days_ago(5), "--to", &days_ago(2)]).expect(0);
    for (before, after) in before.iter().zip(told(&place)) {
        assert_eq!(before, &after);
    }
    assert!(Path::new(&place.path("parquet/recordings")).is_dir());
}
