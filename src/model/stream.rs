//! The streams: the kinds of records that the service has.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::named::named;

/// A kind of record of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Answers to surveys: `GET /v1/responses`.
    Responses,
    /// Surveys, also called studies: `GET /v1/surveys`.
    Surveys,
    /// Themes generated from answers: `GET /v1/themes`.
    Themes,
    /// Users, each requested by its id: `GET /v2/users/{userId}`. The service has no list of users, so this stream has
    /// no windows.
    Users,
}

// In the order in which they are synced.
named! {
    /// Returns the name in the configuration, the run JSON and the ledger.
    Stream {
        Surveys => "surveys",
        Responses => "responses",
        Themes => "themes",
        Users => "users",
    }
}

impl Stream {
    /// The streams that the service lists, in the order in which they are synced.
    pub const LISTS: [Stream; 3] = [Stream::Surveys, Stream::Responses, Stream::Themes];

    /// Returns the path of the list; for users, the path before the id.
    pub fn path(self) -> &'static str {
        match self {
            Stream::Responses => "/v1/responses",
            Stream::Surveys => "/v1/surveys",
            Stream::Themes => "/v1/themes",
            Stream::Users => "/v2/users",
        }
    }

    /// Returns the largest page size that a request may ask for; `None` if the stream has no `limit` parameter.
    pub fn page_rows_max(self) -> Option<u32> {
        match self {
            Stream::Responses | Stream::Surveys => Some(1000),
            Stream::Themes | Stream::Users => None,
        }
    }

    /// Returns true if the list can be filtered by survey (`sid`).
    pub fn has_survey_filter(self) -> bool {
        matches!(self, Stream::Responses | Stream::Themes)
    }

    /// Returns true if the stream is scanned window by window. Surveys are few and change at any age, so every scan
    /// reads the complete list. Users have no list.
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

    /// Parses the exact name of a stream. `studies` is a second name of surveys.
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
