//! Decides which page boundaries may hide rows, and evaluates tie probes. Pure functions.
//!
//! A page token may encode only a creation time. After such a token, the service sends the other rows of the last row's
//! millisecond again, or never. A tie probe finds these rows: it requests the millisecond alone. The service makes a
//! page token from the last row of a page, whatever the order of the list.

use std::{
    cmp::Ordering,
    collections::{HashSet, VecDeque},
};

use crate::model::{Ties, Window};

/// If a measurement showed that the service loses no rows, one boundary in this many is still probed as a sample.
pub const SAMPLE_EVERY: u64 = 64;
/// Pages into which a measurement of ties splits the rows of a millisecond: enough for several boundaries, with few
/// requests.
const MEASURING_PAGES: usize = 8;
/// The maximum number of sampled milliseconds per scan whose unseen rows are awaited on later pages.
const AWAITED_MAX: usize = 64;
/// The maximum number of unresolved boundaries per scan that a report names.
const UNRESOLVED_NAMED_MAX: usize = 10;

/// The creation times of a page's records.
#[derive(Clone, Debug, Default)]
pub struct PageMoments {
    /// For each record that has a row, in order: creation time in epoch milliseconds, and the hash of the key.
    pub rows: Vec<(Option<i64>, u128)>,
    /// Creation time of the last record; `None` if the time cannot be read.
    pub last_ms: Option<i64>,
    /// Number of records on the page, including rejects.
    pub records: usize,
    /// The millisecond that the fewest rows share, but at least two: the cheapest tie to measure. `None` if no two rows
    /// share a millisecond.
    pub tie_ms: Option<i64>,
}

impl PageMoments {
    /// Creates the moments of a page from its rows, in order, and the time of its last record.
    pub fn new(rows: Vec<(Option<i64>, u128)>, last_ms: Option<i64>, records: usize) -> PageMoments {
        let mut sorted: Vec<(i64, u128)> = rows.iter().filter_map(|(ms, key)| Some(((*ms)?, *key))).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let ties = sorted.chunk_by(|left, right| left.0 == right.0).filter(|tie| tie.len() > 1);
        let tie_ms = ties.min_by_key(|tie| tie.len()).and_then(|tie| tie.first()).map(|(ms, _)| *ms);
        PageMoments { rows, last_ms, records, tie_ms }
    }

    /// Returns the milliseconds of the window that a sorted list has covered with this page, the first record being the
    /// oldest or the newest. `None` if the records of the page are not sorted, or share one creation time.
    pub fn covered_ms(&self, window: Window) -> Option<u64> {
        let times: Vec<i64> = self.rows.iter().filter_map(|(at_ms, _)| *at_ms).collect();
        let (first, last) = (*times.first()?, *times.last()?);
        let covered_ms = match first.cmp(&last) {
            Ordering::Less if times.is_sorted() => last - window.start_ms,
            Ordering::Greater if times.iter().rev().is_sorted() => window.end_ms - last,
            _ => return None,
        };
        Some(covered_ms.clamp(0, window.len_ms()).unsigned_abs())
    }

    /// Returns the distinct keys of the rows of one millisecond.
    pub fn keys_at(&self, at_ms: i64) -> HashSet<u128> {
        self.rows.iter().filter(|(ms, _)| *ms == Some(at_ms)).map(|(_, key)| *key).collect()
    }

    /// Returns true if the last record shares its millisecond with another record of the page.
    pub fn is_boundary_shared(&self) -> bool {
        self.last_ms.is_some_and(|at_ms| self.keys_at(at_ms).len() > 1)
    }
}

/// Chooses the boundaries that a run probes: all, or a sample if the service is known to lose no rows.
#[derive(Clone, Debug, Default)]
pub struct BoundarySampler {
    /// Number of boundaries since the service is known to lose no rows.
    passed: u64,
    /// True if one of these boundaries was in a millisecond that several rows share.
    has_shared: bool,
}

impl BoundarySampler {
    /// Returns true if the next boundary must be probed: every boundary if `ties` may lose rows, otherwise one in
    /// [`SAMPLE_EVERY`]. `is_shared` says that several rows of the page share the page's last millisecond. The first
    /// boundary of this kind is always probed, because only rows that share a millisecond can get lost.
    pub fn is_due(&mut self, ties: Ties, is_shared: bool) -> bool {
        if ties.may_lose() {
            return true;
        }
        let is_sampled = self.passed.is_multiple_of(SAMPLE_EVERY);
        let is_first_shared = is_shared && !self.has_shared;
        self.has_shared |= is_shared;
        self.passed += 1;
        is_sampled || is_first_shared
    }
}

/// A page boundary to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageBoundary {
    /// The millisecond of the page's last record.
    pub at_ms: i64,
    /// The key hashes of the rows of this millisecond on the page.
    pub shown: HashSet<u128>,
    /// Number of records on the page.
    pub page_rows: usize,
}

/// A boundary that may hide rows, because its probe was impossible or not conclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedBoundary {
    /// The millisecond of the boundary; `None` if it cannot be read.
    pub at_ms: Option<i64>,
    /// Why the boundary may hide rows.
    pub why: &'static str,
}

