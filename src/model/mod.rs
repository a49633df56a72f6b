//! The shared types of all stages. Imports nothing else of this crate.

mod batch;
mod content_hash;
mod coverage_interval;
mod delivery;
mod display_control;
mod drift;
mod duration;
mod epoch;
mod failpoints;
mod flags;
mod identifier;
mod intervals;
mod long_texts;
mod named;
mod normal_forms;
mod page_request;
mod rng;
mod scan;
mod service_address;
mod service_profile;
mod stream;
mod survey_status;
mod time;
mod time_account;
mod user_lookup;
mod warehouse_kind;
mod window;

pub use batch::{DiscardedRows, FlatPage, Reject, RejectReason, TableBatch};
pub(crate) use content_hash::{RowContent, column_name_hash, key_hashes};
pub use coverage_interval::{CoverageInterval, NEEDS_RECHECK_MS};
pub use delivery::{Delivery, EventKind, FlatEvents};
pub use display_control::is_display_control;
pub use drift::{DRIFT_PLACES_MAX, Drift, DriftEntry, DriftFate, DriftKind, DriftMode, DriftPolicy, DriftRules};
pub use duration::{format_duration, format_duration_short};
pub use epoch::{EpochUnit, epoch_ms};
pub use failpoints::{DurableStep, Failpoints};
pub use flags::{Flag, FlagSet};
pub use identifier::{
    IDENTIFIER_BYTES_MAX, Identifier, IdentifierKind, Spellings, WrittenIdentifier, is_email_attribute, merge_spellings,
};
pub use intervals::IntervalSet;
pub use long_texts::LongTexts;
pub use normal_forms::{composed, folded, unicode_domain, uuid_in_normal_form};
pub use page_request::{EndStyle, EndStyles, PageRequest, PageToken, Proof};
pub use rng::Rng;
pub use scan::{RowStamp, RunId, Scan, ScanId};
pub use service_address::{host_and_port, is_same_service};
pub use service_profile::{ListOrder, RetryAfterForm, RowTime, ThemeTime, Ties, names as behaviour_names};
pub use stream::Stream;
pub use survey_status::{StatusFilter, StatusSpelling, SurveyStatus};
pub use time::{
    DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, format_ms, is_in_future, is_recent, parse_date, parse_duration,
    parse_moment, parse_month,
};
pub use time_account::{Activity, ActivityGuard, TimeAccount, TimeParts};
pub use user_lookup::{PersonLookup, USER_ID_BYTES_MAX, can_request_user};
pub use warehouse_kind::{WarehouseKind, WarehousePaths};
pub use window::{Scope, Window};
