//! Which service a state file and a warehouse belong to. A mistyped address binds nothing, one service may have several
//! addresses, and `rebind` follows a service that moved.

use crate::harness::{
    ALL_FLAGS, Done, KEY_VARIABLE, Place, Service, assert_warehouses_equal, days_ago, expected::Expected, small,
};

fn localhost(service: &Service) -> String {
    service.base_url().replace("127.0.0.1", "localhost")
}

#[test]
fn init_and_check_bind_no_service_before_the_file_is_edited() {
    let service = Service::start(small(60, 3));
    let place = Place::new(&service).without_config();
    let bare = |arguments: &[&str]| Done::from(place.bare(arguments).output().unwrap());
    bare(&["init"]).expect(0);
    for command in ["check", "sync"] {
        let refused = bare(&[command]).expect(2);
        assert!(refused.stderr.contains("only an example"), "{}", refused.stderr);
    }
    let edited = |address: &str| {
        let text = std::fs::read_to_string(place.path("studysync.toml")).unwrap();
        let line = text.lines().find(|line| line.starts_with("base_url = ")).unwrap().to_owned();
        let text = text.replace(&line, &format!("base_url = \"{address}\""));
        std::fs::write(place.path("studysync.toml"), text).unwrap();
    };
    edited("http://127.0.0.1:9");
    bare(&["check"]).expect(1);
    edited(&localhost(&service));
    bare(&["check"]).expect(0);
    assert!(!place.path("studysync-state").exists() && !place.path("warehouse.duckdb").exists(), "check binds nothing");
    edited(&service.base_url());
    bare(&["sync"]).expect(0);
    edited(&localhost(&service));
    bare(&["check"]).expect(0);
    bare(&["sync"]).expect(0);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_a_first_run_with_wrong_settings_binds_no_service() {
    let (right, wrong) = (Service::start(small(60, 3)), Service::start(small(0, 3)));
    let mut place = Place::at("http://127.0.0.1:9");
    place.run(&["sync"]).expect(1);
    place.set_base_url(wrong.base_url());
    let place = place.with_env(KEY_VARIABLE, "not-the-key");
    place.run(&["sync"]).expect(4);
    let place = place.with_env(KEY_VARIABLE, crate::harness::KEY);
    // The empty list of responses is complete, and there is nothing to archive.
    place.run(&["backfill", "--from", &days_ago(4), "--stream", "responses"]).expect(0);
    let mut place = place.with_config(&format!("[service]\nenvironment = \"staging\"\n{ALL_FLAGS}"));
    place.set_base_url(right.base_url());
    place.report(&["backfill", "--from", &days_ago(4)], 0);
    assert_warehouses_equal(&place, &Expected::now(&right), "bound by its first rows");
    let place = place.with_config(ALL_FLAGS);
    let refused = place.run(&["sync"]).expect(2);
    assert!(refused.stderr.contains("'staging'") && refused.stderr.contains("rebind"), "{}", refused.stderr);
}

#[test]
fn p10_rebind_follows_a_service_to_its_new_address() {
    let (before, after) = (Service::start(small(60, 3)), Service::start(small(60, 3)));
    let mut place = Place::new(&before);
    place.report(&["backfill", "--from", &days_ago(4)], 0);
    place.set_base_url(after.base_url());
    let refused = place.run(&["sync"]).expect(2);
    assert!(refused.stderr.contains("rebind --from"), "{}", refused.stderr);
    place.run(&["rebind", "--from", "http://127.0.0.1:9"]).expect(2);
    place.run(&["rebind"]).expect(2);
    place.run(&["rebind", "--from", &after.base_url()]).expect(2);

    let told = place.run(&["rebind", "--from", &before.base_url()]).expect(0).stdout;
    for part in ["the state file", "the DuckDB file", "the Parquet files", "files of pages"] {
        assert!(told.contains(part), "{told}");
    }
    let again = place.run(&["rebind", "--from", &before.base_url()]).expect(0).stdout;
    assert!(again.contains("nothing was bound"), "{again}");
    let report = place.report(&["backfill", "--from", &days_ago(4)], 0);
    assert_eq!(report["requests"]["total"], 0, "what is covered stays covered");
    place.run(&["replay"]).expect(0);
    place.report(&["sync"], 0);
    assert_warehouses_equal(&place, &Expected::now(&after), "after the move");
    place.set_base_url(before.base_url());
    place.run(&["sync"]).expect(2);
}
