//! A command that is told: the run's JSON on its standard input, and a time limit for it and all that it starts.

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

/// How often it is looked whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What is read of its standard error, to be told in the log.
const SAID_BYTES_MAX: u64 = 2048;
/// How long its last words are waited for, once it has ended.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Kills the command with all that it started when nobody waits for its end any more.
#[derive(Debug, Default)]
pub(super) struct Leash(Arc<Mutex<Leashed>>);

#[derive(Debug, Default)]
enum Leashed {
    #[default]
    NotBegun,
    /// The process group; its leader is not yet waited for, so the number is nobody else's.
    Runs(Pid),
    Over,
}

impl Leash {
    /// The same for the thread that runs the command.
    pub fn end(&self) -> LeashEnd {
        LeashEnd(Arc::clone(&self.0))
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        LeashEnd(Arc::clone(&self.0)).kill();
    }
}

/// The side of the thread that runs the command.
#[derive(Debug)]
pub(super) struct LeashEnd(Arc<Mutex<Leashed>>);

impl LeashEnd {
    fn leashed(&self) -> MutexGuard<'_, Leashed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the command, unless nobody waits for it any more.
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut leashed = self.leashed();
        if matches!(*leashed, Leashed::Over) {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        let child = command.spawn()?;
        *leashed = Leashed::Runs(Pid::from_child(&child));
        Ok(child)
    }

    /// Looks whether the command has ended.
    fn try_wait(&self, child: &mut Child) -> io::Result<Option<ExitStatus>> {
        let mut leashed = self.leashed();
        let status = child.try_wait()?;
        if status.is_some() {
            *leashed = Leashed::Over;
        }
        Ok(status)
    }

    fn kill(&self) {
        let mut leashed = self.leashed();
        if let Leashed::Runs(group) = *leashed {
            // It may have ended in this moment.
            let _ = kill_process_group(group, Signal::KILL);
        }
        *leashed = Leashed::Over;
    }
}

/// Runs the command, and kills it with all that it started when its time is over. Blocks the thread.
///
/// # Errors
/// Why it did not end well, in words.
pub(super) fn run(settings: &Settings, message: &Message, leash: &LeashEnd) -> Result<(), String> {
    let notify = &settings.notify;
    let Some((program, arguments)) = notify.command.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments);
    // What is told needs none of the secrets. They can be in variables of any name.
    let named = [
        settings.service.api_key_source.variable(),
        settings.serve.token_source.variable(),
        settings.serve.status_token_source.variable(),
        notify.url_variable(),
    ];
    for variable in private_variables().iter().map(String::as_str).chain(named.into_iter().flatten()) {
        command.env_remove(variable);
    }
    command.envs(message.variables());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let mut child = leash.spawn(&mut command).map_err(|error| format!("cannot run {program}: {error}"))?;
    // Whoever does not read its input is not waited for.
    if let Some(mut input) = child.stdin.take() {
        let json = message.run.to_string();
        thread::spawn(move || input.write_all(json.as_bytes()));
    }
    let said = last_words(&mut child);
    let begun = Instant::now();
    loop {
        match leash.try_wait(&mut child) {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{program} ended with {status}{}", shown(&said))),
            Ok(None) if begun.elapsed() < notify.timeout => thread::sleep(LOOK_EVERY),
            Ok(None) => {
                leash.kill();
                let _ = child.wait();
                return Err(format!("{program} was killed after {} s", notify.timeout.as_secs()));
            }
            Err(error) => return Err(format!("{program} cannot be waited for: {error}")),
        }
    }
}

/// What it says on its standard error. What it started may hold that open for ever, so the end is not waited for.
fn last_words(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    if let Some(stderr) = child.stderr.take() {
        thread::spawn(move || {
            let mut stderr = stderr;
            let mut bytes = Vec::new();
            let _ = stderr.by_ref().take(SAID_BYTES_MAX).read_to_end(&mut bytes);
            let _ = sender.send(String::from_utf8_lossy(&bytes).trim().to_owned());
            // The rest goes nowhere, so that the command does not wait for a reader.
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
        });
    }
    receiver
}

fn shown(said: &mpsc::Receiver<String>) -> String {
    match said.recv_timeout(LAST_WORDS) {
        Ok(words) if !words.is_empty() => format!(": {}", words.replace(char::is_control, " ")),
        _ => String::new(),
    }
}
