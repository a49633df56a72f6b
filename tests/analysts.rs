//! Copies without personal data: they have no identifier, join as the warehouse does, and follow changes and erasures.

use std::collections::{BTreeMap, BTreeSet};

use memchr::memmem;
use studysync_sandbox::{ChangeRequest, Rough, Settings};

use crate::{
    erase::{
        grep::Needle,
        people::{SESSIONS, VISITOR, ZOE, ZOE_MAIL, ZOE_UUID, plant},
    },
    harness::{ALL_FLAGS, Place, Service, Tables, all_contracts, days_ago, small},
};

const KEY: &str = "a key of pseudonyms for tests";
const FILE: &str = "analysts.duckdb";
const FOLDER: &str = "analysts-parquet";
/// Identifiers that are shorter may be a part of other values by chance.
const BYTES_MIN: usize = 7;

fn place(service: &Service, more: &str) -> Place {
    place_without_key(service, more).with_env("STUDYSYNC_PUBLISH_KEY", KEY)
}

fn place_without_key(service: &Service, more: &str) -> Place {
    let publish = format!("[warehouse]\npublish = {{ path = \"{FILE}\", parquet = \"{FOLDER}\"{more} }}\n");
    Place::new(service).with_config(&format!("{ALL_FLAGS}{publish}"))
}

/// Data with equal times, records that fit no table, and equal keys with different answers.
fn rough(responses: u64) -> Settings {
    Settings { rough: Some(Rough { edge_share: 0.2, reject_share: 0.03, twice_share: 0.03 }), ..small(responses, 12) }
}

/// Runs a command that may end with code 3, because rough data has records that need a look.
fn run(place: &Place, arguments: &[&str]) {
    let done = place.run(arguments);
    assert!([0, 3].contains(&done.code), "{arguments:?} ended with {}: {}", done.code, done.stderr);
}

fn backfill(place: &Place) {
    run(place, &["backfill", "--from", &days_ago(14)]);
}

