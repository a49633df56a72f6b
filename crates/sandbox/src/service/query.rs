//! Parses the query of a list call. A query that the contract does not allow is refused with a reason.

use std::ops::Range;

use axum::{extract::Query, http::Uri};

use super::super::{
    faults::{EndMark, Faults, FilteredBy, StatusSpelling},
    random::mix,
    world::{Flags, ListName, Status},
};

/// The contract's largest `limit`.
const LIMIT_MAX: usize = 1000;

/// The parsed query of a list call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListQuery {
    pub(crate) list: ListName,
    start_ms: Option<i64>,
    end_ms: Option<i64>,
    pub(crate) survey_id: Option<i64>,
    /// The statuses of surveys to list; empty for all.
    pub(crate) statuses: Vec<Status>,
    pub(crate) flags: Flags,
    pub(crate) page_rows: usize,
    pub(crate) token: Option<String>,
}

impl ListQuery {
    /// Parses the query of a call of `list`. Some faults change which parameters are accepted. An error is the message
    /// for a response with status 400.
    pub(crate) fn parse(list: ListName, uri: &Uri, faults: &Faults) -> Result<Self, String> {
        let Ok(Query(pairs)) = Query::<Vec<(String, String)>>::try_from_uri(uri) else {
            return Err("the query cannot be read".into());
        };
        let mut query = Self {
            list,
            start_ms: None,
            end_ms: None,
            survey_id: None,
            statuses: Vec::new(),
            flags: Flags::default(),
            page_rows: faults.default_page_rows,
            token: None,
        };
        let mut seen: Vec<&str> = Vec::new();
        for (name, value) in &pairs {
            let is_list = name.starts_with("status");
            if !is_list && seen.contains(&name.as_str()) {
                return Err(format!("'{name}' is given twice"));
            }
            seen.push(name);
            if !query.set(name, value)? && !faults.ignore_unknown_parameters {
                return Err(format!("unknown parameter '{name}'"));
            }
        }
        if !query.statuses.is_empty() && faults.status_spelling.is_some_and(|wanted| !is_spelled(&pairs, wanted)) {
            if !faults.ignore_other_spellings {
                return Err("'status' cannot be read".into());
            }
            query.statuses.clear();
        }
        if list == ListName::Surveys && query.statuses.is_empty() {
            let listed = |status: &Status| faults.default_statuses.iter().any(|name| name == status.name());
            query.statuses.extend(Status::ALL.into_iter().filter(listed));
        }
        match (query.start_ms, query.end_ms) {
            (Some(start), Some(end)) if start > end => Err("'start' must not be after 'end'".into()),
            _ => Ok(query),
        }
    }

    /// Stores one parameter. Returns false if the list has no parameter of this name. Fails if the value is invalid.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let has_survey = self.list != ListName::Surveys;
        let has_limit = self.list != ListName::Themes;
        match name {
            "start" => self.start_ms = Some(integer(name, value)?),
            "end" => self.end_ms = Some(integer(name, value)?),
            "cursor" => self.token = Some(value.to_owned()),
            // The contract takes 'survey' wherever it says 'study', so the long names exist in both forms.
            "sid" | "surveyId" | "studyId" if has_survey => self.survey_id = Some(integer(name, value)?),
            "limit" if has_limit => {
                self.page_rows = (value.parse().ok().filter(|rows| (1..=LIMIT_MAX).contains(rows)))
                    .ok_or_else(|| format!("'limit' must be an integer from 1 to {LIMIT_MAX}"))?;
            }
            "status" | "status[]" if self.list == ListName::Surveys => {
                for name in value.split(',') {
                    self.statuses.push(Status::named(name).ok_or_else(|| format!("unknown status '{name}'"))?);
                }
            }
            _ => return self.set_flag(name, value),
        }
        Ok(true)
    }

    /// Stores a flag of responses. Returns false if the list has no flag of this name. Fails if the value is not a
    /// boolean.
    fn set_flag(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let flag = match name {
            _ if self.list != ListName::Responses => return Ok(false),
            "with_snapshots" => &mut self.flags.snapshots,
            "with_urls" => &mut self.flags.urls,
            "with_meta" => &mut self.flags.meta,
            "with_custom_metadata" => &mut self.flags.custom_metadata,
            "with_deleted_responses" => &mut self.flags.deleted,
            _ => return Ok(false),
        };
        *flag = value.parse().map_err(|_| format!("'{name}' must be true or false"))?;
        Ok(true)
    }

    /// Returns how the service marks the last page of this list.
    pub(crate) fn end_mark(&self, faults: &Faults) -> EndMark {
        faults.themes_end_mark.filter(|_| self.list == ListName::Themes).unwrap_or(faults.end_mark)
    }

    /// Returns the time of a row that `start` and `end` of this list filter by.
    pub(crate) fn filtered_by(&self, faults: &Faults) -> FilteredBy {
        match self.list {
            ListName::Responses => faults.responses_filtered_by,
            ListName::Surveys => faults.surveys_filtered_by,
            ListName::Themes => FilteredBy::Created,
        }
    }

    /// Returns the half-open range of creation times of the rows that can be listed. The range is unlimited if `start`
    /// and `end` filter by another time.
    pub(crate) fn created_ms(&self, faults: &Faults) -> Range<i64> {
        match self.filtered_by(faults) {
            FilteredBy::Created => self.asked_ms(faults),
            _ => i64::MIN..i64::MAX,
        }
    }

    /// Returns `start` and `end` as a half-open range of the time that they filter by. The range includes both, unless
    /// `exclusive_start` or `exclusive_end` is set. `theme_lag_ms` moves the range of themes.
    pub(crate) fn asked_ms(&self, faults: &Faults) -> Range<i64> {
        let lag_ms = if self.list == ListName::Themes { faults.theme_lag_ms } else { 0 };
        let later = |at_ms: i64, by_one: bool| at_ms.saturating_add(lag_ms).saturating_add(i64::from(by_one));
        let start = self.start_ms.map_or(i64::MIN, |start| later(start, faults.exclusive_start));
        let end = self.end_ms.map_or(i64::MAX, |end| later(end, !faults.exclusive_end));
        start..end.max(start)
    }

    /// Returns a hash of the query without page token and page size. A page token is valid only for queries with the
    /// same hash.
    pub(crate) fn binding(&self) -> u64 {
        let flags =
            [self.flags.snapshots, self.flags.urls, self.flags.meta, self.flags.custom_metadata, self.flags.deleted];
        let optional = |value: Option<i64>| [u64::from(value.is_some()), value.unwrap_or(0) as u64];
        let parts = [[self.list as u64, 0], optional(self.start_ms), optional(self.end_ms), optional(self.survey_id)];
        let words = parts.into_iter().flatten();
        let words = words.chain(self.statuses.iter().map(|status| *status as u64));
        words.chain(flags.map(u64::from)).fold(0, mix)
    }
}

