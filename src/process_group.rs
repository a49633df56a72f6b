//! Commands that the program starts, as groups of processes: who ends a command also ends the processes that it
//! started, so that no command outlives the program or keeps a pipe open.

use std::{
    io,
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

/// The commands that run now, for [`kill_all`].
static RUNNING: Mutex<Vec<ProcessGroup>> = Mutex::new(Vec::new());

/// Starts, polls and kills one command. Clones share the command.
#[derive(Clone, Debug, Default)]
pub struct ProcessGroup(Arc<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    #[default]
    NotStarted,
    /// The process of the running command. It was not reaped yet, so no other process has this number.
    Running {
        leader: Pid,
        is_group: bool,
    },
    Ended,
}

impl ProcessGroup {
    /// Starts the command in a process group of its own.
    ///
    /// # Errors
    /// The command cannot be started, or [`ProcessGroup::kill`] was called before.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.start(command.process_group(0), true)
    }

    /// Starts the command in the group of this program, so that it can ask a question on the terminal. Only the command
    /// itself is killed; Ctrl-C ends what it started.
    ///
    /// # Errors
    /// As [`ProcessGroup::spawn`].
    pub fn spawn_on_terminal(&self, command: &mut Command) -> io::Result<Child> {
        self.start(command, false)
    }

    fn start(&self, command: &mut Command, is_group: bool) -> io::Result<Child> {
        let mut state = self.state();
        if matches!(*state, State::Ended) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let child = command.spawn()?;
        *state = State::Running { leader: Pid::from_child(&child), is_group };
        drop(state);
        running().push(self.clone());
        Ok(child)
    }

    /// Returns true if the command has ended. The command is not reaped, so that its group can still be killed.
    pub fn has_ended(&self) -> io::Result<bool> {
        match *self.state() {
            State::Running { leader, .. } => {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                Ok(waitid(WaitId::Pid(leader), options)?.is_some())
            }
            State::NotStarted | State::Ended => Ok(true),
        }
    }

    /// Reaps a command that has ended, and returns its exit status.
    pub fn reap(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let mut state = self.state();
        *state = State::Ended;
        let status = child.wait();
        drop(state);
        running().retain(|other| !Arc::ptr_eq(&other.0, &self.0));
        status
    }

    /// Kills the command and what it started. The command can no longer be started afterwards.
    pub fn kill(&self) {
        let mut state = self.state();
        match *state {
            // The calls fail if the processes have just ended.
            State::Running { leader, is_group: true } => drop(kill_process_group(leader, Signal::KILL)),
            State::Running { leader, is_group: false } => drop(kill_process(leader, Signal::KILL)),
            State::NotStarted => *state = State::Ended,
            State::Ended => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills every command that still runs, because the program ends.
pub fn kill_all() {
    for group in running().iter() {
        group.kill();
    }
}

fn running() -> MutexGuard<'static, Vec<ProcessGroup>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
