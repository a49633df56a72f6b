//! The view `untrusted`: each reason appears with its range, in both warehouses, and goes away with its cause.

use serde_json::{Value, json};
use studysync_sandbox::{ChangeRequest, ListName};

use super::warehouse::Warehouse;
use crate::harness::{Cell, DAY_MS, Place, Service, days_ago, small};

/// Returns the rows of one reason in each warehouse: stream, survey, range and records.
fn reasons(place: &Place, reason: &str) -> Vec<Vec<Cell>> {
    let sql = format!(
        "SELECT stream, survey_id, epoch_ms(range_start), epoch_ms(range_end), records FROM untrusted
         WHERE reason = '{reason}' ORDER BY ALL"
    );
    let [duckdb, parquet] =
        [Warehouse::duckdb(place), Warehouse::parquet(place)].map(|warehouse| warehouse.query(&sql));
    assert_eq!(duckdb, parquet, "{reason}");
    duckdb
}

fn row(cells: [&str; 5]) -> Vec<Cell> {
    cells.map(|cell| (cell != "-").then(|| cell.to_owned())).to_vec()
}

fn record(session: &str, changes: &Value) -> String {
    let mut record = json!({
        "createdAt": "2026-01-20T12:00:00.000Z", "updatedAt": "2026-01-20T12:00:00.000Z", "questionId": 1, "surveyId": 7,
        "questionText": "q", "questionType": "NPS", "response": 9, "responseGroupUid": session,
    });
    record.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    record.to_string()
}

#[test]
fn untrusted_has_gaps_rejects_collisions_and_drift() {
    let service = Service::start(small(600, 28));
    let place = Place::new(&service);
    let plant = |text: &str| service.control().plant(ListName::Responses, text, None).unwrap();
    plant(&record("no-question", &json!({"questionId": null})));
    // The service keeps one record of each spelling of a key.
    for (question, score) in [(json!(1), 3), (json!(1.0), 4)] {
        let twin = json!({"questionId": question, "response": score, "createdAt": "2026-01-22T12:00:00.000Z"});
        plant(&record("twin", &twin));
    }
    plant(&record("new-field", &json!({"battery": 5})));
    place.run(&["backfill", "--from", &days_ago(28), "--to", &days_ago(20)]).expect(0);
    place.run(&["backfill", "--from", &days_ago(15)]).expect(3);

    let gap = [days_ago(20), days_ago(15)];
    let gaps = ["responses", "themes"].map(|stream| row([stream, "-", &gap[0], &gap[1], "-"]));
    assert_eq!(reasons(&place, "uncovered"), gaps);
    assert_eq!(reasons(&place, "rejects"), [row(["responses", "7", "1768867200000", "1768953600000", "1"])]);
    assert_eq!(reasons(&place, "drift"), [row(["responses", "-", "-", "-", "1"])]);
    assert_eq!(reasons(&place, "collisions"), [row(["responses", "7", "1769040000000", "1769126400000", "1"])]);
    for reason in ["withheld", "needs_recheck", "clock"] {
        assert_eq!(reasons(&place, reason), Vec::<Vec<Cell>>::new(), "{reason}");
    }

    let status = place.run(&["status", "--json"]).expect(0).json();
    let listed = status["untrusted"].as_array().unwrap();
    let total = Warehouse::duckdb(&place).text("SELECT count(*) FROM untrusted");
    assert_eq!(Some(listed.len().to_string()), total, "{status}");
    let screen = place.run(&["status"]).expect(0).stdout;
    let line = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    let trust = "trust figures may be wrong: collisions, rejects. studysync query \"FROM untrusted\" has each";
    assert!(line.contains(trust) && line.contains("MISSING"), "{screen}");
    let reject = listed.iter().find(|one| one["reason"] == "rejects").unwrap();
    assert_eq!((&reject["range_start"], &reject["survey_id"]), (&json!("2026-01-20"), &json!(7)), "{reject}");

    place.run(&["report", "--out", "report.html"]).expect(0);
    let report = std::fs::read_to_string(place.path("report.html")).unwrap();
    let section = report.split("<section id=\"trust\"").nth(1).unwrap().split("</section>").next().unwrap();
    for words in ["missing_key questionId", "no scan has read this range", "new field responses.battery"] {
        assert!(section.contains(words), "{words}: {section}");
    }

    assert!(!section.contains("<details>"), "three rows of a reason are not folded: {section}");

    place.run(&["backfill", "--from", &days_ago(20), "--to", &days_ago(15)]).expect(0);
    assert_eq!(reasons(&place, "uncovered"), Vec::<Vec<Cell>>::new(), "the gap was read");
}

/// Of each reason, the report shows the rows of three ranges; the others are folded.
#[test]
fn the_report_folds_further_rows_of_a_reason() {
    let service = Service::start(small(100, 28));
    let place = Place::new(&service);
    for day in 17..22 {
        let changes = json!({"questionId": null, "createdAt": format!("2026-01-{day}T12:00:00.000Z")});
        service.control().plant(ListName::Responses, &record(&format!("day-{day}"), &changes), None).unwrap();
    }
    place.run(&["backfill", "--from", &days_ago(28)]).expect(3);
    assert_eq!(reasons(&place, "rejects").len(), 5);
    place.run(&["report", "--out", "report.html"]).expect(0);
    let report = std::fs::read_to_string(place.path("report.html")).unwrap();
    let section = report.split("<section id=\"trust\"").nth(1).unwrap().split("</section>").next().unwrap();
    let (open, folded) = section.split_once("<details><summary>2 more rows</summary>").unwrap();
    let rejects = |part: &str| part.matches("<bdi>rejects</bdi>").count();
    assert_eq!((rejects(open), rejects(folded)), (3, 2), "{section}");
}

#[test]
fn p4_untrusted_has_withheld_rows_until_they_return() {
    let service = Service::start(small(2000, 28));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    let before = service.truth(ListName::Responses);
    service.advance_days(1);
    let now_ms = service.control().now_ms();
    let window = (now_ms - 12 * DAY_MS, now_ms - 6 * DAY_MS);
    let gone = service.change(&ChangeRequest { vanish_window_ms: Some(window), ..ChangeRequest::default() });
    let report = place.report(&["sync"], 3);
    let withheld = reasons(&place, "withheld");
    let records: i64 = withheld.iter().map(|row| row[4].as_deref().unwrap().parse::<i64>().unwrap()).sum();
    assert_eq!(records as usize, gone.vanished.len(), "{report}");
    assert_eq!(reasons(&place, "needs_recheck"), Vec::<Vec<Cell>>::new(), "a withheld window is listed once");
    assert_eq!(report["untrusted"][0]["reason"], "withheld", "{report}");
    // The next night finds the same, and repeats no row.
    place.report(&["sync"], 3);
    assert_eq!(reasons(&place, "withheld"), withheld);

    // The service has the rows again: nothing changes in the tables, and nothing is withheld any more.
    for text in &before {
        let at_ms = serde_json::from_str::<Value>(text).unwrap()["createdAt"].as_str().map(str::to_owned);
        if at_ms.is_some() {
            service.control().plant(ListName::Responses, text, None).unwrap();
        }
    }
    let report = place.report(&["sync"], 0);
    assert_eq!(report["untrusted"], Value::Null, "{report}");
    assert_eq!(reasons(&place, "withheld"), Vec::<Vec<Cell>>::new(), "{report}");
}
