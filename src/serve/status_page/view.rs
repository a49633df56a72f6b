//! The markup of the page, in parts that the script replaces one by one. `maud` closes every element and escapes every
//! text.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::{
    model::format_duration,
    report::{format::sanitized, squares::legend, whole_options},
    sync_status::{HealthReason, HealthSummary},
};

use super::{
    access::AccessDenied,
    page_data::{CurrentJob, Deliveries, PageData, RateLimit, ScopeCalendar, Timestamp, age},
    tables::{COVERAGE_STATES, calendar, count, mark, rejects, runs},
    trust::trust,
};

/// The name of the part in the page's head.
const AS_OF: &str = "as-of";

/// A part of the page: the name of its section, and its markup.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub name: &'static str,
    pub html: String,
}

/// Renders the parts in the order of the page.
pub(super) fn parts(data: &PageData) -> Vec<Part> {
    let part = |name: &'static str, heading: &str, content: Markup| Part {
        name,
        html: section(name, heading, &content).into_string(),
    };
    vec![
        Part { name: AS_OF, html: html! { span id=(AS_OF) { "As of " (data.now.markup()) } }.into_string() },
        part("verdict", "Health", health(data)),
        part("under-way", "Under way", current_job(data)),
        part("schedule", "Next run and last success", schedule(data)),
        part("streams", "Coverage", streams(data)),
        part("trust", "Known against the data", trust(data.untrusted.as_deref())),
        part("runs", "Last runs", runs(&data.runs)),
        part("rejects", "Rejects and drift", rejects(&data.runs)),
        part("rate-limit", "The service's rate limit", rate_limit(&data.rate_limit, data.now)),
        part("deliveries", "Webhook deliveries", deliveries(&data.deliveries, data)),
    ]
}

/// Renders the complete page, which works without a script.
pub(super) fn page(data: &PageData, parts: &[Part]) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (common_head())
                title { (data.health) ": studysync " (sanitized(&data.environment)) }
                script type="module" src="status.js" {}
                // Without a script the browser reloads the page.
                noscript { meta http-equiv="refresh" content="10"; }
            }
            body {
                header {
                    p.kicker { "studysync serve" }
                    h1 { "Status" }
                    p { "Service " (sanitized(&data.service)) ", environment " (sanitized(&data.environment)) ", on host " (sanitized(&data.host)) }
                    p.meta {
                        @for part in parts.iter().filter(|part| part.name == AS_OF) { (PreEscaped(&part.html)) }
                        ", version " (data.version) ", running since " (data.started_at.markup()) ". All times are UTC. "
                        span id="live" role="status" {}
                        noscript { "This page reloads every 10 seconds." }
                    }
                }
                main { @for part in parts.iter().filter(|part| part.name != AS_OF) { (PreEscaped(&part.html)) } }
                footer { p.meta { "As JSON: " a href="api/status" { "api/status" } ". For monitors: " a href="healthz" { "healthz" } " and " a href="metrics" { "metrics" } "." } }
            }
        }
    }
}

fn common_head() -> Markup {
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta name="color-scheme" content="light dark";
        link rel="icon" href="data:,";
        link rel="stylesheet" href="status.css";
    }
}

/// Renders the login page, which asks for the token. `text` says why the page is not shown.
pub(super) fn login(text: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head { (common_head()) title { "Sign in: studysync" } }
            body.login {
                main {
                    p.kicker { "studysync serve" }
                    h1 { "Status" }
                    p { (text) }
                    form method="post" action="login" {
                        label for="token" { "Token" }
                        input id="token" name="token" type="password" autocomplete="current-password" required autofocus;
                        button type="submit" { "Show the status" }
                    }
                }
            }
        }
    }
}

