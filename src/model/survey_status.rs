//! The statuses of a survey, and how a request for a list names the wanted ones.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::named::named;

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
