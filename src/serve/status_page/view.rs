//! The page as markup, in parts that are replaced one by one.
//! Elements are closed and texts are escaped by construction (`maud`).

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::{
    model::format_duration,
    report::{
        squares::legend,
        words::{clean, whole},
    },
    sync_status::HealthReason,
};

use super::{
    access::Refusal,
    calendar::{COVERAGE_STATES, calendar},
    facts::{Deliveries, RateLimit, StatusFacts, UnderWay, Verdict},
    moment::{Moment, age},
    run_table::{mark, rejects, runs},
    stored::ScopeFacts,
};

/// The part in the page's head.
const AS_OF: &str = "as-of";

/// A part of the page: the name of its section, and its markup.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub name: &'static str,
    pub html: String,
}

/// The parts in the order of the page.
pub(super) fn parts(facts: &StatusFacts) -> Vec<Part> {
    let part = |name: &'static str, heading: &str, content: Markup| Part {
        name,
        html: section(name, heading, &content).into_string(),
    };
    vec![
        Part { name: AS_OF, html: html! { span id=(AS_OF) { "As of " (facts.now.plain()) } }.into_string() },
        part("verdict", "Health", verdict(facts)),
        part("under-way", "Under way", under_way(facts)),
        part("schedule", "Runs to come, and the last success", schedule(facts)),
        part("streams", "What is complete", streams(facts)),
        part("runs", "The last runs", runs(&facts.runs)),
        part("rejects", "Rejects and drift", rejects(&facts.runs)),
        part("rate-limit", "The service's rate limit", rate_limit(&facts.rate_limit, facts.now)),
        part("deliveries", "Deliveries of webhooks", deliveries(&facts.deliveries, facts)),
    ]
}

/// The page, whole without a script.
pub(super) fn page(facts: &StatusFacts, parts: &[Part]) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (common_head())
                title { (word(facts.verdict)) ": studysync" }
                script type="module" src="status.js" {}
                // Without a script the page is loaded again.
                noscript { meta http-equiv="refresh" content="10"; }
            }
            body {
                header {
                    p.kicker { "studysync serve" }
                    h1 { "Status" }
                    p.meta {
                        @for part in parts.iter().filter(|part| part.name == AS_OF) { (PreEscaped(&part.html)) }
                        ", version " (facts.version) ", running since " (facts.started_at.plain()) ". All times are UTC. "
                        span id="live" role="status" {}
                        noscript { "This page loads itself again every 10 seconds." }
                    }
                }
                main { @for part in parts.iter().filter(|part| part.name != AS_OF) { (PreEscaped(&part.html)) } }
                footer { p.meta { "The same as JSON: " a href="api/status" { "api/status" } ". For monitors: " a href="healthz" { "healthz" } " and " a href="metrics" { "metrics" } "." } }
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

/// The page that asks for the token.
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

/// What is said to who may not see the page.
pub(super) fn refusal_text(refusal: Refusal) -> String {
    match refusal {
        Refusal::OtherHost => {
            "without a token, the status page is shown under the names of this machine alone: open it as \
                               http://localhost with its port, or set a token (STUDYSYNC_STATUS_TOKEN)"
                .to_owned()
        }
        Refusal::NoToken => {
            "The token of the status page is needed: the one that STUDYSYNC_STATUS_TOKEN holds on the server, or what \
                             [serve] status_token_file or status_token_command names."
                .to_owned()
        }
        Refusal::TooManyGuesses { secs } => format!("Too many wrong tokens. Try again in {secs} seconds."),
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

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Healthy => "Healthy",
        Verdict::NoRunYet => "No run yet",
        Verdict::NeedsALook => "Needs a look",
        Verdict::Failing => "Failing",
    }
}

fn verdict(facts: &StatusFacts) -> Markup {
    let kind = match facts.verdict {
        Verdict::Healthy => "good",
        Verdict::NoRunYet | Verdict::NeedsALook => "look",
        Verdict::Failing => "bad",
    };
    html! {
        div class={ "verdict " (kind) } {
            p.word { span.mark aria-hidden="true" { (mark(kind)) } " " (word(facts.verdict)) }
            @if facts.reasons.is_empty() { p { "Runs succeed, no stream is too far behind, and deliveries can be stored." } }
            @else { ul.reasons { @for reason in &facts.reasons { (reason_item(reason)) } } }
            @if facts.failures_in_a_row > 1 { p.meta { (facts.failures_in_a_row) " runs have failed in a row." } }
        }
    }
}

fn reason_item(reason: &HealthReason) -> Markup {
    html! {
        li {
            strong { @if reason.is_failing { "Failing: " } @else { "Note: " } }
            bdi { (reason.text) }
            @if let Some(hint) = &reason.hint { span.hint { "What to do: " (hint) "." } }
        }
    }
}

fn under_way(facts: &StatusFacts) -> Markup {
    let Some(UnderWay { command, since, is_elsewhere, line, progress }) = &facts.under_way else {
        return html! { p.nothing { "Nothing is under way." } };
    };
    html! {
        p {
            strong { (clean(command)) }
            @if let Some(since) = since { ", since " (since.aged(facts.now)) }
            @if *is_elsewhere { " (another process: its progress is on its own terminal or in its log)" }
        }
        @if let Some(progress) = progress {
            progress aria-label="Share of the time that is due" max="100" value=(format!("{:.1}", progress.percent)) {}
        }
        @if let Some(line) = line { p.line { (line) } }
        @if let Some(waiting) = progress.as_ref().and_then(|progress| progress.waiting) {
            p.meta { (why_it_waits(waiting.why)) }
        }
    }
}

fn why_it_waits(why: &str) -> &'static str {
    match why {
        "rate limited" => "It waits because the service said when to come back (Retry-After).",
        "backing off" => "It waits because the service failed; it asks again after a while.",
        _ => "It waits so that its requests stay below the service's rate limit.",
    }
}