/// Returns true if the values of `status` have the wanted spelling. A single `status=A` counts as `Comma` and as
/// `Repeated`.
fn is_spelled(pairs: &[(String, String)], wanted: StatusSpelling) -> bool {
    let values = |parameter: &str| {
        pairs.iter().filter(|(name, _)| name == parameter).map(|(_, value)| value).collect::<Vec<_>>()
    };
    let (plain, brackets) = (values("status"), values("status[]"));
    let has_comma = plain.iter().chain(&brackets).any(|value| value.contains(','));
    match wanted {
        StatusSpelling::Comma => plain.len() == 1 && brackets.is_empty(),
        StatusSpelling::Brackets => plain.is_empty() && !has_comma,
        StatusSpelling::Repeated => brackets.is_empty() && !has_comma,
    }
}

fn integer(name: &str, value: &str) -> Result<i64, String> {
    value.parse().map_err(|_| format!("'{name}' must be an integer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: ListName, query: &str) -> Result<ListQuery, String> {
        let uri = format!("/v1/x?{query}").parse().unwrap();
        ListQuery::parse(list, &uri, &Faults::default())
    }

    #[test]
    fn values_of_the_wrong_type_are_named() {
        for (query, message) in [
            ("limit=0", "'limit' must be an integer from 1 to 1000"),
            ("limit=1001", "'limit' must be an integer from 1 to 1000"),
            ("limit=ten", "'limit' must be an integer from 1 to 1000"),
            ("start=yesterday", "'start' must be an integer"),
            ("start=1.5", "'start' must be an integer"),
            ("with_meta=yes", "'with_meta' must be true or false"),
            ("start=2&end=1", "'start' must not be after 'end'"),
            ("sid=1&sid=2", "'sid' is given twice"),
            ("with_url=true", "unknown parameter 'with_url'"),
            ("status=NEW", "unknown parameter 'status'"),
        ] {
            assert_eq!(parse(ListName::Responses, query), Err(message.to_owned()), "{query}");
        }
        assert_eq!(parse(ListName::Themes, "limit=5"), Err("unknown parameter 'limit'".to_owned()));
        assert_eq!(parse(ListName::Surveys, "status=NEW,GONE"), Err("unknown status 'GONE'".to_owned()));
    }

    #[test]
    fn a_token_is_bound_to_all_but_the_page_size() {
        let binding = |query: &str| parse(ListName::Responses, query).unwrap().binding();
        assert_eq!(binding("start=1&limit=5"), binding("limit=1000&start=1&cursor=abc"));
        let different =
            ["", "start=1", "end=1", "sid=1", "with_meta=true", "with_urls=true", "start=1&end=1"].map(binding);
        assert!((1..different.len()).all(|at| !different[..at].contains(&different[at])));
    }
}
