//! File locations, owners and permissions: links, devices, modes, and errors about unreadable files.

mod access;
mod installed;
mod links;
mod outputs;
mod owners;
mod refusals;

use std::{os::unix::fs::MetadataExt, path::Path};

/// Returns the permission bits of a file or folder.
fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).mode() & 0o777
}
