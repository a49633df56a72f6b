//! A scan: pulling one window to its end.

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
            /// A new id, ordered by the time handed in (epoch milliseconds) and unique beside it.
            pub fn new(now_ms: i64) -> Self {
                Self::with_rng(now_ms, &Rng::default())
            }

            /// The same, with its random part from there.
            pub fn with_rng(now_ms: i64, rng: &Rng) -> Self {
                let now_ms = u64::try_from(now_ms).unwrap_or(0);
                let random = [rng.bits(), rng.bits()].map(u64::to_le_bytes);
                let tail: [u8; 10] = std::array::from_fn(|at| random[at / 8][at % 8]);
                Self(uuid::Builder::from_unix_timestamp_millis(now_ms, &tail).into_uuid().to_string())
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
    /// One execution of the program: a version 7 UUID.
    RunId
}
time_ordered_id! {
    /// One scan: a version 7 UUID. It is the ledger's key: applying a scan that the ledger holds changes nothing.
    ScanId
}

/// The identity of a scan: all that a destination needs to apply its pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scan {
    /// The scan's own id.
    pub id: ScanId,
    /// The run that began it. A run that resumes it keeps this.
    pub run_id: RunId,
    /// The scanned stream or survey.
    pub scope: Scope,
    /// The requested range of creation time.
    pub window: Window,
    /// The optional parts asked for.
    pub flags: FlagSet,
    /// When it was begun by the *service's* clock, epoch milliseconds. It is `_synced_at` of the rows it writes.
    pub started_ms: i64,
}

impl Scan {
    /// Whether both go through some part of the same stream.
    pub fn meets(&self, other: &Scan) -> bool {
        self.scope.stream == other.scope.stream && self.window.overlaps(other.window)
    }
}
