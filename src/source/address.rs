//! Builds request addresses, for example from a [`PageRequest`]. Sends nothing.
//!
//! It is unknown whether the service's `start` and `end` are inclusive. In both cases the requested range must contain
//! every row of the half-open window `[start_ms, end_ms)`. Therefore requests use `start = start_ms - 1` and `end =
//! end_ms`. The range is at most two milliseconds too wide; the pipeline decides about rows outside the window.

use std::net::IpAddr;

use bytes::Bytes;
use reqwest::Url;
use xxhash_rust::xxh3::xxh3_64;

use crate::model::{PageRequest, PageToken, Scope, StatusFilter, Stream, Window};

/// The latest date of JavaScript, in the year 275760. A window that ends later is requested without `end`.
const TIME_MS_MAX: i64 = 8_640_000_000_000_000;

/// The address of a request.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub url: Url,
    /// The address for people, with a hash in place of the page token.
    pub shown: String,
    /// The list that is requested, if any.
    pub list: Option<Stream>,
    /// True if the request asks for rows of one millisecond, rather than a page of a window.
    pub is_tie_probe: bool,
    /// The longest body of the answer that is read; `None` for the limit of the settings.
    pub body_bytes_max: Option<usize>,
    /// The body of a POST; `None` for a list call. The answer to a POST is not read as a page.
    pub posted: Option<Bytes>,
}

/// Builds the address and body of a purge of visitors. The body names people and is never shown.
pub(super) fn of_purge(base_url: &Url, body: Bytes) -> Address {
    let mut url = base_url.clone();
    url.set_path(&format!("{}/v2/purge/visitors", base_url.path().trim_end_matches('/')));
    Address { shown: url.to_string(), url, list: None, is_tie_probe: false, body_bytes_max: None, posted: Some(body) }
}

/// Builds the address of one page. `page_rows` is `None` if the stream has no `limit`. Streams that are not windowed
/// get no `start` and `end`.
pub(super) fn of_page(base_url: &Url, request: &PageRequest, page_rows: Option<u32>) -> Address {
    let pairs = pairs(request, page_rows, request.scope.stream.is_windowed());
    build(base_url, request.scope.stream, &pairs, request.token.as_ref())
}

/// Builds the address of a tie probe: a page of rows of one millisecond. The address has `start` and `end` for every
/// stream.
pub(super) fn of_moment(base_url: &Url, request: &PageRequest, page_rows: Option<u32>) -> Address {
    let pairs = pairs(request, page_rows, true);
    Address { is_tie_probe: true, ..build(base_url, request.scope.stream, &pairs, request.token.as_ref()) }
}

/// Builds the address of a page with exactly the window's `start` and `end`, for every stream.
pub(super) fn of_exactly(base_url: &Url, request: &PageRequest, page_rows: Option<u32>) -> Address {
    let Window { start_ms, end_ms } = request.window;
    // `pairs` subtracts this millisecond again.
    let window = Window { start_ms: start_ms.saturating_add(1), end_ms };
    let pairs = pairs(&PageRequest { window, ..request.clone() }, page_rows, true);
    build(base_url, request.scope.stream, &pairs, request.token.as_ref())
}

/// Returns the query parameters of a list call, without the page token. `has_bounds` adds `start` and `end`.
fn pairs(request: &PageRequest, page_rows: Option<u32>, has_bounds: bool) -> Vec<(&'static str, String)> {
    let Scope { stream, survey_id } = request.scope;
    let mut pairs: Vec<(&str, String)> = Vec::new();
    // A window that starts at or before the epoch is requested without `start`.
    if has_bounds {
        if request.window.start_ms > 0 {
            pairs.push(("start", (request.window.start_ms - 1).to_string()));
        }
        if request.window.end_ms <= TIME_MS_MAX {
            pairs.push(("end", request.window.end_ms.to_string()));
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
pub(super) fn of_probe(base_url: &Url, list: Stream) -> Address {
    let limit = list.page_rows_max().map(|_| ("limit", "1".to_owned()));
    build(base_url, list, limit.as_slice(), None)
}

/// Builds an invalid list request, whose `start` is not a time. Only an existing list answers this request with 400 or
/// 422, so the answer proves that the list exists.
pub(super) fn of_nonsense(base_url: &Url, list: Stream) -> Address {
    build(base_url, list, &[("start", "none".to_owned())], None)
}

/// Builds the address of a request for a list. `pairs` are the query parameters; `token` selects a page after the
/// first.
fn build(base_url: &Url, stream: Stream, pairs: &[(&str, String)], token: Option<&PageToken>) -> Address {
    let mut url = base_url.clone();
    let path = format!("{}{}", base_url.path().trim_end_matches('/'), stream.path());
    url.set_path(&path);
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    let mut shown = url.to_string();
    if let Some(token) = token {
        let joint = if pairs.is_empty() { '?' } else { '&' };
        shown = format!("{url}{joint}cursor={}", shortened(token));
        url.query_pairs_mut().append_pair("cursor", &token.0);
    }
    Address { url, shown, list: Some(stream), is_tie_probe: false, body_bytes_max: None, posted: None }
}

/// Adds the query parameters of the requested survey statuses to an address.
pub(super) fn with_statuses(at: Address, filter: &StatusFilter) -> Address {
    let text = filter.to_string();
    let Address { mut url, shown, .. } = at;
    let query = url.query().map_or_else(|| text.clone(), |query| format!("{query}&{text}"));
    url.set_query(Some(&query));
    let joint = if shown.contains('?') { '&' } else { '?' };
    Address { url, shown: format!("{shown}{joint}{text}"), ..at }
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
    use crate::model::{Flag, FlagSet, StatusSpelling, SurveyStatus};

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
            let address = of_moment(&base_url, &request, None);
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
}
