//! The states of a survey, and how a list call names those that it asks for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A state of a survey, as the service names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SurveyStatus {
    New,
    InProgress,
    Paused,
    Completed,
    Draft,
    Archived,
}

impl SurveyStatus {
    /// Every state of the contract.
    pub const ALL: [SurveyStatus; 6] = [
        SurveyStatus::New,
        SurveyStatus::InProgress,
        SurveyStatus::Paused,
        SurveyStatus::Completed,
        SurveyStatus::Draft,
        SurveyStatus::Archived,
    ];

    /// The name in the contract.
    pub fn name(self) -> &'static str {
        match self {
            SurveyStatus::New => "NEW",
            SurveyStatus::InProgress => "IN_PROGRESS",
            SurveyStatus::Paused => "PAUSED",
            SurveyStatus::Completed => "COMPLETED",
            SurveyStatus::Draft => "DRAFT",
            SurveyStatus::Archived => "ARCHIVED",
        }
    }

    /// The states of these names, in any case, each once. The error says what is wrong.
    pub fn parse_all(names: &[String]) -> Result<Vec<SurveyStatus>, String> {
        let read = |name: &String| {
            let known = SurveyStatus::ALL.into_iter().find(|status| status.name().eq_ignore_ascii_case(name.trim()));
            known.ok_or_else(|| {
                let all: Vec<&str> = SurveyStatus::ALL.into_iter().map(SurveyStatus::name).collect();
                format!("there is no status '{name}'; there are {}", all.join(", "))
            })
        };
        let mut statuses = names.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        statuses.sort_unstable();
        statuses.dedup();
        match statuses.is_empty() {
            true => Err("an empty list asks for no survey at all; leave it out to ask for all".to_owned()),
            false => Ok(statuses),
        }
    }
}

/// How several states are written into an address. The contract allows all of these; a service may understand one
/// alone.
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
    /// Every spelling, in the order in which they are tried.
    pub const ALL: [StatusSpelling; 3] = [StatusSpelling::Comma, StatusSpelling::Brackets, StatusSpelling::Repeated];
}

/// Which surveys a list call asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusFilter {
    pub spelling: StatusSpelling,
    pub statuses: Vec<SurveyStatus>,
}

impl fmt::Display for StatusFilter {
    /// As a part of an address.
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
    fn each_spelling_is_that_of_the_contract() {
        let of = |spelling| {
            StatusFilter { spelling, statuses: vec![SurveyStatus::Draft, SurveyStatus::InProgress] }.to_string()
        };
        let [comma, brackets, repeated] = StatusSpelling::ALL.map(of);
        assert_eq!(comma, "status=DRAFT,IN_PROGRESS");
        assert_eq!(brackets, "status[]=DRAFT&status[]=IN_PROGRESS");
        assert_eq!(repeated, "status=DRAFT&status=IN_PROGRESS");
    }

    #[test]
    fn names_are_read_in_any_case_and_wrong_ones_are_named() {
        let read =
            |names: &[&str]| SurveyStatus::parse_all(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&["draft", "NEW", "Draft "]), Ok(vec![SurveyStatus::New, SurveyStatus::Draft]));
        let error = read(&["LIVE"]).unwrap_err();
        assert!(error.contains("'LIVE'") && error.contains("IN_PROGRESS"), "{error}");
        assert!(read(&[]).is_err());
    }
}
