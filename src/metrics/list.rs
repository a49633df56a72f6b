//! Every metric with its name, kind, labels and meaning.

/// What a metric's value does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until the process starts anew.
    Counter,
    /// It goes up and down.
    Gauge,
}

impl Kind {
    /// As the TYPE line has it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// Where a metric is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// At `/metrics` and in the textfile.
    Everywhere,
    /// At `/metrics` of `serve` alone.
    ServeAlone,
}

/// One metric. Its full name begins with `studysync_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub shown: Shown,
    pub help: &'static str,
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, shown: Shown::Everywhere, help }
}

const fn of_serve(name: &'static str, labels: &'static [&'static str], kind: Kind, help: &'static str) -> Metric {
    Metric { name, kind, labels, shown: Shown::ServeAlone, help }
}

const fn counted(name: &'static str, help: &'static str) -> Metric {
    of_serve(name, &[], Kind::Counter, help)
}

/// Every metric, in the order in which they are written.
pub const ALL: &[Metric] = &[
    gauge("build_info", &["version"], "The version of studysync; always 1."),
    gauge("healthy", &[], "1 while /healthz answers 200; 0 while somebody has to look."),
    gauge("health_reason", &["reason"], "1 for each reason that is given now, red or only named; 0 for all others."),
    gauge(
        "last_success_timestamp_seconds",
        &["command"],
        "When the last run of the command ended that brought everything that was due (exit code 0 or 3).",
    ),
    gauge("last_run_timestamp_seconds", &[], "When the last sync, backfill or users pull ended, however it ended."),
    gauge("last_run_exit_code", &[], "The exit code of that run."),
    gauge(
        "failed_runs_in_a_row",
        &[],
        "Runs of sync, backfill and users pull that failed and that no later run has made good.",
    ),
    gauge("lag_seconds", &["stream"], "How far the newest complete moment of a stream lies back."),
    gauge(
        "rate_limited_until_timestamp_seconds",
        &[],
        "Until when no command asks the service, which told so; 0 while it may be asked.",
    ),
    gauge("learned_requests_per_second", &[], "The learned limit of the service; absent until one was met."),
    gauge("pending_deliveries", &[], "Deliveries of webhooks that no warehouse has yet."),
    gauge("run_duration_seconds", &[], "How long the last sync, backfill or users pull took."),
    gauge("run_seconds", &["part"], "Where that time went: network, parse, write, wait, idle; they add up."),
    gauge(
        "run_wait_seconds",
        &["reason"],
        "How long that run only waited: retry_after because the service said so, own_pace for backoff and the learned limit.",
    ),
    gauge("run_requests", &["status"], "Requests of that run by the status of their answer; 0 where none came."),
    gauge("run_rows", &["stream", "fate"], "Rows of that run by what became of them."),
    gauge("run_windows", &["stream"], "Windows, or batches of people, that that run committed."),
    gauge("run_peak_memory_bytes", &[], "The most memory that that run had."),
    of_serve("deliveries_stored_total", &["kind"], Kind::Counter, "Deliveries that were stored."),
    counted("deliveries_repeated_total", "Deliveries that were told before."),
    counted("deliveries_unauthorised_total", "Posts without the secret."),
    counted("deliveries_too_large_total", "Posts whose body was larger than the limit."),
    counted("deliveries_too_slow_total", "Posts whose body did not come in time."),
    counted("deliveries_overloaded_total", "Posts that were asked to come back later."),
    counted("deliveries_not_stored_total", "Posts that the inbox could not take."),
    counted("connections_total", "Connections that were accepted."),
    counted("connections_evicted_total", "Idle connections that made room for others."),
    counted("events_flushed_total", "Events that were brought into the warehouses between runs."),
    counted("runs_total", "Runs that were begun."),
    counted("runs_failed_total", "Runs that did not come to their end."),
    of_serve("inbox_deliveries", &[], Kind::Gauge, "The same as pending_deliveries."),
    of_serve("inbox_bytes", &[], Kind::Gauge, "Bytes of deliveries that wait."),
    of_serve("running", &[], Kind::Gauge, "Whether a run or a flush is under way."),
    of_serve("next_run_ms", &[], Kind::Gauge, "When the next scheduled run begins, epoch milliseconds; 0: never."),
    of_serve("last_run_ms", &[], Kind::Gauge, "When the last run of serve ended, epoch milliseconds; 0: none did."),
    of_serve("storing", &[], Kind::Gauge, "Whether deliveries can be stored."),
    of_serve(
        "rate_limited_until_ms",
        &[],
        Kind::Gauge,
        "Until when the service must be left alone, where that is longer than a run waits, epoch milliseconds; 0: it may be asked.",
    ),
];

/// The metric of this name, without `studysync_`.
pub fn named(name: &str) -> Option<&'static Metric> {
    ALL.iter().find(|metric| metric.name == name)
}
