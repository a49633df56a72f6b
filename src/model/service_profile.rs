//! The service profile: behaviours that the service's documentation leaves open and that runs measure. This file
//! defines the names and values as they are stored; `pipeline::service_profile` measures them.
//!
//! A behaviour decides how much to request, and never makes a window complete (promise P3). The exceptions are the two
//! about 404, `taken_as_empty` and `not_found_end`: they store a proof, and what relied on it is read again when it
//! fails.
//!
//! Compares base URLs of services, and finds the host in a URL. One service can have several URLs.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

/// Names under which the state file stores behaviours.
pub mod names {
    use crate::model::Stream;

    /// The [`super::Ties`].
    pub const TIES: &str = "ties";
    /// The [`super::ListOrder`] of responses.
    pub const ORDER: &str = "order";
    /// Whether the range of responses includes its `start`: a boolean.
    pub const START_INCLUSIVE: &str = "start_inclusive";
    /// Whether the range of responses includes its `end`: a boolean.
    pub const END_INCLUSIVE: &str = "end_inclusive";
    /// The [`crate::model::EndStyle`] of the last page of a list.
    pub const END_STYLE: &str = "end_style";
    /// Whether a list ends with an empty page: a boolean.
    pub const TRAILING_EMPTY_PAGE: &str = "trailing_empty_page";
    /// Whether the service returns 404 for an empty result: a boolean.
    pub const NOT_FOUND_WHEN_EMPTY: &str = "not_found_when_empty";
    /// Rows per page of themes, whose page size cannot be requested: a number.
    pub const THEMES_PAGE_ROWS: &str = "themes_page_rows";
    /// The largest page size of responses that the service answered in time, in rows: a number.
    pub const PAGE_ROWS: &str = "page_rows";
    /// Whether the service has the list of surveys only at `/v1/studies`, and not at `/v1/surveys`: a boolean.
    pub const SURVEYS_ARE_STUDIES: &str = "surveys_are_studies";
    /// The [`super::RowTime`] that `start` and `end` of responses filter by.
    pub const RESPONSES_FILTERED_BY: &str = "responses_filtered_by";
    /// The [`super::RowTime`] that `start` and `end` of surveys filter by.
    pub const SURVEYS_FILTERED_BY: &str = "surveys_filtered_by";
    /// Whether a range of surveys includes its `start`: a boolean.
    pub const SURVEYS_START_INCLUSIVE: &str = "surveys_start_inclusive";
    /// Whether a range of surveys includes its `end`: a boolean.
    pub const SURVEYS_END_INCLUSIVE: &str = "surveys_end_inclusive";
    /// Whether a range of themes includes its `start`: a boolean.
    pub const THEMES_START_INCLUSIVE: &str = "themes_start_inclusive";
    /// Whether a range of themes includes its `end`: a boolean.
    pub const THEMES_END_INCLUSIVE: &str = "themes_end_inclusive";
    /// Statuses of the surveys that are listed if the request names no status: a list of words.
    pub const DEFAULT_STATUSES: &str = "default_statuses";
    /// Statuses of the surveys that are listed only if the request names them: a list of words.
    pub const STATUSES_ON_REQUEST: &str = "statuses_on_request";
    /// The unit of times in user records: a word, "text" for ISO 8601.
    pub const USER_TIME_UNIT: &str = "user_time_unit";
    /// Environments that webhook deliveries came from: a list of objects with `id` and `deliveries`.
    pub const ENVIRONMENT_IDS: &str = "environment_ids";
    /// The [`super::ThemeTime`] that `start` and `end` of themes filter by.
    pub const THEMES_FILTERED_BY: &str = "themes_filtered_by";
    /// The [`crate::model::StatusSpelling`] that the list of surveys accepts; "none" if it accepts none.
    pub const SURVEY_STATUS_FORM: &str = "survey_status_form";
    /// Whether surveys of every status are listed if the request names no status: a boolean.
    pub const SURVEYS_LISTED_WHOLE: &str = "surveys_listed_whole";
    /// The last [`super::RetryAfterForm`] that the service sent.
    pub const RETRY_AFTER: &str = "retry_after";

    /// Returns the name of the behaviour whether a list that answers every request with 404 is taken as empty: a
    /// boolean. False after the list has answered.
    pub fn taken_as_empty(list: Stream) -> &'static str {
        match list {
            Stream::Responses => "responses_taken_as_empty",
            Stream::Surveys => "surveys_taken_as_empty",
            Stream::Themes | Stream::Users => "themes_taken_as_empty",
        }
    }

    /// Returns the name of the behaviour that a 404 for a page token is the end of the list if the last page has fewer
    /// rows than this number. 0 if that was contradicted.
    pub fn not_found_end(list: Stream) -> &'static str {
        match list {
            Stream::Responses => "responses_end_404_below",
            Stream::Surveys => "surveys_end_404_below",
            Stream::Themes | Stream::Users => "themes_end_404_below",
        }
    }
}

/// How the service handles ties at a page boundary: rows that share one millisecond of creation time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ties {
    /// Not measured yet.
    #[default]
    Unknown,
    /// Each row is sent once.
    Kept,
    /// Some rows are sent twice, or again and again without an end.
    Repeated,
    /// The rows after the boundary are never sent.
    Lost,
}

