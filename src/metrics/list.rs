//! Every metric with its name, kind, labels and meaning.

/// The Prometheus type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows until the process restarts.
    Counter,
    /// A value that goes up and down.
    Gauge,
}

impl Kind {
    /// Returns the name in the TYPE line of the exposition format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// One metric. The full name of every metric begins with `studysync_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    /// True if the metric is only at `/metrics` of `serve`, and neither in the textfile nor sent by OTLP.
    pub is_serve_only: bool,
    pub help: &'static str,
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, is_serve_only: false, help }
}

const fn serve_gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels: &[], is_serve_only: true, help }
}

const fn serve_counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, is_serve_only: true, help }
}

/// Every metric, in the order of the output.
pub const ALL: &[Metric] = &[
    gauge("build_info", &["version"], "The version of studysync; always 1."),
    gauge("healthy", &[], "1 while /healthz answers 200; 0 while something is wrong."),
    gauge(
        "health_reason",
        &["reason"],
        "1 for each current health reason, failing or only informing; 0 for all others.",
    ),
    gauge(
        "last_success_timestamp_seconds",
        &["command"],
        "When the last successful run of the command ended: everything due is in the warehouse (exit code 0 or 3).",
    ),
    gauge("last_run_timestamp_seconds", &[], "When the last sync, backfill or users pull ended, however it ended."),
    gauge("last_run_exit_code", &[], "The exit code of the last sync, backfill or users pull."),
    gauge(
        "failed_runs_in_a_row",
        &[],
        "Failed runs of sync, backfill and users pull that no later successful run resolved.",
    ),
    gauge("lag_seconds", &["stream"], "Seconds since the end of the newest complete window of a stream."),
    gauge(
        "rate_limited_until_timestamp_seconds",
        &[],
        "No command sends a request before this time (Retry-After of the service); 0: not limited.",
    ),
    gauge(
        "learned_requests_per_second",
        &[],
        "The learned rate limit of the service; absent until a run has learned one.",
    ),
    gauge("pending_deliveries", &[], "Webhook deliveries that no warehouse has yet."),
    gauge("run_duration_seconds", &[], "How long the last sync, backfill or users pull took."),
    gauge(
        "run_seconds",
        &["part"],
        "The duration of the last run by part: network, parse, write, wait, idle. The sum is run_duration_seconds.",
    ),
    gauge(
        "run_wait_seconds",
        &["reason"],
        "Waiting time of the last run: retry_after as the service asked, own_pace for backoff and the learned limit.",
    ),
    gauge(
        "run_requests",
        &["status"],
        "Requests of the last run by HTTP status; status 0 counts requests without an answer.",
    ),
    gauge("run_rows", &["stream", "fate"], "Rows of the last run by what happened to them."),
    gauge("run_windows", &["stream"], "Windows, or batches of users, that the last run committed."),
    gauge("run_peak_memory_bytes", &[], "Peak memory of the last run."),
    serve_counter("deliveries_stored_total", &["kind"], "Stored deliveries."),
    serve_counter("deliveries_repeated_total", &[], "Deliveries that were stored before."),
    serve_counter("deliveries_unauthorised_total", &[], "Posts without the correct secret."),
    serve_counter("deliveries_too_large_total", &[], "Posts whose body exceeded the size limit."),
    serve_counter("deliveries_too_slow_total", &[], "Posts whose body did not arrive in time."),
    serve_counter(
        "deliveries_overloaded_total",
        &[],
        "Posts and connections refused with 503 because too much was waiting.",
    ),
    serve_counter("deliveries_not_stored_total", &[], "Posts that could not be written to the inbox."),
    serve_counter("connections_total", &[], "Accepted connections."),
    serve_counter("connections_evicted_total", &[], "Idle connections closed in favour of new ones."),
    serve_counter("events_flushed_total", &[], "Events written to the warehouses between runs."),
    serve_counter("runs_total", &[], "Started runs."),
    serve_counter("runs_failed_total", &[], "Runs that failed, stopped early or were skipped."),
    serve_gauge("inbox_deliveries", "The same as pending_deliveries."),
    serve_gauge("inbox_bytes", "Bytes of the pending deliveries."),
    serve_gauge("running", "1 while a run or a flush is running."),
    serve_gauge("next_run_ms", "When the next scheduled run starts, epoch milliseconds; 0: no schedule."),
    serve_gauge("last_run_ms", "When the last scheduled run ended, epoch milliseconds; 0: none yet."),
    serve_gauge("storing", "1 while deliveries can be stored."),
    serve_gauge(
        "rate_limited_until_ms",
        "End of a Retry-After that is longer than a run waits, epoch milliseconds; 0: none.",
    ),
];
