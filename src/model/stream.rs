//! The collections of the service.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// One collection of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Answers: `GET /v1/responses`.
    Responses,
    /// Study configurations: `GET /v1/surveys`.
    Surveys,
    /// Themes generated from answers: `GET /v1/themes`.
    Themes,
    /// People, asked for one by one: `GET /v2/users/{userId}`. No list and no windows.
    Users,
}

impl Stream {
    /// Every stream, in the order in which they are synced.
    pub const ALL: [Stream; 4] = [Stream::Surveys, Stream::Responses, Stream::Themes, Stream::Users];
    /// The streams that are lists of the service, in the same order.
    pub const LISTS: [Stream; 3] = [Stream::Surveys, Stream::Responses, Stream::Themes];

    /// The name used in the configuration, the run's JSON and the ledger.
    pub fn name(self) -> &'static str {
        match self {
            Stream::Responses => "responses",
            Stream::Surveys => "surveys",
            Stream::Themes => "themes",
            Stream::Users => "users",
        }
    }

    /// The path of the list call; for users, what stands before the id.
    pub fn path(self) -> &'static str {
        match self {
            Stream::Responses => "/v1/responses",
            Stream::Surveys => "/v1/surveys",
            Stream::Themes => "/v1/themes",
            Stream::Users => "/v2/users",
        }
    }

    /// The most rows one call may ask for; `None` where the contract knows no `limit` parameter.
    pub fn page_rows_max(self) -> Option<u32> {
        match self {
            Stream::Responses | Stream::Surveys => Some(1000),
            Stream::Themes | Stream::Users => None,
        }
    }

    /// Whether the list call knows `sid`, the restriction to one survey.
    pub fn has_survey_filter(self) -> bool {
        matches!(self, Stream::Responses | Stream::Themes)
    }

    /// Whether the rows belong to days: such a stream is scanned window by window. Surveys are few and change at any
    /// age, so they are always read whole; users are no list at all.
    pub fn is_windowed(self) -> bool {
        !matches!(self, Stream::Surveys | Stream::Users)
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Stream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "responses" => Ok(Stream::Responses),
            "surveys" | "studies" => Ok(Stream::Surveys),
            "themes" => Ok(Stream::Themes),
            "users" => Ok(Stream::Users),
            other => Err(format!("unknown stream '{other}'; there are responses, surveys, themes and users")),
        }
    }
}
