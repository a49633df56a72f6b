//! Whose a folder of pages is: of one service and environment, and of one state file. Two state files in one folder
//! would each take the other's scans under way for its own leftovers.

use std::{fs, io, io::Write, path::Path};

use serde::{Deserialize, Serialize};

use super::{Archive, ArchiveError, ArchiveSettings, FileSummary, read_pages, summarize};
use crate::files::{Access, Output};

const FILE: &str = "owner.json";

#[derive(Serialize, Deserialize)]
struct Owner {
    /// The name of the state file.
    state: String,
}

/// An error if the folder is another's. A folder without pages is whoever comes first.
pub(super) fn claim(archive: &Archive, settings: &ArchiveSettings) -> Result<(), ArchiveError> {
    let path = settings.root.join(FILE);
    let owner = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        read => serde_json::from_slice::<Owner>(&read.map_err(ArchiveError::io("read", &path))?).ok(),
    };
    let is_ours = owner.as_ref().is_some_and(|owner| owner.state == settings.state);
    // A folder that was claimed holds pages of one service.
    let pages = if is_ours { archive.any_pages()?.into_iter().collect() } else { archive.all_pages()? };
    for page in &pages {
        // A scan that was cut short while its file was made has no header, and one that got no answer binds nothing.
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
            wanted: settings.state.clone(),
        }),
        _ => write(settings),
    }
}

/// Whether a page of the file holds a record: a second object, within that of the page. An empty list is worth nothing,
/// so it binds nothing either. What cannot be read may hold some.
fn has_records(file: &Path) -> bool {
    let Ok(mut pages) = read_pages(file) else { return true };
    pages.any(|page| page.map_or(true, |body| body.iter().filter(|byte| **byte == b'{').count() > 1))
}

fn write(settings: &ArchiveSettings) -> Result<(), ArchiveError> {
    let path = settings.root.join(FILE);
    let written = || -> io::Result<()> {
        let mut out = Output::begin(&path, ".new", Access::Private)?;
        serde_json::to_writer_pretty(&mut out, &Owner { state: settings.state.clone() })?;
        out.write_all(b"\n")?;
        out.finish()
    };
    match written() {
        // A replay may read an archive that it cannot write.
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            Ok(())
        }
        outcome => outcome.map_err(ArchiveError::io("write", &path)),
    }
}
