//! Tells from the times of files whether a copy for readers has the content of its warehouse. No warehouse is opened.

use std::{fs, path::Path, time::UNIX_EPOCH};

use super::store::duckdb::has_commit_log;
use crate::{
    files::{FileError, files_below},
    model::WarehouseKind,
    schema,
};

/// Whether a copy for readers has the content of its warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyAge {
    /// The warehouse has not changed since the copy was made.
    Current,
    /// The warehouse has changed since then, or a file of the copy is missing.
    Older,
    /// There is no copy, or an erasure has emptied it.
    Missing,
}

impl CopyAge {
    /// Returns the age in one word, as the JSON of `status` names it.
    pub fn name(self) -> &'static str {
        match self {
            CopyAge::Current => "current",
            CopyAge::Older => "older",
            CopyAge::Missing => "missing",
        }
    }

    /// Compares a copy with its original. Also returns the time of the last change of the warehouse that the copy has,
    /// in epoch milliseconds; `None` without a copy.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn of(kind: WarehouseKind, original: &Path, copy: &Path) -> Result<(CopyAge, Option<i64>), FileError> {
        let times =
            if kind.is_folder() { times_of_folder(original, copy)? } else { vec![[original, copy].map(changed_ms)] };
        let as_of_ms = times.iter().filter_map(|[_, copied]| *copied).max();
        let is_equal = times.iter().all(|[original, copied]| original == copied);
        let age = match as_of_ms {
            None => CopyAge::Missing,
            Some(_) if is_equal && (kind.is_folder() || !has_commit_log(original)) => CopyAge::Current,
            Some(_) => CopyAge::Older,
        };
        Ok((age, as_of_ms))
    }
}

/// Returns the times of each file of tables in the warehouse, and of its copy. A copy has the time of its original.
fn times_of_folder(original: &Path, copy: &Path) -> Result<Vec<[Option<i64>; 2]>, FileError> {
    let mut times = Vec::new();
    for table in schema::tables() {
        for path in files_below(&original.join(&table.name))? {
            if let Ok(within) = path.strip_prefix(original)
                && path.extension().is_some_and(|name| name == "parquet")
            {
                times.push([changed_ms(&path), changed_ms(&copy.join(within))]);
            }
        }
    }
    Ok(times)
}

/// Returns when a file changed, in epoch milliseconds; `None` for a file that is missing or empty.
fn changed_ms(path: &Path) -> Option<i64> {
    let found = fs::metadata(path).ok().filter(|found| found.len() > 0)?;
    let since = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}
