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
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    scopes: Vec<(ScopeWork, Cutter)>,
    second_looks: Vec<Task>,
}

impl Queue {
    pub fn new(work: Vec<ScopeWork>, progress: &Progress) -> Self {
        let scopes = work.into_iter().map(|work| {
            work.due.iter().for_each(|due| progress.due(work.scope, due));
            let cutter =
                Cutter::new(work.due.clone(), work.held.clone(), work.page_rows, work.scope.stream.is_windowed());
            (work, cutter)
        });
        Self { scopes: scopes.collect(), second_looks: Vec::new() }
    }

    pub fn next_task(&mut self) -> Option<Task> {
        if let Some(task) = self.second_looks.pop() {
            return Some(task);
        }
        self.scopes.iter_mut().find_map(|(work, cutter)| {
            let due = cutter.next_window()?;
            Some(Task {
                scope: work.scope,
                flags: work.rules.flags,
                page_rows: work.page_rows,
                due,
                is_first_proof: due.reason != Reason::Rescan,
                is_second_look: false,
            })
        })
    }

    /// What a scan showed, for the size of the windows to come.
    pub fn learn(&mut self, scope: Scope, window: Window, rows: u64) {
        if let Some(cutter) = self.cutter(scope) {
            cutter.learn(window, rows);
        }
    }

    /// Cuts a window that was too much for the service in two; `false` when it cannot be cut any smaller. A window that an
    /// earlier run began has no plan here: it is left to the plan that follows, which finds it due.
    pub fn halve(&mut self, task: &Task) -> bool {
        self.cutter(task.scope).is_none_or(|cutter| cutter.halve(task.due.window, task.due.reason))
    }

    /// Forgets what is left of a stream: another run pulls it.
    pub fn leave(&mut self, stream: Stream) {
        self.scopes.retain(|(work, _)| work.scope.stream != stream);
        self.second_looks.retain(|task| task.scope.stream != stream);
    }

    /// A window is looked at again, with pages of another size: a service that loses rows at page edges loses others then.
    pub fn look_again(&mut self, task: &Task, progress: &Progress) {
        progress.due(task.scope, &task.due);
        let page_rows = (task.page_rows * 2 / 3).max(1);
        self.second_looks.push(Task { page_rows, is_second_look: true, is_first_proof: false, ..task.clone() });
    }

    fn cutter(&mut self, scope: Scope) -> Option<&mut Cutter> {
        self.scopes.iter_mut().find(|(work, _)| work.scope == scope).map(|(_, cutter)| cutter)
    }
}
