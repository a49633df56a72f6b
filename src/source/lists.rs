//! What the run has seen of the lists of the service: which lists exist, where the list of surveys is, how long page
//! tokens live, and what the 404 at the end of a list means. This module sends nothing.
//!
//! A 404 on a page token means either the end of the list or a dead token. If tokens of later pages and older tokens
//! were answered, then neither the number of pages nor the age killed the token: the list has ended.
//!
//! A full proof compares the rows of a list with those of its parts (`pipeline::list_end`). It also shows what full
//! pages look like. Later a 404 on the token of a page that is not full needs no proof of its own: the service had no
//! more rows for that page. After a full page, a 404 may as well be an expired token, and is proven each time.
//!
//! The rule holds while every page before the last one is full. A shorter page with rows behind it contradicts the
//! rule, and so does a failed proof after a short page. All lists that ended by the rule are then read again.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::address::{Call, CallKind};
use crate::model::{DAY_MS, Stream};

/// A proof counts for this time; then the next list with such an end is proven again.
const PROVEN_FOR_MS: i64 = 7 * DAY_MS;
/// After a contradiction, each end is proven for this time.
const CONTRADICTED_FOR_MS: i64 = 30 * DAY_MS;

/// What is known about the 404 at the end of the lists of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotFoundEnd {
    /// True if a 404 after a page that is not full was proven to be the end of a list. False if that was contradicted.
    /// `None` if neither happened.
    pub is_end: Option<bool>,
    /// When this was proven or contradicted, in epoch milliseconds by this machine's clock.
    pub at_ms: i64,
    /// Rows of the largest page so far.
    pub page_rows: u64,
    /// True if this run proved or contradicted it.
    pub is_new: bool,
    /// True if this run contradicted what was proven before.
    pub is_contradicted: bool,
}

impl NotFoundEnd {
    /// Returns true if a page with these rows was not full. `limit` is the requested page size, if any.
    fn is_short(&self, page: LastPage) -> bool {
        let full = page.limit.map_or(self.page_rows, |limit| self.page_rows.min(limit.into()));
        page.rows < full
    }

    fn contradict(&mut self, now_ms: i64) {
        let was_proven = self.is_end == Some(true);
        let is_contradicted = self.is_contradicted || was_proven;
        *self = NotFoundEnd { is_end: Some(false), at_ms: now_ms, is_new: true, is_contradicted, ..*self };
    }
}

/// The last page that a walk has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastPage {
    pub rows: u64,
    /// The requested page size; `None` if the stream has no `limit`.
    pub limit: Option<u32>,
}

/// A value for each stream.
#[derive(Debug, Default)]
struct ByStream<T>([Mutex<T>; Stream::ALL.len()]);

