//! What a run asks for, and what it believes, because of the habits of this service: measured when it is first needed.

use crate::{
    load::VanishPolicy,
    model::{Stream, SurveyStatus},
    source::{SourceError, Stop},
};

use super::{
    PipelineError, Run,
    scan::CompletedScan,
    service_profile::{KnownStatuses, choose_statuses},
    ties::TieProbeError,
};

impl Run {
    /// Lists of surveys ask for the states that the settings name, as far as it is known how.
    pub(super) fn list_known_surveys(&self) -> Result<KnownStatuses, PipelineError> {
        let known = KnownStatuses::load(&self.context.state(), self.session.now_ms())?;
        self.context.source.list_surveys_with(known.filter(self.wanted_statuses()));
        Ok(known)
    }

    /// Before surveys are read: finds out how the service is asked for surveys of all states,
    /// as long as that is not known.
    pub(super) async fn choose_surveys(&mut self) -> Result<Option<Stop>, PipelineError> {
        let mut known = self.list_known_surveys()?;
        if known.are_open() {
            let measured = match choose_statuses(&self.context.source, known).await {
                Ok(measured) => measured,
                Err(TieProbeError::Run(error)) => return Err(error),
                Err(TieProbeError::Source(SourceError::Stopped(stop))) => return Ok(Some(stop)),
                Err(TieProbeError::Source(error)) if error.ends_the_run() => return Err(PipelineError::Source(error)),
                // The scan of the list says what is wrong with it; the other lists are read all the same.
                Err(TieProbeError::Source(_)) => Vec::new(),
            };
            let now_ms = self.session.now_ms();
            for measured in measured {
                tracing::debug!(name = measured.name, value = ?measured.value, how = measured.how, "measured");
                if let Some(value) = &measured.value {
                    let state = self.context.state();
                    state.remember_measured(measured.name, value, &measured.how, now_ms)?;
                }
            }
            known = self.list_known_surveys()?;
        }
        if !self.wanted_statuses().is_empty() && known.filter(self.wanted_statuses()).is_none() {
            self.findings.look_at(
                "the service understands `status` of surveys in none of the contract's forms, so that [streams.surveys] statuses \
                 has no effect: all surveys that it lists were read"
                    .to_owned(),
            );
        }
        Ok(None)
    }

    /// Forgets how the service is asked for states of surveys, after a scan of the surveys failed: perhaps the service
    /// no longer understands that form. The next run measures it again.
    pub(super) fn forget_status_form(&self, stream: Stream) -> Result<(), PipelineError> {
        if stream != Stream::Surveys {
            return Ok(());
        }
        let (state, now_ms) = (self.context.state(), self.session.now_ms());
        let unknown: Option<String> = None;
        state
            .remember_behaviour(crate::model::behaviour_names::SURVEY_STATUS_FORM, &unknown, now_ms)
            .map_err(PipelineError::State)
    }

    /// What is made of rows that a scan did not find.
    pub(super) fn vanish_policy(&self, stream: Stream, scan: &CompletedScan) -> VanishPolicy {
        let is_part_of_all = stream == Stream::Surveys && !self.wanted_statuses().is_empty();
        if is_part_of_all || self.context.theme_times.may_lack_rows(stream) {
            VanishPolicy::Ignore
        } else if self.request.accept_vanished {
            VanishPolicy::Accept
        } else if self.context.ties.needs_recheck(&scan.scan, &scan.boundaries) {
            // A row that this scan lacks may be one that it lost.
            VanishPolicy::Guarded { share_max: 0.0, rows_max: 0 }
        } else {
            VanishPolicy::default()
        }
    }

    fn wanted_statuses(&self) -> &[SurveyStatus] {
        let surveys = self.session.settings.streams.iter().find(|stream| stream.stream == Stream::Surveys);
        surveys.map_or(&[], |surveys| &surveys.statuses)
    }
}
