//! The words of the design as types. Imports nothing else of this crate.

mod account;
mod batch;
mod chance;
mod delivery;
mod display;
mod drift;
mod flags;
mod intervals;
mod page;
mod people;
mod person;
mod scan;
mod segment;
mod steps;
mod stream;
mod time;
mod traits;
mod window;

pub use account::{Activity, Busy, TimeAccount, TimeParts};
pub use batch::{Discarded, FlatPage, Reject, RejectReason, TableBatch};
pub use chance::Chance;
pub use delivery::{Delivery, EventKind};
pub use display::steers_display;
pub use drift::{DRIFT_PLACES_MAX, Drift, DriftEntry, DriftFate, DriftKind, DriftMode, DriftPolicy, DriftRules};
pub use flags::{Flag, FlagSet};
pub use intervals::IntervalSet;
pub use page::{EndStyle, EndStyles, PageRequest, PageToken, Proof};
pub use people::{PersonAsked, USER_ID_BYTES_MAX, can_be_asked};
pub use person::{Identifier, IdentifierKind, email_names, names_an_email};
pub use scan::{RunId, Scan, ScanId};
pub use segment::{IN_DOUBT_MS, Segment};
pub use steps::{DurableStep, Steps};
pub use stream::Stream;
pub use time::{DAY_MS, HOUR_MS, MINUTE_MS, format_ms, parse_date, parse_length};
pub use traits::{ListOrder, RetryAfterForm, Ties, names as trait_names};
pub use window::{Scope, Window};