impl<T> ByStream<T> {
    fn of(&self, stream: Stream) -> MutexGuard<'_, T> {
        let index = Stream::ALL.iter().position(|known| *known == stream).unwrap_or(0);
        self.0[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known about the end of lists, by stream.
#[derive(Debug, Default)]
pub(super) struct ListEnds(ByStream<NotFoundEnd>);

impl ListEnds {
    /// Starts with what earlier runs have stored.
    pub fn new(stored: &[(Stream, NotFoundEnd)]) -> ListEnds {
        let ends = ListEnds::default();
        for (stream, end) in stored {
            *ends.0.of(*stream) = *end;
        }
        ends
    }

    /// Returns what is known about a stream.
    pub fn known(&self, stream: Stream) -> NotFoundEnd {
        *self.0.of(stream)
    }

    /// Records a page. `before` is the page before it in the same list.
    pub fn record_page(&self, stream: Stream, page: LastPage, before: Option<LastPage>, now_ms: i64) {
        let mut end = self.0.of(stream);
        end.page_rows = end.page_rows.max(page.rows);
        if page.rows > 0 && before.is_some_and(|before| end.is_short(before)) {
            end.contradict(now_ms);
        }
    }

    /// Returns true if a 404 on the token of this page is known to be the end of the list.
    pub fn is_end(&self, stream: Stream, last: LastPage, now_ms: i64) -> bool {
        let end = self.known(stream);
        let is_recent = (0..PROVEN_FOR_MS).contains(&now_ms.saturating_sub(end.at_ms));
        // An empty page whose token expires looks like an end, so that it proves nothing.
        end.is_end == Some(true) && is_recent && last.rows > 0 && end.is_short(last)
    }

    /// Records the result of a full proof after this page.
    pub fn record_proof(&self, stream: Stream, last: LastPage, is_end: bool, now_ms: i64) {
        let mut end = self.0.of(stream);
        let age_ms = now_ms.saturating_sub(end.at_ms);
        let was_contradicted = end.is_end == Some(false) && (0..CONTRADICTED_FOR_MS).contains(&age_ms);
        if is_end && last.rows > 0 && !was_contradicted {
            *end = NotFoundEnd { is_end: Some(true), at_ms: now_ms, is_new: true, ..*end };
        } else if !is_end && end.is_short(last) {
            end.contradict(now_ms);
        }
    }
}

/// A 404 counts as an empty result if the list has answered with a page this short a time ago. A service may lose a
/// list while a run is under way, for example by a deployment.
const FRESH: Duration = Duration::from_secs(10);

/// What the run has seen of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListState {
    /// The list has answered with a page, the last time at this moment.
    Answered(Instant),
    /// The list has refused an invalid request, so it exists. It has answered with no page.
    Exists,
    /// The list has answered every request with 404, also without a range, while other lists answered.
    Empty,
}

/// What the run has seen of each list.
#[derive(Debug, Default)]
pub(super) struct ListsSeen {
    /// `None`: no request to the list has shown anything.
    lists: ByStream<Option<ListState>>,
    /// Locked while a list is checked, so that concurrent pulls do not send the same check.
    pub asking: tokio::sync::Mutex<()>,
}

impl ListsSeen {
    /// Records that a list has answered with a page.
    pub fn note_page(&self, list: Stream) {
        *self.lists.of(list) = Some(ListState::Answered(Instant::now()));
    }

    /// Records that a list exists although no page was seen.
    pub fn note_existing(&self, list: Stream) {
        self.lists.of(list).get_or_insert(ListState::Exists);
    }

    /// Records that a list is taken as empty.
    pub fn note_empty(&self, list: Stream) {
        *self.lists.of(list) = Some(ListState::Empty);
    }

    /// Returns true if a 404 of this list is an empty result.
    pub fn is_settled(&self, list: Stream) -> bool {
        match *self.lists.of(list) {
            Some(ListState::Answered(at)) => at.elapsed() < FRESH,
            Some(ListState::Exists | ListState::Empty) => true,
            None => false,
        }
    }

    /// Returns true if the list has answered with a page.
    pub fn has_answered(&self, list: Stream) -> bool {
        matches!(*self.lists.of(list), Some(ListState::Answered(_)))
    }

    /// Returns true if the list is taken as empty.
    pub fn is_taken_as_empty(&self, list: Stream) -> bool {
        *self.lists.of(list) == Some(ListState::Empty)
    }

    /// Returns true if no list has shown that it exists.
    pub fn is_empty(&self) -> bool {
        Stream::ALL.iter().all(|list| matches!(*self.lists.of(*list), None | Some(ListState::Empty)))
    }
}

/// The token lifetimes that this run has seen, by stream.
#[derive(Debug, Default)]
pub(super) struct TokenLifetimes(ByStream<StreamLifetimes>);

/// What this run has seen of the tokens of one stream.
#[derive(Debug, Default)]
struct StreamLifetimes {
    /// The largest number of pages that a walk has read from the start of its window.
    deepest: u64,
    /// Age of the oldest token that was answered with a page.
    oldest: Duration,
}

impl TokenLifetimes {
    /// Records that a walk has read `pages` pages from the start of its window. `age` is the age of the token that
    /// requested the last page; `None` for a first page.
    pub fn record_page(&self, stream: Stream, pages: u64, age: Option<Duration>) {
        let mut lives = self.0.of(stream);
        lives.deepest = lives.deepest.max(pages);
        lives.oldest = lives.oldest.max(age.unwrap_or_default());
    }

