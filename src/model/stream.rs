//! The streams (kinds of records of the service), the optional parts of a response that a scan can request, and the
//! statuses of a survey.

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
            "studies" => Ok(Stream::Surveys),
            name => Stream::from_name(name)
                .ok_or_else(|| format!("unknown stream '{name}'; there are responses, surveys, themes and users")),
        }
    }
}

/// One optional part of a response record. The value is its bit in a [`FlagSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// Adds `visitorSnapshot`.
    WithSnapshots = 1,
    /// Adds `url`.
    WithUrls = 2,
    /// Adds `meta`.
    WithMeta = 4,
    /// Adds `customMetadata`, which only responses to link studies have.
    WithCustomMetadata = 8,
    /// Includes soft-deleted responses, with `deletedAt`.
    WithDeletedResponses = 16,
}

named! {
    /// Returns the name of the query parameter.
    Flag {
        WithSnapshots => "with_snapshots",
        WithUrls => "with_urls",
        WithMeta => "with_meta",
        WithCustomMetadata => "with_custom_metadata",
        WithDeletedResponses => "with_deleted_responses",
    }
}

/// A set of flags. The ledger and `responses._flags` store its bits, so the bits never change meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FlagSet(u8);

impl FlagSet {
    /// The empty set.
    pub const EMPTY: FlagSet = FlagSet(0);
    /// All flags.
    pub const ALL: FlagSet = FlagSet(31);

    /// Creates a set from stored bits. Unknown bits are ignored.
    pub fn from_bits(bits: u8) -> Self {
        FlagSet(bits & Self::ALL.0)
    }

    /// Returns the bits to store.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns the set with one flag added.
    #[must_use]
    pub fn with(self, flag: Flag) -> Self {
        FlagSet(self.0 | flag as u8)
    }

    /// Returns true if the flag is in the set.
    pub fn contains(self, flag: Flag) -> bool {
        self.0 & flag as u8 != 0
    }

    /// Returns the flags that are in both sets.
    #[must_use]
    pub fn intersection(self, other: FlagSet) -> FlagSet {
        FlagSet(self.0 & other.0)
    }

    /// Returns true if every flag of `other` is in the set.
    pub fn includes(self, other: FlagSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags of the set.
    pub fn iter(self) -> impl Iterator<Item = Flag> {
        Flag::ALL.into_iter().filter(move |flag| self.contains(*flag))
    }
}

impl FromIterator<Flag> for FlagSet {
    fn from_iter<I: IntoIterator<Item = Flag>>(flags: I) -> Self {
        flags.into_iter().fold(FlagSet::EMPTY, FlagSet::with)
    }
}

impl fmt::Display for FlagSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Flag::name).collect();
        f.write_str(&names.join(","))
    }
}

/// The status of a survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SurveyStatus {
    New,
    InProgress,
    Paused,
    Completed,
    Draft,
    Archived,
}

named! {
    /// Returns the name that the service uses.
    SurveyStatus {
        New => "NEW",
        InProgress => "IN_PROGRESS",
        Paused => "PAUSED",
        Completed => "COMPLETED",
        Draft => "DRAFT",
        Archived => "ARCHIVED",
    }
}

impl SurveyStatus {
    /// Parses names of statuses, in any case. Returns each status once, sorted.
    ///
    /// # Errors
    /// If a name is unknown, or the list is empty.
    pub fn parse_all(names: &[String]) -> Result<Vec<SurveyStatus>, String> {
        let parse = |name: &String| {
            let known = SurveyStatus::ALL.into_iter().find(|status| status.name().eq_ignore_ascii_case(name.trim()));
            known.ok_or_else(|| {
                let all: Vec<&str> = SurveyStatus::ALL.into_iter().map(SurveyStatus::name).collect();
                format!("there is no status '{name}'; there are {}", all.join(", "))
            })
        };
        let mut statuses = names.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        statuses.sort_unstable();
        statuses.dedup();
        match statuses.is_empty() {
            true => Err("an empty list requests no survey; leave it out to request all surveys".to_owned()),
            false => Ok(statuses),
        }
    }
}

/// How a URL names several statuses. The service's documentation allows all of these spellings; a service may accept
/// only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusSpelling {
    /// `status=A,B`
    Comma,
    /// `status[]=A&status[]=B`
    Brackets,
    /// `status=A&status=B`
    Repeated,
}

impl StatusSpelling {
    /// Every spelling, in the order in which runs try them.
    pub const ALL: [StatusSpelling; 3] = [StatusSpelling::Comma, StatusSpelling::Brackets, StatusSpelling::Repeated];
}

/// The statuses of the surveys that a list request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusFilter {
    pub spelling: StatusSpelling,
    pub statuses: Vec<SurveyStatus>,
}

impl fmt::Display for StatusFilter {
    /// Writes the query parameters of a URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.statuses.iter().map(|status| status.name()).collect();
        match self.spelling {
            StatusSpelling::Comma => write!(f, "status={}", names.join(",")),
            StatusSpelling::Brackets => write!(f, "status[]={}", names.join("&status[]=")),
            StatusSpelling::Repeated => write!(f, "status={}", names.join("&status=")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_matches_the_contract() {
        let of = |spelling| {
            StatusFilter { spelling, statuses: vec![SurveyStatus::Draft, SurveyStatus::InProgress] }.to_string()
        };
        let [comma, brackets, repeated] = StatusSpelling::ALL.map(of);
        assert_eq!(comma, "status=DRAFT,IN_PROGRESS");
        assert_eq!(brackets, "status[]=DRAFT&status[]=IN_PROGRESS");
        assert_eq!(repeated, "status=DRAFT&status=IN_PROGRESS");
    }

    #[test]
    fn names_are_parsed_in_any_case_and_errors_name_the_wrong_one() {
        let parse =
            |names: &[&str]| SurveyStatus::parse_all(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&["draft", "NEW", "Draft "]), Ok(vec![SurveyStatus::New, SurveyStatus::Draft]));
        let error = parse(&["LIVE"]).unwrap_err();
        assert!(error.contains("'LIVE'") && error.contains("IN_PROGRESS"), "{error}");
        assert!(parse(&[]).is_err());
    }
}
