//! Which page edges may hide rows, and what a look at one says. Pure.
//!
//! A page token may name a creation time and nothing else. Then the rows that share the last row's millisecond and
//! stand behind the page's edge are sent again, or never. They are found by asking for that millisecond alone. The last
//! row of a page is the one that its token was made from, whatever the order of the list.

use std::collections::{HashSet, VecDeque};

use crate::model::{Ties, Window};

/// Where no edge is known to lose rows, one in so many is looked at all the same.
pub const SAMPLE_EVERY: u64 = 64;
/// A millisecond is measured with pages of one part in so many of its rows: several edges, and few requests.
const MEASURING_PAGES: usize = 8;
/// The most samples of one scan whose rows are still waited for.
const AWAITED_MAX: usize = 64;
/// The most unsettled edges of one scan that are named.
const UNSETTLED_NAMED_MAX: usize = 10;

/// The creation times of a page's records.
#[derive(Clone, Debug, Default)]
pub struct PageMoments {
    /// For each record that could be placed, in order: creation time in epoch milliseconds, and the hash of its key. Of
    /// a page that is not read again, those of its last millisecond alone.
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
    pub fn is_edge_shared(&self) -> bool {
        self.last_ms.is_some_and(|at_ms| self.keys_at(at_ms).len() > 1)
    }
}

/// Chooses the edges of a run that are looked at although none is known to lose rows.
#[derive(Clone, Debug, Default)]
pub struct EdgeSampler {
    passed: u64,
    has_shared: bool,
}

impl EdgeSampler {
    /// Whether the next edge is looked at. `is_shared`: the page shows that its last millisecond has several rows, so
    /// that a look can tell most; the first such edge of a run is always taken.
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

/// A page's edge to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The millisecond of the page's last record.
    pub at_ms: i64,
    /// The rows of that millisecond that the page shows.
    pub shown: HashSet<u128>,
    /// Records on the page.
    pub page_rows: usize,
}

/// An edge of which it is not known whether it hides rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsettled {
    /// The millisecond, if that much is known.
    pub at_ms: Option<i64>,
    /// Why it could not be settled.
    pub why: &'static str,
}

/// The edges of one scan.
#[derive(Clone, Debug, Default)]
pub struct ScanEdges {
    /// Edges that were passed without a look.
    unlooked: u64,
    /// Edges that wait: until the scan's end it may turn out that the service loses nothing.
    waiting: VecDeque<Edge>,
    /// Whether the scan was begun anew because of its edges. Once is enough: a second time would not be the last.
    is_second_try: bool,
    /// Whether a look was at odds with its page: a row was deleted between the two, most likely.
    has_changed: bool,
    unsettled: Vec<Unsettled>,
    unsettled_count: u64,
    settled_ms: Option<i64>,
    /// The rows of the last edge's millisecond, over all pages that it goes on for.
    at_edge: (Option<i64>, HashSet<u128>),
    /// Rows of sampled milliseconds that no page has shown yet.
    awaited: Vec<(i64, HashSet<u128>)>,
}

impl ScanEdges {
    /// A scan; `unlooked` edges were passed by an earlier run.
    pub fn new(unlooked: u64) -> Self {
        Self { unlooked, ..Self::default() }
    }

