//! Checks of the service that decide what a run reads: its clock, its lists without rows, and how it lists surveys by
//! status.
//!
//! Lists that answer every request with 404 and count as empty: a run requests each of them once, and reports them. The
//! list may have rows by now, or the key may lack a permission.

use crate::{
    load::VanishPolicy,
    model::{DAY_MS, HOUR_MS, Stream, SurveyStatus, Window, behaviour_names, format_ms, is_in_future},
    pipeline::{
        error::PipelineError,
        known_lists::{end_emptiness, remember_lists},
        scan::states::CompletedScan,
        service_profile::{
            clocks::{
                AGREED_BEHIND, ClockComparison, ClockMismatch, ClockSample, DIFFERENCE_MAX_MS, compare_clocks,
                is_clock_in_doubt,
            },
            statuses::{KnownStatuses, measure_statuses},
        },
    },
    source::{SourceError, Stop},
};

use super::{backlog::page_rows, run::Run};

impl Run {
    /// Adds a note if the service's clock is wrong, with the range that the run does not read for this reason. A clock
    /// that is behind is stored as right if no newer row was found. If the rows could not be requested, the next run
    /// compares again.
    pub(super) async fn check_clock(&mut self, service_ms: i64) -> Result<(), PipelineError> {
        let here_ms = self.session.now_ms();
        let behind_ms = here_ms - service_ms;
        if !is_clock_in_doubt(&self.context.state(), behind_ms)? {
            self.note_own_clock(behind_ms);
            return Ok(());
        }
        let latest_here_ms = self.context.state().latest_start_ms(&self.session.run_id)?;
        let windowed =
            || self.session.settings.streams.iter().map(|stream| stream.stream).filter(|list| list.is_windowed());
        let list = self.session.settings.streams.iter().find(|stream| stream.stream.is_windowed());
        let sample = list.map(|list| {
            page_rows(Some(&self.context.state()), list).map(|page_rows| ClockSample { list: list.stream, page_rows })
        });
        let sample = sample.transpose()?;
        let comparison = match compare_clocks(&self.context.source, sample, service_ms, here_ms, latest_here_ms).await {
            Ok(comparison) => comparison,
            Err(SourceError::Stopped(stop)) => {
                self.findings.stop.get_or_insert(stop);
                return Ok(());
            }
            Err(error) => return Err(PipelineError::Source(error)),
        };
        let mismatch = match comparison {
            ClockComparison::Wrong(mismatch) => mismatch,
            ClockComparison::Plausible if behind_ms > DIFFERENCE_MAX_MS => {
                self.context.state().remember_behaviour(AGREED_BEHIND, &behind_ms, here_ms)?;
                self.note_own_clock(behind_ms);
                return Ok(());
            }
            ClockComparison::Plausible => {
                self.note_own_clock(behind_ms);
                return Ok(());
            }
            ClockComparison::Unknown => return Ok(()),
        };
        let names = windowed().map(Stream::name).collect::<Vec<_>>().join(" and ");
        let note = match mismatch {
            ClockMismatch::Behind { .. } => {
                let requested = self.request.backfill.unwrap_or(Window::new(i64::MIN, i64::MAX));
                let missed = Window::new(requested.start_ms.max(service_ms), requested.end_ms.min(here_ms));
                match missed.start_ms < missed.end_ms {
                    true => format!("{mismatch}. Not read: {names} of {missed}"),
                    false => mismatch.to_string(),
                }
            }
            ClockMismatch::Ahead { .. } => format!(
                "{mismatch}. Windows end by this clock: {names} that are created until then are found by re-scans only. Correct \
                 the clock that is wrong"
            ),
        };
        tracing::error!("{note}");
        self.findings.add_attention_note(note);
        Ok(())
    }

    /// Adds a note if this machine's clock differs from the service's, against which nothing was found. `behind_ms` is
    /// how far the service's clock is behind this machine's. Windows follow the service's clock, so only times of runs
    /// may be wrong, and the run needs no attention.
    fn note_own_clock(&mut self, behind_ms: i64) {
        let apart_ms = behind_ms.saturating_abs();
        if !is_in_future(apart_ms, 0) {
            return;
        }
        let (here, relation) = (format_ms(self.session.now_ms()), if behind_ms > 0 { "ahead of" } else { "behind" });
        let apart = match apart_ms > DAY_MS {
            true => format!("{:.1} days", apart_ms as f64 / DAY_MS as f64),
            false => format!("{:.1} hours", apart_ms as f64 / HOUR_MS as f64),
        };
        let note = format!(
            "this machine's clock says {here}, {apart} {relation} the service's clock. Windows follow the service's clock; the \
             times of runs are wrong until this machine's clock is set right"
        );
        tracing::warn!("{note}");
        self.findings.notes.push(note);
    }

    /// Requests the lists that earlier runs took as empty, each once and without a range. If one answers with a page,
    /// everything of it that counted as complete is due again. An error of such a request is left to the windows.
    pub(super) async fn ask_empty_lists(&mut self) -> Result<(), PipelineError> {
        let source = self.context.source.clone();
        for list in self.lists().into_iter().filter(|list| source.was_taken_as_empty(*list)) {
            match source.ask_whole_list(list).await {
                Err(SourceError::Stopped(stop)) => {
                    self.findings.stop = Some(stop);
                    return Ok(());
                }
                Err(error) if error.ends_the_run() => return Err(PipelineError::Source(error)),
                Err(_) | Ok(()) => {}
            }
            if source.has_answered(list) {
                let now_ms = self.session.now_ms();
                let note = end_emptiness(&mut self.context.state(), list, now_ms)?;
                self.findings.notes.extend(note);
            }
        }
        Ok(())
    }

    /// Stores what the run has learned about the lists, and adds notes about it to the report.
    pub(super) fn note_lists(&mut self) -> Result<(), PipelineError> {
        let source = self.context.source.clone();
        let now_ms = self.session.now_ms();
        let notes = remember_lists(&mut self.context.state(), &source, now_ms)?;
        let empty = Stream::LISTS.into_iter().filter(|list| source.is_taken_as_empty(*list)).map(|list| {
            format!(
                "the service answers every request for {list} with 404, and they count as empty. If there should be some, ask its \
                 operator whether the key may read them"
            )
        });
        self.findings.notes.extend(notes.into_iter().chain(empty));
        Ok(())
    }

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
        state.remember_behaviour(behaviour_names::SURVEY_STATUS_FORM, &unknown, now_ms).map_err(PipelineError::State)
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
