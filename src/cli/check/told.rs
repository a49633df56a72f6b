//! Whether somebody can be told of runs: the textfile of metrics, and the command of notifications.
//! `check --notify` sends a message.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::config::{Settings, program_folders};

use super::{finding::Finding, trial::can_be_made};

/// A finding for each that is set up.
pub(super) fn findings(settings: &Settings) -> Vec<Finding> {
    let textfile = settings.metrics.textfile.as_deref().map(textfile);
    let command = settings.notify.command.first().map(|program| command(program));
    textfile.into_iter().chain(command).collect()
}

fn textfile(path: &Path) -> Finding {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let hint = format!("make the folder {}, or correct textfile under [metrics]", folder.display());
        return Finding::wrong(
            "metrics",
            format!("{} cannot be written: its folder is not there", path.display()),
            hint,
            1,
        );
    }
    match can_be_made(&folder.join("trial")) {
        Ok(()) => Finding::well("metrics", format!("{} can be written", path.display())),
        Err(error) => Finding::broken("metrics", error),
    }
}

fn command(program: &str) -> Finding {
    match found(program) {
        Some(path) => Finding::well("notify", format!("runs {}; --notify tries it", path.display())),
        None => {
            let hint =
                "correct command under [notify]: a list with the program first, and each argument a text of its own";
            Finding::wrong("notify", format!("there is no program '{program}' that can be run"), hint.to_owned(), 1)
        }
    }
}

/// The file of a program, by its path or by PATH.
fn found(program: &str) -> Option<PathBuf> {
    let is_program =
        |path: &PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    program_folders().into_iter().map(|folder| folder.join(program)).find(is_program)
}
