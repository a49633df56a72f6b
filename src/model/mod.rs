//! The shared types of all stages. Imports nothing else of this crate.

mod batch;
mod catalog_address;
mod content_hash;
mod drift;
mod failpoints;
mod identifier;
mod location;
mod named;
mod normal_forms;
mod outcome;
mod page_request;
mod rng;
mod scan;
mod service_profile;
mod shard;
mod stored_report;
mod stream;
mod time;
mod time_account;
mod time_zone;
mod untrusted;
mod warehouse_kind;
mod window;

pub use batch::{
    Delivery, DiscardedRows, EventKind, FlatEvents, FlatPage, LongTexts, PageDetail, RecordSet, Reject, RejectReason,
    TableBatch, long_text_bytes,
};
pub use catalog_address::{
    CatalogAddress, CatalogKeys, CatalogPlace, LakeCatalog, PostgresAddress, Snapshots, set_parameters,
};
pub(crate) use content_hash::{RowContent, column_name_hash, key_hashes};
pub use drift::{DRIFT_PLACES_MAX, Drift, DriftEntry, DriftFate, DriftKind, DriftMode, DriftPolicy, DriftRules};
pub use failpoints::{DurableStep, Failpoints};
pub use identifier::{
    IDENTIFIER_BYTES_MAX, Identifier, IdentifierKind, PersonLookup, Spellings, USER_ID_BYTES_MAX, WrittenIdentifier,
    can_request_user, is_email_attribute, merge_spellings,
};
pub use location::{BucketAddress, Location, TestServer};
pub use normal_forms::{composed, folded, is_display_control, unicode_domain, uuid_in_normal_form};
pub use outcome::{FREE_SPACE, Fault, NEEDS_LOCKS, Outcome, RunReason, USE_NEWER};
pub use page_request::{EndStyle, EndStyles, PageRequest, PageToken, Proof};
pub use rng::Rng;
pub use scan::{RowStamp, RunId, Scan, ScanId};
pub use service_profile::{
    ListOrder, RetryAfterForm, RowTime, ThemeTime, Ties, host_and_port, is_same_service, names as behaviour_names,
};
pub use shard::Shard;
pub use stored_report::StoredReport;
pub use stream::{Flag, FlagSet, StatusFilter, StatusSpelling, Stream, SurveyStatus};
pub use time::{
    DAY_MS, EpochUnit, HOUR_MS, MINUTE_MS, SECOND_MS, epoch_ms, format_duration, format_duration_short, format_elapsed,
    format_ms, format_second, is_in_future, is_recent, parse_date, parse_duration, parse_moment, parse_month,
};
pub use time_account::{Activity, ActivityGuard, TimeAccount, TimeParts};
pub use time_zone::{TimeZone, ZoneOffset};
pub use untrusted::{CLOCK, NEEDS_RECHECK, Untrusted, WITHHELD};
pub use warehouse_kind::{WarehouseKind, WarehouseLocations, WarehousePaths};
pub use window::{CoverageInterval, IntervalSet, NEEDS_RECHECK_MS, Scope, Window};
