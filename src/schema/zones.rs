//! Local times in views: days, weeks and months of the report time zone.
//!
//! DuckDB computes local times only with the extension `icu`, which many readers of a warehouse lack. So the changes of
//! the clock are part of the SQL: `{local TIME}` in a view becomes TIME plus the offset that is valid then. In UTC it
//! becomes TIME.

use std::sync::OnceLock;

use chrono::DateTime;

use super::quote_text;
use crate::model::{TimeZone, ZoneOffset};

/// What a view writes for the local time of a column, followed by the column and `}`.
const LOCAL: &str = "{local ";
/// What a view writes for the rows of all offsets.
const OFFSETS: &str = "{offsets}";

static REPORT_ZONE: OnceLock<TimeZone> = OnceLock::new();

/// Sets the time zone of the views for this process, before the first use of [`views`](super::views()): the configured
/// zone is known when the settings are read, once. Later calls have no effect.
pub fn set_report_time_zone(zone: TimeZone) {
    // Only a process with two configurations could set two zones, and none has two.
    REPORT_ZONE.set(zone).ok();
}

/// Returns the time zone that was set; `None` if none was, and the views are in UTC.
pub fn report_time_zone() -> Option<TimeZone> {
    REPORT_ZONE.get().copied()
}

/// Returns true if the SQL of a view has local times.
pub(super) fn is_dated(sql: &str) -> bool {
    sql.contains(LOCAL) || sql.contains(OFFSETS)
}

/// Replaces the marks in the SQL of a view.
pub(super) fn in_report_zone(sql: &str) -> String {
    match is_dated(sql) {
        true => in_zone(sql, report_time_zone().unwrap_or_default()),
        false => sql.to_owned(),
    }
}

fn in_zone(sql: &str, zone: TimeZone) -> String {
    let offsets = zone.offsets();
    let (mut done, mut rest) = (String::new(), sql);
    while let Some((before, (time, after))) =
        rest.split_once(LOCAL).and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        done.push_str(before);
        done.push_str(&local_time(time, &offsets));
        rest = after;
    }
    (done + rest).replace(OFFSETS, &offset_rows(zone, &offsets))
}

/// Returns the SQL of a local time.
fn local_time(time: &str, offsets: &[ZoneOffset]) -> String {
    match offsets {
        [ZoneOffset { offset_secs: 0, .. }] => time.to_owned(),
        offsets => format!("({time} + to_seconds({}))", offset_at(time, offsets)),
    }
}

/// Returns the SQL of the offset at a time: a binary search over the changes of the clock, because a join or a list of
/// cases costs more.
fn offset_at(time: &str, offsets: &[ZoneOffset]) -> String {
    let (earlier, later) = offsets.split_at(offsets.len() / 2);
    match (earlier, later) {
        ([], [only, ..]) => only.offset_secs.to_string(),
        (_, [first, ..]) => format!(
            "CASE WHEN {time} < {} THEN {} ELSE {} END",
            timestamp(first.from_secs),
            offset_at(time, earlier),
            offset_at(time, later)
        ),
        (_, []) => "0".to_owned(),
    }
}

/// Returns the SELECT of the view `time_zone_offsets`.
fn offset_rows(zone: TimeZone, offsets: &[ZoneOffset]) -> String {
    let ends = offsets.iter().skip(1).map(|next| next.from_secs).chain([None]);
    let rows: Vec<String> = offsets
        .iter()
        .zip(ends)
        .map(|(offset, end)| format!("({}, {}, {})", timestamp(offset.from_secs), timestamp(end), offset.offset_secs))
        .collect();
    format!(
        "SELECT\n    {} AS time_zone, valid_from::TIMESTAMP AS valid_from, valid_to::TIMESTAMP AS valid_to,\n    \
         offset_seconds::BIGINT AS offset_seconds\nFROM (VALUES\n    {}\n) AS offsets(valid_from, valid_to, offset_seconds)",
        quote_text(zone.name()),
        rows.join(",\n    ")
    )
}

fn timestamp(at_secs: Option<i64>) -> String {
    let moment = at_secs.and_then(|at_secs| DateTime::from_timestamp(at_secs, 0));
    moment.map_or_else(|| "NULL".to_owned(), |moment| format!("TIMESTAMP '{}'", moment.format("%Y-%m-%d %H:%M:%S")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_replaced_and_utc_leaves_no_trace() {
        let sql = "SELECT {local a.at}::DATE, {local b}";
        assert_eq!(in_zone(sql, TimeZone::default()), "SELECT a.at::DATE, b");
        let kolkata = in_zone(sql, "Asia/Kolkata".parse().unwrap());
        assert_eq!(kolkata, "SELECT (a.at + to_seconds(19800))::DATE, (b + to_seconds(19800))");
        let berlin = in_zone("{local at}", "Europe/Berlin".parse().unwrap());
        assert!(berlin.contains("CASE WHEN at < TIMESTAMP '2026-10-25 01:00:00' THEN 7200 ELSE 3600 END"));
        let changes = "Europe/Berlin".parse::<TimeZone>().unwrap().offsets().len() - 1;
        assert_eq!(berlin.matches("CASE WHEN").count(), changes);
    }
}
