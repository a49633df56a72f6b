//! Webhooks about erased people: before the erasure, during it, and until the service has purged them.

use serde_json::{Value, json};
use studysync::{
    model::DurableStep,
    state::{DeliveryReceipt, Inbox, NewDelivery},
};

use super::{
    erase,
    grep::{Needle, found},
    kills::run,
    people::{Person, SESSIONS, VISITOR, ZOE, ZOE_MAIL, ZOE_UUID, plant},
    receipt,
};
use crate::{
    harness::{Place, Service, days_ago, small},
    serve::{Serving, answer_body, in_each, place_for},
};

/// No schedule, and one flush per hour: deliveries stay in the inbox during the test.
pub const QUIET: &str = "schedule = \"off\"\nwake_secs = 0\nflush_secs = 3600\n";
const BRISK: &str = "schedule = \"off\"\nwake_secs = 0\nflush_secs = 1\n";

/// The webhooks of one day about two people: an answer with all identifiers, the same answer with escapes, a study that
/// was shown to a visitor, a study that was submitted, and an answer of a person without an account.
pub fn told(day: usize) -> Vec<String> {
    let told = |number: usize, more: Value| {
        let mut body = json!({
            "id": 100 * day + number, "environmentId": "e", "surveyId": 990, "timestamp": 1_769_846_400_000_u64 + day as u64,
            "eventType": "survey_response",
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    };
    let answer = json!({
        "visitorId": ZOE_UUID, "oldVisitorId": 880_001, "userId": ZOE, "email": ZOE_MAIL,
        "attributes": {"emailAddress": ZOE_MAIL}, "responseGroupUid": SESSIONS[0], "question": "How?", "questionType": "open",
        "response": format!("{ZOE} wrote"),
    });
    let escaped = told(2, answer.clone()).replace('\u{eb}', "\\u00eb").replace('\u{65e5}', "\\u65e5");
    vec![
        told(1, answer),
        escaped,
        told(3, json!({"action": "seen", "visitorId": ZOE_UUID.to_uppercase(), "responseGroupUid": "of-today"})),
        told(
            4,
            json!({"action": "completed", "visitorId": ZOE_UUID, "responseGroupUid": SESSIONS[1], "questions": []}),
        ),
        told(
            5,
            json!({"visitorId": VISITOR, "userId": "", "responseGroupUid": SESSIONS[3], "question": "How?", "response": "x"}),
        ),
    ]
}

fn needles() -> Vec<Needle> {
    [ZOE, ZOE_MAIL, ZOE_UUID, VISITOR].iter().chain(&SESSIONS).map(|text| Needle::new(text)).collect()
}

fn filled(serve: &str) -> (Service, Place) {
    let service = Service::start(small(300, 5));
    plant(&service);
    let place = place_for(&service, serve);
    place.run(&["backfill", "--quiet", "--from", &days_ago(14)]).expect(0);
    (service, place)
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_webhooks_about_the_erased_leave_no_byte() {
    let (service, place) = filled(BRISK);
    let serving = Serving::start(&place);
    for body in told(0) {
        assert_eq!(serving.post(body.as_bytes()), 200);
    }
    assert_eq!(serving.post(answer_body(0).as_bytes()), 200);
    serving.wait_until_flushed();
    // Readers of Parquet see the events after the next run.
    place.run(&["sync", "--quiet"]).expect(0);
    let before = found(&place, &needles());
    for column in ["raw", "user_id", "email", "visitor_id", "attributes", "response_group_uid"] {
        for warehouse in ["DuckDB", "Parquet"] {
            let expected = format!("{warehouse} webhook_events.{column}");
            assert!(before.contains(&expected), "{expected} is not among {before:?}");
        }
    }

    let done = erase(&place, &["--user-id", ZOE, "--visitor-id", VISITOR]);
    let receipt = receipt(&done);
    assert_eq!(done.code, 0, "{receipt:#}");
    for warehouse in ["duckdb", "parquet"] {
        assert_eq!(receipt["removed"][format!("{warehouse} webhook_events")], 5, "{receipt:#}");
    }
    assert_eq!(found(&place, &needles()), [""; 0], "right after");

    for day in 1..=11 {
        service.advance_days(1);
        for body in told(day) {
            assert_eq!(serving.post(body.as_bytes()), 200, "the service is not told who is kept out");
        }
        // On every other day there is a delivery about somebody else too.
        if day % 2 == 0 {
            assert_eq!(serving.post(answer_body(day as u64).as_bytes()), 200);
        }
        serving.wait_until_flushed();
        assert_eq!(found(&place, &needles()), [""; 0], "day {day}, by the webhooks");
        place.run(&["sync", "--quiet"]).expect(0);
        if day == 6 {
            place.run(&["replay", "--quiet"]).expect(0);
        }
        assert_eq!(found(&place, &needles()), [""; 0], "day {day}, after a sync");
    }
    assert_eq!(serving.stop(), 0);
    in_each(&place, |name, tables| {
        assert_eq!(tables.count("SELECT count(*) FROM webhook_events"), 6, "{name}: others are told about as before");
    });
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_erase_searches_the_webhook_inbox() {
    let (_service, place) = filled(QUIET);
    let serving = Serving::start(&place);
    for body in told(0) {
        assert_eq!(serving.post(body.as_bytes()), 200);
    }
    assert_eq!(serving.post(answer_body(0).as_bytes()), 200);
    serving.kill();
    let waiting = found(&place, &needles());
    assert!(waiting.iter().any(|place| place.contains(".inbox")), "{waiting:?}");
    // A dry run leaves the delivery in the inbox.
    let planned = place.run(&["erase", "--dry-run", "--user-id", ZOE]);
    assert!(planned.code == 0, "{}", planned.stderr);
    assert!(found(&place, &needles()).iter().any(|place| place.contains(".inbox")));
    let done = erase(&place, &["--user-id", ZOE, "--visitor-id", VISITOR]);
    assert_eq!(done.code, 0, "{:#}", receipt(&done));
    assert_eq!(found(&place, &needles()), [""; 0]);
    in_each(&place, |name, tables| assert_eq!(tables.count("SELECT count(*) FROM webhook_events"), 1, "{name}"));
}

/// A text in Latin-1.
fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|letter| u8::try_from(letter).unwrap()).collect()
}

/// Bodies about her in unusual encodings, with a number that makes them unique: an answer in Latin-1, an answer with
/// her mail address in Latin-1, and an answer whose attributes are JSON inside a text.
fn encoded(number: u64) -> [Vec<u8>; 3] {
    [
        latin1(&json!({"id": number, "userId": "zoe-77", "response": "J\u{fc}rgen"}).to_string()),
        latin1(&json!({"id": number, "email": ZOE_MAIL}).to_string()),
        json!({"id": number, "attributes": json!({"email": ZOE_MAIL}).to_string()}).to_string().into_bytes(),
    ]
}

#[test]
fn p9_erase_finds_people_in_bodies_of_any_encoding() {
    let service = Service::start(small(40, 3));
    let place = place_for(&service, BRISK);
    place.run(&["backfill", "--quiet", "--from", &days_ago(2)]).expect(0);
    let serving = Serving::start(&place);
    let escaped = json!({"note": ZOE_MAIL}).to_string().replace('\u{eb}', "\\u00eb").replace('\u{fc}', "\\u00fc");
    let mentions = [
        latin1(&format!("no JSON: from {ZOE_MAIL} to zoe-77, \u{ff}")),
        json!({
            "id": 1, "userId": "bert", "eventProperties": escaped, "questionType": "zoe-77",
            "questions": [{"question": "How?", "questionTypeId": "zoe-77"}],
        })
        .to_string()
        .into_bytes(),
    ];
    for body in encoded(1).iter().chain(&mentions) {
        assert_eq!(serving.post(body), 200);
    }
    assert_eq!(serving.post(answer_body(0).as_bytes()), 200);
    serving.wait_until_flushed();
    let person = ["--local-only", "--user-id", "zoe-77", "--email", ZOE_MAIL];
    let report = receipt(&erase(&place, &person));
    assert_eq!(report["exit_code"], 3, "{report:#}");
    for warehouse in ["duckdb", "parquet"] {
        assert_eq!(report["removed"][format!("{warehouse} webhook_events")], 3, "{report:#}");
        let mentions = &report["verified"]["places"][warehouse]["mentions"];
        let expected = json!({
            "webhook_events.event_properties": 1, "webhook_events.question_type": 1, "webhook_events.questions": 1,
            "webhook_events.raw": 1, "webhook_events.raw_base64": 1, "webhook_questions.question_type": 1,
        });
        assert_eq!(mentions, &expected, "{report:#}");
    }
    let report = receipt(&erase(&place, &[&person[..], &["--redact-mentions"]].concat()));
    assert_eq!(report["exit_code"], 0, "{report:#}");
    let decoded = "SELECT decode(from_base64(raw_base64), 'ignore') FROM webhook_events WHERE raw_base64 IS NOT NULL";
    for number in 2..4 {
        for body in encoded(number) {
            assert_eq!(serving.post(&body), 200, "the service is not told who is kept out");
        }
    }
    serving.wait_until_flushed();
    assert_eq!(serving.stop(), 0);
    place.run(&["sync", "--quiet"]).expect(0);
    in_each(&place, |name, tables| {
        assert_eq!(tables.count("SELECT count(*) FROM webhook_events"), 3, "{name}");
        let types = "SELECT max(export_question_type) FROM webhook_questions";
        assert_eq!(tables.value(types).as_deref(), Some("[ERASED]"), "{name}");
        assert_eq!(tables.value(decoded).as_deref(), Some("no JSON: from [erased] to [erased], "), "{name}");
    });
    let needles = ["zoe-77", ZOE_MAIL].map(Needle::new);
    assert_eq!(found(&place, &needles), [""; 0]);
}

#[test]
fn p9_erase_removes_a_webhook_that_arrives_meanwhile() {
    let (service, place) = filled(QUIET);
    drop(Serving::start(&place));
    let (state, base_url) = (place.state(), service.base_url());
    let person = Person::named("--user-id", ZOE);
    let steps = run(&place, &service.base_url(), &person, &place.path("unused"), move |_, step| {
        if step == DurableStep::SuppressionWritten {
            let mut inbox = Inbox::open(&state, &base_url, "default").unwrap();
            let told = told(0).into_iter().chain([answer_body(0)]);
            let group: Vec<NewDelivery> = told
                .zip(1..)
                .map(|(body, at)| NewDelivery {
                    received_ms: at,
                    body_hash: at as u128,
                    undated_subject: None,
                    body: body.into_bytes(),
                })
                .collect();
            assert_eq!(inbox.store(&group).unwrap(), [DeliveryReceipt::Stored; 6]);
        }
        false
    });
    assert!(steps.contains(&DurableStep::ReceiptWritten), "{steps:?}");
    let hers: Vec<Needle> =
        [ZOE, ZOE_MAIL, ZOE_UUID].iter().chain(&SESSIONS[..3]).map(|text| Needle::new(text)).collect();
    assert_eq!(found(&place, &hers), [""; 0]);
    // Deliveries about other people are still pending.
    let inbox = Inbox::open_read_only(&place.state()).unwrap().unwrap();
    assert_eq!(inbox.count_pending().unwrap().deliveries, 2);
}
