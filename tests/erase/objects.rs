//! `erase` and `replay` keep the objects that analysts made in the DuckDB file. If they cannot, they name the object
//! before they change anything.

use duckdb::Connection;
use studysync_sandbox::ListName;

use super::{
    erase,
    grep::{Needle, found},
    people::{ZOE, identity, plant, record},
};
use crate::harness::{Place, Service, days_ago, small};

/// Some names sort before those of the objects that they depend on, so that the order of creation matters.
const OBJECTS: &str = r#"
    CREATE SCHEMA "my team";
    CREATE TYPE mood AS ENUM ('good', 'bad');
    CREATE SEQUENCE numbers START 5 INCREMENT 2;
    CREATE MACRO plus_one(x) AS x + 1;
    CREATE MACRO "my team".twice(x, times := 2) AS x * times;
    CREATE TABLE z_teams (id INTEGER PRIMARY KEY DEFAULT nextval('numbers'), mood mood, name VARCHAR UNIQUE CHECK (length(name) > 1));
    CREATE TABLE a_members (team INTEGER REFERENCES z_teams (id), name VARCHAR, PRIMARY KEY (team, name));
    CREATE TABLE a_desks (team INTEGER, name VARCHAR, FOREIGN KEY (team, name) REFERENCES a_members (team, name));
    CREATE TABLE tree (id INTEGER PRIMARY KEY, above INTEGER REFERENCES tree (id));
    CREATE TABLE "my team"."odd ""name""" (
        a INTEGER, b INTEGER GENERATED ALWAYS AS (plus_one(a)), c INTEGER DEFAULT ("my team".twice(21)), d VARCHAR[], e STRUCT(f mood)
    );
    INSERT INTO z_teams (mood, name) VALUES ('good', 'red'), ('bad', 'blue');
    INSERT INTO a_members VALUES (5, 'ann'), (7, 'ben');
    INSERT INTO a_desks VALUES (5, 'ann'), (NULL, 'nobody');
    INSERT INTO tree VALUES (9, NULL);
    INSERT INTO tree VALUES (4, 9);
    INSERT INTO tree VALUES (7, 4), (2, 4);
    INSERT INTO tree VALUES (1, 7);
    INSERT INTO "my team"."odd ""name""" (a, d, e) VALUES (1, ['x'], {'f': 'bad'});
    CREATE VIEW a_view AS SELECT plus_one(count(*)) AS n FROM responses;
    CREATE VIEW "my team".b_view AS SELECT n FROM main.a_view;
    CREATE MACRO answers_of(survey) AS TABLE SELECT * FROM responses WHERE survey_id = survey;
    CREATE INDEX by_mood ON z_teams (mood);
    CREATE INDEX by_url ON responses (lower(url));
    COMMENT ON TABLE z_teams IS 'whose it is';
    COMMENT ON COLUMN z_teams.mood IS 'how they are';
    COMMENT ON VIEW a_view IS 'how many';
    COMMENT ON MACRO plus_one IS 'one more';
    COMMENT ON SEQUENCE numbers IS 'odd ones';
    COMMENT ON INDEX by_url IS 'for the paths';
    COMMENT ON COLUMN responses.url IS 'where they were';
"#;

/// Queries over the objects. Their results must not change.
const ASKED: [&str; 14] = [
    "SELECT list(z ORDER BY id)::VARCHAR FROM z_teams z",
    "SELECT list(m ORDER BY name)::VARCHAR FROM a_members m",
    "SELECT list(d ORDER BY name)::VARCHAR FROM a_desks d",
    "SELECT list(t)::VARCHAR FROM tree t",
    "SELECT list(o)::VARCHAR FROM \"my team\".\"odd \"\"name\"\"\" o",
    "SELECT (SELECT n FROM \"my team\".b_view) = (SELECT count(*) + 1 FROM responses)",
    "SELECT (SELECT count(*) FROM answers_of(990)) = (SELECT count(*) FROM responses WHERE survey_id = 990)",
    "SELECT \"my team\".twice(4)::VARCHAR || \"my team\".twice(4, times := 3)::VARCHAR",
    "SELECT list((table_name, comment) ORDER BY table_name)::VARCHAR FROM duckdb_tables() WHERE comment IS NOT NULL",
    "SELECT list_sort(list((table_name, column_name, comment)::VARCHAR))::VARCHAR FROM duckdb_columns() WHERE comment IS NOT NULL AND NOT internal",
    "SELECT list_sort(list((view_name, sql, comment)::VARCHAR))::VARCHAR FROM duckdb_views() WHERE NOT internal",
    "SELECT list_sort(list((function_name, macro_definition, parameters, comment)::VARCHAR))::VARCHAR FROM duckdb_functions() WHERE NOT internal AND database_name <> 'temp'",
    "SELECT list_sort(list((index_name, table_name, sql, comment)::VARCHAR))::VARCHAR FROM duckdb_indexes()",
    "SELECT list_sort(list((schema_name, table_name, constraint_text)::VARCHAR))::VARCHAR FROM duckdb_constraints() WHERE constraint_text <> 'NOT NULL'",
];

fn open(place: &Place) -> Connection {
    let connection = Connection::open(place.duckdb()).unwrap();
    connection.execute_batch("SET TimeZone = 'UTC'").ok();
    connection
}

