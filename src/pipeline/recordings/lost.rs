//! Recordings whose files somebody deleted: they are fetched again, or reported.

use std::path::Path;

use super::{
    super::{PipelineError, Run},
    CHUNK_UPLOADS, ROWS_AT_ONCE,
    fetch::Fetcher,
    pending_downloads::PendingDownloads,
    progress::recordings_folders,
};
use crate::{
    load::{WantedRecordings, Warehouse},
    model::Failpoints,
    recordings::Recordings,
};

/// If more files are gone than this, and more than [`LOST_PERCENT_MAX`], the folder is probably not mounted.
const LOST_MAX: u64 = 20;
const LOST_PERCENT_MAX: u64 = 5;

impl Run {
    /// Fetches the recordings again that rows call stored, and whose files are gone. If too many are gone at once, only
    /// reports them, unless the user accepts that.
    pub(super) async fn fetch_lost(&mut self, fetcher: &Fetcher) -> Result<(), PipelineError> {
        let (mut pending, mut stored, mut lost) = (PendingDownloads::default(), 0, 0);
        // The settings may have named another folder before.
        let folders = recordings_folders(&self.session.state())?;
        for destination in &self.destinations {
            let folders: Vec<_> = folders.iter().map(|path| Recordings::at(path, Failpoints::default())).collect();
            let read = move |warehouse: &mut Warehouse| {
                let is_stored = |path: &str, bytes| folders.iter().any(|one| one.is_stored(Path::new(path), bytes));
                let found = warehouse.lost_recordings(&is_stored, ROWS_AT_ONCE)?;
                warehouse.release_lock().map(|()| found)
            };
            let found = destination.work(read).await?;
            (stored, lost) = (found.stored.max(stored), found.lost.max(lost));
            pending.add_all(WantedRecordings { rows: found.rows, next_until_us: None });
        }
        if lost == 0 {
            return Ok(());
        }
        let folder = self.session.settings.recordings.path.display();
        if lost > LOST_MAX && lost * 100 > stored * LOST_PERCENT_MAX && !self.request.accept_vanished {
            self.findings.add_attention_note(format!(
                "the files of {lost} of {stored} recordings are gone from {folder}. Make sure that this folder is mounted. If the \
                 files were deleted, run `studysync sync --accept-vanished`, which fetches them again"
            ));
            return Ok(());
        }
        self.findings
            .notes
            .push(format!("the files of {lost} recordings were gone from {folder}: they are fetched again"));
        let untried: Vec<_> =
            pending.downloads.into_iter().filter(|upload| !self.recordings.tried.contains(&upload.key)).collect();
        for chunk in untried.chunks(CHUNK_UPLOADS) {
            self.fetch_chunk(fetcher, chunk, true).await?;
        }
        Ok(())
    }
}