/// What one scan knows of its page boundaries.
#[derive(Clone, Debug, Default)]
pub struct ScanBoundaries {
    /// Number of boundaries that were passed without a probe.
    unprobed: u64,
    /// Boundaries whose probes wait for the end of the scan. By then a measurement may have shown that the service
    /// loses no rows, so that these probes are not needed.
    waiting: VecDeque<PageBoundary>,
    /// True if the scan was started over because of its boundaries, which happens at most once per scan.
    is_second_try: bool,
    /// True if a probe lacked rows that the page had. Most likely a row was deleted between the two requests.
    has_changed: bool,
    /// The first unresolved boundaries, at most [`UNRESOLVED_NAMED_MAX`].
    unresolved: Vec<UnresolvedBoundary>,
    /// Number of all unresolved boundaries.
    unresolved_count: u64,
    /// The millisecond of the last boundary whose probe was conclusive. Later boundaries in it need no probe.
    resolved_ms: Option<i64>,
    /// The millisecond of the last boundary, and the key hashes of its rows on all consecutive pages that end with it.
    at_boundary: (Option<i64>, HashSet<u128>),
    /// Sampled milliseconds, each with the key hashes of its rows that no page has shown yet.
    awaited: Vec<(i64, HashSet<u128>)>,
}

impl ScanBoundaries {
    /// Creates the boundaries of a scan. `unprobed` counts the boundaries that an earlier run passed without a probe.
    pub fn new(unprobed: u64) -> Self {
        Self { unprobed, ..Self::default() }
    }

    /// Forgets all boundaries, because the window starts over.
    pub fn start_over(&mut self) {
        *self = Self { is_second_try: self.is_second_try, ..Self::default() };
    }

    /// Forgets all boundaries, because the window starts over to resolve them. Returns false, and forgets nothing, if
    /// the window was started over before. The window needs a recheck if this returns false.
    pub fn try_again(&mut self) -> bool {
        if self.is_second_try {
            return false;
        }
        *self = Self { is_second_try: true, ..Self::default() };
        true
    }

    /// Adds a page, and returns its boundary if the boundary must be probed before the next page is requested. If
    /// `ties` is unknown, the boundary waits for [`ScanBoundaries::next_waiting`]. A page without records or without a
    /// next page has no boundary. Boundaries outside of `window` are ignored. A boundary whose time cannot be read is
    /// unresolved if the service may lose rows, otherwise unprobed. `sampler` decides whether a boundary is probed; its
    /// argument is [`PageMoments::is_boundary_shared`].
    pub fn page(
        &mut self,
        page: &PageMoments,
        has_next: bool,
        window: Option<Window>,
        ties: Ties,
        sampler: impl FnOnce(bool) -> bool,
    ) -> Option<PageBoundary> {
        // Rows on this page are no longer awaited.
        for (at_ms, keys) in &mut self.awaited {
            let seen = page.keys_at(*at_ms);
            keys.retain(|key| !seen.contains(key));
        }
        self.awaited.retain(|(_, keys)| !keys.is_empty());
        if page.records == 0 {
            return None;
        }
        // Collects the rows of the boundary's millisecond, which can span several pages.
        let (boundary_ms, known) = &mut self.at_boundary;
        if *boundary_ms != page.last_ms {
            (*boundary_ms, *known) = (page.last_ms, HashSet::new());
        }
        known.extend(page.last_ms.map(|at_ms| page.keys_at(at_ms)).unwrap_or_default());
        if !has_next {
            return None;
        }
        let Some(at_ms) = page.last_ms else {
            if ties.may_lose() {
                self.cannot_resolve(None, "the last record of a page has no creation time that can be read");
            } else {
                self.unprobed += 1;
            }
            return None;
        };
        let is_outside = window.is_some_and(|window| !window.contains(at_ms));
        if is_outside || self.resolved_ms == Some(at_ms) {
            return None;
        }
        let boundary = PageBoundary { at_ms, shown: page.keys_at(at_ms), page_rows: page.records };
        if ties == Ties::Unknown {
            self.wait(boundary);
            return None;
        }
        if sampler(page.is_boundary_shared()) {
            return Some(boundary);
        }
        self.unprobed += 1;
        None
    }

    /// Queues a boundary whose probe waits for the end of the scan.
    fn wait(&mut self, boundary: PageBoundary) {
        match self.waiting.back_mut() {
            // A millisecond that spans several pages is probed once.
            Some(last) if last.at_ms == boundary.at_ms => {
                last.shown.extend(boundary.shown);
                last.page_rows = last.page_rows.max(boundary.page_rows);
            }
            _ => self.waiting.push_back(boundary),
        }
    }

    /// Drops the waiting boundaries that an earlier run probed. `probes` are the pages of these probes: a boundary is
    /// dropped if one of the pages has all rows that the boundary shows.
    pub fn forget_probed(&mut self, probes: &[PageMoments]) {
        self.waiting
            .retain(|boundary| !probes.iter().any(|probe| boundary.shown.is_subset(&probe.keys_at(boundary.at_ms))));
    }

