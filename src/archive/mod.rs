//! The exact bytes of the pages of every scan, on disk before anything else sees them.
//!
//! While a scan is under way its file is the *spool* from which a killed run goes on; once the scan is committed the
//! same file is the archive from which every table can be built again.
//! Knows neither what is in a page nor how it was fetched.
//!
//! ```text
//! <root>/owner.json                                whose pages they are
//! <root>/under-way/<scan id>.pages                 scans that are not committed yet
//! <root>/<stream>/<YYYY-MM of the window>/<scan id>.pages   committed scans, if they are kept
//! ```

mod error;
mod frame;
#[cfg(fuzzing)]
pub mod fuzzing;
mod owner;
mod reader;
mod rewrite;
mod spool;
mod store;

pub use error::ArchiveError;
pub use frame::{FileHeader, PAGE_BYTES_MAX};
pub use reader::{FileSummary, Pages, read_pages, summarize};
pub use rewrite::{FRESH_SUFFIX, PageChange, Rewritten, rewrite};
pub use spool::{Recovered, Spool};
pub use store::{Archive, ArchiveSettings};

#[cfg(test)]
mod tests;
