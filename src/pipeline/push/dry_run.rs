//! A dry run of a push: reads, checks and looks up every row. A dry run sends nothing and does not change the ledger.

use crate::{
    clock,
    config::Settings,
    model::TimeAccount,
    person::Suppression,
    pipeline::{
        assemble::suppression,
        error::PipelineError,
        report::{ReportHeader, RunTimes},
    },
    source::RequestStats,
    state::State,
    upsert::{Row, UnsendableRow},
};

use super::{
    context::{SUPPRESSED, is_suppressed},
    input::read,
    ledger::{RowToSend, SendDecision, decide},
    past_results,
    report::{COMMAND, PushReport, PushRequest, PushRows},
    results::{Ending, ResultsFile, RowOutcome, RowResult},
};

/// Writes a results file with what a push would do with each row, and returns the report. Stops at the first error.
pub(super) fn run(settings: &Settings, request: &PushRequest) -> Result<PushReport, PipelineError> {
    let (started_ms, account) = (clock::now_ms(), TimeAccount::default());
    let state = State::open_read_only(&settings.state_path)?;
    let dry_run = DryRun { request, state, suppression: suppression(settings)? };
    past_results::remember_path(settings, &request.results)?;
    let mut results = ResultsFile::begin(&request.results)?;
    let mut rows = PushRows::default();
    let mut error = None;
    let ended = read(&request.input, &settings.warehouse, &mut |row| {
        rows.read += 1;
        let written = dry_run.check(&row, |result| {
            rows.count(result);
            results.write(result)
        });
        error = written.err();
        error.is_none()
    });
    // After an error the temporary file is not renamed, so the results file of an earlier push stays.
    let outcome = error.map_or(ended, Err).and_then(|()| results.finish(Ending::Complete));
    let moments = RunTimes { started_ms, finished_ms: clock::now_ms() };
    outcome.map(|_| PushReport {
        run_id: None,
        header: ReportHeader::new(COMMAND, moments, account.parts(), rows.outcome(), None),
        dry_run: true,
        rows,
        results: request.results.display().to_string(),
        requests: RequestStats::default(),
        stopped_because: None,
    })
}

/// What a dry run needs to check a row.
struct DryRun<'a> {
    request: &'a PushRequest,
    /// `None` if there is no state file, so that no row was ever sent.
    state: Option<State>,
    suppression: Suppression,
}

impl DryRun<'_> {
    /// Decides what a push would do with the row, and passes the result to `write`.
    fn check(
        &self,
        row: &Row,
        write: impl FnOnce(&RowResult<'_>) -> Result<(), PipelineError>,
    ) -> Result<(), PipelineError> {
        let upsert = match &row.read {
            Ok(upsert) => upsert,
            Err(UnsendableRow { user_id, reason }) => {
                return write(&RowResult::set_aside(row.number, user_id.as_deref(), reason));
            }
        };
        if is_suppressed(&self.suppression, upsert) {
            return write(&RowResult::set_aside(row.number, Some(&upsert.user_id), SUPPRESSED));
        }
        let to_send = RowToSend::new(upsert, self.request);
        let record = self.state.as_ref().map(|state| state.push_record(&to_send.content)).transpose()?.flatten();
        write(&match decide(&to_send, record) {
            SendDecision::AlreadyAnswered(record) => {
                RowResult::already_answered(row.number, &upsert.user_id, to_send.has_events, &record)
            }
            SendDecision::Send { with_events, before } => RowResult {
                unknown_sends: before.unknown_sends,
                has_events: to_send.has_events,
                has_unknown_events: before.unknown_events && !with_events,
                ..RowResult::new(row.number, &upsert.user_id, RowOutcome::WouldSend)
            },
        })
    }
}
