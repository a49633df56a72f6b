//! `diff` and the report's section on changes print the same as the macros.

use studysync_sandbox::ChangeRequest;

use crate::harness::{DAY_MS, NOW_MS, Place, Service, days_ago, small};

fn two_nights() -> (Service, Place) {
    let service = Service::start(small(1500, 20));
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(22)], 0);
    service.advance_days(1);
    service.change(&ChangeRequest {
        edits: 40,
        soft_deletes: 10,
        vanish_visitors: 2,
        new_answers: 100,
        question_edits: 2,
        status_changes: 2,
        within_ms: Some(5 * DAY_MS),
        ..ChangeRequest::default()
    });
    place.report(&["sync"], 0);
    (service, place)
}

/// A time between the two nights.
fn since() -> String {
    (NOW_MS + 3_600_000).to_string()
}

#[test]
fn diff_prints_what_the_macros_return_as_text_and_json() {
    let (_service, place) = two_nights();
    let until = (NOW_MS + DAY_MS + 3_600_000).to_string();
    let between = format!("make_timestamp({}000), make_timestamp({until}000)", since());
    let arguments = ["diff", "--since", &since(), "--until", &until];
    let json = place.run(&[&arguments[..], &["--json"]].concat()).expect(0).json();
    let (rows, figures) = (json["rows"].as_array().unwrap(), json["figures"].as_array().unwrap());
    let tables = place.duckdb_tables();
    for (column, sum) in
        [("new_answers", 100), ("edited", 1), ("deleted", 1), ("vanished", 1), ("changed_questions", 2)]
    {
        let told: i64 = rows.iter().map(|row| row[column].as_i64().unwrap()).sum();
        assert_eq!(told, tables.count(&format!("SELECT sum({column}) FROM row_changes({between})")), "{column}");
        assert!(told >= sum, "{column}: {told}");
    }
    for row in rows {
        let [before, new, returned, deleted, vanished, after] =
            ["answers_before", "new_answers", "returned", "deleted", "vanished", "answers_after"]
                .map(|count| row[count].as_i64().unwrap());
        assert_eq!(before + new + returned - deleted - vanished, after, "{row}");
    }
    assert_eq!(figures.len() as i64, tables.count(&format!("SELECT count(*) FROM figure_changes({between})")));
    let changed = figures.iter().filter(|figure| figure["before"]["value"] != figure["after"]["value"]).count();
    assert!(changed > 5);

    let text = place.run(&arguments).expect(0).stdout;
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 80, "{widest} columns:\n{text}");
    assert!(text.starts_with("changes that scans found from 2026-") && text.contains("\nthese surveys "), "{text}");
    assert!(text.contains("    NPS ") && text.contains(" ± ") && text.contains("  status: "), "{text}");
    // The same output from Parquet.
    let parquet = place.run_on_parquet(&arguments).expect(0).stdout;
    assert_eq!(text, parquet);
}

#[test]
fn diff_says_when_the_warehouse_began_after_since() {
    let (_service, place) = two_nights();
    let until = (NOW_MS + DAY_MS + 3_600_000).to_string();
    let json = |since: &str| place.run(&["diff", "--since", since, "--until", &until, "--json"]).expect(0).json();
    let (early, known) = (json("2020-01-01"), json(&since()));
    // The first load does not count as a change.
    assert_eq!((&early["rows"], &early["figures"]), (&known["rows"], &known["figures"]));
    let new: i64 = early["rows"].as_array().unwrap().iter().map(|row| row["new_answers"].as_i64().unwrap()).sum();
    assert!((100..400).contains(&new), "{new}");
    assert!(early["warehouse_began"].as_str().unwrap().starts_with("2026-01-31T08:0"), "{early}");
    assert!(known.get("warehouse_began").is_none());
    for run in [Place::run, Place::run_on_parquet] {
        let text = run(&place, &["diff", "--since", "2020-01-01"]).expect(0).stdout;
        assert!(text.contains("\nthe first load of this warehouse ended at 2026-01-31T08:0"), "{text}");
        assert!(!run(&place, &["diff", "--since", &since()]).expect(0).stdout.contains("first load"));
    }
    let page = place.run(&["report", "--since", "2020-01-01"]).expect(0).stdout;
    assert!(page.contains("The first load of this warehouse ended at"));
}

#[test]
fn diff_reports_no_change_and_refuses_nonsense() {
    let (_service, place) = two_nights();
    let quiet = (NOW_MS + 5 * 3_600_000).to_string();
    let until = (NOW_MS + 6 * 3_600_000).to_string();
    let text = place.run(&["diff", "--since", &quiet, "--until", &until]).expect(0).stdout;
    assert!(text.contains("no row changed") && text.contains("no NPS, top-two box or choice share changed"), "{text}");
    for (arguments, why) in [
        (vec!["--since", &until, "--until", &quiet], "--until must be later than --since"),
        (vec!["--since", "2999-01-01"], "--since is in the future"),
        (vec!["--since", "yesteryear"], "yesteryear"),
        (vec!["--since", &quiet, "--survey", "1"], "there is nothing to compare"),
    ] {
        let done = place.run(&[&["diff"], &arguments[..]].concat()).expect(2);
        assert!(done.stderr.contains(why), "{}", done.stderr);
    }
    place.run(&["diff"]).expect(2);
}

#[test]
fn the_report_has_a_section_on_changes() {
    let (_service, place) = two_nights();
    let page = place.run(&["report", "--since", &since()]).expect(0).stdout;
    assert!(page.contains("id=\"changes\"") && page.contains("data-view=\"row_changes\""));
    assert!(page.contains("data-view=\"figure_changes\"") && page.contains(" ± "));
    place.run(&["report", "--since", "2999-01-01"]).expect(2);
    let page = place.run(&["report"]).expect(0).stdout;
    assert!(!page.contains("id=\"changes\"") && !page.contains("#changes"));
}