    /// Returns the next waiting boundary to probe before the scan ends; `None` if no boundary waits. If the service is
    /// known to lose no rows, counts all waiting boundaries as unprobed and returns `None`.
    pub fn next_waiting(&mut self, ties: Ties) -> Option<PageBoundary> {
        if !ties.may_lose() {
            self.pass_waiting();
        }
        self.waiting.pop_front()
    }

    /// Counts all waiting boundaries as passed without a probe.
    pub fn pass_waiting(&mut self) {
        self.unprobed += std::mem::take(&mut self.waiting).len() as u64;
    }

    /// Records the result of a probe at a boundary. `found` are the key hashes of the rows that the probe returned.
    /// `is_complete` is an error with the reason if rows may be missing from the probe. A complete probe that lacks a
    /// row of the page shows that the list changed. On the first try of the scan, the scan should then start over if
    /// the service may lose rows; on the second try, the boundary is unresolved. If the service is known to lose no
    /// rows, rows that no page has shown are awaited on later pages.
    pub fn probed(
        &mut self,
        boundary: &PageBoundary,
        found: &HashSet<u128>,
        ties: Ties,
        is_complete: Result<(), &'static str>,
    ) {
        let at_ms = boundary.at_ms;
        match is_complete {
            Ok(()) if boundary.shown.is_subset(found) => self.resolved_ms = Some(at_ms),
            Ok(()) if !self.is_second_try => self.has_changed |= ties.may_lose(),
            Ok(()) => self.cannot_resolve(Some(at_ms), "a probe lacks rows that the page had"),
            Err(why) => self.cannot_resolve(Some(at_ms), why),
        }
        let known = &self.at_boundary.1;
        let awaited: HashSet<u128> = found.iter().filter(|key| !known.contains(key)).copied().collect();
        if !ties.may_lose() && !awaited.is_empty() && self.awaited.len() < AWAITED_MAX {
            self.awaited.push((at_ms, awaited));
        }
    }

    /// Counts an unresolved boundary, and lists it unless the list is full.
    fn cannot_resolve(&mut self, at_ms: Option<i64>, why: &'static str) {
        self.unresolved_count += 1;
        if self.unresolved.len() < UNRESOLVED_NAMED_MAX {
            self.unresolved.push(UnresolvedBoundary { at_ms, why });
        }
    }

    /// Returns, at the end of the scan, the sampled milliseconds with rows that no page has shown. In a list in order
    /// of time, the service lost these rows.
    pub fn missed(&self) -> Vec<i64> {
        self.awaited.iter().map(|(at_ms, _)| *at_ms).collect()
    }

    /// Returns the number of boundaries that were passed without a probe.
    pub fn unprobed(&self) -> u64 {
        self.unprobed
    }

    /// Returns true if the list changed between a page and its probe, so that the window should be scanned again.
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Returns true if rows may be missing, given how the service treats ties.
    pub fn needs_recheck(&self, ties: Ties) -> bool {
        match ties {
            Ties::Lost => self.unprobed + self.unresolved_count > 0,
            Ties::Unknown => self.unresolved_count > 0,
            Ties::Kept | Ties::Repeated => false,
        }
    }

    /// Returns the first unresolved boundaries, and their total number.
    pub fn unresolved(&self) -> (&[UnresolvedBoundary], u64) {
        (&self.unresolved, self.unresolved_count)
    }
}

/// Returns the page size that splits the `rows` of a millisecond into several pages, to measure how the service treats
/// ties.
pub fn measuring_page_rows(rows: usize) -> u32 {
    u32::try_from(rows / MEASURING_PAGES).unwrap_or(u32::MAX).max(1)
}

/// How a walk over the rows of a millisecond ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkEnd {
    /// The list ended.
    OfResults,
    /// Page tokens repeated: the walk went in a circle.
    Loop,
    /// An error or the page limit ended the walk.
    BrokenOff,
}

/// Returns how the service treats ties, measured by a walk in small pages over one millisecond and its neighbours.
/// `all` are the rows of the millisecond on a single page; `walked` are the rows of the walk, including the neighbours.
///
/// Duplicate rows alone prove little: a service that loses rows may send a page twice by mistake.
pub fn judge(all: &HashSet<u128>, walked: &[u128], pages: usize, end: WalkEnd) -> Ties {
    let distinct: HashSet<u128> = walked.iter().copied().collect();
    if pages < 2 || all.len() < 2 {
        // No page boundary fell between rows of the millisecond.
        return Ties::Unknown;
    }
    let (is_complete, has_repeated) = (all.is_subset(&distinct), distinct.len() < walked.len());
    match end {
        WalkEnd::OfResults if !is_complete => Ties::Lost,
        WalkEnd::OfResults if !has_repeated => Ties::Kept,
        WalkEnd::BrokenOff if !(is_complete && has_repeated) => Ties::Unknown,
        WalkEnd::OfResults | WalkEnd::Loop | WalkEnd::BrokenOff => Ties::Repeated,
    }
}

#[cfg(test)]
mod tests;
