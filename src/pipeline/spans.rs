//! Spans of a run for those who trace it: run > window > page, and commit. Of the target `otlp`, which no log line has.

use tracing::{Span, info_span};

use crate::model::Scan;

use super::Session;

/// A whole run.
pub(super) fn run(session: &Session) -> Span {
    let (run_id, command) = (session.run_id.0.as_str(), session.command);
    info_span!(target: "otlp", "run", run_id, command, environment = session.identity.environment)
}

/// A window that is pulled.
pub(super) fn window(scan: &Scan) -> Span {
    let (stream, survey_id) = (scan.scope.stream.name(), scan.scope.survey_id);
    info_span!(target: "otlp", "window", stream, survey_id, window = %scan.window, scan_id = scan.id.0)
}

/// A page that is asked for, with all its attempts and waits.
pub(super) fn page() -> Span {
    info_span!(target: "otlp", "page")
}

/// Scans that are applied, or made durable, in every warehouse.
pub(super) fn commit(step: &'static str) -> Span {
    info_span!(target: "otlp", "commit", step)
}