/// Returns the text for a request that may not see the page.
pub(super) fn denial_text(reason: AccessDenied) -> String {
    match reason {
        AccessDenied::OtherHost => {
            "without a token, the status page answers only to localhost: open it as http://localhost with its port, or \
             set a token (STUDYSYNC_STATUS_TOKEN)"
                .to_owned()
        }
        AccessDenied::NoToken => {
            "Enter the token of the status page. On the server the variable STUDYSYNC_STATUS_TOKEN has it, or what [serve] \
             status_token_file or status_token_command names."
                .to_owned()
        }
        AccessDenied::TooManyGuesses { secs } => format!("Too many wrong tokens. Try again in {secs} seconds."),
    }
}

fn section(name: &str, heading: &str, content: &Markup) -> Markup {
    html! {
        section id=(name) aria-labelledby={ (name) "-heading" } {
            h2 id={ (name) "-heading" } { (heading) }
            (content)
        }
    }
}

fn health(data: &PageData) -> Markup {
    let kind = match data.health {
        HealthSummary::Healthy => "good",
        HealthSummary::NoRunYet | HealthSummary::NeedsALook => "look",
        HealthSummary::Failing => "bad",
    };
    html! {
        div class={ "verdict " (kind) } {
            p.word { span.mark aria-hidden="true" { (mark(kind)) } " " (data.health) }
            @if data.reasons.is_empty() { p { "Runs succeed, no stream is too far behind, and deliveries can be stored." } }
            @else { ul.reasons { @for reason in &data.reasons { (reason_item(reason)) } } }
            @if data.failures_in_a_row > 1 { p.meta { (data.failures_in_a_row) " runs have failed in a row." } }
        }
    }
}

fn reason_item(reason: &HealthReason) -> Markup {
    html! {
        li {
            strong { @if reason.is_failing { "Failing: " } @else { "Note: " } }
            bdi { (whole_options(&reason.text)) }
            @if let Some(hint) = &reason.hint { span.hint { "What to do: " (whole_options(hint)) "." } }
        }
    }
}

/// Renders the current job with its progress.
fn current_job(data: &PageData) -> Markup {
    let Some(CurrentJob { command, since, is_elsewhere, line, progress }) = &data.current_job else {
        return html! { p.nothing { "Nothing is under way." } };
    };
    html! {
        p {
            strong { (sanitized(command)) }
            @if let Some(since) = since { ", since " (since.with_age(data.now)) }
            @if *is_elsewhere { " (another process: its progress is on its own terminal or in its log)" }
        }
        @if let Some(progress) = progress {
            progress aria-label="Progress" max="100" value=(format!("{:.1}", progress.percent)) {}
        }
        @if let Some(line) = line { p.line { (line) } }
        @if let Some(waiting) = progress.as_ref().and_then(|progress| progress.waiting) {
            p.meta { (why_it_waits(waiting.why)) }
        }
    }
}

fn why_it_waits(why: &str) -> &'static str {
    match why {
        "rate limited" => "Requests wait because the service limits the rate (Retry-After).",
        "backing off" => {
            "Requests wait because the service failed, or limits the rate without Retry-After; the run retries after a delay."
        }
        _ => "Requests wait to stay below the service's rate limit.",
    }
}

/// Renders the next run, the schedule, the last success and the last run.
fn schedule(data: &PageData) -> Markup {
    let never = || html! { "never" };
    html! {
        dl.facts {
            div {
                dt { "Next run" }
                dd {
                    @match data.next_run_at {
                        Some(next) if next > data.now => (next.with_age(data.now)),
                        Some(_) => "due now",
                        None => "none is planned",
                    }
                }
            }
            div { dt { "Schedule" } dd { (sanitized(&data.schedule)) } }
            div { dt { "Last success" } dd { (data.last_success_at.map_or_else(never, |at| at.with_age(data.now))) } }
            div {
                dt { "Last run" }
                dd {
                    @if let Some(run) = &data.last_run {
                        (sanitized(&run.command)) ": " (sanitized(&run.outcome.replace('_', " "))) ", " (Timestamp(run.ended_ms()).with_age(data.now))
                    } @else { (never()) }
                }
            }
        }
    }
}

