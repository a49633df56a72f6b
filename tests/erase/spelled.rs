//! Names in several spellings: composed or decomposed letters, domains in Unicode or ASCII.

use serde_json::json;
use studysync_sandbox::ListName;

use super::{
    erase,
    grep::{Needle, found},
    people::{identity, record},
    write,
};
use crate::harness::{Place, Service, days_ago, small};

/// The names in the service: decomposed letters, and the domain in ASCII.
const ID: &str = "zoe\u{308}-4711";
const MAIL: &str = "ju\u{308}rgen@xn--exmple-cua.de";
const UUID: &str = "7c1c9d6e-0b7a-4c55-9a40-1d2e3f405164";
/// The names as a person types them.
const COMPOSED_ID: &str = "zo\u{eb}-4711";
const COMPOSED_MAIL: &str = "j\u{fc}rgen@ex\u{e4}mple.de";

fn session(number: u32) -> String {
    format!("dddddddd-0000-4000-8000-{number:012}")
}

fn needles() -> Vec<Needle> {
    let decomposed = "ju\u{308}rgen@exa\u{308}mple.de";
    [ID, MAIL, UUID, COMPOSED_ID, COMPOSED_MAIL, decomposed, &session(1), &session(2)].map(Needle::new).into()
}

/// One person with names in one form, two people with similar names, and a person who writes the first one's name in
/// the other form.
fn filled() -> (Service, Place) {
    let service = Service::start(small(40, 3));
    let plant = |record: String| service.control().plant(ListName::Responses, &record, None).unwrap();
    plant(record(&session(1), 1, &identity(Some(ID), 6001, UUID, &session(1), Some(MAIL)), "hers", 2));
    // Only the user id shows that this answer is hers.
    let escaped = record(&session(2), 2, &identity(Some(ID), 6009, "", &session(2), None), "hers too", 2);
    plant(escaped.replace('\u{308}', "\\u0308"));
    for (number, user, mail) in [(3, "zoe-4711", "jurgen@exämple.de"), (4, "ZOË-4711", "jürgen@example.de")] {
        let uuid = format!("8c1c9d6e-0b7a-4c55-9a40-1d2e3f40516{number}");
        let who = identity(Some(user), 6000 + number, &uuid, &session(number), Some(mail));
        let text = format!("ask JÜRGEN@Exämple.de, {COMPOSED_ID} or {ID}");
        plant(record(&session(number), 1, &who, if number == 3 { &text } else { "nothing" }, 2));
    }
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(14)]).expect(0);
    (service, place)
}

fn sessions(place: &Place) -> Vec<Vec<String>> {
    let sql = "SELECT DISTINCT response_group_uid FROM responses WHERE response_group_uid LIKE 'dddd%' ORDER BY ALL";
    let of = |(_, tables): (&str, crate::harness::Tables)| {
        tables.rows_of(sql).into_iter().map(|row| row[0].clone().unwrap()).collect()
    };
    place.warehouses().into_iter().map(of).collect()
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_erase_finds_every_spelling_of_a_name() {
    let (service, place) = filled();
    let plan = place.run(&["erase", "--dry-run", "--json", "--email", "J\u{fc}rgen@EX\u{c4}MPLE.de."]).expect(0).json();
    assert_eq!(plan["named"], json!([format!("email {COMPOSED_MAIL}")]));
    assert_eq!((&plan["rows"]["duckdb"]["responses"], &plan["archive_records"]), (&json!(2), &json!(2)), "{plan:#}");
    let done = erase(&place, &["--email", COMPOSED_MAIL, "--redact-mentions"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(found(&place, &needles()), [""; 0]);
    assert_eq!(sessions(&place), vec![vec![session(3), session(4)]; 2], "others have other names");
    let told = "SELECT answer_text FROM responses WHERE external_user_id = 'zoe-4711'";
    assert_eq!(place.duckdb_tables().value(told).as_deref(), Some("ask [erased], [erased] or [erased]"));

    // Scans and pushes suppress every form of the names while the service still has the person.
    let who = identity(Some(COMPOSED_ID), 6009, "9c1c9d6e-0b7a-4c55-9a40-1d2e3f405164", &session(5), None);
    service.control().plant(ListName::Responses, &record(&session(5), 1, &who, "again", 1), None).unwrap();
    place.run(&["sync"]).expect(0);
    place.run(&["replay"]).expect(0);
    assert_eq!(sessions(&place), vec![vec![session(3), session(4)]; 2]);
    let input = write(&place, "in.csv", &format!("userId,attributes.work_email\n{COMPOSED_ID},\nx,{MAIL}\n"));
    place.run(&["users", "push", &input, "--results", "/dev/null"]).expect(3);
    assert!(!service.log().iter().any(|entry| entry.path == "/v2/users"));
    // The purge request used the service's form of the names.
    service.advance_days(11);
    let left = service.truth(ListName::Responses);
    let is_left = [1, 2, 3, 4].map(|number| left.iter().any(|record| record.contains(&session(number))));
    assert_eq!(is_left, [false, false, true, true], "by the user id and the address as the service has them");
}

#[test]
fn p9_erase_finds_a_user_id_in_another_unicode_form() {
    let (_service, place) = filled();
    std::fs::write(place.path("people.txt"), format!("user-id {COMPOSED_ID}\n")).unwrap();
    let done = erase(&place, &["--file", "people.txt", "--local-only", "--redact-mentions"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    std::fs::remove_file(place.path("people.txt")).unwrap();
    assert_eq!(found(&place, &[Needle::new(ID), Needle::new(COMPOSED_ID), Needle::new(MAIL)]), [""; 0]);
    assert_eq!(sessions(&place), vec![vec![session(3), session(4)]; 2]);
}

#[test]
fn p9_a_user_id_with_control_characters_is_erased() {
    let service = Service::start(small(40, 3));
    let user = "bob\t77\u{1b}[2J";
    let session = session(77);
    let who = identity(Some(user), 880_077, UUID, &session, None);
    for question in [9001, 9002] {
        let answer = record(&session, question, &who, "hers", 1);
        service.control().plant(ListName::Responses, &answer, None).unwrap();
    }
    let place = Place::new(&service);
    place.run(&["backfill", "--from", &days_ago(2)]).expect(0);
    // The names as JSON in pages, and as text in columns.
    let needles = [r"bob\t77", user, UUID, &session].map(Needle::new);
    assert_ne!(found(&place, &needles[..1]), [""; 0]);
    let people = write(&place, "people.txt", &format!("user-id {user}\n"));
    let done = erase(&place, &["--file", &people]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(!done.stderr.contains('\u{1b}'), "{}", done.stderr);
    assert_eq!(done.json()["purge_requests"].as_array().unwrap().len(), 1);
    std::fs::remove_file(people).unwrap();
    assert_eq!(found(&place, &needles), [""; 0]);
    service.advance_days(1);
    place.run(&["sync"]).expect(0);
    assert_eq!(found(&place, &needles), [""; 0], "the next day");
}
