//! Binds an archive folder to one service, one environment and one state file. If two state files used one folder, the
//! runs of each would delete the spools of the other as orphans.

use std::{fs, io, io::Write, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{ArchiveError, FileSummary, PageFile};
use crate::{
    bucket::{Bucket, Content, Version},
    files::{Access, Output},
    model::{Location, is_same_service},
};

const OWNER_FILE: &str = "owner.json";

/// The settings of an archive.
#[derive(Clone, Debug)]
pub struct ArchiveSettings {
    /// The folder, or the folder of a bucket. Spools are always in the folder.
    pub location: Location,
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
    /// The service and environment of the pages. Only in a bucket, so that no page is read to find out.
    #[serde(flatten)]
    service: Option<Service>,
}

#[derive(Serialize, Deserialize)]
struct Service {
    base_url: String,
    environment: String,
}

/// The owner file of an archive.
pub(super) struct OwnerFile<'a> {
    pub settings: &'a ArchiveSettings,
    /// The bucket that has the file; `None` if it is in the folder.
    pub bucket: Option<&'a Bucket>,
}

impl OwnerFile<'_> {
    /// Returns true if there is an owner file.
    pub fn exists(bucket: &Bucket) -> Result<bool, ArchiveError> {
        Ok(bucket.read(OWNER_FILE)?.is_some())
    }

    /// Writes the owner file for the settings, unless it names them already. A folder without pages may change its
    /// owner. `pages_of` returns the files with pages, or one of them if it gets true.
    ///
    /// # Errors
    /// `OtherService` or `OtherOwner` if the folder has pages of another service, environment or state file.
    pub fn claim(
        &self,
        pages_of: impl FnOnce(bool) -> Result<Vec<PageFile>, ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let ArchiveSettings { base_url, environment, .. } = self.settings;
        let (owner, version) = self.read()?;
        let is_ours = owner.as_ref().is_some_and(|owner| owner.state == self.settings.state_file_name);
        let names_service = owner.as_ref().is_some_and(|owner| self.names_service(owner));
        if is_ours && names_service && self.bucket.is_some() {
            return Ok(());
        }
        // In a folder that these settings own, all pages are of one service, so checking one file is enough.
        let pages = pages_of(is_ours)?;
        for file in &pages {
            // A file without a readable header or without pages is not checked.
            let Ok(FileSummary { header, pages: 1.., .. }) = file.summarize() else { continue };
            if !header.is_of(base_url, environment) && has_records(file) {
                return Err(ArchiveError::other_service(file.path().into(), &header, base_url, environment));
            }
        }
        match owner {
            _ if is_ours && names_service => Ok(()),
            Some(owner) if !is_ours && !pages.is_empty() => Err(ArchiveError::OtherOwner {
                path: self.settings.location.to_string().into(),
                found: owner.state,
                wanted: self.settings.state_file_name.clone(),
            }),
            _ => self.write(version),
        }
    }

    /// Binds an existing owner file in a bucket to the service of the settings.
    pub fn rebind(&self) -> Result<(), ArchiveError> {
        match self.read()? {
            (Some(owner), version) if !self.names_service(&owner) => self.write(version),
            _ => Ok(()),
        }
    }

    /// Returns true if the file names the service of the settings. In a folder it names none.
    fn names_service(&self, owner: &Owner) -> bool {
        let ArchiveSettings { base_url, environment, .. } = self.settings;
        match &owner.service {
            Some(service) => is_same_service(&service.base_url, base_url) && service.environment == *environment,
            None => self.bucket.is_none(),
        }
    }

    /// Reads the file; `None` if it is missing or cannot be parsed. In a bucket, returns its version, too.
    fn read(&self) -> Result<(Option<Owner>, Option<Version>), ArchiveError> {
        if let Some(bucket) = self.bucket {
            let Some(found) = bucket.read(OWNER_FILE)? else { return Ok((None, None)) };
            return Ok((serde_json::from_slice(&found.bytes).ok(), Some(found.version)));
        }
        let path = self.path();
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((None, None)),
            read => Ok((serde_json::from_slice(&read.map_err(ArchiveError::io("read", &path))?).ok(), None)),
        }
    }

    /// Writes the file. `version` is that of the object to replace. Does nothing if the folder is read-only.
    fn write(&self, version: Option<Version>) -> Result<(), ArchiveError> {
        let ArchiveSettings { base_url, environment, state_file_name, .. } = self.settings;
        let service = Service { base_url: base_url.clone(), environment: environment.clone() };
        let service = self.bucket.is_some().then_some(service);
        let path = self.path();
        let mut text = serde_json::to_vec_pretty(&Owner { state: state_file_name.clone(), service })
            .map_err(|error| ArchiveError::io("write", &path)(error.into()))?;
        text.push(b'\n');
        if let Some(bucket) = self.bucket {
            let changed = || ArchiveError::Changed { path: bucket.url_of(OWNER_FILE).into() };
            bucket.put(OWNER_FILE, Content::Bytes(&text), &version.into())?.ok_or_else(changed)?;
            return Ok(bucket.require_conditions(OWNER_FILE)?);
        }
        let written = || -> io::Result<()> {
            let mut out = Output::begin(&path, ".new", Access::Private)?;
            out.write_all(&text)?;
            out.finish()
        };
        match written() {
            // A replay may read a read-only archive.
            Err(error) if is_read_only(&error) => Ok(()),
            outcome => outcome.map_err(ArchiveError::io("write", &path)),
        }
    }

    fn path(&self) -> PathBuf {
        self.settings.location.path.join(OWNER_FILE)
    }
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Returns true if a page of the file has a record, or cannot be read. A second `{` on a page shows that the page has a
/// record.
fn has_records(file: &PageFile) -> bool {
    let Ok(mut pages) = file.read_pages() else { return true };
    pages.any(|page| page.map_or(true, |body| body.iter().filter(|byte| **byte == b'{').count() > 1))
}
