//! The search index in the DuckDB file loses the words of the erased person.

use studysync_sandbox::ListName;

use super::{
    erase,
    grep::{Needle, found},
    people::{ZOE, ZOE_MAIL, identity, plant, record},
    receipt,
};
use crate::{
    harness::{Place, Service, days_ago, small},
    views::search::{config, extension, install, with_extensions},
};

/// A word that no other answer contains.
const WORD: &str = "zugzwangigkeit";
const SESSION: &str = "aaaaaaaa-0000-4000-8000-000000000009";

fn in_index(place: &Place, word: &str) -> i64 {
    place.duckdb_tables().count(&format!("SELECT count(*) FROM fts_main__studysync_texts.dict WHERE term = '{word}'"))
}

fn filled(warehouse: &str) -> Option<(Service, Place)> {
    let extension = extension()?;
    let service = Service::start(small(300, 12));
    plant(&service);
    let who = identity(Some(ZOE), 880_001, "7c1c9d6e-0b7a-4c55-9a40-1d2e3f405163", SESSION, Some(ZOE_MAIL));
    let planted = record(SESSION, 9003, &who, &format!("I say {WORD} and nobody else does"), 3);
    service.control().plant(ListName::Responses, &planted, None).unwrap();
    let place = with_extensions(Place::new(&service).with_config(&config(warehouse)));
    install(&place, &extension);
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    assert_eq!(in_index(&place, WORD), 1);
    Some((service, place))
}

#[test]
fn p9_the_search_index_loses_the_words_of_the_erased() {
    let Some((service, place)) = filled("full_text_search = true\npublish = \"copy.duckdb\"") else { return };
    // The rewrite must keep the objects of analysts, including their own index.
    let analyst = duckdb::Connection::open(place.duckdb()).unwrap();
    let theirs = "CREATE TABLE notes (id INTEGER PRIMARY KEY, of INTEGER REFERENCES notes (id)); INSERT INTO notes VALUES (1, NULL);
        INSERT INTO notes VALUES (2, 1);
        CREATE SCHEMA theirs; CREATE VIEW theirs.found AS SELECT count(*) AS n FROM open_answers";
    analyst.execute_batch(theirs).unwrap();
    drop(analyst);
    let plan = place.run(&["erase", "--dry-run", "--json", "--user-id", ZOE]);
    assert!(!plan.stdout.contains("fts_main"), "{}", plan.stdout);
    assert_eq!(in_index(&place, WORD), 1, "a plan changes nothing");
    let needles: Vec<Needle> = [WORD, SESSION, ZOE_MAIL].map(Needle::new).into();
    let receipt = receipt(&erase(&place, &["--user-id", ZOE]));
    assert!(!receipt.to_string().contains("fts_main"), "{receipt}");
    assert_eq!(found(&place, &needles), [""; 0]);
    // The index exists again, with the answers of everybody else.
    assert_eq!((in_index(&place, WORD), in_index(&place, "export")), (0, 1));
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM notes"), 2);
    for rounds in 0..2 {
        service.advance_days(1);
        place.run(&["sync"]).expect(0);
        assert_eq!(found(&place, &needles), [""; 0], "{rounds}");
    }
    place.run(&["replay"]).expect(0);
    assert_eq!(found(&place, &needles), [""; 0]);
    assert_eq!((in_index(&place, WORD), in_index(&place, "export")), (0, 1));
}

#[test]
fn p9_an_erasure_without_the_extension_drops_the_index() {
    let Some((_service, place)) = filled("full_text_search = true") else { return };
    std::fs::remove_dir_all(place.path("home")).unwrap();
    let done = erase(&place, &["--user-id", ZOE]);
    receipt(&done);
    assert_eq!(found(&place, &[WORD, SESSION].map(Needle::new)), [""; 0]);
    let schemas = "SELECT count(*) FROM duckdb_schemas() WHERE schema_name LIKE 'fts%'";
    assert_eq!(place.duckdb_tables().count(schemas), 0);
}