fn schedule(facts: &StatusFacts) -> Markup {
    let never = || html! { "never" };
    html! {
        dl.facts {
            div {
                dt { "Next run" }
                dd {
                    @match facts.next_run_at {
                        Some(next) if next > facts.now => (next.aged(facts.now)),
                        Some(_) => "due now",
                        None => "none is planned",
                    }
                }
            }
            div { dt { "Schedule" } dd { (clean(&facts.schedule)) } }
            div { dt { "Last success" } dd { (facts.last_success_at.map_or_else(never, |at| at.aged(facts.now))) } }
            div {
                dt { "Last run" }
                dd {
                    @if let Some(run) = &facts.last_run {
                        (clean(&run.command)) ": " (clean(&run.outcome.replace('_', " "))) ", " (Moment(run.ended_ms()).aged(facts.now))
                    } @else { (never()) }
                }
            }
        }
    }
}

fn streams(facts: &StatusFacts) -> Markup {
    html! {
        p.meta { "A day is complete when the service said that there is no more, and never before." }
        (legend(&COVERAGE_STATES))
        @for scope in &facts.streams { (stream(scope, facts)) }
        @if facts.streams_left_out > 0 { p.meta { "Not shown: " (facts.streams_left_out) " more surveys." } }
    }
}

fn stream(scope: &ScopeFacts, facts: &StatusFacts) -> Markup {
    let survey = scope.survey_id.map(|id| format!(" of survey {id}")).unwrap_or_default();
    let name = format!("{}{survey}", scope.stream);
    let allowed = facts.max_lag_secs;
    html! {
        div.stream {
            h3 { (name) }
            p {
                @match (scope.lag_secs, scope.complete_until) {
                    (Some(lag), Some(until)) => {
                        strong { (format_duration(lag.unsigned_abs())) " behind" }
                        @if let Some(allowed) = allowed { " (" (format_duration(allowed)) " allowed)" }
                        @match scope.complete_from {
                            Some(from) => { "; read from " (from.plain()) " to " (until.plain()) },
                            None => { "; always read whole, last up to " (until.plain()) },
                        }
                    }
                    _ => { strong { "Nothing is complete yet" } }
                }
                ". "
                @match scope.windows_due {
                    0 => "Nothing is due.",
                    1 => "One interval is due at the next run.",
                    many => { (many) " intervals are due at the next run." },
                }
            }
            (calendar(scope, &name))
        }
    }
}

fn rate_limit(limit: &RateLimit, now: Moment) -> Markup {
    let rate = |rate: f64| format!("{rate:.1} requests per second");
    html! {
        dl.facts {
            div { dt { "Learned limit" } dd { @if let Some(limit) = limit.requests_per_sec { (rate(limit)) } @else { "none was met" } } }
            div { dt { "Now" } dd { @if let Some(now) = limit.requests_per_sec_now { (rate(now)) } @else { "no run is under way" } } }
            div { dt { "Retry-After" } dd { @if let Some(until) = limit.retry_after { "no request before " (until.plain()) ", " (age((now.0 - until.0) / 1000)) } @else { "none" } } }
            @if let Some(why) = &limit.waiting { div { dt { "Requests" } dd { (why) } } }
        }
    }
}

fn deliveries(deliveries: &Deliveries, facts: &StatusFacts) -> Markup {
    let count = |number: u64| whole(i64::try_from(number).unwrap_or(i64::MAX));
    html! {
        dl.facts {
            div {
                dt { "Wait for the warehouses" }
                dd {
                    (count(deliveries.pending))
                    @if deliveries.pending > 0 { " (" (count(deliveries.pending_bytes.div_ceil(1024))) " KiB)" }
                    @if let Some(oldest) = deliveries.oldest_at { "; the oldest came " (oldest.aged(facts.now)) }
                }
            }
            div { dt { "New ones" } dd { @if deliveries.can_be_stored { "can be stored" } @else { strong { "cannot be stored" } } } }
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
