//! `responses_as_of` and `surveys_as_of`, compared with what the warehouse returned at that time.

use studysync_sandbox::{ChangeRequest, ListName, RowKey};

use super::{recompute::Rows, warehouse::Warehouse};
use crate::harness::{ALL_FLAGS, DAY_MS, NOW_MS, Place, Service, days_ago, small};

const CONTENT: &str =
    "response_group_uid, question_id, survey_id, answer_json, is_skipped, epoch_us(created_at), question_text, url";

/// The present rows of each warehouse, by its name.
fn today(place: &Place) -> Vec<(String, Rows, Rows)> {
    let read = |warehouse: Warehouse| {
        let answers = warehouse.query(&format!("SELECT {CONTENT} FROM current_responses"));
        let surveys = warehouse.query("SELECT id, name, status FROM surveys WHERE _vanished_at IS NULL");
        (warehouse.name, answers, surveys)
    };
    Warehouse::all(place).into_iter().map(read).collect()
}

/// A time after a night as SQL. Each night begins a day after the one before.
fn moment(nights: i64) -> String {
    format!("make_timestamp({} + 3600000000)", (NOW_MS + nights * DAY_MS) * 1000)
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_as_of_views_return_what_the_warehouse_said_then() {
    let service = Service::start(small(3000, 40));
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(42)], 0);
    let mut nights = vec![today(&place)];
    for seed in 1..=3 {
        service.advance_days(1);
        service.change(&ChangeRequest {
            seed,
            edits: 80,
            soft_deletes: 25,
            vanish_visitors: 2,
            new_answers: 60,
            status_changes: 2,
            late: 10,
            within_ms: Some(5 * DAY_MS),
            ..ChangeRequest::default()
        });
        place.report(&["sync"], 0);
        nights.push(today(&place));
    }
    assert_as_of(&place, &nights);
    assert!(nights.windows(2).all(|pair| pair[0][0].1.len() != pair[1][0].1.len()), "the nights differ");
    // Before the first scan nothing was known, although answers existed.
    for warehouse in Warehouse::all(&place) {
        assert_eq!(
            warehouse.text(&format!("SELECT count(*) FROM responses_as_of({})", moment(-1))).as_deref(),
            Some("0")
        );
    }
}

fn assert_as_of(place: &Place, nights: &[Vec<(String, Rows, Rows)>]) {
    for (at, night) in nights.iter().enumerate() {
        let moment = moment(at as i64);
        for (warehouse, (name, answers, surveys)) in Warehouse::all(place).iter().zip(night) {
            assert_eq!(&warehouse.name, name);
            let known = warehouse.query(&format!("SELECT {CONTENT} FROM responses_as_of({moment})"));
            let sorted = |rows: &Rows| {
                let mut rows = rows.clone();
                rows.sort();
                rows
            };
            let (wanted, found) = (sorted(answers), sorted(&known));
            let first = wanted.iter().zip(&found).find(|(wanted, found)| wanted != found);
            assert!(wanted == found, "night {at}, {name}: {} and {}; {first:?}", wanted.len(), found.len());
            let known = warehouse.query(&format!("SELECT id, name, status FROM surveys_as_of({moment})"));
            assert!(sorted(surveys) == sorted(&known), "night {at}, {name}: surveys");
        }
    }
}

#[test]
fn as_of_omits_answers_while_they_had_vanished() {
    let service = Service::start(small(800, 20));
    let record = service
        .truth(ListName::Responses)
        .swap_remove(400)
        .replace("\"responseGroupUid\":\"", "\"responseGroupUid\":\"again-");
    let member = |name: &str| serde_json::from_str::<serde_json::Value>(&record).unwrap()[name].clone();
    let group = member("responseGroupUid").as_str().unwrap().to_owned();
    let key = RowKey { group: group.clone(), question: member("questionId").to_string() };
    let plant = || service.control().plant(ListName::Responses, &record, None).unwrap();
    plant();
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(22)], 0);
    service.advance_days(1);
    assert!(service.control().remove_row(&key) > 0);
    place.report(&["sync"], 0);
    service.advance_days(1);
    plant();
    place.report(&["sync"], 0);
    for warehouse in Warehouse::all(&place) {
        let count = |night| {
            format!("SELECT count(*) FROM responses_as_of({}) WHERE response_group_uid = '{group}'", moment(night))
        };
        let counts = [-1, 0, 1, 2].map(|night| warehouse.text(&count(night)).unwrap());
        assert_eq!(counts, ["0", "1", "0", "1"], "{}", warehouse.name);
    }
}

#[test]
fn as_of_keeps_rows_from_before_a_column_was_requested() {
    let service = Service::start(small(600, 20));
    let place = Place::new(&service).with_config("[streams.responses]\nflags = [\"with_deleted_responses\"]\n");
    place.report(&["backfill", "--from", &days_ago(22)], 0);
    let known = |place: &Place| -> Vec<String> {
        let sql = format!(
            "SELECT count(*) || '/' || count(url) || '/' || sum(answer_number) FROM responses_as_of({})",
            moment(0)
        );
        Warehouse::all(place).iter().map(|warehouse| warehouse.text(&sql).unwrap()).collect()
    };
    let before = known(&place);
    service.advance_days(1);
    let place = place.with_config(ALL_FLAGS);
    place.report(&["sync"], 0);
    let after = known(&place);
    for (before, after) in before.iter().zip(&after) {
        let rest = |text: &str| text.split('/').step_by(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(rest(before), rest(after));
        assert_ne!(before, after, "the addresses were gained");
    }
}
