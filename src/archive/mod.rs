//! Stores the exact bytes of every page on disk before any other stage reads them.
//!
//! The file of an unfinished scan is the *spool* from which the next run resumes. After the commit the same file is the
//! *archive* from which every table can be rebuilt. The archive knows neither the content of a page nor how the page
//! was fetched.
//!
//! ```text
//! <root>/owner.json                                the state file that owns the folder
//! <root>/under-way/<scan id>.pages                 spools of unfinished scans
//! <root>/<stream>/<YYYY-MM of the window>/<scan id>.pages   committed scans, if pages are kept
//! ```
//!
//! In a bucket, the files of committed scans and `owner.json` are objects. The spools stay in a folder of this machine.

mod error;
mod frame;
#[cfg(fuzzing)]
pub mod fuzzing;
mod objects;
mod owner;
mod page_file;
mod parallel;
mod reader;
mod rewrite;
mod spool;
mod store;

pub use error::ArchiveError;
pub use frame::{FileHeader, PAGE_BYTES_MAX};
pub use owner::ArchiveSettings;
pub use page_file::PageFile;
pub use reader::{FileSummary, Pages, read_pages, summarize};
pub use rewrite::{PageChange, RewriteCounts};
pub use spool::{RecoveredSpool, Spool, SpoolContent};
pub use store::Archive;

#[cfg(test)]
mod bucket_tests;
#[cfg(test)]
mod tests;
