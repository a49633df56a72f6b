//! Where files are, who owns them and who may read them: links, devices, modes, owners,
//! and errors about unreadable files.

mod access;
mod installed;
mod links;
mod outputs;
mod owners;
mod refusals;

use std::{os::unix::fs::MetadataExt, path::Path};

/// The rights of a file or folder.
fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).mode() & 0o777
}
