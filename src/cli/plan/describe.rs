//! A plan as text (the total, a line for each stream, and with --days a line for each window), and the fields that
//! `--json` prints.

use std::time::Duration;

use serde::Serialize;

use crate::{
    load::NightEstimate,
    model::{Stream, Ties, format_duration, format_ms, format_second},
    plan::{Estimate, PlannedWindow},
    report::format,
    sync_status::HealthReason,
};

use super::{
    super::{
        disk::DiskEstimate,
        printer::{counted, counted_grouped, scope_name},
        terminal::{FixedTable, styled_hint, wrapped},
    },
    cost::{PlannedUsers, SpeedBasis, Total},
};

const TABLE: FixedTable<'_> = FixedTable {
    name_width: 22,
    columns: &[("windows", 8), ("records", 12), ("requests", 10), ("minutes", 9)],
    heads_are_nouns: true,
};

/// Returns the plan as text. `with_windows` lists every window.
pub(super) fn describe(plan: &Plan, with_windows: bool) -> String {
    let missing = plan.reasons.iter().map(|reason| {
        let hint = reason.hint.as_ref().map(|hint| format!("{} {hint}\n", styled_hint("hint:"))).unwrap_or_default();
        format!("{}\n{hint}", reason.text)
    });
    let mut text = missing.collect::<String>();
    text.push_str(&format!("{}\n", total(plan)));
    text.push_str(&plan.wait.as_ref().map(rate_limit).unwrap_or_default());
    if let (Some(rate), Some(basis)) = (plan.requests_per_sec, plan.speed_from) {
        text.push_str(&format!("{rate:.1} requests per second: {}\n", basis.description()));
    }
    if plan.under_way > 0 {
        text.push_str(&format!(
            "First resumes {} of an earlier run.\n",
            counted(plan.under_way as u64, "unfinished scan")
        ));
    }
    text.push_str(&format!("\n{}", TABLE.head("stream")));
    for stream in &plan.streams {
        text.push_str(&line(stream));
        if with_windows {
            text.push_str(&windows(&stream.estimate));
        }
    }
    if let Some(PlannedUsers { named, due, minutes }) = &plan.users {
        let minutes = minutes.map(|minutes| format!("{minutes:.1}")).unwrap_or_default();
        let (requests, named) = (grouped(*due), grouped(*named));
        text.push_str(&TABLE.row("users", &[String::new(), String::new(), requests.clone(), minutes]));
        text.push_str(&format!(
            "  {requests} of {named} known users are due, and every user that is first named in a new answer\n"
        ));
    }
    text.push_str(&plan.bucket.as_ref().map(bucket).unwrap_or_default());
    text.push_str(&plan.disks.iter().map(disk).collect::<String>());
    let has_unknown = plan.streams.iter().any(|stream| stream.estimate.requests.is_none());
    match (has_unknown, plan.probe_requests) {
        (true, Some(requests)) => {
            text.push_str(&format!(
                "\nThe sample took {}. ?: the sample has no row; the range may be longer than the data\n",
                counted(requests, "request")
            ));
        }
        (false, Some(requests)) => text.push_str(&format!("\nThe sample took {}.\n", counted(requests, "request"))),
        (true, None) => text.push_str(
            "\n?: no data read yet. --probe requests a sample, usually with 6 to 36 requests for each stream.\n",
        ),
        (false, None) => {}
    }
    if !with_windows && plan.total.windows > 0 {
        text.push_str("\n--days lists every window\n");
    }
    text
}

/// Returns the total of the plan as text: requests, time and records.
fn total(plan: &Plan) -> String {
    let command = format!("`studysync {}` at {}", plan.command, plan.now);
    let total = plan.total;
    let Some(requests) = total.requests else {
        return match total.windows {
            0 => format!("{command}: nothing is due"),
            _ => format!("{command} would pull data for which no estimate is known"),
        };
    };
    let bound = if total.is_partial { "at least" } else { "about" };
    let wait_secs = plan.wait.as_ref().map_or(0, |wait| wait.wait_secs);
    let secs = total.minutes.map(|minutes| (minutes * 60.0).ceil() as u64 + wait_secs);
    let time = secs.map(|secs| format!(" in {bound} {}", format_duration(secs))).unwrap_or_default();
    let rows = total.rows.map(|rows| format!(", for {}", counted_grouped(rows, "record"))).unwrap_or_default();
    format!("{command} would send\n{bound} {}{time}{rows}", counted_grouped(requests, "request"))
}

fn rate_limit(wait: &RateLimitWait) -> String {
    let RateLimitWait { no_request_before, wait_secs, max_wait_secs } = wait;
    let wait = format_duration(*wait_secs);
    let mut text = format!("rate limited: no request before {no_request_before}, which is in {wait}\n");
    if wait_secs > max_wait_secs {
        let max_wait = format_duration(*max_wait_secs);
        text.push_str(&format!("a run that would wait longer than {max_wait} sends nothing; its exit code is 6\n"));
    }
    text
}

