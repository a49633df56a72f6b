//! Lists that answer every request with 404 and count as empty: a run requests each of them once, and reports them. The
//! list may have rows by now, or the key may lack a permission.

use crate::{model::Stream, source::SourceError};

use super::{
    PipelineError, Run,
    known_lists::{end_emptiness, remember_lists},
};

impl Run {
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
}
