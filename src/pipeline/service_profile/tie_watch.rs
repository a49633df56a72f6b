//! Tracks how the service treats ties, which are rows that share a millisecond (promise P3). A service may lose some
//! rows of a tie at a page boundary. One [`TieWatch`] serves the whole run; `scan::tie_probes` uses it for each window.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    clock::Clock,
    model::{DAY_MS, Scan, Scope, Stream, Ties, Window, behaviour_names, format_ms, is_recent},
    pipeline::error::PipelineError,
    plan::page_boundaries::{BoundarySampler, ScanBoundaries},
    state::State,
    wording::counted,
};

/// A measured behaviour older than this is measured again at the next tie.
const MEASURE_AGE_MAX_MS: i64 = 30 * DAY_MS;
/// The maximum number of windows in need of a recheck that a run names.
const RECHECKS_NAMED_MAX: usize = 20;
/// The maximum number of inconclusive measures per run.
const ATTEMPTS_MAX: u32 = 3;

/// The measured behaviour of the service at ties, shared by all pulls of a run and by clones.
#[derive(Clone, Debug)]
pub struct TieWatch(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    /// The behaviour of the service at ties, as last measured. `Unknown` before the first measure.
    belief: Ties,
    /// When the behaviour was measured, in epoch milliseconds.
    measured_ms: Option<i64>,
    /// True while a pull measures.
    is_measuring: bool,
    /// Number of inconclusive measures of this run.
    attempts: u32,
    /// Decides which boundaries are probed while the service is not known to lose rows.
    sampler: BoundarySampler,
    /// Windows that this run committed with unprobed boundaries and without a recheck. If the service turns out to lose
    /// rows, these windows are marked for recheck.
    unprobed: Vec<(Scope, Window)>,
    /// Notes about changes of the behaviour, for the report.
    notes: Vec<String>,
    /// Windows that may lack rows, for the report.
    rechecks: Vec<TieRecheck>,
}

/// A window that may lack rows.
#[derive(Clone, Debug)]
struct TieRecheck {
    scope: Scope,
    window: Window,
    /// The note for the report.
    text: String,
}

