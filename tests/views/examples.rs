//! The examples for analysts: each statement returns the same rows in both warehouses, and none needs JSON functions.

use serde_json::{Value, json};
use studysync_sandbox::{ChangeRequest, ListName};

use super::warehouse::Warehouse;
use crate::harness::{DAY_MS, Place, Service, days_ago, small};

const QUESTIONS: &str = include_str!("../../examples/questions.sql");
const AS_OF: &str = include_str!("../../examples/as_of.sql");

/// The statements of a script, without their comments.
fn statements(script: &str) -> Vec<String> {
    let code: Vec<&str> = script.lines().filter(|line| !line.starts_with("--")).collect();
    let statements = code.join("\n");
    statements
        .split(';')
        .map(|statement| statement.trim().to_owned())
        .filter(|statement| !statement.is_empty())
        .collect()
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_both_warehouses_answer_every_question_alike() {
    let service = Service::start(small(12_000, 60));
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(62)], 0);
    let numbered = QUESTIONS
        .lines()
        .filter(|line| line.starts_with("-- ") && line.chars().nth(3).is_some_and(|c| c.is_ascii_digit()));
    assert_eq!(numbered.count(), 17);
    for statement in statements(QUESTIONS) {
        assert!(!statement.contains("json") && !statement.contains("->"), "{statement}");
        let answers = [Place::run, Place::run_on_parquet].map(|run| {
            let done = run(&place, &["query", &statement, "--format", "json", "--rows", "100000"]).expect(0);
            // No webhooks arrived here.
            let is_answered = done.stdout.lines().count() > 1 || statement.contains("response_rates");
            assert!(is_answered, "no answer to {statement}");
            done.stdout
        });
        assert_eq!(answers[0], answers[1], "{statement}");
        for warehouse in Warehouse::all(&place) {
            assert_eq!(
                warehouse.query(&statement).len(),
                answers[0].lines().count(),
                "{statement}, {}",
                warehouse.name
            );
        }
    }
}

/// A plain NPS answer in the planted survey.
fn nps(session: &str, score: i64) -> Value {
    json!({
        "createdAt": "2026-01-20T12:00:00.000Z", "updatedAt": "2026-01-20T12:00:00.000Z", "deletedAt": null,
        "questionId": 1, "questionText": "How likely?", "questionType": "NPS", "response": score,
        "responseGroupUid": session, "surveyId": 900, "visitorId": 1, "visitorUuid": "v",
    })
}

/// A service with these answers and no other NPS answers.
fn service_with(scores: &[(&str, i64)]) -> Service {
    let service = Service::start(small(0, 2));
    for (session, score) in scores {
        service.control().plant(ListName::Responses, &nps(session, *score).to_string(), None).unwrap();
    }
    service
}

#[test]
fn the_past_moment_example_repeats_an_earlier_report() {
    // The scores on 31 January are 10, 10, 9, 0 -> 50. Then one answer is edited to 0, one is deleted, one is purged,
    // and one arrives late: 0, 0, 8 -> -66.67.
    let service = service_with(&[("edited", 10), ("deleted", 10), ("purged", 9), ("stays", 0)]);
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(30)], 0);
    service.advance_days(1);
    let control = service.control();
    let plant = |record: Value| control.plant(ListName::Responses, &record.to_string(), None).unwrap();
    plant(nps("edited", 0));
    let mut deleted = nps("deleted", 10);
    deleted["deletedAt"] = json!("2026-02-01T00:00:00.000Z");
    plant(deleted);
    plant(nps("late", 8));
    let purged = studysync_sandbox::RowKey { group: "purged".into(), question: "1".into() };
    assert_eq!(control.remove_row(&purged), 1);
    service.change(&ChangeRequest { status_changes: 1, within_ms: Some(DAY_MS), ..ChangeRequest::default() });
    place.report(&["sync"], 0);
    let [nps_then, changes, surveys] = statements(AS_OF).try_into().unwrap();
    let row = |cells: &[&str]| cells.iter().map(|cell| Some((*cell).to_owned())).collect::<Vec<_>>();
    for warehouse in Warehouse::all(&place) {
        assert_eq!(warehouse.query(&nps_then), [row(&["4", "50.0", "3", "-66.67"])], "{}", warehouse.name);
        let wanted = [row(&["deleted", "1"]), row(&["edited", "1"]), row(&["vanished", "1"])];
        assert_eq!(warehouse.query(&changes), wanted, "{}", warehouse.name);
        assert_eq!(warehouse.query(&surveys).len(), 1, "{}", warehouse.name);
    }
    for run in [Place::run, Place::run_on_parquet] {
        let done = run(&place, &["query", &nps_then, "--format", "json"]).expect(0);
        assert_eq!(done.json()["nps_then"], 50.0);
    }
}
