//! What a push would do: every row is read, checked and looked up. Nothing is sent, and the ledger stays as it is.

use crate::{
    clock,
    config::Settings,
    model::TimeAccount,
    person::Suppression,
    source::RequestStats,
    state::State,
    upsert::{Row, UnsendableRow},
};

use super::{
    super::{PipelineError, ReportHeader, RunMoments, assemble::suppression},
    input::read,
    kept_out::{KEPT_OUT, is_kept_out},
    ledger::{Verdict, Wanted, judge},
    past,
    report::{PushReport, PushRows},
    request::{COMMAND, PushRequest},
    results::{Ending, Fate, Results, RowResult},
};

pub(super) fn run(settings: &Settings, request: &PushRequest) -> Result<PushReport, PipelineError> {
    let (started_ms, account) = (clock::now_ms(), TimeAccount::default());
    let state = State::open_read_only(&settings.state_path)?;
    let look_up = LookUp { request, state, kept_out: suppression(settings)? };
    past::note(settings, &request.results)?;
    let mut results = Results::begin(&request.results)?;
    let mut rows = PushRows::default();
    let mut problem = None;
    let ended = read(&request.input, &settings.warehouse, &mut |row| {
        rows.read += 1;
        let told = look_up.tell(&row, |result| {
            rows.count(result);
            results.write(result)
        });
        problem = told.err();
        problem.is_none()
    });
    // After an error nothing is put in place: the file of an earlier push stays.
    let outcome = problem.map_or(ended, Err).and_then(|()| results.finish(Ending::Complete));
    let moments = RunMoments { started_ms, finished_ms: clock::now_ms() };
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

/// What a row is looked up in.
struct LookUp<'a> {
    request: &'a PushRequest,
    /// `None`: nothing was ever pushed from here.
    state: Option<State>,
    kept_out: Suppression,
}

impl LookUp<'_> {
    /// Says what would become of a row.
    fn tell(
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
        if is_kept_out(&self.kept_out, upsert) {
            return write(&RowResult::set_aside(row.number, Some(&upsert.user_id), KEPT_OUT));
        }
        let wanted = Wanted::of(upsert, self.request);
        let pushed = self.state.as_ref().map(|state| state.pushed(&wanted.content)).transpose()?.flatten();
        write(&match judge(&wanted, pushed) {
            Verdict::Known(pushed) => RowResult::known(row.number, &upsert.user_id, wanted.has_events, &pushed),
            Verdict::Send { with_events, before } => RowResult {
                unknown_sends: before.unknown_sends,
                has_events: wanted.has_events,
                has_unknown_events: before.unknown_events && !with_events,
                ..RowResult::of(row.number, &upsert.user_id, Fate::WouldSend)
            },
        })
    }
}
