//! The service profile: measured behaviours that the contract leaves open. Defines the values and the names under which
//! they are stored; `pipeline::service_profile` measures them.
//!
//! Behaviours decide how much to request. None of them ever completes a window (promise P3).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names under which behaviours are remembered.
pub mod names {
    /// [`super::Ties`].
    pub const TIES: &str = "ties";
    /// [`super::ListOrder`] of responses.
    pub const ORDER: &str = "order";
    /// Whether `start` itself belongs to the range: a boolean.
    pub const START_INCLUSIVE: &str = "start_inclusive";
    /// Whether `end` itself belongs to the range: a boolean.
    pub const END_INCLUSIVE: &str = "end_inclusive";
    /// [`crate::model::EndStyle`] of the last page of a list.
    pub const END_STYLE: &str = "end_style";
    /// Whether a list ends with a page that holds nothing: a boolean.
    pub const TRAILING_EMPTY_PAGE: &str = "trailing_empty_page";
    /// Whether an empty result is answered with 404: a boolean.
    pub const NOT_FOUND_WHEN_EMPTY: &str = "not_found_when_empty";
    /// Rows on a page of themes, for which no page size can be asked: a number.
    pub const THEMES_PAGE_ROWS: &str = "themes_page_rows";
    /// The largest page of responses that was answered in time, in rows: a number.
    pub const PAGE_ROWS: &str = "page_rows";
    /// Whether the list of surveys is served under the name of studies alone: a boolean.
    pub const SURVEYS_ARE_STUDIES: &str = "surveys_are_studies";
    /// [`super::RowTime`] that `start` and `end` of responses mean.
    pub const RESPONSES_FILTERED_BY: &str = "responses_filtered_by";
    /// [`super::RowTime`] that `start` and `end` of surveys mean.
    pub const SURVEYS_FILTERED_BY: &str = "surveys_filtered_by";
    /// Whether `start` itself belongs to a range of surveys: a boolean.
    pub const SURVEYS_START_INCLUSIVE: &str = "surveys_start_inclusive";
    /// Whether `end` itself belongs to a range of surveys: a boolean.
    pub const SURVEYS_END_INCLUSIVE: &str = "surveys_end_inclusive";
    /// Whether `start` itself belongs to a range of themes: a boolean.
    pub const THEMES_START_INCLUSIVE: &str = "themes_start_inclusive";
    /// Whether `end` itself belongs to a range of themes: a boolean.
    pub const THEMES_END_INCLUSIVE: &str = "themes_end_inclusive";
    /// States of the surveys that are listed when none is asked for: a list of words.
    pub const DEFAULT_STATUSES: &str = "default_statuses";
    /// States of the surveys that are listed only when they are asked for: a list of words.
    pub const STATUSES_ON_REQUEST: &str = "statuses_on_request";
    /// The unit of the times of users: a word, "text" for ISO 8601.
    pub const USER_TIME_UNIT: &str = "user_time_unit";
    /// Environments that webhooks named: a list of objects `id`, `deliveries`.
    pub const ENVIRONMENT_IDS: &str = "environment_ids";
    /// [`super::ThemeTime`].
    pub const THEMES_FILTERED_BY: &str = "themes_filtered_by";
    /// [`crate::model::StatusSpelling`] that the list of surveys understands; "none" if it understands none.
    pub const SURVEY_STATUS_FORM: &str = "survey_status_form";
    /// Whether surveys of every state are listed without being asked for: a boolean.
    pub const SURVEYS_LISTED_WHOLE: &str = "surveys_listed_whole";
    /// [`super::RetryAfterForm`] that was seen last.
    pub const RETRY_AFTER: &str = "retry_after";
}

/// The service's handling of rows that share a millisecond at a page boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ties {
    /// Not measured yet.
    #[default]
    Unknown,
    /// Each of them is sent once.
    Kept,
    /// Some are sent twice, or for ever.
    Repeated,
    /// The rows after the boundary are never sent.
    Lost,
}

impl Ties {
    /// Whether a page boundary may hide rows: then every boundary is probed.
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
    /// Neither.
    None,
}

/// What `start` and `end` of responses or surveys mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowTime {
    /// The row's creation, `createdAt`.
    Created,
    /// The row's last change, `updatedAt`.
    Updated,
    /// The first answer of the row's session.
    Session,
    /// The survey's launch, `launchedAt`.
    Launched,
    /// They do nothing.
    Ignored,
    /// None of the times that a row shows.
    Other,
}

/// Whose creation `start` and `end` of themes mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThemeTime {
    /// The theme's.
    Theme,
    /// The answer's, on which the theme stands.
    Answer,
}

/// The form of a `Retry-After` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfterForm {
    /// A refusal came without the header.
    Absent,
    /// Whole seconds.
    Seconds,
    /// Seconds with a fraction.
    Fraction,
    /// An HTTP date.
    HttpDate,
    /// Epoch seconds or milliseconds.
    Epoch,
    /// Something that names no time to come: zero, the past, a word.
    Useless,
}

macro_rules! shown_as_stored {
    ($($name:ident { $($variant:ident => $text:literal),* $(,)? })*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$variant => $text),* })
            }
        }
    )*};
}

shown_as_stored! {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(value: impl Serialize) -> String {
        serde_json::to_string(&value).unwrap()
    }

    #[test]
    fn what_is_shown_is_what_is_stored() {
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
}
