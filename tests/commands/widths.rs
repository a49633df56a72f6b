//! Commands on terminals of 80 and 40 columns: no line is longer, no word is broken, and failures have the colours of
//! `error:`.

use unicode_width::UnicodeWidthStr as _;

use super::progress::{on_terminal, shown_by};
use crate::harness::{Place, Service, days_ago, put_empty_warehouse, small};

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn no_line_is_longer_than_the_terminal() {
    let service = Service::start(small(800, 24));
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(24)], 0);
    let range = days_ago(9);
    let long = "SELECT uuid() AS id, repeat('several words ', 12) AS text, 1 / 3 AS a_number_with_a_long_name";
    let person = place.duckdb_tables().value("SELECT max(external_user_id) FROM responses").unwrap();
    let commands: [&[&str]; 16] = [
        &["status"],
        &["status", "--from", &range],
        &["erase", "--user-id", &person, "--dry-run"],
        &["person", &person],
        &["check"],
        &["plan", "--days"],
        &["backfill", "--from", &range, "--dry-run"],
        &["sync"],
        &["verify", "--from", &range],
        &["diff", "--since", &range],
        &["config", "show"],
        &["schema"],
        &["schema", "responses", "nps_by_week"],
        &["query", "FROM nps_by_week"],
        &["query", long],
        &["sync", "--not-a-flag-of-any-command-but-long"],
    ];
    for arguments in commands {
        for columns in [80, 40] {
            let Some(shown) = on_terminal(&place, arguments, columns) else { return };
            // The progress line replaces itself.
            let shown = plain(shown.replace("\r\n", "\n").rsplit('\r').next().unwrap());
            assert!(!shown.trim().is_empty(), "{arguments:?}");
            assert_fits(&shown, columns, &format!("{arguments:?}"));
        }
    }
}

/// Asserts that only a value of the configuration, or a word that is longer than a line, makes a line too long.
fn assert_fits(shown: &str, columns: usize, what: &str) {
    for line in shown.lines().filter(|line| line.width() > columns) {
        let is_value = line.split_once(" = ").is_some_and(|(_, value)| !value.contains(' '));
        let is_word = !line.trim().contains(' ') && line.trim().width() > columns;
        assert!(is_value || is_word, "{what} at {columns} columns: {line:?}\n{shown}");
    }
}

#[test]
fn shown_configuration_breaks_lists_tables_and_comments() {
    let place = Place::at("http://127.0.0.1:1").with_config(
        "[warehouse]\npublish = { path = 'analysts.duckdb', parquet = 'analysts-parquet', without = ['visitor_id', 'email'] }\n\
         [serve]\nreport = 'report.html'\nreport_flags = ['--by', 'browser', '--from', '90d', '--title', 'Quarter', '--survey', 'all']\n\
         [notify]\ncommand = ['/usr/local/bin/tell', '--about', 'studysync']\n",
    );
    let mut all = Vec::new();
    for columns in [80, 40] {
        let Some(shown) = on_terminal(&place, &["config", "show"], columns) else { return };
        let shown = plain(&shown.replace("\r\n", "\n"));
        assert_fits(&shown, columns, "config show");
        assert!(shown.contains("\nreport_flags = [\n    \"--by\",\n"), "{shown}");
        assert!(shown.contains("\npublish.path = \"analysts.duckdb\"\npublish."), "{shown}");
        let is_value_or_comment =
            |line: &str| line.is_empty() || line.starts_with(['#', '[', ' ', ']']) || line.contains(" = ");
        assert!(shown.lines().all(is_value_or_comment), "{shown}");
        all.push(shown.parse::<toml::Table>().unwrap());
    }
    assert_eq!(all[0], all[1], "the values are the same");
    // The output is a configuration file.
    std::fs::write(place.path("again.toml"), all[0].to_string()).unwrap();
    place.run(&["config", "show", "--config", "again.toml"]).expect(0);
}

#[test]
fn the_first_screens_of_a_newcomer_fit_the_terminal() {
    let place = Place::at("http://127.0.0.1:1");
    for columns in [80, 40] {
        let file = format!("new-{columns}.toml");
        let folder = format!("demo-{columns}");
        let commands: [&[&str]; 4] = [
            &["init", &file, "--base-url", "http://127.0.0.1:8787"],
            &["status"],
            &["plan", "--from", "2026-01"],
            &["demo", "--responses", "400", "--folder", &folder],
        ];
        for arguments in commands {
            let Some(shown) = shown_by(&place.bare(arguments), &place, columns) else { return };
            let shown = plain(&shown.replace("\r\n", "\n"));
            let lines: Vec<&str> = shown.lines().map(|line| line.rsplit('\r').next().unwrap()).collect();
            assert_fits(&lines.join("\n"), columns, &format!("{arguments:?}"));
        }
    }
}

#[test]
fn a_plan_on_a_narrow_terminal_counts_with_nouns() {
    let service = Service::start(small(300, 10));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    let Some(shown) = on_terminal(&place, &["plan"], 40) else { return };
    let words = plain(&shown).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" surveys: 1 window, 24 records, 1 request, "), "{shown}");
}

#[test]
fn a_narrow_terminal_has_the_words_of_a_wide_one() {
    let place = Place::at("http://127.0.0.1:1");
    let words = |columns| -> Option<Vec<String>> {
        let text = plain(&on_terminal(&place, &["schema", "responses", "nps_by_week"], columns)?);
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        words.sort();
        Some(words)
    };
    for columns in [80, 40] {
        assert_eq!(words(columns), words(400), "{columns}");
    }
}

#[test]
fn failures_have_the_colours_of_errors() {
    let place = Place::at("http://127.0.0.1:1");
    for (arguments, word) in [(&["check"][..], "FAIL"), (&["query", "SELECT nothing"], "error:")] {
        let Some(shown) = on_terminal(&place, arguments, 80) else { return };
        assert!(shown.contains(&["\u{1b}[1m\u{1b}[31m", word, "\u{1b}[0m"].concat()), "{word}: {shown:?}");
    }
    let piped = place.run(&["check"]);
    assert!(piped.stdout.contains("FAIL") && !piped.stdout.contains('\u{1b}'), "{}", piped.stdout);
}

#[test]
fn numbers_of_tables_are_rounded_and_data_is_exact() {
    let place = Place::at("http://127.0.0.1:1").without_parquet();
    put_empty_warehouse(&place.duckdb());
    let sql =
        "SELECT 15.680473372781066::DOUBLE AS nps, 0.12345678::DOUBLE AS top_two_share, 4.333333333::DOUBLE AS mean";
    let shown = |more: &[&str]| place.run(&[&["query", sql], more].concat()).expect(0).stdout;
    let table = shown(&[]);
    for number in [" 15.7 ", " 12.3 % ", " 4.3333 "] {
        assert!(table.contains(number), "{number}: {table}");
    }
    assert_eq!(shown(&["--format", "csv"]).lines().last(), Some("15.680473372781066,0.12345678,4.333333333"));
}