    /// Returns true if the run has seen an answer to a token after `pages` pages, and an answer to a token of this age.
    pub fn is_proven(&self, stream: Stream, pages: u64, age: Duration) -> bool {
        let lives = self.0.of(stream);
        pages < lives.deepest && age <= lives.oldest
    }
}

const SURVEYS: &str = "/v1/surveys";
const STUDIES: &str = "/v1/studies";

/// The path of the list of surveys that is in use.
#[derive(Debug, Default)]
pub(super) struct SurveysPath {
    /// True if the path in use is `/v1/studies`.
    is_studies: AtomicBool,
    /// True if a page was read from the path in use.
    has_answered: AtomicBool,
    /// True if both paths were answered with 404.
    has_neither: AtomicBool,
}

impl SurveysPath {
    /// Starts with the path of an earlier run: `/v1/studies` if `is_studies`.
    pub fn new(is_studies: bool) -> Self {
        SurveysPath { is_studies: is_studies.into(), ..Self::default() }
    }

    /// Returns true if the list is served at `/v1/studies`, false if at `/v1/surveys`. `None` until a page was read.
    pub fn is_studies(&self) -> Option<bool> {
        self.has_answered.load(Ordering::Relaxed).then(|| self.is_studies.load(Ordering::Relaxed))
    }

    /// Returns the address with the path in use, `/v1/studies`. `None` if the address can be requested as it is.
    pub fn in_use(&self, address: &Call) -> Option<Call> {
        if self.is_studies.load(Ordering::Relaxed) { renamed(address, STUDIES) } else { None }
    }

    /// Returns the address with the path that is not in use. `None` if a path has answered with a page, if both paths
    /// were answered with 404, or for an address of another list.
    pub fn other(&self, address: &Call) -> Option<Call> {
        if self.has_answered.load(Ordering::Relaxed) || self.has_neither.load(Ordering::Relaxed) {
            return None;
        }
        let is_studies = self.is_studies.load(Ordering::Relaxed);
        renamed(address, if is_studies { SURVEYS } else { STUDIES })
    }

    /// Records that a page was read from this address. Addresses of other lists are ignored.
    pub fn answered(&self, address: &Call) {
        if is_of_surveys(address) {
            self.is_studies.store(address.url.path().ends_with(STUDIES), Ordering::Relaxed);
            self.has_answered.store(true, Ordering::Relaxed);
        }
    }

