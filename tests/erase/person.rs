//! `person`: everything about one person in a folder, and nothing about others.

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::Value;

use super::{
    grep::Needle,
    people::{SESSIONS, VISITOR, ZOE, ZOE_MAIL, ZOE_UUID, plant},
    webhooks::{QUIET, told},
};
use crate::{
    harness::{Place, Service, days_ago, small},
    serve::{Serving, place_for},
};

/// The sessions of the person; another person has the fourth.
fn own_sessions() -> &'static [&'static str] {
    &SESSIONS[..3]
}

/// A place with the person's answers, a pushed user, and waiting webhooks.
fn filled() -> (Service, Place) {
    let service = Service::start(small(300, 5));
    plant(&service);
    let place = place_for(&service, QUIET);
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    let users = format!("{{\"userId\":\"{ZOE}\"}}\n{{\"userId\":\"somebody-else\"}}\n");
    std::fs::write(place.path("in.ndjson"), users).unwrap();
    place.run(&["users", "push", "in.ndjson", "--results", "pushed.csv"]).expect(0);
    let serving = Serving::start(&place);
    for body in told(0) {
        assert_eq!(serving.post(body.as_bytes()), 200);
    }
    assert_eq!(serving.stop(), 0);
    service.clear_log();
    (service, place)
}

fn array(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", path.display()))
}

#[test]
fn p9_person_exports_all_of_one_person_and_no_other() {
    let (service, place) = filled();
    let before = place.duckdb_tables().count("SELECT count(*) FROM responses");
    let done = place.run(&["person", ZOE_MAIL]).expect(0);
    for expected in ["tables/responses: 5", "tables/webhook_events: 4", &format!("user_id {ZOE}"), "--out FOLDER"] {
        assert!(done.stdout.contains(expected), "{expected}: {}", done.stdout);
    }
    let summary = place.run(&["person", "--user-id", ZOE, "--out", "zoe", "--json"]).expect(0).json();
    let folder = place.path("zoe");
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);

    // What an erasure would remove is exported, in both formats.
    let plan = place.run(&["erase", "--dry-run", "--json", "--user-id", ZOE]).expect(0).json();
    let planned: BTreeMap<String, u64> = serde_json::from_value(plan["rows"]["duckdb"].clone()).unwrap();
    for (table, rows) in &planned {
        let exported = array(&folder.join(format!("tables/{table}.json")));
        assert_eq!(exported.len() as u64, *rows, "{table}");
        assert_eq!(summary["counts"][format!("tables/{table}")], *rows, "{table}: {summary:#}");
        let csv = std::fs::read_to_string(folder.join(format!("tables/{table}.csv"))).unwrap();
        assert!(csv.lines().count() as u64 > *rows, "{table}: {csv}");
    }
    for table in ["responses", "visitor_snapshots", "webhook_events"] {
        assert!(planned.contains_key(table), "{table} is not in {planned:?}");
    }
    let files = place.files("zoe/tables").len();
    assert_eq!(files, 2 * planned.len(), "no other table");
    for row in array(&folder.join("tables/responses.json")) {
        assert!(own_sessions().contains(&row["response_group_uid"].as_str().unwrap()), "{row}");
    }
    let csv = std::fs::read_to_string(folder.join("tables/responses.csv")).unwrap();
    assert!(csv.starts_with("response_group_uid,question_id,") && csv.contains(ZOE_UUID), "{csv}");
    let archived = array(&folder.join("archive/responses.json"));
    assert_eq!((archived.len() as u64, &summary["counts"]["archive"]), (5, &plan["archive_records"]));
    assert!(archived.iter().all(|record| own_sessions().contains(&record["responseGroupUid"].as_str().unwrap())));
    let pushed = array(&folder.join("push_results.json"));
    assert_eq!((pushed.len(), pushed[0]["userId"].as_str()), (1, Some(ZOE)));

    // No file names another person, and the summary names this one.
    let others = [VISITOR, SESSIONS[3], "somebody-else"].map(Needle::new);
    for path in place.files("zoe") {
        let bytes = std::fs::read(&path).unwrap();
        assert!(!others.iter().any(|other| other.is_in(&bytes)), "{}", path.display());
    }
    let stored: Value = serde_json::from_slice(&std::fs::read(folder.join("export.json")).unwrap()).unwrap();
    assert_eq!(stored, summary);
    assert!(stored["linked"].to_string().contains(ZOE_UUID), "{stored:#}");

    // Nothing was changed or sent, and a folder is not filled twice.
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM responses"), before);
    assert_eq!(service.log().len(), 0);
    let again = place.run(&["person", ZOE, "--out", "zoe"]).expect(2);
    assert!(again.stderr.contains("zoe exists: name a new folder"), "{}", again.stderr);
}

#[test]
fn exit_3_person_says_when_nobody_is_found() {
    let service = Service::start(small(60, 3));
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    let done = place.run(&["person", "no@such.example", "--out", "none"]).expect(3);
    assert!(done.stdout.starts_with("NO MATCH HERE\n"), "{}", done.stdout);
    assert!(!place.path("none").exists() && !place.path("none.part").exists());
    for (arguments, expected) in [
        (&["person"][..], "required"),
        (&["person", "anonymous"], "names nobody in particular"),
        (&["person", "--email", "zoe"], "no @"),
    ] {
        let done = place.run(arguments).expect(2);
        assert!(done.stderr.contains(expected), "{arguments:?}: {}", done.stderr);
    }
}
