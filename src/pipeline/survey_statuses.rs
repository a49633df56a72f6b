//! Decides which statuses of surveys a run requests, and which stored rows count as vanished. Both decisions depend on
//! the service profile.

use crate::{
    load::VanishPolicy,
    model::{Stream, SurveyStatus},
    source::{SourceError, Stop},
};

use super::{
    PipelineError, Run,
    scan::CompletedScan,
    service_profile::{KnownStatuses, measure_statuses},
};

impl Run {
    /// Sets the status filter of further requests for surveys, by the settings and the stored behaviours. Returns the
    /// stored behaviours.
    pub(super) fn set_status_filter(&self) -> Result<KnownStatuses, PipelineError> {
        let known = KnownStatuses::load(&self.context.state(), self.session.now_ms())?;
        self.context.source.list_surveys_with(known.filter(self.wanted_statuses()));
        Ok(known)
    }

    /// Sets the status filter before surveys are read. If it is unknown how the service lists surveys by status,
    /// measures and stores it first. Returns why the run was stopped, or `None` if it was not.
    pub(super) async fn prepare_survey_lists(&mut self) -> Result<Option<Stop>, PipelineError> {
        let mut known = self.set_status_filter()?;
        if known.need_measure() {
            let measured = match measure_statuses(&self.context.source, known).await {
                Ok(measured) => measured,
                Err(PipelineError::Source(SourceError::Stopped(stop))) => return Ok(Some(stop)),
                // The scan of surveys will report the error, and the run reads the other lists.
                Err(PipelineError::Source(error)) if !error.ends_the_run() => Vec::new(),
                Err(error) => return Err(error),
            };
            let now_ms = self.session.now_ms();
            for measured in measured {
                tracing::debug!(name = measured.name, value = ?measured.value, how = measured.how, "measured");
                if let Some(value) = &measured.value {
                    let state = self.context.state();
                    state.remember_measured(measured.name, value, &measured.how, now_ms)?;
                }
            }
            known = self.set_status_filter()?;
        }
        if !self.wanted_statuses().is_empty() && known.understands_no_spelling() {
            self.findings.add_attention_note(
                "the service understands `status` of surveys in none of the contract's forms, so that [streams.surveys] statuses \
                 has no effect: all surveys that it lists were read"
                    .to_owned(),
            );
        }
        Ok(None)
    }

    /// Forgets the stored spelling of `status` after a scan of surveys failed, because the service may no longer
    /// understand the spelling. The next run measures it again. Does nothing for other streams.
    pub(super) fn forget_status_spelling(&self, stream: Stream) -> Result<(), PipelineError> {
        if stream != Stream::Surveys {
            return Ok(());
        }
        let (state, now_ms) = (self.context.state(), self.session.now_ms());
        let unknown: Option<String> = None;
        state
            .remember_behaviour(crate::model::behaviour_names::SURVEY_STATUS_FORM, &unknown, now_ms)
            .map_err(PipelineError::State)
    }

    /// Returns the policy for stored rows that a scan did not return: ignore them, mark them as vanished, or withhold
    /// them if they are too many. They are ignored if the scan may lack rows that the service has.
    pub(super) fn vanish_policy(&self, stream: Stream, scan: &CompletedScan) -> VanishPolicy {
        // Surveys of other statuses are not requested. A service that filters themes by the time of their answers
        // leaves themes out.
        let is_filtered = stream == Stream::Surveys && !self.wanted_statuses().is_empty();
        if is_filtered || self.context.theme_times.may_lack_rows(stream) {
            VanishPolicy::Ignore
        } else if self.request.accept_vanished {
            VanishPolicy::Accept
        } else if self.context.ties.needs_recheck(&scan.scan, &scan.boundaries) {
            // The scan may have lost rows at a page boundary, so all vanished rows are withheld.
            VanishPolicy::Guarded { share_max: 0.0, rows_max: 0 }
        } else {
            VanishPolicy::default()
        }
    }

    /// Returns the statuses of surveys in the settings. Empty for surveys of all statuses.
    fn wanted_statuses(&self) -> &[SurveyStatus] {
        let surveys = self.session.settings.streams.iter().find(|stream| stream.stream == Stream::Surveys);
        surveys.map_or(&[], |surveys| &surveys.statuses)
    }
}
