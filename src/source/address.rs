//! Builds request addresses, for example from a [`PageRequest`]. Sends nothing.
//!
//! It is unknown whether the service's `start` and `end` are inclusive. In both cases the requested range must contain
//! every row of the half-open window `[start_ms, end_ms)`. Therefore requests use `start = start_ms - 1` and `end =
//! end_ms`. The range is at most two milliseconds too wide; the pipeline decides about rows outside the window.

use std::net::IpAddr;

use bytes::Bytes;
use reqwest::{Method, Url};
use xxhash_rust::xxh3::xxh3_64;

use crate::model::{PageRequest, PageToken, Scope, StatusFilter, Stream, Window};

/// The latest date of JavaScript, in the year 275760. A window that ends later is requested without `end`.
const TIME_MS_MAX: i64 = 8_640_000_000_000_000;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// A page of this list.
    List(Stream),
    /// A purge of visitors. Its answer is read by the caller.
    Purge,
    /// One person; the answer must be JSON.
    ReadUser,
    /// An upsert of one person; its answer may have any body.
    UpsertUser,
}

/// A request to the service, with its address.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub kind: CallKind,
    pub url: Url,
    /// The address for people, with a hash in place of the page token or the id of a person.
    pub shown: String,
    /// True if the request has a page token.
    pub has_token: bool,
    /// True if the request asks for rows of one millisecond, rather than a page of a window.
    pub is_tie_probe: bool,
    /// The longest body of the answer that is read; `None` for the limit of the settings.
    pub body_bytes_max: Option<usize>,
    /// The body of a POST, which is never shown; `None` for a GET.
    pub posted: Option<Bytes>,
}

impl Call {
    fn new(kind: CallKind, url: Url, shown: String, posted: Option<Bytes>) -> Self {
        Call { kind, url, shown, has_token: false, is_tie_probe: false, body_bytes_max: None, posted }
    }

    pub fn method(&self) -> Method {
        if self.posted.is_some() { Method::POST } else { Method::GET }
    }

    /// Returns true for requests about one person, of which errors and logs contain nothing.
    pub fn is_about_person(&self) -> bool {
        matches!(self.kind, CallKind::ReadUser | CallKind::UpsertUser)
    }
}

fn with_path(base_url: &Url, path: &str) -> Url {
    let mut url = base_url.clone();
    url.set_path(&format!("{}{path}", base_url.path().trim_end_matches('/')));
    url
}

/// Builds a purge of visitors. The body names people.
pub(super) fn of_purge(base_url: &Url, body: Bytes) -> Call {
    let url = with_path(base_url, "/v2/purge/visitors");
    Call::new(CallKind::Purge, url.clone(), url.to_string(), Some(body))
}

/// Builds the request that reads a person. The address for people has a hash in place of the id.
pub(super) fn of_user(base_url: &Url, user_id: &str) -> Call {
    let path = |id: &str| with_path(base_url, &format!("{}/{id}", Stream::Users.path()));
    let hash = format!("#{:08x}", xxh3_64(user_id.as_bytes()) & 0xffff_ffff);
    Call::new(CallKind::ReadUser, path(&escaped(user_id)), path(&hash).to_string(), None)
}

/// Builds an upsert of one person.
pub(super) fn of_upsert(base_url: &Url, body: Bytes) -> Call {
    let url = with_path(base_url, Stream::Users.path());
    Call::new(CallKind::UpsertUser, url.clone(), url.to_string(), Some(body))
}

/// The values of `start` and `end` in a list call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// The request's window, with the margin that a walk adds. Streams that are not windowed are requested without
    /// bounds.
    Window,
    /// The request's window with the same margin, for every stream.
    Part,
    /// As `Part`, for a window of one millisecond. The call counts in [`super::RequestStats::ties_probed`].
    Moment,
    /// Exactly the window's start and end, for every stream: measures whether the service includes them.
    Exactly,
}

/// Builds the request for one page of a window. `page_rows` is `None` if the stream has no `limit`.
pub(super) fn of_page(base_url: &Url, request: &PageRequest, page_rows: Option<u32>) -> Call {
    of_range(base_url, request, page_rows, Range::Window)
}

/// Builds the request for one page, with the `start` and `end` that `range` chooses.
pub(super) fn of_range(base_url: &Url, request: &PageRequest, page_rows: Option<u32>, range: Range) -> Call {
    let pairs = pairs(request, page_rows, range);
    let call = build(base_url, request.scope.stream, &pairs, request.token.as_ref());
    Call { is_tie_probe: range == Range::Moment, ..call }
}

