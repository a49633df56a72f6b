//! Days and weeks of a time zone, over the changes of the clock of three zones, compared with chrono-tz, in both
//! warehouses and through the script for plain DuckDB.

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike as _, Days, NaiveDate, Timelike as _};
use chrono_tz::Tz;
use duckdb::Connection;
use serde_json::json;
use studysync_sandbox::ListName;

use super::{
    recompute::Rows,
    warehouse::{Warehouse, assert_same},
};
use crate::harness::{Cell, Done, Place, Service, small};

/// Zones with changes of an hour and of half an hour, and one whose clock skipped 30 December 2011.
const ZONES: [&str; 3] = ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"];
/// Changes of the clock of these zones, in UTC.
const CHANGES: [&str; 6] = [
    "2025-03-30T01:00:00Z",
    "2025-10-26T01:00:00Z",
    "2025-04-05T15:00:00Z",
    "2025-10-04T15:30:00Z",
    "2011-12-30T10:00:00Z",
    "2021-04-03T14:00:00Z",
];
const BEGIN: &str = "2011-12-01";

fn instant(text: &str) -> i64 {
    DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
}

/// Answers around each change, and one each hour of the day before and after.
fn planted() -> (Service, Vec<i64>) {
    let hours = |change: &&str| -> Vec<i64> {
        let at_ms = instant(change);
        (-30..=30).map(|hour| at_ms + hour * 3_600_000).chain([at_ms - 1, at_ms + 1_800_000]).collect()
    };
    let times: Vec<i64> = CHANGES.iter().flat_map(hours).collect();
    (with_answers(&times), times)
}

/// A service with one answer at each of these times.
fn with_answers(times: &[i64]) -> Service {
    let service = Service::start(small(0, 2));
    for (nth, at_ms) in times.iter().enumerate() {
        let at = DateTime::from_timestamp_millis(*at_ms).unwrap().format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        let record = json!({
            "createdAt": at, "updatedAt": at, "deletedAt": null, "questionId": 1, "questionText": "How likely?",
            "questionType": "NPS", "response": 9, "responseGroupUid": format!("session-{nth}"), "surveyId": 900, "visitorId": nth,
            "visitorUuid": "v",
        });
        service.control().plant(ListName::Responses, &record.to_string(), None).unwrap();
    }
    service
}

fn local_day(at_ms: i64, zone: Tz) -> NaiveDate {
    DateTime::from_timestamp_millis(at_ms).unwrap().with_timezone(&zone).date_naive()
}

/// Returns the number of times in each period, as a view has them.
fn counted(times: &[i64], period_of: impl Fn(i64) -> NaiveDate) -> Rows {
    let mut counts: BTreeMap<NaiveDate, u64> = BTreeMap::new();
    times.iter().for_each(|at_ms| *counts.entry(period_of(*at_ms)).or_default() += 1);
    counts.into_iter().map(|(period, count)| vec![Some(period.to_string()), Some(count.to_string())]).collect()
}

fn monday(day: NaiveDate) -> NaiveDate {
    day - Days::new(day.weekday().num_days_from_monday().into())
}

/// Parses CSV without quotes.
fn csv(text: &str) -> Rows {
    text.lines().skip(1).map(|line| line.split(',').map(|cell| Some(cell.to_owned())).collect::<Vec<Cell>>()).collect()
}

fn config(zone: &str) -> String {
    format!("[warehouse]\nreport_time_zone = \"{zone}\"\n")
}

#[test]
fn days_and_weeks_are_those_of_the_report_time_zone() {
    let (service, times) = planted();
    let mut place = Place::new(&service);
    place.run(&["backfill", "--from", BEGIN]).expect(0);
    for name in ZONES {
        let zone: Tz = name.parse().unwrap();
        let day = |at_ms| local_day(at_ms, zone);
        let wanted = [
            ("SELECT day, responses FROM nps_by_day ORDER BY day", counted(&times, day)),
            ("SELECT day, answered FROM daily_breakdown ORDER BY day", counted(&times, day)),
            ("SELECT week, responses FROM nps_by_week ORDER BY week", counted(&times, |at_ms| monday(day(at_ms)))),
            (
                "SELECT month, responses FROM nps_by_month ORDER BY month",
                counted(&times, |at_ms| day(at_ms).with_day(1).unwrap()),
            ),
        ];
        assert_ne!(wanted[0].1, counted(&times, |at_ms| local_day(at_ms, Tz::UTC)), "{name} proves nothing");
        // The file is in another zone, and a flag asks for this one.
        for (sql, wanted) in &wanted {
            let flag = ["query", sql, "--format", "csv", "--time-zone", name];
            assert_same(&format!("{sql}, {name}, flag"), wanted, &csv(&place.run(&flag).expect(0).stdout));
            assert_same(
                &format!("{sql}, {name}, Parquet"),
                wanted,
                &csv(&place.run_on_parquet(&flag).expect(0).stdout),
            );
        }
        // The next run writes the configured zone into the file, for every reader.
        place = place.with_config(&config(name));
        place.run(&["sync"]).expect(0);
        let file = Warehouse::duckdb(&place);
        for (sql, wanted) in &wanted {
            assert_same(&format!("{sql}, {name}, file"), wanted, &file.query(sql));
        }
        let own = "SELECT (created_at + to_seconds(offset_seconds))::DATE AS day, count(*) FROM current_responses
            JOIN time_zone_offsets ON created_at >= coalesce(valid_from, created_at) AND created_at < coalesce(valid_to, TIMESTAMP 'infinity')
            GROUP BY 1 ORDER BY 1";
        assert_same(&format!("{name}, joined"), &wanted[0].1, &file.query(own));
        assert_eq!(file.text("SELECT DISTINCT time_zone FROM time_zone_offsets").as_deref(), Some(name));
        assert_eq!(file.text("SELECT min(created_at)::VARCHAR FROM responses").as_deref(), Some("2011-12-29 04:00:00"));
        let script = Done::from(place.bare(&["schema", "--format", "parquet", "--time-zone", name]).output().unwrap())
            .expect(0)
            .stdout;
        let script = script.replacen("'warehouse-parquet'", &format!("'{}'", place.parquet().display()), 1);
        let plain = Connection::open_in_memory().unwrap();
        plain.execute_batch(&script).unwrap();
        let days: i64 = plain.query_row("SELECT count(*) FROM nps_by_day", [], |row| row.get(0)).unwrap();
        assert_eq!(days as usize, wanted[0].1.len(), "{name}, script");
    }
    // 30 December 2011 does not exist in Apia.
    let skipped = "SELECT count(*) FROM nps_by_day WHERE day = DATE '2011-12-30'";
    assert_eq!(Warehouse::duckdb(&place).text(skipped).as_deref(), Some("0"));
}

