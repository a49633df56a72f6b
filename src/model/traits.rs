//! Traits: what the contract leaves open and a service has been seen to do. Only the words and the names under which they are
//! remembered; they are measured elsewhere.
//!
//! A trait tells how much to ask for, and people what they deal with. None of them ever closes a window (promise P3).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names under which traits are remembered.
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
    /// [`super::ThemeTime`].
    pub const THEMES_FILTERED_BY: &str = "themes_filtered_by";
    /// [`crate::model::StatusSpelling`] that the list of surveys understands; "none" if it understands none.
    pub const SURVEY_STATUS_FORM: &str = "survey_status_form";
    /// Whether surveys of every state are listed without being asked for: a boolean.
    pub const SURVEYS_LISTED_WHOLE: &str = "surveys_listed_whole";
    /// [`super::RetryAfterForm`] that was seen last.
    pub const RETRY_AFTER: &str = "retry_after";
}

/// What becomes of rows that share a millisecond at the edge of a page.
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
    /// Those behind the edge are never sent.
    Lost,
}

impl Ties {
    /// Whether a page's edge may hide rows: then each one is looked at.
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