fn pairs(request: &PageRequest, page_rows: Option<u32>, range: Range) -> Vec<(&'static str, String)> {
    let Scope { stream, survey_id } = request.scope;
    let Window { start_ms, end_ms } = request.window;
    let mut pairs: Vec<(&str, String)> = Vec::new();
    if stream.is_windowed() || range != Range::Window {
        let start_ms = if range == Range::Exactly { start_ms } else { start_ms.saturating_sub(1) };
        // A window that starts at or before the epoch is requested without `start`.
        if start_ms >= 0 {
            pairs.push(("start", start_ms.to_string()));
        }
        if end_ms <= TIME_MS_MAX {
            pairs.push(("end", end_ms.to_string()));
        }
    }
    if let Some(rows) = page_rows {
        pairs.push(("limit", rows.to_string()));
    }
    if let Some(id) = survey_id.filter(|_| stream.has_survey_filter()) {
        pairs.push(("sid", id.to_string()));
    }
    if stream == Stream::Responses {
        pairs.extend(request.flags.iter().map(|flag| (flag.name(), "true".to_owned())));
    }
    pairs
}

/// Builds the cheapest request that proves that the base URL and the key are right: one row of a list. A list without
/// `limit` returns all rows.
pub(super) fn of_probe(base_url: &Url, list: Stream) -> Call {
    let limit = list.page_rows_max().map(|_| ("limit", "1".to_owned()));
    build(base_url, list, limit.as_slice(), None)
}

/// Builds an invalid list request, whose `start` is not a time. Only an existing list answers this request with 400 or
/// 422, so the answer proves that the list exists.
pub(super) fn of_nonsense(base_url: &Url, list: Stream) -> Call {
    build(base_url, list, &[("start", "none".to_owned())], None)
}

/// Builds the address of a request for a list. `pairs` are the query parameters; `token` selects a page after the
/// first.
fn build(base_url: &Url, stream: Stream, pairs: &[(&str, String)], token: Option<&PageToken>) -> Call {
    let mut url = with_path(base_url, stream.path());
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    let mut shown = url.to_string();
    if let Some(token) = token {
        let joint = if pairs.is_empty() { '?' } else { '&' };
        shown = format!("{url}{joint}cursor={}", shortened(token));
        url.query_pairs_mut().append_pair("cursor", &token.0);
    }
    Call { has_token: token.is_some(), ..Call::new(CallKind::List(stream), url, shown, None) }
}

/// Adds the query parameters of the requested survey statuses to an address.
pub(super) fn with_statuses(at: Call, filter: &StatusFilter) -> Call {
    let text = filter.to_string();
    let Call { mut url, shown, .. } = at;
    let query = url.query().map_or_else(|| text.clone(), |query| format!("{query}&{text}"));
    url.set_query(Some(&query));
    let joint = if shown.contains('?') { '&' } else { '?' };
    Call { url, shown: format!("{shown}{joint}{text}"), ..at }
}

/// Percent-encodes every byte of a path segment except ASCII letters, digits, `-`, `_`, `.` and `~`.
fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => segment.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(segment, "%{byte:02X}")),
        }
    }
    segment
}

/// Returns true if the host is this machine: a loopback address or the name `localhost`.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns a text that stands for a page token in messages: a hash, which cannot be used as a token.
pub(super) fn shortened(token: &PageToken) -> String {
    format!("#{:08x}", token_hash(token) & 0xffff_ffff)
}

