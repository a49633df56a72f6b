//! One vocabulary of flags, dates and errors: what a person types by habit works, or names what does.

use crate::harness::{Done, Place, Service, days_ago, small};

fn bare(place: &Place, arguments: &[&str]) -> Done {
    Done::from(place.bare(arguments).output().unwrap())
}

fn assert_one_error(done: &Done, words: &[&str]) {
    assert_eq!(done.stderr.matches("error:").count(), 1, "{}", done.stderr);
    for word in words {
        assert!(done.stderr.contains(word), "no '{word}' in {}", done.stderr);
    }
}

#[test]
fn both_names_of_a_range_work_everywhere() {
    let service = Service::start(small(300, 12));
    let place = Place::new(&service);
    let (from, to) = (days_ago(12), days_ago(4));
    place.run(&["backfill", "--since", &from, "--until", &to]).expect(0);
    service.clear_log();
    place.run(&["backfill", "--from", &from, "--to", &to]).expect(0);
    assert!(service.log().iter().all(|entry| entry.path.contains("surveys")
        || entry.query.iter().any(|(name, value)| name == "limit" && value == "1")));
    for command in ["plan", "status", "verify"] {
        let both = [["--from", "--to"], ["--since", "--until"]].map(|[start, end]| {
            let done = place.run(&[command, start, &from, end, &to, "--json"]);
            assert!([0, 3].contains(&done.code), "{command} {start}: {}", done.stderr);
            done.code
        });
        assert_eq!(both[0], both[1], "{command}");
    }
    let diffs = [["--since", "--until"], ["--from", "--to"]]
        .map(|[start, end]| place.run(&["diff", start, &from, end, &to, "--json"]).expect(0).stdout);
    assert_eq!(diffs[0], diffs[1]);
    place.run(&["replay", "--since", &from, "--until", &to]).expect(0);
}

#[test]
fn a_range_for_sync_names_backfill_in_one_error() {
    let place = Place::at("http://127.0.0.1:1");
    for flag in ["--from", "--since", "--to", "--until=2024"] {
        let done = bare(&place, &["sync", flag, "2024-01-01"]).expect(2);
        assert_one_error(&done, &["`studysync sync` has no --", "hint: ", "studysync backfill --from DATE"]);
    }
    let done = bare(&place, &["query", "SELECT 1", "--max-requests", "3"]).expect(2);
    assert_one_error(&done, &["`studysync query` has no --max-requests", "--max-requests is a flag of ", "`sync`"]);
    // In a report, --since is no range.
    let done = bare(&place, &["report", "--since", "2024", "--until", "2025"]).expect(2);
    assert_one_error(
        &done,
        &["`studysync report` has no --until", "hint: --from and --to are the range of the answers"],
    );
    assert_one_error(&bare(&place, &["sync", "--no-such-flag"]).expect(2), &["unexpected argument '--no-such-flag'"]);
}

#[test]
fn a_dry_run_prints_the_plan_and_sends_nothing() {
    let service = Service::start(small(300, 12));
    let place = Place::new(&service);
    let planned = place.run(&["plan"]).expect(0).stdout;
    let dry = place.run(&["sync", "--dry-run"]).expect(0).stdout;
    let without_time = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(without_time(&dry), without_time(&planned));
    let dry = place.run(&["backfill", "--dry-run", "--from", "2025", "--json"]).expect(0).json();
    assert_eq!(dry["command"], "backfill");
    assert!(service.log().is_empty() && !place.state().exists());
}

#[test]
fn years_and_months_are_dates() {
    let service = Service::start(small(200, 12));
    let place = Place::new(&service);
    for date in ["2025", "2025-06", "3y", "6mo", "1y6mo", "90d"] {
        let plan = place.run(&["plan", "--from", date, "--json"]).expect(0).json();
        assert_eq!(plan["command"], "backfill", "{date}");
    }
    for date in ["3x", "y", "last year", "99y"] {
        let done = place.run(&["plan", "--from", date]).expect(2);
        assert_one_error(&done, &["--from <DATE>"]);
    }
    let done = place.run(&["plan", "--from", "last year"]).expect(2);
    assert_one_error(&done, &["2026-01, 2026, 7d, 6mo, 3y, yesterday"]);
}

#[test]
fn a_survey_that_is_no_number_says_what_it_wants() {
    let place = Place::at("http://127.0.0.1:1");
    for survey in ["abc", "4100x", ""] {
        let done = bare(&place, &["sync", "--survey", survey]).expect(2);
        assert_one_error(&done, &["--survey <ID>", "the number of a survey, such as 4100", "FROM surveys"]);
    }
}
