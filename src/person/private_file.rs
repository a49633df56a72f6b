//! Files that only this user can read: keys, lists, journals and receipts.

use std::{
    io::{self, Write},
    path::Path,
};

use crate::files::{Access, Output};

/// Writes such a file in one step and durably:
/// a kill leaves what was there before, and perhaps `<file>.new`, which the next write removes.
pub fn write_privately(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = Output::begin(path, ".new", Access::Private)?;
    file.write_all(bytes)?;
    file.finish()
}
