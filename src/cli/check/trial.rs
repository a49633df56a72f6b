//! Tries whether a file could be made.

use std::{fs::OpenOptions, path::Path};

use super::super::CommandError;

/// An error if something at this path could not be made. Nothing is left there.
pub(super) fn can_be_made(path: &Path) -> Result<(), CommandError> {
    let mut folders =
        path.ancestors().skip(1).map(|folder| if folder == Path::new("") { Path::new(".") } else { folder });
    let folder = folders.find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let trial = folder.join(format!(".studysync-check-{}", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).open(&trial).and_then(|_| std::fs::remove_file(&trial));
    made.map_err(|source| {
        CommandError::failed(format!("{} cannot be made in {}", path.display(), folder.display()), source)
    })
}
