//! Which page boundaries may hide rows, and what a probe at one says. Pure.
//!
//! A page token may name a creation time and nothing else. Then the rows that share the last row's millisecond and stand behind
//! the page's boundary are sent again, or never. They are found by asking for that millisecond alone. The last row of a page is the
//! one that its token was made from, whatever the order of the list.

use std::collections::{HashSet, VecDeque};

use crate::model::{Ties, Window};

/// Where no boundary is known to lose rows, one in so many is probed at all the same.
pub const SAMPLE_EVERY: u64 = 64;
/// A millisecond is measured with pages of one part in so many of its rows: several boundaries, and few requests.
const MEASURING_PAGES: usize = 8;
/// The most samples of one scan whose rows are still waited for.
const AWAITED_MAX: usize = 64;
/// The most unresolved boundaries of one scan that are named.
const UNRESOLVED_NAMED_MAX: usize = 10;

/// The creation times of a page's records.
#[derive(Clone, Debug, Default)]
pub struct PageMoments {
    /// For each record that could be placed, in order: creation time in epoch milliseconds, and the hash of its key. Of a page that is
    /// not read again, those of its last millisecond alone.
    pub rows: Vec<(Option<i64>, u128)>,
    /// Creation time of the very last record; `None` if it cannot be read.
    pub last_ms: Option<i64>,
    /// Records on the page, whether they could be placed or not.
    pub records: usize,
    /// A millisecond that several rows share: the one with the fewest of them, which is the cheapest to measure.
    pub tie_ms: Option<i64>,
}

impl PageMoments {
    /// Those of a page with these rows, in order, that ends with a record of this time.
    pub fn new(rows: Vec<(Option<i64>, u128)>, last_ms: Option<i64>, records: usize) -> PageMoments {
        let mut sorted: Vec<(i64, u128)> = rows.iter().filter_map(|(ms, key)| Some(((*ms)?, *key))).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let ties = sorted.chunk_by(|left, right| left.0 == right.0).filter(|tie| tie.len() > 1);
        let tie_ms = ties.min_by_key(|tie| tie.len()).and_then(|tie| tie.first()).map(|(ms, _)| *ms);
        PageMoments { rows, last_ms, records, tie_ms }
    }

    /// The keys of the rows of one millisecond, each once.
    pub fn keys_at(&self, at_ms: i64) -> HashSet<u128> {
        self.rows.iter().filter(|(ms, _)| *ms == Some(at_ms)).map(|(_, key)| *key).collect()
    }

    /// Whether the last record shares its millisecond with another one of the page.
    pub fn is_boundary_shared(&self) -> bool {
        self.last_ms.is_some_and(|at_ms| self.keys_at(at_ms).len() > 1)
    }
}

/// Chooses the boundaries of a run that are probed at although none is known to lose rows.
#[derive(Clone, Debug, Default)]
pub struct BoundarySampler {
    passed: u64,
    has_shared: bool,
}

impl BoundarySampler {
    /// Whether the next boundary is probed at. `is_shared`: the page shows that its last millisecond has several rows, so that a
    /// probe can tell most; the first such boundary of a run is always taken.
    pub fn is_due(&mut self, belief: Ties, is_shared: bool) -> bool {
        if belief.may_lose() {
            return true;
        }
        let is_turn = self.passed.is_multiple_of(SAMPLE_EVERY);
        let is_telling = is_shared && !self.has_shared;
        self.has_shared |= is_shared;
        self.passed += 1;
        is_turn || is_telling
    }
}

/// A page's boundary to probe at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageBoundary {
    /// The millisecond of the page's last record.
    pub at_ms: i64,
    /// The rows of that millisecond that the page shows.
    pub shown: HashSet<u128>,
    /// Records on the page.
    pub page_rows: usize,
}

/// An boundary of which it is not known whether it hides rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedBoundary {
    /// The millisecond, if that much is known.
    pub at_ms: Option<i64>,
    /// Why it could not be settled.
    pub why: &'static str,
}

