//! The program against a real S3 server, which `scripts/bucket.sh` starts.

use crate::harness::{Place, Service, small};

use super::load;

/// The queries whose answers must be those of a folder.
const QUERIES: [&str; 3] = [
    "SELECT count(*), sum(answer_number), min(created_at), max(created_at) FROM responses",
    "SELECT question_type, count(*) FROM responses GROUP BY ALL ORDER BY ALL",
    "SELECT * FROM nps_by_week ORDER BY ALL",
];

#[test]
#[ignore = "run by scripts/bucket.sh, which starts an S3 server"]
#[expect(clippy::disallowed_methods, reason = "the script names the bucket of its server")]
fn real_bucket_has_the_answers_of_a_folder() {
    let bucket = std::env::var("STUDYSYNC_TEST_BUCKET").expect("run by scripts/bucket.sh");
    let service = Service::start(small(400, 60));
    let folder = Place::new(&service).without_duckdb();
    let below = format!("{bucket}/{}", std::process::id());
    let place = Place::new(&service).with_addresses(&format!("{below}/warehouse"), &format!("{below}/archive"));
    load(&service, &[&folder, &place]);
    let compare = |when: &str| {
        for query in QUERIES {
            let [here, there] =
                [&folder, &place].map(|place| place.run(&["query", query, "--format", "csv"]).expect(0).stdout);
            assert_eq!(here, there, "{when}: {query}");
        }
    };
    compare("after two nights");
    place.run(&["check"]).expect(0);
    place.run(&["replay"]).expect(0);
    compare("after a replay");
    // A worker without files begins with what the bucket has.
    std::fs::remove_dir_all(place.path("state")).unwrap();
    service.clear_log();
    place.run(&["sync"]).expect(0);
    compare("after a night without a disk");
}
