//! Checks the metrics file and the notifications of runs.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::{
    clock,
    config::{Settings, program_folders},
    notify::{TestResult, send_test},
};

use super::{super::CommandError, finding::Finding, writable};

/// Returns a finding for the metrics file and one for the notification command, if they are configured.
pub(super) fn findings(settings: &Settings) -> Vec<Finding> {
    let textfile = settings.metrics.textfile.as_deref().map(textfile);
    let command = settings.notify.command.first().map(|program| command(program));
    textfile.into_iter().chain(command).collect()
}

/// Sends a test message to the command and the webhook of `[notify]`. Returns a finding for each.
pub(super) async fn send_tests(settings: &Settings) -> Vec<Finding> {
    if !settings.notify.is_enabled() {
        let error = CommandError::Usage("[notify] names neither a command nor a webhook".to_owned());
        return vec![Finding::error("notify", error)];
    }
    let finding = |test: TestResult| match test.result {
        Ok(()) => Finding::ok("notify", format!("the {} accepted a test message", test.channel.name())),
        Err(problem) => Finding::error("notify", CommandError::Refused(problem)),
    };
    send_test(settings, clock::now_ms()).await.into_iter().map(finding).collect()
}

/// Checks that the metrics file can be written.
fn textfile(path: &Path) -> Finding {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let found = format!("{} cannot be written: its folder does not exist", path.display());
        let hint = format!("create the folder {}, or correct textfile under [metrics]", folder.display());
        return Finding::problem("metrics", found, hint, 1);
    }
    writable::folders("metrics", &[folder.to_owned()], format!("{} can be written", path.display()))
}

/// Checks that the notification command is an executable program.
fn command(program: &str) -> Finding {
    match executable(program) {
        Some(path) => Finding::ok("notify", format!("runs {}; --notify tests it", path.display())),
        None => {
            let hint =
                "correct command under [notify]: a list with the program first, and each argument as its own text";
            Finding::problem("notify", format!("there is no executable program '{program}'"), hint, 1)
        }
    }
}

/// Returns the executable file of a program. `program` is a path, or a name that is searched in `PATH`. `None` if there
/// is no such file.
fn executable(program: &str) -> Option<PathBuf> {
    let is_executable =
        |path: &PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_executable);
    }
    program_folders().into_iter().map(|folder| folder.join(program)).find(is_executable)
}