/// The boundaries of one scan.
#[derive(Clone, Debug, Default)]
pub struct ScanBoundaries {
    /// Edges that were passed without a probe.
    unprobed: u64,
    /// Edges that wait: until the scan's end it may turn out that the service loses nothing.
    waiting: VecDeque<PageBoundary>,
    /// Whether the scan was begun anew because of its boundaries. Once is enough: a second time would not be the last.
    is_second_try: bool,
    /// Whether a probe was at odds with its page: a row was deleted between the two, most likely.
    has_changed: bool,
    unresolved: Vec<UnresolvedBoundary>,
    unresolved_count: u64,
    resolved_ms: Option<i64>,
    /// The rows of the last boundary's millisecond, over all pages that it goes on for.
    at_boundary: (Option<i64>, HashSet<u128>),
    /// Rows of sampled milliseconds that no page has shown yet.
    awaited: Vec<(i64, HashSet<u128>)>,
}

impl ScanBoundaries {
    /// A scan; `unprobed` boundaries were passed by an earlier run.
    pub fn new(unprobed: u64) -> Self {
        Self { unprobed, ..Self::default() }
    }

    /// Whether rows are waited for that may be on any page.
    pub fn awaits_rows(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// The window starts over.
    pub fn start_over(&mut self) {
        *self = Self { is_second_try: self.is_second_try, ..Self::default() };
    }

    /// The window starts over because of its boundaries; `false` if it did before, and the doubt has to stay.
    pub fn try_again(&mut self) -> bool {
        if self.is_second_try {
            return false;
        }
        *self = Self { is_second_try: true, ..Self::default() };
        true
    }

    /// A page came. Returns the boundary that must be probed at before the scan goes past it; where nothing is known of the service, the
    /// boundary waits for [`ScanBoundaries::next_waiting`]. Rows outside of `window` are no matter of this scan.
    pub fn page(
        &mut self,
        page: &PageMoments,
        has_next: bool,
        window: Option<Window>,
        belief: Ties,
        sampler: impl FnOnce(bool) -> bool,
    ) -> Option<PageBoundary> {
        for (at_ms, keys) in &mut self.awaited {
            let seen = page.keys_at(*at_ms);
            keys.retain(|key| !seen.contains(key));
        }
        self.awaited.retain(|(_, keys)| !keys.is_empty());
        if page.records == 0 {
            return None;
        }
        let (edge_ms, known) = &mut self.at_boundary;
        if *edge_ms != page.last_ms {
            (*edge_ms, *known) = (page.last_ms, HashSet::new());
        }
        known.extend(page.last_ms.map(|at_ms| page.keys_at(at_ms)).unwrap_or_default());
        if !has_next {
            return None;
        }
        let Some(at_ms) = page.last_ms else {
            if belief.may_lose() {
                self.cannot_resolve(None, "the last record of a page has no creation time that can be read");
            } else {
                self.unprobed += 1;
            }
            return None;
        };
        let is_elsewhere = window.is_some_and(|window| !window.contains(at_ms));
        if is_elsewhere || self.resolved_ms == Some(at_ms) {
            return None;
        }
        let boundary = PageBoundary { at_ms, shown: page.keys_at(at_ms), page_rows: page.records };
        if belief == Ties::Unknown {
            self.wait(boundary);
            return None;
        }
        if sampler(page.is_boundary_shared()) {
            return Some(boundary);
        }
        self.unprobed += 1;
        None
    }

    fn wait(&mut self, boundary: PageBoundary) {
        match self.waiting.back_mut() {
            // A millisecond that goes on for several pages is probed at once.
            Some(last) if last.at_ms == boundary.at_ms => {
                last.shown.extend(boundary.shown);
                last.page_rows = last.page_rows.max(boundary.page_rows);
            }
            _ => self.waiting.push_back(boundary),
        }
    }

    /// Looks that were done before: each has shown all rows of its millisecond.
    pub fn forget_looked(&mut self, probes: &[PageMoments]) {
        self.waiting
            .retain(|boundary| !probes.iter().any(|probe| boundary.shown.is_subset(&probe.keys_at(boundary.at_ms))));
    }

    /// The next boundary that waits and must be probed at before the scan ends. There is none any more as soon as the service is known to
    /// lose nothing.
    pub fn next_waiting(&mut self, belief: Ties) -> Option<PageBoundary> {
        if !belief.may_lose() {
            self.pass_waiting();
        }
        self.waiting.pop_front()
    }

    /// No boundary waits any more: those that do are passed without a probe.
    pub fn pass_waiting(&mut self) {
        self.unprobed += std::mem::take(&mut self.waiting).len() as u64;
    }

    /// A probe at the millisecond of a page's boundary showed these rows, and either all of them or not.
    pub fn probed(
        &mut self,
        boundary: &PageBoundary,
        found: &HashSet<u128>,
        belief: Ties,
        is_whole: Result<(), &'static str>,
    ) {
        let at_ms = boundary.at_ms;
        match is_whole {
            Ok(()) if boundary.shown.is_subset(found) => self.resolved_ms = Some(at_ms),
            Ok(()) if !self.is_second_try => self.has_changed |= belief.may_lose(),
            Ok(()) => self.cannot_resolve(Some(at_ms), "asked for alone, it lacks rows that the page had"),
            Err(why) => self.cannot_resolve(Some(at_ms), why),
        }
        let known = &self.at_boundary.1;
        let awaited: HashSet<u128> = found.iter().filter(|key| !known.contains(key)).copied().collect();
        if !belief.may_lose() && !awaited.is_empty() && self.awaited.len() < AWAITED_MAX {
            self.awaited.push((at_ms, awaited));
        }
    }

    fn cannot_resolve(&mut self, at_ms: Option<i64>, why: &'static str) {
        self.unresolved_count += 1;
        if self.unresolved.len() < UNRESOLVED_NAMED_MAX {
            self.unresolved.push(UnresolvedBoundary { at_ms, why });
        }
    }

    /// At the end of the scan: sampled milliseconds with rows that no page showed after the sample. In a list in order of time
    /// they were lost.
    pub fn missed(&self) -> Vec<i64> {
        self.awaited.iter().map(|(at_ms, _)| *at_ms).collect()
    }

    /// Edges that were passed without a probe.
    pub fn unprobed(&self) -> u64 {
        self.unprobed
    }

    /// Whether the service changed while it was probed at, so that another walk tells more than this one.
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Whether rows may be missing, believing this of the service.
    pub fn needs_recheck(&self, belief: Ties) -> bool {
        match belief {
            Ties::Lost => self.unprobed + self.unresolved_count > 0,
            Ties::Unknown => self.unresolved_count > 0,
            Ties::Kept | Ties::Repeated => false,
        }
    }

    /// The first boundaries that could not be settled, and how many there are in all.
    pub fn unresolved(&self) -> (&[UnresolvedBoundary], u64) {
        (&self.unresolved, self.unresolved_count)
    }
}

/// The page size with which the rows of one millisecond are measured: its boundaries fall between them.
pub fn measuring_page_rows(rows: usize) -> u32 {
    u32::try_from(rows / MEASURING_PAGES).unwrap_or(u32::MAX).max(1)
}

/// How a walk over the rows of a millisecond ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkEnd {
    /// With the end of results.
    OfResults,
    /// The service led back to where it had been, whenever it was asked.
    Loop,
    /// Something else ended it.
    BrokenOff,
}

/// What a walk over one millisecond and its neighbours in small pages says about ties. `all` are the rows of the millisecond as
/// one page shows them, `walked` those of the walk with the neighbours'.
///
/// Rows that came twice prove little by themselves: a service that loses rows may send a page twice, by mistake.
pub fn judge(all: &HashSet<u128>, walked: &[u128], pages: usize, end: WalkEnd) -> Ties {
    let distinct: HashSet<u128> = walked.iter().copied().collect();
    if pages < 2 || all.len() < 2 {
        // No boundary fell between its rows.
        return Ties::Unknown;
    }
    let (is_whole, has_repeated) = (all.is_subset(&distinct), distinct.len() < walked.len());
    match end {
        WalkEnd::OfResults if !is_whole => Ties::Lost,
        WalkEnd::OfResults if !has_repeated => Ties::Kept,
        WalkEnd::BrokenOff if !(is_whole && has_repeated) => Ties::Unknown,
        WalkEnd::OfResults | WalkEnd::Loop | WalkEnd::BrokenOff => Ties::Repeated,
    }
}

#[cfg(test)]
mod tests;
