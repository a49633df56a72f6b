//! Tracing spans of a run: run > window > page, and commit. Their target is `otlp`, so that logs do not show them.

use tracing::{Span, info_span};

use crate::model::Scan;

use super::Session;

/// Creates the span of a run.
pub(super) fn run(session: &Session) -> Span {
    let (run_id, command) = (session.run_id.0.as_str(), session.command);
    info_span!(target: "otlp", "run", run_id, command, environment = session.identity.environment)
}

/// Creates the span of pulling one window.
pub(super) fn window(scan: &Scan) -> Span {
    let (stream, survey_id) = (scan.scope.stream.name(), scan.scope.survey_id);
    info_span!(target: "otlp", "window", stream, survey_id, window = %scan.window, scan_id = scan.id.0)
}

/// Creates the span of one page, with all attempts and waits.
pub(super) fn page() -> Span {
    info_span!(target: "otlp", "page")
}

/// Creates the span of applying or committing scans in every warehouse. `step` is `apply` or `commit`.
pub(super) fn commit(step: &'static str) -> Span {
    info_span!(target: "otlp", "commit", step)
}
