//! Counts the database files that this process has open. DuckDB's lock on a file belongs to the process. So the system
//! does not refuse a second handle of the same process, and closing that handle drops the lock of the first. A
//! [`Claim`] prevents this: it must be taken before a handle is opened.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::load::LoadError;

/// For each open file the number of readers in this process, or [`WRITER`] if this process writes the file.
static OPEN: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());
/// Stands for one writer in [`OPEN`].
const WRITER: usize = usize::MAX;

/// The right to open a file in this process, until the claim is dropped. A file has one claim of a writer, or any
/// number of claims of readers.
#[derive(Debug)]
pub(in crate::load) struct Claim {
    /// The key of the file in [`OPEN`].
    path: PathBuf,
}

impl Claim {
    /// Claims the file for a writer. Fails with `Locked` if this process has the file open.
    pub(in crate::load) fn for_writing(path: &Path) -> Result<Self, LoadError> {
        Self::take(path, |open| (open == 0).then_some(WRITER))
    }

    /// Claims the file for a reader. Fails with `Locked` if this process has a writer of the file.
    pub(in crate::load) fn for_reading(path: &Path) -> Result<Self, LoadError> {
        Self::take(path, |open| (open != WRITER).then(|| open + 1))
    }

    /// Replaces the count of the file by the result of `new_count`, which gets the present count. Fails with `Locked`
    /// if `new_count` returns `None`.
    fn take(path: &Path, new_count: impl FnOnce(usize) -> Option<usize>) -> Result<Self, LoadError> {
        let key = key_of(path);
        // A lock that a panic poisoned is used too: each change of the map is one statement, so the map is never half
        // changed.
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        match new_count(open.get(&key).copied().unwrap_or(0)) {
            Some(count) => {
                open.insert(key.clone(), count);
                Ok(Self { path: key })
            }
            None => Err(LoadError::Locked { path: path.to_owned(), holder: Some("this process".into()) }),
        }
    }
}

impl Drop for Claim {
    /// Gives the right back: subtracts a reader, or removes the file from [`OPEN`] after the last reader or the writer.
    fn drop(&mut self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(&self.path) {
            Some(count) if *count != WRITER && *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.path)),
        }
    }
}

/// Returns the path of the file without links, so that one file has one key. A file that does not exist yet gets the
/// path of its folder without links.
fn key_of(path: &Path) -> PathBuf {
    let resolved = path.canonicalize().ok();
    let in_folder = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    resolved.or_else(in_folder).or_else(|| std::path::absolute(path).ok()).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_or_many_readers() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("w.duckdb");
        let refused = |claim: Result<Claim, LoadError>| matches!(claim, Err(LoadError::Locked { .. }));
        let writer = Claim::for_writing(&path).unwrap();
        // Created since, and named in another way: the same file.
        std::fs::write(&path, "").unwrap();
        let otherwise = folder.path().join(".").join("w.duckdb");
        assert!(refused(Claim::for_reading(&otherwise)) && refused(Claim::for_writing(&otherwise)));
        drop(writer);
        let first = Claim::for_reading(&path).unwrap();
        let second = Claim::for_reading(&otherwise).unwrap();
        drop(first);
        assert!(refused(Claim::for_writing(&path)));
        drop(second);
        Claim::for_writing(&path).unwrap();
    }
}