fn answers(place: &Place) -> Vec<String> {
    let connection = open(place);
    let answer = |sql: &&str| {
        let asked = format!("SELECT CAST(({sql}) AS VARCHAR)");
        connection
            .query_row(&asked, [], |row| row.get::<_, Option<String>>(0))
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    };
    ASKED.iter().map(|sql| answer(sql).unwrap_or_default()).collect()
}

fn filled() -> (Service, Place) {
    let service = Service::start(small(60, 3));
    plant(&service);
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    (service, place)
}

fn is_held(place: &Place) -> bool {
    place.duckdb_tables().count(&format!("SELECT count(*) FROM responses WHERE external_user_id = '{ZOE}'")) == 4
}

#[test]
fn p9_erase_and_replay_keep_every_object_of_analysts() {
    let (_service, place) = filled();
    open(&place).execute_batch(OBJECTS).unwrap();
    let before = answers(&place);
    let done = erase(&place, &["--user-id", ZOE]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(found(&place, &[Needle::new(ZOE)]), [""; 0]);
    assert_eq!(answers(&place), before, "after the erasure");
    place.run(&["replay"]).expect(0);
    assert_eq!(answers(&place), before, "after the replay");
    // The objects work as before: keys are enforced, sequences continue, and runs succeed.
    let connection = open(&place);
    let next: i64 =
        connection.query_row("INSERT INTO z_teams (name) VALUES ('green') RETURNING id", [], |row| row.get(0)).unwrap();
    assert_eq!(next, 9);
    assert!(connection.execute_batch("INSERT INTO a_members VALUES (99, 'x')").is_err());
    assert!(connection.execute_batch("DELETE FROM tree WHERE id = 9").is_err());
    drop(connection);
    place.run(&["sync"]).expect(0);
    place.run(&["verify", "--from", &days_ago(14)]).expect(0);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_a_blocking_object_is_reported_before_any_change() {
    for (objects, named) in [
        (
            "ALTER TABLE surveys ADD PRIMARY KEY (id); CREATE TABLE notes (survey BIGINT REFERENCES surveys (id))",
            "the table notes has a foreign key to surveys",
        ),
        (
            // Made by an analyst who attached the file under another name.
            "CREATE SEQUENCE numbers; CREATE TABLE notes (n BIGINT DEFAULT nextval('mine.main.numbers'))",
            "the table notes cannot be made in a new file",
        ),
    ] {
        let (service, place) = filled();
        let connection = crate::harness::connect();
        connection.execute_batch(&format!("ATTACH '{}' AS mine; USE mine", place.duckdb().display())).unwrap();
        connection.execute_batch(objects).unwrap();
        drop(connection);
        service.clear_log();
        let done = erase(&place, &["--user-id", ZOE]);
        assert_eq!(done.code, 2, "{}", done.stderr);
        assert!(done.stderr.contains(named) && done.stderr.contains("nothing was changed"), "{}", done.stderr);
        assert!(is_held(&place) && service.log().is_empty(), "{:?}", service.log());
        let plan = place.run(&["erase", "--dry-run", "--user-id", ZOE]).expect(2);
        assert!(plan.stderr.contains(named), "{}", plan.stderr);
        let replayed = place.run(&["replay"]).expect(2);
        assert!(replayed.stderr.contains(named), "{}", replayed.stderr);
        let left: Vec<_> = place
            .files("")
            .into_iter()
            .filter(|path| {
                let name = path.to_string_lossy();
                name.contains(".rewrite") || name.contains(".replay")
            })
            .collect();
        assert!(left.is_empty(), "{left:?}");
        open(&place).execute_batch("DROP TABLE notes").unwrap();
        assert_eq!(erase(&place, &["--user-id", ZOE]).code, 0);
    }
}

#[test]
fn p2_replay_refuses_to_empty_a_foreign_column() {
    let (_service, place) = filled();
    open(&place).execute_batch("ALTER TABLE responses ADD COLUMN mine VARCHAR").unwrap();
    place.run(&["replay"]).expect(0);
    open(&place).execute_batch("UPDATE responses SET mine = 'seen'").unwrap();
    let done = place.run(&["replay"]).expect(2);
    assert!(done.stderr.contains("the column responses.mine was not created by studysync"), "{}", done.stderr);
    assert!(place.duckdb_tables().count("SELECT count(*) FROM responses WHERE mine = 'seen'") > 0);
}

#[test]
fn p9_erase_reports_people_in_tables_of_analysts() {
    let (service, place) = filled();
    let who =
        identity(Some("bert"), 5, "0c1c9d6e-0b7a-4c55-9a40-1d2e3f405163", "bbbbbbbb-0000-4000-8000-000000000001", None);
    service
        .control()
        .plant(ListName::Responses, &record("bbbbbbbb-0000-4000-8000-000000000001", 1, &who, "hi", 2), None)
        .unwrap();
    let copy =
        "CREATE SCHEMA lab; CREATE TABLE lab.copies AS SELECT question_id, [external_user_id] AS users FROM responses";
    open(&place).execute_batch(copy).unwrap();
    let done = erase(&place, &["--user-id", ZOE]);
    assert_eq!(done.code, 3, "{}", done.stderr);
    let place_of = &done.json()["verified"]["places"]["duckdb"];
    assert_eq!((&place_of["in_tables_of_others"]["lab.copies.users"], &place_of["left"]), (&4.into(), &0.into()));
    assert!(done.stderr.contains("YOUR OWN TABLE in duckdb, lab.copies.users: 4 rows"), "{}", done.stderr);
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM lab.copies WHERE users[1] LIKE 'zo%'"), 4);
}
