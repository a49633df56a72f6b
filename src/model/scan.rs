//! Scans and their ids. A scan is one pull of a window, page by page.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{FlagSet, Rng, Scope, Window};

macro_rules! time_ordered_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// Creates a unique id. Ids sort by `now_ms`, in epoch milliseconds.
            pub fn new(now_ms: i64) -> Self {
                Self::with_rng(now_ms, &Rng::default())
            }

            /// Creates an id whose random part comes from `rng`.
            pub fn with_rng(now_ms: i64, rng: &Rng) -> Self {
                let now_ms = u64::try_from(now_ms).unwrap_or(0);
                let random = [rng.bits(), rng.bits()].map(u64::to_le_bytes);
                let tail: [u8; 10] = std::array::from_fn(|at| random[at / 8][at % 8]);
                Self(uuid::Builder::from_unix_timestamp_millis(now_ms, &tail).into_uuid().to_string())
            }

            /// Returns when the id was created, by the clock of its machine, in epoch milliseconds. `None` if it is
            /// not a version 7 UUID.
            pub fn created_ms(&self) -> Option<i64> {
                let id = uuid::Uuid::parse_str(&self.0).ok().filter(|id| id.get_version_num() == 7)?;
                i64::try_from(id.as_u128() >> 80).ok()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

time_ordered_id! {
    /// The id of a run: a version 7 UUID.
    RunId
}
time_ordered_id! {
    /// The id of a scan: a version 7 UUID, and the key of the ledger. A scan whose id is in the ledger is not applied
    /// again.
    ScanId
}

/// The run that wrote an outcome into the rows of the warehouses, and when. A replay writes it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowStamp {
    pub run_id: RunId,
    /// Epoch milliseconds by the service's clock.
    pub at_ms: i64,
}

/// A scan: everything that a warehouse needs to know to apply its pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// The scan's id.
    pub id: ScanId,
    /// The run that started the scan. The value stays the same when a later run resumes the scan.
    pub run_id: RunId,
    /// The scanned stream or survey.
    pub scope: Scope,
    /// The requested range of creation time.
    pub window: Window,
    /// The requested optional parts of records.
    pub flags: FlagSet,
    /// Start of the scan, in epoch milliseconds of the *service's* clock. The written rows have this time as
    /// `_synced_at`.
    pub started_ms: i64,
}

impl Scan {
    /// Returns a key that orders scans by time. The service's clock counts seconds; of scans in the same second, the id
    /// that begins with the later time of a machine is the later one.
    pub fn order(&self) -> (i64, &ScanId) {
        (self.started_ms.div_euclid(1000), &self.id)
    }
}