    /// Records that both paths were answered with 404.
    pub fn neither_answered(&self) {
        self.has_neither.store(true, Ordering::Relaxed);
    }
}

fn is_of_surveys(address: &Call) -> bool {
    address.kind == CallKind::List(Stream::Surveys)
}

/// Replaces the path of the list of surveys by `name`. `None` if the address has this path already or is of another
/// list.
fn renamed(address: &Call, name: &str) -> Option<Call> {
    if !is_of_surveys(address) || address.url.path().ends_with(name) {
        return None;
    }
    let (path, old) = (address.url.path(), if name == SURVEYS { STUDIES } else { SURVEYS });
    let mut url = address.url.clone();
    url.set_path(&format!("{}{name}", path.strip_suffix(old)?));
    let start = address.shown.split('?').next().and_then(|shown| shown.rfind(old))?;
    let mut shown = address.shown.clone();
    shown.replace_range(start..start + old.len(), name);
    Some(Call { shown, url, ..address.clone() })
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::{super::address, *};

    const NOW: i64 = 100 * DAY_MS;
    const THEMES: Stream = Stream::Themes;

    fn page(rows: u64, limit: Option<u32>) -> LastPage {
        LastPage { rows, limit }
    }

    /// A service whose pages of 10 rows end with a proven 404.
    fn proven() -> ListEnds {
        let ends = ListEnds::default();
        ends.record_page(THEMES, page(10, None), None, NOW);
        ends.record_page(THEMES, page(3, None), Some(page(10, None)), NOW);
        ends.record_proof(THEMES, page(3, None), true, NOW);
        ends
    }

    #[test]
    fn p3_only_a_404_after_a_short_page_is_a_known_end() {
        let ends = proven();
        for (rows, limit, is_end) in [
            (1, None, true),
            (9, None, true),
            (10, None, false),
            (0, None, false),
            (4, Some(5), true),
            (5, Some(5), false),
            (10, Some(1000), false),
        ] {
            assert_eq!(ends.is_end(THEMES, page(rows, limit), NOW + 1), is_end, "{rows} {limit:?}");
        }
        assert!(!ends.is_end(Stream::Responses, page(1, None), NOW), "another list");
    }

    #[test]
    fn p3_a_proof_counts_for_a_week() {
        let ends = proven();
        for (later_ms, is_end) in [(0, true), (PROVEN_FOR_MS - 1, true), (PROVEN_FOR_MS, false), (-1, false)] {
            assert_eq!(ends.is_end(THEMES, page(3, None), NOW + later_ms), is_end, "{later_ms}");
        }
        let later = NOW + PROVEN_FOR_MS;
        ends.record_proof(THEMES, page(3, None), true, later);
        assert!(ends.is_end(THEMES, page(3, None), later) && !ends.known(THEMES).is_contradicted);
    }

    #[test]
    fn p3_a_service_that_changes_its_habit_is_noticed() {
        let contradictions: [fn(&ListEnds); 3] = [
            // A shorter page has rows behind it.
            |ends| ends.record_page(THEMES, page(4, None), Some(page(7, None)), NOW),
            |ends| ends.record_page(THEMES, page(4, None), Some(page(0, None)), NOW),
            // A proof fails.
            |ends| ends.record_proof(THEMES, page(4, None), false, NOW),
        ];
        for contradict in contradictions {
            let ends = proven();
            contradict(&ends);
            let end = ends.known(THEMES);
            assert!(end.is_contradicted && end.is_end == Some(false) && end.is_new);
            // One proof does not bring it back within a month.
            ends.record_proof(THEMES, page(3, None), true, NOW + CONTRADICTED_FOR_MS - 1);
            assert!(!ends.is_end(THEMES, page(3, None), NOW + CONTRADICTED_FOR_MS - 1));
            ends.record_proof(THEMES, page(3, None), true, NOW + CONTRADICTED_FOR_MS);
            assert!(ends.is_end(THEMES, page(3, None), NOW + CONTRADICTED_FOR_MS));
        }
        // A token that dies after a full page says nothing about the end, and neither does an empty last page.
        let ends = proven();
        ends.record_proof(THEMES, page(10, None), false, NOW);
        ends.record_page(THEMES, page(0, None), Some(page(4, None)), NOW);
        assert!(ends.is_end(THEMES, page(3, None), NOW));
    }

    #[test]
    fn a_token_has_lived_if_others_were_as_deep_and_as_old() {
        let (lives, ms) = (TokenLifetimes::default(), Duration::from_millis);
        lives.record_page(Stream::Responses, 1, None);
        assert!(!lives.is_proven(Stream::Responses, 0, ms(1)), "no token was answered yet");
        lives.record_page(Stream::Responses, 3, Some(ms(20)));
        for (pages, age, is_proven) in [(2, 20, true), (2, 21, false), (3, 20, false), (1, 0, true)] {
            assert_eq!(lives.is_proven(Stream::Responses, pages, ms(age)), is_proven, "{pages} {age}");
            assert!(!lives.is_proven(Stream::Themes, pages, ms(age)));
        }
    }

    #[test]
    fn the_other_name_is_asked_until_one_has_answered() {
        let base_url = Url::parse("https://example.com/v1/surveys-eu").unwrap();
        let surveys = address::of_probe(&base_url, Stream::Surveys);
        let path = SurveysPath::default();
        assert!(path.in_use(&surveys).is_none() && path.is_studies().is_none());
        let studies = path.other(&surveys).unwrap();
        assert_eq!(studies.url.as_str(), "https://example.com/v1/surveys-eu/v1/studies?limit=1");
        assert!(studies.shown.ends_with("/v1/studies?limit=1"));
        path.answered(&studies);
        assert_eq!(path.is_studies(), Some(true));
        assert_eq!(path.in_use(&surveys).unwrap().url, studies.url);
        assert!(path.other(&surveys).is_none(), "one has answered");
        let resumed = SurveysPath::new(true);
        assert_eq!(resumed.other(&resumed.in_use(&surveys).unwrap()).unwrap().url, surveys.url);
        resumed.neither_answered();
        assert!(resumed.other(&studies).is_none());
    }
}