impl TieWatch {
    /// Loads the behaviour that an earlier run measured.
    pub fn load(state: &State, clock: Clock) -> Result<TieWatch, PipelineError> {
        let known = state.behaviour::<Ties>(behaviour_names::TIES)?;
        let (belief, measured_ms) = known.map_or((Ties::Unknown, None), |(ties, at_ms)| (ties, Some(at_ms)));
        Ok(TieWatch(Arc::new(Mutex::new(Inner {
            clock,
            belief,
            measured_ms,
            is_measuring: false,
            attempts: 0,
            sampler: BoundarySampler::default(),
            unprobed: Vec::new(),
            notes: Vec::new(),
            rechecks: Vec::new(),
        }))))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the behaviour to assume for a stream. For surveys, `Kept` and `Repeated` become `Unknown`, so that each
    /// page boundary is probed. The behaviour was measured with responses, and lists of surveys rarely have a boundary.
    pub fn belief(&self, stream: Stream) -> Ties {
        match (stream, self.inner().belief) {
            (Stream::Surveys, Ties::Kept | Ties::Repeated) => Ties::Unknown,
            (_, belief) => belief,
        }
    }

    /// Returns true if unprobed page boundaries of the stream may hide rows.
    pub fn may_lose(&self, stream: Stream) -> bool {
        self.belief(stream).may_lose()
    }

    /// Returns true if the next page boundary is to be probed. `is_shared`: the last record of the page shares its
    /// millisecond with another row of the page.
    pub fn is_probe_due(&self, belief: Ties, is_shared: bool) -> bool {
        self.inner().sampler.is_due(belief, is_shared)
    }

    /// Returns true if the caller should measure the next tie: ties are measured with responses only, if the behaviour
    /// is unknown or the last measure is old. No other pull measures until the caller calls [`TieWatch::end_measure`].
    pub fn begin_measure(&self, stream: Stream) -> bool {
        let mut inner = self.inner();
        let now_ms = inner.clock.now_ms();
        let is_old = inner.measured_ms.is_none_or(|at_ms| !is_recent(at_ms, now_ms, MEASURE_AGE_MAX_MS));
        let is_due = stream == Stream::Responses && (inner.belief == Ties::Unknown || is_old);
        if !is_due || inner.is_measuring || inner.attempts >= ATTEMPTS_MAX {
            return false;
        }
        inner.is_measuring = true;
        true
    }

    /// Lets other pulls measure.
    pub fn end_measure(&self) {
        self.inner().is_measuring = false;
    }

    /// Stores the result of a measure. If the service turns out to lose rows, marks windows that this run committed
    /// with unprobed boundaries for recheck. The windows are marked before the behaviour is stored, so that a kill in
    /// between only costs another measure. An `Unknown` result only counts as an attempt.
    pub fn measured(&self, state: &mut State, found: Ties) -> Result<(), PipelineError> {
        let mut inner = self.inner();
        let now_ms = inner.clock.now_ms();
        if found == Ties::Unknown {
            inner.attempts += 1;
            return Ok(());
        }
        let before = std::mem::replace(&mut inner.belief, found);
        inner.measured_ms = Some(now_ms);
        if found == Ties::Lost && before != Ties::Lost {
            let affected = std::mem::take(&mut inner.unprobed);
            for (scope, window) in &affected {
                state.mark_for_recheck(*scope, *window)?;
            }
            if !before.may_lose() || !affected.is_empty() {
                inner.notes.push(format!(
                    "the service was believed to have ties {before}, and loses rows that share a millisecond at the boundary of a \
                     page: the next run reads {} of this run again",
                    counted(affected.len() as u64, "window")
                ));
            }
        }
        if before != found {
            tracing::info!(%before, %found, "rows that share a millisecond at the boundary of a page");
        }
        state
            .remember_measured(behaviour_names::TIES, &found, "rows of one millisecond, met by a run", now_ms)
            .map_err(PipelineError::State)
    }

    /// Returns true if the boundaries of a scan may hide rows, so that its window needs a recheck.
    pub fn needs_recheck(&self, scan: &Scan, boundaries: &ScanBoundaries) -> bool {
        boundaries.needs_recheck(self.belief(scan.scope.stream))
    }

    /// Records that the caller is about to checkpoint a scan. Returns true if the scan's window needs a recheck. The
    /// caller locks the checkpoints, so that the assumed behaviour cannot change before the checkpoint.
    pub fn commits(&self, scan: &Scan, boundaries: &ScanBoundaries) -> bool {
        let (scope, window) = (scan.scope, scan.window);
        let belief = self.belief(scope.stream);
        let mut inner = self.inner();
        // This scan replaces earlier scans of the window, so their entries are obsolete.
        inner.rechecks.retain(|recheck| recheck.scope != scope || !recheck.window.overlaps(window));
        if boundaries.needs_recheck(belief) {
            inner.rechecks.push(TieRecheck { scope, window, text: describe(scope, window, boundaries) });
            return true;
        }
        if boundaries.unprobed() > 0 {
            inner.unprobed.push((scope, window));
        }
        false
    }

    /// Returns notes for the report: changes of the behaviour, and windows that may lack rows.
    pub fn notes(&self) -> Vec<String> {
        let inner = self.inner();
        let named = inner.rechecks.iter().take(RECHECKS_NAMED_MAX).map(|recheck| recheck.text.clone());
        let more = inner.rechecks.len().saturating_sub(RECHECKS_NAMED_MAX);
        let more = (more > 0)
            .then(|| format!("{} may lack rows at the boundaries of their pages", counted(more as u64, "more window")));
        inner.notes.iter().cloned().chain(named).chain(more).collect()
    }
}

/// Writes the note for the report about a window that may lack rows.
fn describe(scope: Scope, window: Window, boundaries: &ScanBoundaries) -> String {
    let (named, count) = boundaries.unresolved();
    let mut reasons: Vec<String> = named
        .iter()
        .map(|unresolved| match unresolved.at_ms {
            Some(at_ms) => format!("{} ({at_ms} ms): {}", format_ms(at_ms), unresolved.why),
            None => unresolved.why.to_owned(),
        })
        .collect();
    if count > named.len() as u64 {
        reasons.push(format!("{} more", count - named.len() as u64));
    }
    if boundaries.unprobed() > 0 {
        reasons
            .push(format!("{} boundaries were read before the service was known to lose rows", boundaries.unprobed()));
    }
    format!(
        "{scope} in {window} may lack rows that share a millisecond at the boundary of a page; every run probes again. {}",
        reasons.join("; ")
    )
}
