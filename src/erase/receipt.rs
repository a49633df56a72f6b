//! The receipt of an erasure: a JSON file, and a row of `erasures` in each warehouse.
//!
//! A receipt says what was searched, found and removed, and when. A receipt does not identify the person.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{EraseError, journal::PurgeNote, place::SearchReport};
use crate::{
    files,
    load::{ErasureRecord, OldVersions},
    model::{BucketAddress, CatalogAddress, LakeCatalog, RunId},
};

/// Value of [`UnsearchedVersions::old_versions`] for logs and backups of a database.
const LOGS: &str = "logs";

/// The receipt of an erasure.
#[derive(Clone, Debug, Serialize)]
pub struct Receipt {
    pub erasure_id: String,
    pub run_id: RunId,
    /// "service_and_local", "local_only" or "vanished".
    pub kind: &'static str,
    /// RFC 3339, by this machine.
    pub requested_at: String,
    /// RFC 3339, by this machine.
    pub finished_at: String,
    /// Number of named identifiers.
    pub people: usize,
    /// Number of named and linked identifiers.
    pub identifiers: usize,
    /// Number of identifiers on the people's rows that were not followed, because other people may have them, too.
    pub not_followed: usize,
    /// True if every chain of links was followed to its end.
    pub leads_are_complete: bool,
    pub(super) purge_requests: Vec<PurgeNote>,
    /// Number of names that the service does not know.
    pub unknown_to_the_service: u64,
    /// True if the service accepted no name although data of the people was stored here. It may have refused for
    /// another reason than an unknown name.
    pub service_refused_all: bool,
    /// The requested delay of the service; null for its default.
    pub delay_seconds: Option<u64>,
    /// The start of the suppression in scans, replays and webhooks, by the service's clock. Null without suppression.
    pub suppressed_from: Option<String>,
    /// Number of removed rows, records and files, by location.
    pub removed: BTreeMap<String, u64>,
    /// Number of rewritten files whose old bytes stay under another hard link, which is not searched.
    pub kept_under_other_names: usize,
    /// The buckets and catalogs that may keep old content, which is not searched. Left out if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsearched: Vec<UnsearchedVersions>,
    /// The result of the search after the removal.
    pub verified: SearchReport,
    /// Number of rows and pages in which an identifier was replaced, stored reports of runs included.
    pub redacted: u64,
    /// "done" or "needs_a_look".
    pub outcome: &'static str,
    pub exit_code: u8,
    #[serde(skip)]
    pub(super) requested_ms: i64,
    #[serde(skip)]
    pub(super) finished_ms: i64,
    #[serde(skip)]
    pub(super) suppressed_from_ms: Option<i64>,
}

/// A bucket or catalog that keeps old content, or may keep it.
#[derive(Clone, Debug, Serialize)]
pub struct UnsearchedVersions {
    /// The address of the folder in the bucket, or of the catalog.
    pub address: String,
    /// "kept" or "unknown"; "logs" for logs and backups of a database, which end by themselves.
    pub old_versions: &'static str,
    /// How to find and remove the old content.
    pub what_to_do: String,
}

impl UnsearchedVersions {
    /// Returns the entry of a bucket; `None` if it keeps no old content.
    pub(super) fn of(address: &BucketAddress, versions: OldVersions) -> Option<Self> {
        let old_versions = match versions {
            OldVersions::NotKept => return None,
            OldVersions::Kept => "kept",
            OldVersions::Unknown => "unknown",
        };
        let (host, prefix) = (address.url().host_str().unwrap_or_default(), address.prefix());
        let list = match address.url().scheme() {
            "s3" => format!("aws s3api list-object-versions --bucket {host} --prefix '{prefix}'"),
            "gs" => format!("gcloud storage ls --all-versions --soft-deleted --recursive {address}"),
            scheme => {
                // az://CONTAINER/..., or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/...
                let (container, account) = match (scheme, host.split_once('.')) {
                    ("abfss", Some((account, _))) => (address.url().username(), account),
                    _ => (host, "ACCOUNT"),
                };
                format!(
                    "az storage blob list --include vd --account-name {account} --container-name {container} --prefix '{prefix}'"
                )
            }
        };
        let what_to_do = format!("list old versions with `{list}`, and remove those that are not current");
        Some(Self { address: address.to_string(), old_versions, what_to_do })
    }
}

impl UnsearchedVersions {
    /// Returns the entry of a catalog; `None` if it keeps no old content.
    pub(super) fn of_catalog(address: &CatalogAddress) -> Option<Self> {
        let entry = |old_versions, what_to_do: &str| {
            Some(Self { address: address.to_string(), old_versions, what_to_do: what_to_do.to_owned() })
        };
        let logs = "the write-ahead log, standby servers and backups of PostgreSQL keep old rows until they are recycled, and its statistics until autovacuum has \
             cleaned pg_statistic";
        match address {
            CatalogAddress::DuckLake { data, .. } if data.contains("://") => {
                let bucket = data.parse::<BucketAddress>().ok();
                bucket.and_then(|bucket| Self::of(&bucket, OldVersions::Unknown)).or_else(|| {
                    entry("unknown", &format!("remove old versions of the objects in {data}, if the bucket keeps them"))
                })
            }
            CatalogAddress::DuckLake { catalog: LakeCatalog::File(_), .. } => None,
            CatalogAddress::DuckLake { .. } | CatalogAddress::Postgres(_) => entry(LOGS, logs),
            CatalogAddress::Iceberg { .. } => entry(
                "kept",
                "the rows are removed; older snapshots and their files keep them: rewrite the files and expire the snapshots with \
                 examples/iceberg/maintain.py --erase",
            ),
        }
    }

    /// Returns true if somebody must remove the old content.
    pub(super) fn needs_a_look(&self) -> bool {
        self.old_versions != LOGS
    }
}

impl Receipt {
    /// Creates the row of the table `erasures`. A later run fills in the check of the service.
    pub(super) fn record(&self) -> ErasureRecord {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        // Maps and lists of texts and numbers can always be serialized.
        let json = |text: serde_json::Result<String>| text.unwrap_or_default();
        ErasureRecord {
            erasure_id: self.erasure_id.clone(),
            kind: self.kind.to_owned(),
            requested_ms: self.requested_ms,
            finished_ms: self.finished_ms,
            people: count(self.people),
            identifiers: count(self.identifiers),
            not_followed: count(self.not_followed),
            purge_requests: json(serde_json::to_string(&self.purge_requests)),
            delay_seconds: self.delay_seconds.and_then(|seconds| i64::try_from(seconds).ok()),
            suppressed_from_ms: self.suppressed_from_ms,
            removed: json(serde_json::to_string(&self.removed)),
            searched: json(serde_json::to_string(&self.verified)),
            mentions: i64::try_from(self.verified.mentions()).unwrap_or(i64::MAX),
            redacted: i64::try_from(self.redacted).unwrap_or(i64::MAX),
            outcome: self.outcome.to_owned(),
            service_checked_ms: None,
            service_users_checked: None,
            suppression_ended_ms: None,
            run_id: self.run_id.clone(),
        }
    }

    /// Writes the receipt file, durably, and returns its path.
    pub(super) fn write(&self, folder: &Path) -> Result<PathBuf, EraseError> {
        let path = folder.join(format!("{}.json", self.erasure_id));
        let text = serde_json::to_vec_pretty(self).map_err(|error| EraseError::io("write", &path)(error.into()))?;
        files::write_private(&path, &text).map_err(EraseError::io("write", &path))?;
        Ok(path)
    }
}
