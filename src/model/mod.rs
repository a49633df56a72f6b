//! The words of the design as types. Imports nothing else of this crate.

mod account;
mod batch;
mod flags;
mod intervals;
mod page;
mod scan;
mod segment;
mod stream;
mod time;
mod window;

pub use account::{Activity, Busy, TimeAccount, TimeParts};
pub use batch::{FlatPage, Reject, RejectReason, TableBatch};
pub use flags::{Flag, FlagSet};
pub use intervals::IntervalSet;
pub use page::{EndStyle, EndStyles, PageRequest, PageToken, Proof};
pub use scan::{RunId, Scan, ScanId};
pub use segment::{IN_DOUBT_MS, Segment};
pub use stream::Stream;
pub use time::{DAY_MS, HOUR_MS, MINUTE_MS, format_ms, parse_date};
pub use window::{Scope, Window};