/// Returns the line of a stream. A number without an estimate is shown as `?`.
fn line(stream: &PlannedStream) -> String {
    let name = scope_name(stream.stream.name(), stream.survey_id);
    let Estimate { windows, rows, requests, minutes } = &stream.estimate;
    if windows.is_empty() {
        return TABLE.note(&name, "nothing is due");
    }
    let number = |number: &Option<u64>| number.map_or("?".to_owned(), grouped);
    let minutes = minutes.map_or("?".to_owned(), |minutes| format!("{minutes:.1}"));
    let (windows, rows, requests) = (windows.len().to_string(), number(rows), number(requests));
    TABLE.row(&name, &[windows, rows, requests, minutes])
}

fn bucket(night: &NightEstimate) -> String {
    let NightEstimate { files, lists, reads, writes, removals, bytes } = *night;
    let counts = [(lists, "list"), (reads, "read"), (writes, "write"), (removals, "removal")];
    let counts = counts.map(|(count, name)| counted(count, name)).join(", ");
    let bytes = bytes.map(|bytes| format!(" of together {:.1} MB", bytes as f64 / 1e6)).unwrap_or_default();
    format!(
        "\nAbout {} to the bucket: {counts}.\nThey replace up to {}{bytes}.\n",
        counted(night.requests(), "request"),
        counted(files, "file")
    )
}

fn disk(estimate: &DiskEstimate) -> String {
    let hint = format!("{} make room before the run\n", styled_hint("hint:"));
    let needs = wrapped(&format!("Needs {}.", estimate.sentence()), "", "");
    format!("\n{needs}") + if estimate.is_too_small() { &hint } else { "" }
}

fn windows(estimate: &Estimate) -> String {
    let line = |planned: &PlannedWindow| {
        let window = planned.due.window;
        let requests =
            planned.requests.map(|requests| format!("  {}", counted(requests, "request"))).unwrap_or_default();
        let reason = planned.due.reason.to_string();
        let (start, end) = (format_ms(window.start_ms), format_ms(window.end_ms));
        format!("  {reason:<13} {start} .. {end}{requests}\n")
    };
    estimate.windows.iter().map(line).collect()
}

/// Formats a number with thousands separators: `12,345`.
fn grouped(number: u64) -> String {
    format::grouped(i64::try_from(number).unwrap_or(i64::MAX))
}

impl SpeedBasis {
    fn description(self) -> &'static str {
        match self {
            SpeedBasis::Limit => "the service's limit, learned by earlier runs",
            SpeedBasis::Setting => "requests_per_sec_max in the configuration",
            SpeedBasis::EarlierRun => "the speed of an earlier run, which met no rate limit",
            SpeedBasis::EarlierLimitedRun => "the speed of an earlier run, which met a rate limit",
            SpeedBasis::Probe => "the speed of the sample; the service's limit is unknown",
        }
    }
}

#[derive(Serialize)]
pub(super) struct PlannedStream {
    pub stream: Stream,
    pub survey_id: Option<i64>,
    #[serde(flatten)]
    pub estimate: Estimate,
}

/// The remaining wait of a `Retry-After` that the service sent to an earlier command.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RateLimitWait {
    /// No command sends a request before this moment, by this machine's clock.
    pub no_request_before: String,
    /// Seconds until then.
    pub wait_secs: u64,
    /// The longest wait of a run, `patience_secs`. A run that would wait longer sends no request.
    pub max_wait_secs: u64,
}

impl RateLimitWait {
    /// Creates the wait from `now_ms` until `until_ms`, both epoch milliseconds. `patience` is the longest wait of a
    /// run.
    pub fn new(until_ms: i64, now_ms: i64, patience: Duration) -> RateLimitWait {
        let wait_ms = u64::try_from(until_ms - now_ms).unwrap_or(0);
        RateLimitWait {
            no_request_before: format_second(until_ms),
            wait_secs: wait_ms.div_ceil(1000),
            max_wait_secs: patience.as_secs(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Plan {
    pub command: &'static str,
    /// The service's time. If it is unknown, it is estimated from this machine's clock.
    pub now: String,
    /// The warehouses that are new or were lost, as in `status`. For them the run pulls everything again.
    pub reasons: Vec<HealthReason>,
    /// The wait before the first request; `None` if no wait remains.
    #[serde(flatten)]
    pub wait: Option<RateLimitWait>,
    pub total: Total,
    /// Unfinished scans of an earlier run, which the next run resumes first.
    pub under_way: usize,
    /// The request rate from which `minutes` are estimated; `None` if no rate is known.
    pub requests_per_sec: Option<f64>,
    /// The source of the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_from: Option<SpeedBasis>,
    /// The service's measured behaviour for rows that share a millisecond at a page boundary. This behaviour decides
    /// how many page boundaries are probed.
    pub ties: Ties,
    /// Number of requests of --probe; `None` without --probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_requests: Option<u64>,
    pub streams: Vec<PlannedStream>,
    /// The estimate for the stream of users; `None` if the stream is disabled or the warehouse cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<PlannedUsers>,
    /// What a `sync` needs of the bucket; `None` for a backfill, without a bucket, and if nothing is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<NightEstimate>,
    /// What the records of ranges that no run has read need on each disk; empty if no records are expected.
    pub disks: Vec<DiskEstimate>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), expected);
        }
    }
}
