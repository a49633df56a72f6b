//! `replay` of a time range restores its rows and changes no others.

use super::{Before, hostile_service, place_after_three_nights, replay};
use crate::harness::{DAY_MS, NOW_MS, Place, Service, days_ago, small};

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_slow_replay_of_a_range_leaves_other_rows_alone() {
    let service = hostile_service(2000);
    let place = place_after_three_nights(&service);
    let before = Before::of(&place, "before");
    let (from, to) = (days_ago(12), days_ago(9));
    let inside = format!("created_at >= make_timestamp({from} * 1000) AND created_at < make_timestamp({to} * 1000)");
    let file = duckdb::Connection::open(place.duckdb()).unwrap();
    file.execute_batch(&format!(
        "DELETE FROM responses WHERE {inside} AND question_id % 2 = 0;
         UPDATE responses SET answer_text = 'tampered' WHERE {inside};
         DELETE FROM response_choices WHERE {inside};
         DELETE FROM response_history WHERE {inside};
         INSERT INTO visitor_snapshots SELECT * REPLACE (gen_random_uuid()::VARCHAR AS response_group_uid) FROM visitor_snapshots
            WHERE {inside};
         UPDATE themes SET theme = 'tampered' WHERE {inside}"
    ))
    .unwrap();
    drop(file);
    let damaged = Before::of(&place, "damaged");
    let of_responses = "SELECT count(*) FROM responses WHERE answer_text = 'tampered'";
    assert!(damaged.duckdb().count(of_responses) > 20);
    let report = replay(&service, &place, &["--from", &from, "--to", &to]).expect(0).json();
    let stretches = report["stretches"].as_array().unwrap();
    assert_eq!(
        stretches.iter().map(|one| one["stream"].as_str().unwrap()).collect::<Vec<_>>(),
        ["responses", "themes"]
    );
    assert!(stretches.iter().all(|one| one["rows"]["duckdb"] == one["rows"]["parquet"]), "{report}");
    before.assert_is(&place, "after the stretch was replayed");
    // Only the range was rebuilt: damage outside of its complete windows stays.
    let file = duckdb::Connection::open(place.duckdb()).unwrap();
    let old = (NOW_MS - 39 * DAY_MS) * 1000;
    file.execute_batch(&format!("UPDATE responses SET answer_text = 'far' WHERE created_at < make_timestamp({old})"))
        .unwrap();
    drop(file);
    replay(&service, &place, &["--from", &from, "--to", &to, "--stream", "responses"]).expect(0);
    assert!(place.duckdb_tables().count("SELECT count(*) FROM responses WHERE answer_text = 'far'") > 0);
    replay(&service, &place, &["--stream", "surveys"]).expect(2);
    replay(&service, &place, &["--from", &to, "--to", &from]).expect(2);
}

#[test]
fn p2_a_range_without_all_pages_replaces_no_stream() {
    let service = Service::start(small(200, 10));
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(10), "--to", &days_ago(0)]).expect(0);
    let file = duckdb::Connection::open(place.duckdb()).unwrap();
    file.execute_batch("UPDATE responses SET answer_text = 'tampered'").unwrap();
    drop(file);
    let tampered = "SELECT count(*) FROM responses WHERE answer_text = 'tampered'";
    let before = place.duckdb_tables().count(tampered);
    // The replay does responses first, and the archive has all their pages.
    for page in place.files("archive/themes") {
        std::fs::remove_file(page).unwrap();
    }
    let failed = replay(&service, &place, &["--from", &days_ago(10), "--to", &days_ago(0)]);
    assert!(failed.expect(1).stderr.contains("the warehouse is unchanged"));
    assert_eq!(place.duckdb_tables().count(tampered), before);
}
