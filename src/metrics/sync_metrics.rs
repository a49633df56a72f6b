//! The status of the syncs as values of metrics.

use serde_json::Value;

use crate::{
    model::is_in_future,
    sync_status::{Health, Status, reason_codes},
};

use super::MetricValues;

/// The keys of a stream in a run's JSON that do not count rows.
const NOT_ROW_COUNTS: [&str; 3] = ["windows", "pages", "reached"];

/// Adds the metrics that `/metrics`, the textfile and OTLP share.
pub fn add_sync_status(values: &mut MetricValues, status: &Status, health: &Health) {
    values.set("build_info", &[env!("CARGO_PKG_VERSION")], 1.0);
    values.set("healthy", &[], f64::from(u8::from(health.is_healthy())));
    for code in reason_codes() {
        values.set("health_reason", &[code], f64::from(u8::from(health.has(code))));
    }
    for (command, at_ms) in &status.last_success_ms {
        values.set_time("last_success_timestamp_seconds", &[command], Some(*at_ms));
    }
    if let Some(last) = &status.last_ended {
        let ended_ms = Some(last.ended_ms()).filter(|ended_ms| !is_in_future(*ended_ms, status.now_ms));
        values.set_time("last_run_timestamp_seconds", &[], ended_ms);
        if let Some(exit_code) = last.exit_code {
            values.set("last_run_exit_code", &[], exit_code as f64);
        }
    }
    values.set_count("failed_runs_in_a_row", &[], u64::from(status.failures_in_a_row));
    for lag in &status.stream_lags {
        if let Some(secs) = lag.lag_secs {
            values.set("lag_seconds", &[lag.stream.name()], secs as f64);
        }
    }
    values.set_time("rate_limited_until_timestamp_seconds", &[], status.rate_limited_until_ms);
    if let Some(rate) = status.learned_requests_per_sec {
        values.set("learned_requests_per_second", &[], rate);
    }
    if let Some(report) = &status.last_report {
        add_run(values, report);
    }
}

/// Adds the numbers of the last run from its JSON. A missing number counts as 0.
fn add_run(values: &mut MetricValues, report: &Value) {
    let secs = |part: &str| report["time_ms"][part].as_f64().unwrap_or(0.0) / 1000.0;
    values.set("run_duration_seconds", &[], secs("wall"));
    for part in ["network", "parse", "write", "idle"] {
        values.set("run_seconds", &[part], secs(part));
    }
    values.set("run_seconds", &["wait"], secs("told_to_wait") + secs("chose_to_wait"));
    values.set("run_wait_seconds", &["retry_after"], secs("told_to_wait"));
    values.set("run_wait_seconds", &["own_pace"], secs("chose_to_wait"));
    for (status, count) in report["requests"]["by_status"].as_object().into_iter().flatten() {
        values.set("run_requests", &[status], count.as_f64().unwrap_or(0.0));
    }
    for (stream, figures) in report["streams"].as_object().into_iter().flatten() {
        let counts = figures.as_object().into_iter().flatten();
        for (fate, count) in counts.filter(|(fate, _)| !NOT_ROW_COUNTS.contains(&fate.as_str())) {
            values.set("run_rows", &[stream, fate], count.as_f64().unwrap_or(0.0));
        }
        values.set("run_windows", &[stream], figures["windows"].as_f64().unwrap_or(0.0));
    }
    values.set("run_peak_memory_bytes", &[], report["peak_rss_bytes"].as_f64().unwrap_or(0.0));
}
