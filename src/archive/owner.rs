//! Binds an archive folder to one service, one environment and one state file. If two state files used one folder, the
//! runs of each would delete the spools of the other as orphans.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{ArchiveError, FileSummary, read_pages, summarize};
use crate::files::{Access, Output};

const OWNER_FILE: &str = "owner.json";

/// The settings of an archive.
#[derive(Clone, Debug)]
pub struct ArchiveSettings {
    /// The folder.
    pub root: PathBuf,
    /// True if pages are kept after the commit. If false, the folder contains only spools.
    pub keeps_pages: bool,
    /// Retention in days; `None` keeps pages for ever.
    pub keep_days: Option<u32>,
    /// The base URL of the service (promise P10).
    pub base_url: String,
    /// The environment label (promise P10).
    pub environment: String,
    /// The file name of the run's state file. An archive folder belongs to one state file; `owner.json` contains its
    /// name.
    pub state_file_name: String,
}

#[derive(Serialize, Deserialize)]
struct Owner {
    /// The file name of the state file that owns the folder.
    state: String,
}

/// Writes the owner file for these settings, unless it names them already. A folder without pages may change its owner.
/// `pages_of` returns the files with pages, or one of them if it gets true.
///
/// # Errors
/// `OtherService` or `OtherOwner` if the folder has pages of another service, environment or state file.
pub(super) fn claim(
    settings: &ArchiveSettings,
    pages_of: impl FnOnce(bool) -> Result<Vec<PathBuf>, ArchiveError>,
) -> Result<(), ArchiveError> {
    let path = settings.root.join(OWNER_FILE);
    let owner = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        read => serde_json::from_slice::<Owner>(&read.map_err(ArchiveError::io("read", &path))?).ok(),
    };
    let is_ours = owner.as_ref().is_some_and(|owner| owner.state == settings.state_file_name);
    // In a folder that these settings own, all pages are of one service, so checking one file is enough.
    let pages = pages_of(is_ours)?;
    for page in &pages {
        // A file without a readable header or without pages is not checked.
        let Ok(FileSummary { header, pages: 1.., .. }) = summarize(page) else { continue };
        let (base_url, environment) = (&settings.base_url, &settings.environment);
        if !header.is_of(base_url, environment) && has_records(page) {
            return Err(ArchiveError::other_service(page.clone(), &header, base_url, environment));
        }
    }
    match owner {
        _ if is_ours => Ok(()),
        Some(owner) if !pages.is_empty() => Err(ArchiveError::OtherOwner {
            path: settings.root.clone(),
            found: owner.state,
            wanted: settings.state_file_name.clone(),
        }),
        _ => write_owner(settings),
    }
}

/// Returns true if a page of the file has a record, or cannot be read. A second `{` on a page shows that the page has a
/// record.
fn has_records(file: &Path) -> bool {
    let Ok(mut pages) = read_pages(file) else { return true };
    pages.any(|page| page.map_or(true, |body| body.iter().filter(|byte| **byte == b'{').count() > 1))
}

/// Writes the owner file. Does nothing if the folder is read-only.
fn write_owner(settings: &ArchiveSettings) -> Result<(), ArchiveError> {
    let path = settings.root.join(OWNER_FILE);
    let written = || -> io::Result<()> {
        let mut out = Output::begin(&path, ".new", Access::Private)?;
        serde_json::to_writer_pretty(&mut out, &Owner { state: settings.state_file_name.clone() })?;
        out.write_all(b"\n")?;
        out.finish()
    };
    match written() {
        // A replay may read a read-only archive.
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            Ok(())
        }
        outcome => outcome.map_err(ArchiveError::io("write", &path)),
    }
}