#[test]
fn weeks_of_the_report_end_at_midnight_of_the_time_zone() {
    let (begin, end) = (instant("2025-02-10T00:00:00Z"), instant("2025-04-07T00:00:00Z"));
    let service = with_answers(&(begin..end).step_by(1_800_000).collect::<Vec<_>>());
    let place = Place::new(&service);
    place.run(&["backfill", "--from", "2025-02-01"]).expect(0);
    let count = |range: &[&str], zone: &str, mark: &str| {
        let page = place.run(&[&["report", "--time-zone", zone], range].concat()).expect(0).stdout;
        page.matches(mark).count()
    };
    let (unfinished, begins) = ("<span class=\"meta\">unfinished</span>", "<span class=\"meta\">begins earlier</span>");
    for (zone, monday, sunday_night) in [
        // The clock was put forward on the Sunday before this Monday.
        ("Europe/Berlin", "2025-03-31", "2025-03-30T21:59:00Z"),
        ("America/New_York", "2025-03-10", "2025-03-10T03:59:00Z"),
        ("UTC", "2025-03-31", "2025-03-30T23:59:00Z"),
    ] {
        assert_eq!(count(&["--to", monday], zone, unfinished), 0, "{zone}");
        assert!(count(&["--to", sunday_night], zone, unfinished) > 0, "{zone}");
        assert_eq!(count(&["--from", monday], zone, begins), 0, "{zone}");
        assert!(count(&["--from", "2025-03-11"], zone, begins) > 0, "{zone}");
    }
}

#[test]
fn report_diff_and_schedule_use_the_report_time_zone() {
    let (service, _) = planted();
    let place = Place::new(&service).with_config(&config("Pacific/Apia"));
    place.run(&["backfill", "--from", BEGIN]).expect(0);
    let diff = |more: &[&str]| {
        let arguments = [&["diff", "--since", "2025-04-01", "--json"], more].concat();
        place.run(&arguments).expect(0).json()["since"].clone()
    };
    assert_eq!(diff(&[]), json!("2025-03-31T11:00:00Z"));
    assert_eq!(diff(&["--time-zone", "UTC"]), json!("2025-04-01"));
    let report = |more: &[&str]| place.run(&[&["report"], more].concat()).expect(0).stdout;
    assert!(report(&[]).contains("time zone <bdi>Pacific/Apia</bdi>"));
    assert!(report(&["--time-zone", "Europe/Berlin"]).contains("time zone <bdi>Europe/Berlin</bdi>"));
    // The schedule of `serve` is in the same zone, unless it has one of its own.
    for (own, zone) in [("", "Pacific/Apia"), ("timezone = \"UTC\"\n", "UTC")] {
        let serve = "[serve]\nlisten = \"127.0.0.1:0\"\nwebhook = \"off\"\n";
        let place = Place::new(&service).with_config(&format!("{}{serve}{own}", config("Pacific/Apia")));
        place.run(&["sync"]).expect(0);
        let serving = crate::serve::Serving::start(&place);
        let status = place.run(&["status", "--json"]).expect(0).json()["serve"].clone();
        serving.stop();
        assert_eq!(status["schedule"], format!("0 2 * * * {zone}"));
        let next: chrono::DateTime<chrono::Utc> = status["next_run"].as_str().unwrap().parse().unwrap();
        let local = next.with_timezone(&zone.parse::<Tz>().unwrap());
        assert_eq!((local.hour(), local.minute()), (2, 0), "{status}");
    }
    // Without a configuration, a reader takes the zone of the file.
    let bare = Place::new(&service).without_config();
    let file = place.duckdb().display().to_string();
    let zone = ["query", "SELECT DISTINCT time_zone FROM time_zone_offsets", "--format", "csv", "--duckdb", &file];
    let done = Done::from(bare.bare(&zone).output().unwrap()).expect(0);
    assert_eq!(done.stdout, "time_zone\nPacific/Apia\n");
    let wrong = place.run(&["query", "SELECT 1", "--time-zone", "Samoa"]).expect(2);
    assert!(wrong.stderr.contains("there is no zone 'Samoa'"), "{}", wrong.stderr);
    let place = place.with_config(&config("Berlin"));
    let wrong = place.run(&["sync"]).expect(2);
    assert!(wrong.stderr.contains("report_time_zone") && wrong.stderr.contains("'Berlin'"), "{}", wrong.stderr);
}
