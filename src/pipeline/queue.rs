//! The windows still to be pulled, scope by scope in the order of the plan.

use crate::{
    model::{FlagSet, Scope, Stream, Window},
    plan::{Cutter, Due, Reason},
};

use super::{Progress, ScopeWork};

/// One window to pull.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub scope: Scope,
    pub flags: FlagSet,
    pub page_rows: u32,
    pub due: Due,
    /// Whether the ledger is told even if nothing changed: the window was never proven complete before.
    pub is_first_proof: bool,
    /// Whether this is a second look at rows that seem to have vanished.
    pub is_second_look: bool,
    /// Whether this is a part of a window that did not come.
    pub is_part: bool,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    scopes: Vec<ScopeQueue>,
    second_looks: Vec<Task>,
}

#[derive(Debug)]
struct ScopeQueue {
    work: ScopeWork,
    cutter: Cutter,
    /// Whether a window of guessed length is under way. The others wait for what it shows: short ones take more pages
    /// that are not full, and more looks at edges.
    is_scouting: bool,
}

impl Queue {
    pub fn new(work: Vec<ScopeWork>, progress: &Progress) -> Self {
        let scopes = work.into_iter().map(|work| {
            work.due.iter().for_each(|due| progress.due(work.scope, due));
            let cutter =
                Cutter::new(work.due.clone(), work.held.clone(), work.page_rows, work.scope.stream.is_windowed());
            ScopeQueue { work, cutter, is_scouting: false }
        });
        Self { scopes: scopes.collect(), second_looks: Vec::new() }
    }

    /// The next window to pull; `None` when there is none, or none before one under way has ended.
    pub fn next_task(&mut self) -> Option<Task> {
        if let Some(task) = self.second_looks.pop() {
            return Some(task);
        }
        self.scopes.iter_mut().filter(|scope| !scope.is_scouting).find_map(
            |ScopeQueue { work, cutter, is_scouting }| {
                let is_blind = cutter.is_blind();
                let due = cutter.next_window()?;
                *is_scouting = is_blind;
                Some(Task {
                    scope: work.scope,
                    flags: work.rules.flags,
                    page_rows: work.page_rows,
                    due,
                    is_first_proof: due.reason != Reason::Rescan,
                    is_second_look: false,
                    is_part: cutter.is_half(due.window),
                })
            },
        )
    }

    /// The streams of which something is not handed out yet.
    pub fn remaining(&self) -> impl Iterator<Item = Stream> {
        let has_more = |scope: &&ScopeQueue| scope.cutter.remaining().next().is_some();
        self.scopes.iter().filter(has_more).map(|scope| scope.work.scope.stream)
    }

    /// A window was pulled, or given up: how many rows it showed, for the size of the windows to come.
    pub fn ended(&mut self, scope: Scope, window: Window, rows: Option<u64>) {
        if let Some(queue) = self.scope(scope) {
            queue.is_scouting = false;
            rows.into_iter().for_each(|rows| queue.cutter.learn(window, rows));
        }
    }

    /// Cuts a window that was too much for the service in two; `false` when it cannot be cut any smaller. A window that
    /// an earlier run began has no plan here: it is left to the plan that follows, which finds it due.
    pub fn halve(&mut self, task: &Task) -> bool {
        self.scope(task.scope).is_none_or(|queue| queue.cutter.halve(task.due.window, task.due.reason))
    }

    /// Forgets what is left of a stream: another run pulls it.
    pub fn leave(&mut self, stream: Stream) {
        self.scopes.retain(|scope| scope.work.scope.stream != stream);
        self.second_looks.retain(|task| task.scope.stream != stream);
    }

    /// A window is looked at again, with pages of another size:
    /// a service that loses rows at page edges loses others then.
    pub fn look_again(&mut self, task: &Task, progress: &Progress) {
        progress.due(task.scope, &task.due);
        let page_rows = (task.page_rows * 2 / 3).max(1);
        let second = Task { page_rows, is_second_look: true, is_first_proof: false, is_part: false, ..task.clone() };
        self.second_looks.push(second);
    }

    fn scope(&mut self, scope: Scope) -> Option<&mut ScopeQueue> {
        self.scopes.iter_mut().find(|queue| queue.work.scope == scope)
    }
}