/// The copies by name.
fn copies(place: &Place) -> [(&'static str, Tables); 2] {
    [(FILE, Tables::duckdb(&place.path(FILE))), (FOLDER, Tables::parquet_with_views(&place.path(FOLDER)))]
}

/// Returns the values in the warehouse by which a person can be found: ids, mail addresses, links, snapshots.
fn identifiers(place: &Place) -> BTreeSet<String> {
    let tables = place.duckdb_tables();
    let mut found = BTreeSet::new();
    for contract in all_contracts().values() {
        for column in &contract.columns {
            let (name, table) = (&column.name, &contract.name);
            let is_id = !column.identifies.is_empty() && !column.identifies.starts_with("record");
            let is_link = ["url", "href", "meta_href", "video_url", "download_url"].contains(&name.as_str());
            let sql = match column.column_type.as_str() {
                "text" | "bigint" if is_id || is_link => format!("SELECT DISTINCT \"{name}\"::VARCHAR FROM \"{table}\""),
                "json" if is_id => format!(
                    "SELECT DISTINCT json_extract_string(\"{name}\", '$.' || k) FROM
                     (SELECT \"{name}\", unnest(json_keys(\"{name}\")) AS k FROM \"{table}\" WHERE json_valid(\"{name}\"))
                     WHERE regexp_full_match(k, '\\w+') AND contains(json_extract_string(\"{name}\", '$.' || k), '@')"
                ),
                _ => continue,
            };
            found.extend(tables.rows_of(&sql).into_iter().flatten().flatten());
        }
    }
    found.retain(|value| value.len() >= BYTES_MIN && !["premium", "starter", "enterprise"].contains(&value.as_str()));
    found
}

/// Returns the columns of a copy that contain one of the values, and `bytes of FILE` for the bytes of its files.
fn found_in_copies(place: &Place, values: &BTreeSet<String>) -> BTreeSet<String> {
    let finders: Vec<memmem::Finder> = values.iter().map(memmem::Finder::new).collect();
    let is_in = |bytes: &[u8]| finders.iter().any(|finder| finder.find(bytes).is_some());
    let mut found = BTreeSet::new();
    for (name, copy) in copies(place) {
        for contract in all_contracts().values() {
            for row in copy.rows(&contract.name) {
                let cells = row.into_iter().filter_map(|(column, cell)| Some((column, cell?)));
                let hits = cells.filter(|(_, cell)| is_in(cell.as_bytes()));
                found.extend(hits.map(|(column, _)| format!("{name} {}.{column}", contract.name)));
            }
        }
    }
    for path in place.files(FOLDER).into_iter().chain([place.path(FILE)]) {
        if is_in(&std::fs::read(&path).unwrap()) {
            found.insert(format!("bytes of {}", path.display()));
        }
    }
    found
}

/// Returns how many rows join on these columns, and how many distinct values each has.
fn joins(tables: &Tables) -> Vec<String> {
    let joins = [
        "SELECT count(*) FROM responses r JOIN visitor_snapshots s USING (response_group_uid)",
        "SELECT count(*) FROM responses r JOIN response_choices c USING (response_group_uid, question_id)",
        "SELECT count(*) FROM responses r JOIN visitor_snapshots s ON s.visitor_id = r.visitor_uuid",
        "SELECT count(*) FROM responses r JOIN visitor_snapshots s USING (external_user_id)",
        "SELECT count(*) FROM responses r JOIN themes t USING (visitor_id)",
        "SELECT count(*) FROM responses r JOIN response_history h USING (response_group_uid, question_id)",
        "SELECT count(DISTINCT visitor_id) FROM responses",
        "SELECT count(DISTINCT visitor_uuid) FROM responses",
        "SELECT count(DISTINCT external_user_id) FROM responses",
        "SELECT count(DISTINCT response_group_uid) FROM responses",
        "SELECT count(*) FROM responses WHERE external_user_id = ''",
        "SELECT count(*) FROM responses WHERE partner_anonymous_id IS NULL",
        "SELECT count(*) FROM sessions",
        "SELECT count(*) FROM current_responses",
        "SELECT sum(promoters) FROM nps_by_day",
        "SELECT count(*) FROM current_choices",
    ];
    joins.iter().map(|sql| format!("{sql}: {:?}", tables.value(sql))).collect()
}

/// Returns the pseudonyms of all sessions by question, time and answer, which the copy keeps.
fn pseudonyms(tables: &Tables) -> BTreeMap<String, String> {
    let sql = "SELECT concat_ws(' ', question_id, created_at, answer_text, answer_number),
        concat_ws(' ', response_group_uid, visitor_id, visitor_uuid, external_user_id) FROM responses";
    let rows = tables.rows_of(sql).into_iter();
    rows.map(|row| (row[0].clone().unwrap(), row[1].clone().unwrap())).collect()
}

#[test]
fn p11_copies_have_no_identifier_and_join_as_the_warehouse() {
    have_no_identifier(small(300, 12));
}

#[test]
fn p11_copies_of_rough_data_have_no_identifier() {
    have_no_identifier(rough(300));
}

fn have_no_identifier(settings: Settings) {
    let service = Service::start(settings);
    let place = place(&service, "");
    backfill(&place);
    service.advance_days(1);
    service.change(&ChangeRequest { seed: 3, new_answers: 30, edits: 100, ..ChangeRequest::default() });
    run(&place, &["sync"]);
    let identifiers = identifiers(&place);
    assert!(identifiers.len() > 200 && identifiers.iter().any(|value| value.contains('@')), "{identifiers:?}");
    assert_eq!(found_in_copies(&place, &identifiers), BTreeSet::new());
    let warehouse = joins(&place.duckdb_tables());
    let [(_, file), (_, folder)] = copies(&place);
    assert_eq!(joins(&file), warehouse);
    assert_eq!(joins(&folder), warehouse);
    assert_eq!(pseudonyms(&file), pseudonyms(&folder));
    // Answers and segments stay, the rest of the record does not.
    for (name, copy) in [(FILE, &file), (FOLDER, &folder)] {
        assert!(copy.count("SELECT count(answer_text) FROM responses") > 20, "{name}");
        assert!(copy.count("SELECT count(meta_browser) FROM responses") > 20, "{name}");
        let kept = "SELECT count(url) + count(answer_json) + count(meta_href) + count(extra) FROM responses";
        assert_eq!(copy.count(kept), 0, "{name}");
        assert_eq!(copy.count("SELECT count(attributes) FROM visitor_snapshots"), 0, "{name}");
        for contract in all_contracts().values() {
            let count = format!("SELECT count(*) FROM \"{}\"", contract.name);
            assert_eq!(copy.count(&count), place.duckdb_tables().count(&count), "{name} {}", contract.name);
        }
    }
    for path in place.files("") {
        let bytes = std::fs::read(&path).unwrap();
        assert!(memmem::find(&bytes, KEY.as_bytes()).is_none(), "{}", path.display());
    }
}

#[test]
fn pseudonyms_stay_with_their_key_and_differ_with_another() {
    let service = Service::start(small(120, 12));
    let place = place(&service, "");
    backfill(&place);
    let first = pseudonyms(&copies(&place)[0].1);
    service.advance_days(1);
    service.change(&ChangeRequest { seed: 4, new_answers: 20, ..ChangeRequest::default() });
    place.run(&["sync"]).expect(0);
    let second = copies(&place).map(|(_, copy)| pseudonyms(&copy));
    assert!(second[0].len() > first.len());
    let common: Vec<_> = first.iter().filter(|(answer, _)| second[0].contains_key(*answer)).collect();
    assert!(common.len() > 50 && common.iter().all(|(answer, ids)| second[0][*answer] == **ids));
    assert_eq!(second[0], second[1]);
    // Another key makes all files again, although no row changed.
    let place = place.with_env("STUDYSYNC_PUBLISH_KEY", "another key of pseudonyms");
    place.run(&["sync"]).expect(0);
    for (name, copy) in copies(&place) {
        let third = pseudonyms(&copy);
        let is_same = |(answer, ids): (&String, &String)| second[0].get(answer) == Some(ids);
        assert!(third.len() >= second[0].len() && !third.iter().any(is_same), "{name}");
    }
}

#[test]
fn a_copy_needs_its_key_and_known_columns() {
    let service = Service::start(small(40, 6));
    let place = place_without_key(&service, "");
    let done = place.run(&["sync"]).expect(2);
    assert!(
        done.stderr.contains("STUDYSYNC_PUBLISH_KEY") && done.stderr.contains("pseudonyms = false"),
        "{}",
        done.stderr
    );
    assert!(service.log().is_empty(), "the key is read before the first request");
    let checked = place.run(&["check"]);
    assert!(checked.code != 0 && checked.stdout.contains("no key of pseudonyms"), "{}", checked.stdout);
    let place = place.with_env("STUDYSYNC_PUBLISH_KEY", "short");
    let done = place.run(&["sync"]).expect(2);
    assert!(done.stderr.contains("could be guessed") && !done.stderr.contains("short\n"), "{}", done.stderr);
    let place = place.with_env("STUDYSYNC_PUBLISH_KEY", KEY);
    let checked = place.run(&["check"]);
    assert!(checked.words().contains("without personal data") && !checked.stdout.contains(KEY), "{}", checked.stdout);
    let shown = place.run(&["config", "show"]).expect(0);
    assert!(shown.stdout.contains(FILE) && !shown.stdout.contains(KEY), "{}", shown.stdout);
    for (publish, expected) in [
        ("{ path = \"c.duckdb\", without = [\"visitor_ids\"] }", "did you mean 'visitor_id'"),
        ("{ pseudonyms = true }", "names no copy"),
        ("{ pathh = \"c.duckdb\" }", "did you mean 'path'?"),
        ("{ parquet = \"parquet/copy\" }", "one in the other"),
        ("7", "publish is a path, or a table"),
    ] {
        let place = Place::new(&service).with_config(&format!("{ALL_FLAGS}[warehouse]\npublish = {publish}\n"));
        let done = place.with_env("STUDYSYNC_PUBLISH_KEY", KEY).run(&["sync"]).expect(2);
        assert!(done.stderr.contains(expected), "{publish}: {}", done.stderr);
    }
    let used = self::place(&service, "");
    std::fs::create_dir(used.path(FOLDER)).unwrap();
    std::fs::write(used.path(FOLDER).join("notes.txt"), "mine").unwrap();
    let done = used.run(&["sync"]).expect(2);
    assert!(done.stderr.contains("it holds other files"), "{}", done.stderr);
}

#[test]
fn columns_and_texts_can_be_left_out_and_ids_too() {
    let service = Service::start(small(120, 12));
    let place = place(&service, ", without = [\"visitor_id\", \"responses.meta_browser\", \"open_texts\"]");
    backfill(&place);
    for (name, copy) in copies(&place) {
        let left = "SELECT count(visitor_id) + count(meta_browser) + count(answer_text) FROM responses";
        assert_eq!(copy.count(left), 0, "{name}");
        assert_eq!(copy.count("SELECT count(visitor_id) FROM visitor_snapshots"), 0, "{name}");
        assert!(copy.count("SELECT count(visitor_uuid) FROM responses") > 20, "{name}");
        assert!(copy.count("SELECT count(answer_number) FROM responses") > 20, "{name}");
    }
    let place = place_without_key(&service, ", pseudonyms = false");
    backfill(&place);
    for (name, copy) in copies(&place) {
        let ids = "SELECT count(response_group_uid) + count(visitor_uuid) + count(external_user_id) FROM responses";
        assert_eq!(copy.count(ids), 0, "{name}");
        assert!(copy.count("SELECT count(*) FROM responses") > 100, "{name}");
    }
}

#[test]
fn p9_erase_reaches_the_copies() {
    erase_reaches_the_copies(small(120, 12));
}

#[test]
fn p9_erase_reaches_the_copies_of_rough_data() {
    erase_reaches_the_copies(rough(200));
}

fn erase_reaches_the_copies(settings: Settings) {
    let service = Service::start(settings);
    plant(&service);
    let place = place(&service, "");
    backfill(&place);
    // The planted answers name the person, and texts are kept.
    let needles: Vec<Needle> = [ZOE, ZOE_MAIL, ZOE_UUID, SESSIONS[0], VISITOR].map(Needle::new).into();
    let named = |place: &Place| {
        let rows = copies(place).map(|(name, copy)| {
            let texts = copy.rows_of("SELECT answer_text FROM responses WHERE answer_text IS NOT NULL");
            let is_named = |text: &String| needles.iter().any(|needle| needle.is_in(text.as_bytes()));
            (name, texts.into_iter().flatten().flatten().filter(is_named).count())
        });
        BTreeMap::from(rows)
    };
    assert_eq!(named(&place), BTreeMap::from([(FILE, 2), (FOLDER, 2)]));
    let before = copies(&place).map(|(_, copy)| copy.count("SELECT count(*) FROM responses"));
    let sessions = copies(&place).map(|(_, copy)| {
        copy.value("SELECT min(response_group_uid) FROM responses WHERE contains(answer_text, '4711')").unwrap()
    });
    assert_eq!(sessions[0], sessions[1]);
    let done = place.run(&["erase", "--yes", "--json", "--user-id", ZOE]);
    assert!(done.code == 0 || done.code == 3, "{}", done.stderr);
    let places = &done.json()["verified"]["places"];
    assert!(places["files of publish"]["searched"].as_u64() > Some(0), "{places}");
    assert!(places["files of publish parquet"]["searched"].as_u64() > Some(10), "{places}");
    assert_eq!(named(&place), BTreeMap::from([(FILE, 0), (FOLDER, 0)]));
    for ((name, copy), rows) in copies(&place).into_iter().zip(before) {
        assert_eq!(copy.count("SELECT count(*) FROM responses"), rows - 5, "{name}");
    }
    let pseudonym = Needle::new(&sessions[0]);
    for path in place.files(FOLDER).into_iter().chain([place.path(FILE)]) {
        let bytes = std::fs::read(&path).unwrap();
        assert!(!pseudonym.is_in(&bytes) && !needles.iter().any(|needle| needle.is_in(&bytes)), "{}", path.display());
    }
}

#[test]
fn status_says_whether_the_copies_are_current() {
    let service = Service::start(small(60, 6));
    let place = place(&service, "");
    let ages = |place: &Place| {
        let copies = place.run(&["status", "--json"]).expect(0).json()["copies"].clone();
        let copies = copies.as_array().unwrap().iter().map(|copy| {
            assert_eq!(copy["without_personal_data"], true, "{copy}");
            assert_eq!(copy["as_of"].is_null(), copy["age"] == "missing", "{copy}");
            [&copy["warehouse"], &copy["age"]].map(|value| value.as_str().unwrap().to_owned()).join(" ")
        });
        copies.collect::<Vec<_>>()
    };
    backfill(&place);
    assert_eq!(ages(&place), ["duckdb current", "parquet current"]);
    let shown = place.run(&["status"]).expect(0);
    assert!(shown.words().contains(&format!("{FILE} has all data of the warehouse")), "{}", shown.stdout);
    assert!(shown.stdout.lines().count() <= 24, "{}", shown.stdout);
    // A run without copies changes the warehouse.
    let publishing = std::fs::read_to_string(place.path("studysync.toml")).unwrap();
    let place = place.with_config(ALL_FLAGS);
    service.advance_days(1);
    service.change(&ChangeRequest { seed: 6, new_answers: 20, ..ChangeRequest::default() });
    place.run(&["sync"]).expect(0);
    assert!(place.run(&["status", "--json"]).expect(0).json().get("copies").is_none());
    let place = place.with_config(&publishing);
    assert_eq!(ages(&place), ["duckdb older", "parquet older"]);
    std::fs::remove_file(place.path(FILE)).unwrap();
    std::fs::remove_dir_all(place.path(FOLDER)).unwrap();
    assert_eq!(ages(&place), ["duckdb missing", "parquet missing"]);
    let shown = place.run(&["status"]).expect(0).words();
    assert!(shown.contains(&format!("{FILE} is MISSING: a run makes it at its end")), "{shown}");
    place.run(&["sync"]).expect(0);
    assert_eq!(ages(&place), ["duckdb current", "parquet current"]);
}

#[test]
fn a_query_never_reads_the_copy_without_personal_data() {
    let service = Service::start(small(60, 6));
    let place = place(&service, "").without_parquet();
    let config = format!("{ALL_FLAGS}[warehouse]\nlock_wait_secs = 0\npublish = {{ path = \"{FILE}\" }}\n");
    let place = place.with_config(&config);
    backfill(&place);
    // Another process has the file: this one.
    let writer = crate::harness::connect();
    let path = place.duckdb().display().to_string();
    writer.execute_batch(&format!("ATTACH '{path}' AS held")).unwrap();
    let done = place.run(&["query", "SELECT count(*) FROM responses"]).expect(5);
    assert!(!done.stderr.contains("reading the copy"), "{}", done.stderr);
    drop(writer);
    // The copy itself is a warehouse for readers.
    let copy = place.path(FILE).display().to_string();
    let asked = [
        "query",
        "SELECT count(DISTINCT visitor_id) AS n FROM current_responses",
        "--format",
        "csv",
        "--duckdb",
        &copy,
    ];
    let elsewhere = place.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let counted = place.bare(&asked).current_dir(elsewhere).output().unwrap();
    let counted = crate::harness::Done::from(counted).expect(0);
    let expected = place.duckdb_tables().count("SELECT count(DISTINCT visitor_id) FROM current_responses");
    assert!(counted.stdout.contains(&expected.to_string()), "{}", counted.stdout);
    // It is no warehouse for runs.
    let rows = std::fs::read(place.path(FILE)).unwrap();
    std::fs::set_permissions(place.path(FILE), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let place = place.with_config(ALL_FLAGS);
    let base_url = service.base_url();
    let written = ["sync", "--base-url", &base_url, "--duckdb", FILE, "--state", "other/state.sqlite"];
    let done = crate::harness::Done::from(place.bare(&written).output().unwrap()).expect(2);
    assert!(done.stderr.contains("a copy without personal data"), "{}", done.stderr);
    assert_eq!(std::fs::read(place.path(FILE)).unwrap(), rows);
}

#[test]
fn a_copy_changes_its_form_with_the_setting() {
    let service = Service::start(small(60, 6));
    let place = place(&service, "").without_parquet();
    let complete = format!("{ALL_FLAGS}[warehouse]\npublish = \"{FILE}\"\n");
    let place = place.with_config(&complete);
    backfill(&place);
    let urls = |place: &Place| Tables::duckdb(&place.path(FILE)).count("SELECT count(url) FROM responses");
    assert!(urls(&place) > 20);
    assert_eq!(std::fs::read(place.path(FILE)).unwrap(), std::fs::read(place.duckdb()).unwrap());
    let place = place.with_config(&format!("{ALL_FLAGS}[warehouse]\npublish = {{ path = \"{FILE}\" }}\n"));
    place.run(&["sync"]).expect(0);
    assert_eq!(urls(&place), 0);
    let place = place.with_config(&complete);
    place.run(&["sync"]).expect(0);
    assert!(urls(&place) > 20);
}