    /// Whether rows are waited for that may be on any page.
    pub fn awaits_rows(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// The window starts over.
    pub fn start_over(&mut self) {
        *self = Self { is_second_try: self.is_second_try, ..Self::default() };
    }

    /// The window starts over because of its edges; `false` if it did before, and the doubt has to stay.
    pub fn try_again(&mut self) -> bool {
        if self.is_second_try {
            return false;
        }
        *self = Self { is_second_try: true, ..Self::default() };
        true
    }

    /// A page came. Returns the edge that must be looked at before the scan goes past it; where nothing is known of the
    /// service, the edge waits for [`ScanEdges::next_waiting`]. Rows outside of `window` are no matter of this scan.
    pub fn page(
        &mut self,
        page: &PageMoments,
        has_next: bool,
        window: Option<Window>,
        belief: Ties,
        sampler: impl FnOnce(bool) -> bool,
    ) -> Option<Edge> {
        for (at_ms, keys) in &mut self.awaited {
            let seen = page.keys_at(*at_ms);
            keys.retain(|key| !seen.contains(key));
        }
        self.awaited.retain(|(_, keys)| !keys.is_empty());
        if page.records == 0 {
            return None;
        }
        let (edge_ms, known) = &mut self.at_edge;
        if *edge_ms != page.last_ms {
            (*edge_ms, *known) = (page.last_ms, HashSet::new());
        }
        known.extend(page.last_ms.map(|at_ms| page.keys_at(at_ms)).unwrap_or_default());
        if !has_next {
            return None;
        }
        let Some(at_ms) = page.last_ms else {
            if belief.may_lose() {
                self.cannot_settle(None, "the last record of a page has no creation time that can be read");
            } else {
                self.unlooked += 1;
            }
            return None;
        };
        let is_elsewhere = window.is_some_and(|window| !window.contains(at_ms));
        if is_elsewhere || self.settled_ms == Some(at_ms) {
            return None;
        }
        let edge = Edge { at_ms, shown: page.keys_at(at_ms), page_rows: page.records };
        if belief == Ties::Unknown {
            self.wait(edge);
            return None;
        }
        if sampler(page.is_edge_shared()) {
            return Some(edge);
        }
        self.unlooked += 1;
        None
    }

    fn wait(&mut self, edge: Edge) {
        match self.waiting.back_mut() {
            // A millisecond that goes on for several pages is looked at once.
            Some(last) if last.at_ms == edge.at_ms => {
                last.shown.extend(edge.shown);
                last.page_rows = last.page_rows.max(edge.page_rows);
            }
            _ => self.waiting.push_back(edge),
        }
    }

    /// Looks that were done before: each has shown all rows of its millisecond.
    pub fn forget_looked(&mut self, looks: &[PageMoments]) {
        self.waiting.retain(|edge| !looks.iter().any(|look| edge.shown.is_subset(&look.keys_at(edge.at_ms))));
    }

    /// The next edge that waits and must be looked at before the scan ends. There is none any more as soon as the
    /// service is known to lose nothing.
    pub fn next_waiting(&mut self, belief: Ties) -> Option<Edge> {
        if !belief.may_lose() {
            self.pass_waiting();
        }
        self.waiting.pop_front()
    }

    /// No edge waits any more: those that do are passed without a look.
    pub fn pass_waiting(&mut self) {
        self.unlooked += std::mem::take(&mut self.waiting).len() as u64;
    }

    /// A look at the millisecond of a page's edge showed these rows, and either all of them or not.
    pub fn looked(&mut self, edge: &Edge, found: &HashSet<u128>, belief: Ties, is_whole: Result<(), &'static str>) {
        let at_ms = edge.at_ms;
        match is_whole {
            Ok(()) if edge.shown.is_subset(found) => self.settled_ms = Some(at_ms),
            Ok(()) if !self.is_second_try => self.has_changed |= belief.may_lose(),
            Ok(()) => self.cannot_settle(Some(at_ms), "asked for alone, it lacks rows that the page had"),
            Err(why) => self.cannot_settle(Some(at_ms), why),
        }
        let known = &self.at_edge.1;
        let awaited: HashSet<u128> = found.iter().filter(|key| !known.contains(key)).copied().collect();
        if !belief.may_lose() && !awaited.is_empty() && self.awaited.len() < AWAITED_MAX {
            self.awaited.push((at_ms, awaited));
        }
    }

    fn cannot_settle(&mut self, at_ms: Option<i64>, why: &'static str) {
        self.unsettled_count += 1;
        if self.unsettled.len() < UNSETTLED_NAMED_MAX {
            self.unsettled.push(Unsettled { at_ms, why });
        }
    }

    /// At the end of the scan: sampled milliseconds with rows that no page showed after the sample.
    /// In a list in order of time they were lost.
    pub fn missed(&self) -> Vec<i64> {
        self.awaited.iter().map(|(at_ms, _)| *at_ms).collect()
    }

    /// Edges that were passed without a look.
    pub fn unlooked(&self) -> u64 {
        self.unlooked
    }

    /// Whether the service changed while it was looked at, so that another walk tells more than this one.
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Whether rows may be missing, believing this of the service.
    pub fn is_doubtful(&self, belief: Ties) -> bool {
        match belief {
            Ties::Lost => self.unlooked + self.unsettled_count > 0,
            Ties::Unknown => self.unsettled_count > 0,
            Ties::Kept | Ties::Repeated => false,
        }
    }

    /// The first edges that could not be settled, and how many there are in all.
    pub fn unsettled(&self) -> (&[Unsettled], u64) {
        (&self.unsettled, self.unsettled_count)
    }
}

/// The page size with which the rows of one millisecond are measured: its edges fall between them.
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

/// What a walk over one millisecond and its neighbours in small pages says about ties. `all` are the rows of the
/// millisecond as one page shows them, `walked` those of the walk with the neighbours'.
///
/// Rows that came twice prove little by themselves: a service that loses rows may send a page twice, by mistake.
pub fn judge(all: &HashSet<u128>, walked: &[u128], pages: usize, end: WalkEnd) -> Ties {
    let distinct: HashSet<u128> = walked.iter().copied().collect();
    if pages < 2 || all.len() < 2 {
        // No edge fell between its rows.
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