impl Ties {
    /// Returns true if a page boundary may hide rows, so that every boundary must be probed.
    pub fn may_lose(self) -> bool {
        matches!(self, Ties::Unknown | Ties::Lost)
    }
}

/// The order of a list by creation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListOrder {
    /// The newest row first.
    NewestFirst,
    /// The oldest row first.
    OldestFirst,
    /// No order of creation time.
    None,
}

/// The time of a response or survey that `start` and `end` filter by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowTime {
    /// The creation of the row, `createdAt`.
    Created,
    /// The last change of the row, `updatedAt`.
    Updated,
    /// The first answer in the session of the row.
    Session,
    /// The launch of the survey, `launchedAt`.
    Launched,
    /// No time: the list ignores `start` and `end`.
    Ignored,
    /// A time that is not in the row.
    Other,
}

/// The creation time that `start` and `end` of themes filter by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThemeTime {
    /// The creation of the theme.
    Theme,
    /// The creation of the answer that the theme belongs to.
    Answer,
}

/// The form of a `Retry-After` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfterForm {
    /// No header.
    Absent,
    /// Whole seconds.
    Seconds,
    /// Seconds with a fraction.
    Fraction,
    /// An HTTP date.
    HttpDate,
    /// Epoch seconds or milliseconds.
    Epoch,
    /// A value that names no future time: zero, a past time, a word.
    Useless,
}

macro_rules! display_as_stored {
    ($($name:ident { $($variant:ident => $text:literal),* $(,)? })*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$variant => $text),* })
            }
        }
    )*};
}

display_as_stored! {
    Ties { Unknown => "unknown", Kept => "kept", Repeated => "repeated", Lost => "lost" }
    RowTime {
        Created => "created", Updated => "updated", Session => "session", Launched => "launched", Ignored => "ignored", Other => "other",
    }
    ThemeTime { Theme => "theme", Answer => "answer" }
    ListOrder { NewestFirst => "newest_first", OldestFirst => "oldest_first", None => "none" }
    RetryAfterForm {
        Absent => "absent", Seconds => "seconds", Fraction => "fraction", HttpDate => "http_date", Epoch => "epoch", Useless => "useless",
    }
}

/// Returns true if two base URLs name the same service. Ignores the case of the host, a final dot, the default port,
/// and slashes at the end. `localhost`, `127.0.0.1` and `[::1]` are the same host.
pub fn is_same_service(left: &str, right: &str) -> bool {
    left == right || canonical(left) == canonical(right)
}

/// Returns the form in which a base URL is compared. A text that is not a URL is returned unchanged.
fn canonical(address: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = address.split_once("://") else { return Cow::Borrowed(address) };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host_end = match authority.rfind(']') {
        Some(at) => at + 1,
        None => authority.rfind(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(host_end);
    let scheme = scheme.to_ascii_lowercase();
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let host = if matches!(host.as_str(), "127.0.0.1" | "[::1]") { "localhost" } else { &host };
    let port = match (scheme.as_str(), port) {
        ("http", ":80") | ("https", ":443") | (_, ":") => "",
        (_, port) => port,
    };
    Cow::Owned(format!("{scheme}://{host}{port}{}", path.trim_end_matches('/')))
}

/// Returns the host and port in a URL, without a user and a password.
pub fn host_and_port(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(value: impl Serialize) -> String {
        serde_json::to_string(&value).unwrap()
    }

    #[test]
    fn values_are_displayed_as_they_are_stored() {
        for ties in [Ties::Unknown, Ties::Kept, Ties::Repeated, Ties::Lost] {
            assert_eq!(stored(ties), format!("\"{ties}\""));
        }
        for order in [ListOrder::NewestFirst, ListOrder::OldestFirst, ListOrder::None] {
            assert_eq!(stored(order), format!("\"{order}\""));
        }
        use RetryAfterForm::{Absent, Epoch, Fraction, HttpDate, Seconds, Useless};
        for form in [Absent, Seconds, Fraction, HttpDate, Epoch, Useless] {
            assert_eq!(stored(form), format!("\"{form}\""));
        }
    }

    #[test]
    fn urls_of_one_service_are_recognized() {
        for (left, right) in [
            ("http://localhost:8787", "http://127.0.0.1:8787"),
            ("http://localhost:8787/a", "http://[::1]:8787/a"),
            ("https://API.example.com", "https://api.example.com.:443/"),
            ("http://localhost", "HTTP://127.0.0.1:80"),
        ] {
            assert!(is_same_service(left, right), "{left} {right}");
        }
        for (left, right) in [
            ("http://localhost:8787", "http://localhost:8788"),
            ("http://127.0.0.1:1", "http://127.0.0.2:1"),
            ("https://a.example", "http://a.example"),
            ("https://a.example/x", "https://a.example/X"),
            ("https://a.example", "https://b.example"),
            ("", "https://b.example"),
        ] {
            assert!(!is_same_service(left, right), "{left} {right}");
        }
    }
}