/// Returns the hash of a page token.
pub(super) fn token_hash(token: &PageToken) -> u64 {
    xxh3_64(token.0.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Flag, FlagSet, StatusSpelling, SurveyStatus, can_request_user};

    fn request(stream: Stream, window: Window) -> PageRequest {
        PageRequest { scope: Scope::all(stream), window, flags: FlagSet::EMPTY, page_rows: 1000, token: None }
    }

    fn url(request: &PageRequest, page_rows: Option<u32>) -> String {
        let base_url = Url::parse("https://example.com").unwrap();
        of_page(&base_url, request, page_rows).url.to_string()
    }

    #[test]
    fn p3_a_requested_range_contains_its_window() {
        let (start_ms, end_ms) = (1_700_000_000_000, 1_700_000_060_000);
        let address = url(&request(Stream::Responses, Window::new(start_ms, end_ms)), Some(1000));
        assert_eq!(address, "https://example.com/v1/responses?start=1699999999999&end=1700000060000&limit=1000");
        let (start, end) = (start_ms - 1, end_ms);
        for row in [start_ms, end_ms - 1] {
            assert!(start < row && row < end, "inside even if both ends are exclusive");
        }
    }

    #[test]
    fn a_window_without_bounds_has_no_start_and_no_end() {
        let of = |start_ms| url(&request(Stream::Themes, Window::new(start_ms, 5)), None);
        assert_eq!(of(0), "https://example.com/v1/themes?end=5");
        assert_eq!(of(i64::MIN), "https://example.com/v1/themes?end=5");
        assert_eq!(of(1), "https://example.com/v1/themes?start=0&end=5");
        assert_eq!(url(&request(Stream::Themes, Window::new(0, i64::MAX)), None), "https://example.com/v1/themes");
    }

    #[test]
    fn p3_a_moment_is_asked_for_with_its_neighbours_in_every_stream() {
        for stream in Stream::ALL {
            let request = request(stream, Window::new(70, 71));
            let base_url = Url::parse("https://example.com").unwrap();
            let address = of_range(&base_url, &request, None, Range::Moment);
            assert!(address.shown.ends_with("?start=69&end=71") && address.is_tie_probe, "{}", address.shown);
            assert!(!of_page(&base_url, &request, None).is_tie_probe);
        }
    }

    #[test]
    fn surveys_are_asked_for_whole() {
        let mut surveys = request(Stream::Surveys, Window::new(5, 50));
        surveys.flags = FlagSet::ALL;
        surveys.scope.survey_id = Some(3);
        assert_eq!(url(&surveys, Some(500)), "https://example.com/v1/surveys?limit=500");
        assert_eq!(url(&surveys, None), "https://example.com/v1/surveys");
    }

    #[test]
    fn survey_statuses_are_written_in_every_spelling() {
        let surveys = request(Stream::Surveys, Window::new(5, 50));
        let base_url = Url::parse("https://example.com").unwrap();
        for (spelling, query) in [
            (StatusSpelling::Comma, "status=PAUSED,ARCHIVED"),
            (StatusSpelling::Brackets, "status[]=PAUSED&status[]=ARCHIVED"),
            (StatusSpelling::Repeated, "status=PAUSED&status=ARCHIVED"),
        ] {
            let filter = StatusFilter { spelling, statuses: vec![SurveyStatus::Paused, SurveyStatus::Archived] };
            let at = |rows| with_statuses(of_page(&base_url, &surveys, rows), &filter);
            assert_eq!(at(Some(5)).url.as_str(), format!("https://example.com/v1/surveys?limit=5&{query}"));
            assert_eq!(at(None).shown, format!("https://example.com/v1/surveys?{query}"));
        }
    }

    #[test]
    fn a_token_comes_with_the_same_parameters_and_is_not_shown() {
        let mut responses = request(Stream::Responses, Window::new(5, 50));
        responses.flags = [Flag::WithMeta, Flag::WithDeletedResponses].into_iter().collect();
        responses.scope.survey_id = Some(3);
        responses.token = Some(PageToken("a+b/c=&x=1 é".into()));
        let base_url = Url::parse("https://example.com/tenant").unwrap();
        let address = of_page(&base_url, &responses, Some(10));
        let same = "https://example.com/tenant/v1/responses?start=4&end=50&limit=10&sid=3&with_meta=true\
                    &with_deleted_responses=true";
        assert_eq!(address.url.as_str(), format!("{same}&cursor=a%2Bb%2Fc%3D%26x%3D1+%C3%A9"));
        assert!(address.shown.starts_with(&format!("{same}&cursor=#")), "{}", address.shown);
    }

    #[test]
    fn themes_know_a_survey_but_no_flags() {
        let mut themes = request(Stream::Themes, Window::new(5, 50));
        themes.flags = FlagSet::ALL;
        themes.scope.survey_id = Some(3);
        assert_eq!(url(&themes, None), "https://example.com/v1/themes?start=4&end=50&sid=3");
    }

    #[test]
    fn an_id_stays_one_segment_of_the_address() {
        assert_eq!(escaped("user-1_2.3~x"), "user-1_2.3~x");
        assert_eq!(escaped("a/b"), "a%2Fb");
        assert_eq!(escaped("../../v1/surveys?x=1#y"), "..%2F..%2Fv1%2Fsurveys%3Fx%3D1%23y");
        assert_eq!(escaped("usér 日\u{0}%"), "us%C3%A9r%20%E6%97%A5%00%25");
        for id in ["../../x", "a\\..\\b", ";@:&=+$,", "%2e%2e", "..."] {
            let mut url = Url::parse("http://localhost/tenant").unwrap();
            url.set_path(&format!("/tenant/v2/users/{}", escaped(id)));
            assert_eq!(url.path_segments().unwrap().count(), 4, "{id}: {url}");
        }
        assert!(!can_request_user("..") && !can_request_user(".") && !can_request_user("") && can_request_user("..."));
    }
}