fn streams(data: &PageData) -> Markup {
    html! {
        p.meta { "A day is complete when the service said that the list of the day has ended." }
        (legend(&COVERAGE_STATES))
        @for scope in &data.streams { (stream(scope, data)) }
        @if data.streams_left_out > 0 { p.meta { "Not shown: " (data.streams_left_out) " more surveys." } }
    }
}

/// Renders the coverage of a scope: its lag, its due windows and its calendar.
fn stream(scope: &ScopeCalendar, data: &PageData) -> Markup {
    let name = scope.scope.to_string();
    let allowed = data.max_lag_secs;
    html! {
        div.stream {
            h3 { (name) }
            p {
                @match (scope.lag_secs, scope.complete_until) {
                    (Some(lag), Some(until)) => {
                        @match allowed {
                            Some(allowed) if lag.unsigned_abs() <= allowed => {
                                strong { "On time" } " (lag " (format_duration(lag.unsigned_abs())) ", " (format_duration(allowed)) " allowed)"
                            }
                            Some(allowed) => {
                                strong { (format_duration(lag.unsigned_abs())) " behind" } " (" (format_duration(allowed)) " allowed)"
                            }
                            None => strong { (format_duration(lag.unsigned_abs())) " behind" },
                        }
                        @match scope.complete_from {
                            Some(from) => { "; read from " (from.markup()) " to " (until.markup()) },
                            None => { "; always read completely, last up to " (until.markup()) },
                        }
                    }
                    _ => { strong { "Nothing is complete yet" } }
                }
                ". "
                @match scope.windows_due {
                    0 => "No range is due.",
                    1 => "One range is due at the next run.",
                    many => { (many) " ranges are due at the next run." },
                }
            }
            (calendar(scope, &name))
        }
    }
}

/// Renders the service's rate limit and the current wait.
fn rate_limit(limit: &RateLimit, now: Timestamp) -> Markup {
    let rate = |rate: f64| format!("{rate:.1} requests per second");
    html! {
        dl.facts {
            div { dt { "Learned limit" } dd { @if let Some(limit) = limit.requests_per_sec { (rate(limit)) } @else { "none" } } }
            div { dt { "Now" } dd { @if let Some(now) = limit.requests_per_sec_now { (rate(now)) } @else { "no run is under way" } } }
            div { dt { "Retry-After" } dd { @if let Some(until) = limit.retry_after { "no request before " (until.markup()) ", " (age((now.0 - until.0) / 1000)) } @else { "none" } } }
            @if let Some(why) = &limit.waiting { div { dt { "Requests" } dd { (why) } } }
        }
    }
}

/// Renders the counts of webhook deliveries.
fn deliveries(deliveries: &Deliveries, data: &PageData) -> Markup {
    if !deliveries.are_received && deliveries.pending == 0 {
        return html! { p.nothing { "Webhooks are off (" code { "webhook" } " under " code { "[serve]" } "). Runs of the schedule find the same records." } };
    }
    html! {
        @if !deliveries.are_received { p.nothing { "Webhooks are off; earlier deliveries still wait." } }
        dl.facts {
            div {
                dt { "Waiting for the warehouses" }
                dd {
                    (count(deliveries.pending))
                    @if deliveries.pending > 0 { " (" (count(deliveries.pending_bytes.div_ceil(1024))) " KiB)" }
                    @if let Some(oldest) = deliveries.oldest_at { "; the oldest arrived " (oldest.with_age(data.now)) }
                }
            }
            div { dt { "New deliveries" } dd { @if deliveries.can_be_stored { "can be stored" } @else { strong { "cannot be stored" } } } }
            div {
                dt { "Stored since the start" }
                dd {
                    @if deliveries.stored.is_empty() { "none" }
                    @for (at, (kind, number)) in deliveries.stored.iter().enumerate() { @if at > 0 { ", " } (count(*number)) " " (kind.replace('_', " ")) }
                }
            }
        }
    }
}
