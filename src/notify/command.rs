//! Notifies by a command: passes the run's JSON on standard input and limits the time of the command and its children.

use std::{
    io::{self, Read as _, Write as _},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    config::{Settings, private_variables},
    process_group::ProcessGroup,
};

use super::message::Message;

/// Interval between two checks if the command has ended.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// Maximum bytes of standard error that the log shows.
const STDERR_BYTES_MAX: u64 = 2048;
/// How long to wait for the text on standard error after the command has ended.
const STDERR_WAIT: Duration = Duration::from_millis(200);

/// Kills the command and its children when dropped.
#[derive(Debug, Default)]
pub(super) struct KillOnDrop(ProcessGroup);

impl KillOnDrop {
    /// Returns the guard to pass to [`run`].
    pub fn guard(&self) -> ProcessGroup {
        self.0.clone()
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Runs the command with the message as input and variables. Kills the command and its children at the time limit.
/// Blocks the thread.
///
/// # Errors
/// A text that says why: the command cannot be run, failed, or reached the time limit.
pub(super) fn run(settings: &Settings, message: &Message, guard: &ProcessGroup) -> Result<(), String> {
    let notify = &settings.notify;
    let Some((program, arguments)) = notify.command.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments);
    // The command must not see secrets, and the configuration can put a secret into a variable of any name.
    let secret_variables = [
        settings.service.api_key_source.variable(),
        settings.serve.token_source.variable(),
        settings.serve.status_token_source.variable(),
        notify.url_variable(),
    ];
    for variable in private_variables().iter().map(String::as_str).chain(secret_variables.into_iter().flatten()) {
        command.env_remove(variable);
    }
    command.envs(message.variables());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = guard.spawn(&mut command).map_err(|error| format!("cannot run {program}: {error}"))?;
    // The input is written on a thread, because the command may never read it.
    if let Some(mut input) = child.stdin.take() {
        let json = message.run.to_string();
        thread::spawn(move || input.write_all(json.as_bytes()));
    }
    let stderr = read_stderr(&mut child);
    let started = Instant::now();
    let cannot_wait = |error: io::Error| format!("cannot wait for {program}: {error}");
    while !guard.has_ended().map_err(cannot_wait)? {
        if started.elapsed() >= notify.timeout {
            guard.kill();
            let _ = guard.reap(&mut child);
            return Err(format!("{program} was killed after {} s", notify.timeout.as_secs()));
        }
        thread::sleep(POLL_EVERY);
    }
    match guard.reap(&mut child).map_err(cannot_wait)? {
        status if status.success() => Ok(()),
        status => Err(format!("{program} ended with {status}{}", stderr_suffix(&stderr))),
    }
}

/// Reads the beginning of standard error on a thread. A child of the command may keep the pipe open for ever, so nobody
/// waits for the end of the pipe.
fn read_stderr(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    if let Some(mut stderr) = child.stderr.take() {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.by_ref().take(STDERR_BYTES_MAX).read_to_end(&mut bytes);
            let _ = sender.send(String::from_utf8_lossy(&bytes).trim().to_owned());
            // The rest is discarded, so that the command does not block on a full pipe.
            let _ = io::copy(&mut stderr, &mut io::sink());
        });
    }
    receiver
}

/// Returns `: TEXT` with the text on standard error, or nothing if there is none.
fn stderr_suffix(stderr: &mpsc::Receiver<String>) -> String {
    match stderr.recv_timeout(STDERR_WAIT) {
        Ok(text) if !text.is_empty() => format!(": {}", text.replace(char::is_control, " ")),
        _ => String::new(),
    }
}
