//! Notifies by a command: passes the run's JSON on standard input and limits the time of the command and its children.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::config::{Settings, private_variables};

use super::message::Message;

/// Interval between two checks if the command has ended.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// Maximum bytes of standard error that the log shows.
const STDERR_BYTES_MAX: u64 = 2048;
/// How long to wait for the text on standard error after the command has ended.
const STDERR_WAIT: Duration = Duration::from_millis(200);

/// Kills the command and its children when dropped.
#[derive(Debug, Default)]
pub(super) struct KillOnDrop(ProcessGuard);

impl KillOnDrop {
    /// Returns the guard to pass to [`run`].
    pub fn guard(&self) -> ProcessGuard {
        self.0.clone()
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Starts, polls and kills one process group. Clones share the process.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessGuard(Arc<Mutex<ProcessState>>);

#[derive(Debug, Default)]
enum ProcessState {
    #[default]
    NotStarted,
    /// The process group of the running command. The leader of the group was not reaped yet, so no other process has
    /// this number.
    Running(Pid),
    Ended,
}

impl ProcessGuard {
    fn state(&self) -> MutexGuard<'_, ProcessState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the command. Fails if [`ProcessGuard::kill`] was called before.
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut state = self.state();
        if matches!(*state, ProcessState::Ended) {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        let child = command.spawn()?;
        *state = ProcessState::Running(Pid::from_child(&child));
        Ok(child)
    }

    /// Returns the exit status if the command has ended.
    fn try_wait(&self, child: &mut Child) -> io::Result<Option<ExitStatus>> {
        let mut state = self.state();
        let status = child.try_wait()?;
        if status.is_some() {
            *state = ProcessState::Ended;
        }
        Ok(status)
    }

    /// Kills the process group if the command runs. The command can no longer be started afterwards.
    fn kill(&self) {
        let mut state = self.state();
        if let ProcessState::Running(group) = *state {
            // The call fails if the group has just ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        *state = ProcessState::Ended;
    }
}

/// Runs the command with the message as input and variables. Kills the command and its children at the time limit.
/// Blocks the thread.
///
/// # Errors
/// A text that says why: the command cannot be run, failed, or reached the time limit.
pub(super) fn run(settings: &Settings, message: &Message, guard: &ProcessGuard) -> Result<(), String> {
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
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let mut child = guard.spawn(&mut command).map_err(|error| format!("cannot run {program}: {error}"))?;
    // The input is written on a thread, because the command may never read it.
    if let Some(mut input) = child.stdin.take() {
        let json = message.run.to_string();
        thread::spawn(move || input.write_all(json.as_bytes()));
    }
    let stderr = read_stderr(&mut child);
    let started = Instant::now();
    loop {
        match guard.try_wait(&mut child) {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{program} ended with {status}{}", stderr_suffix(&stderr))),
            Ok(None) if started.elapsed() < notify.timeout => thread::sleep(POLL_EVERY),
            Ok(None) => {
                guard.kill();
                let _ = child.wait();
                return Err(format!("{program} was killed after {} s", notify.timeout.as_secs()));
            }
            Err(error) => return Err(format!("cannot wait for {program}: {error}")),
        }
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
