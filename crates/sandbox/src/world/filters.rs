//! Filters rows by `start` and `end` if they mean another time than the creation of a row.

use std::{collections::HashMap, ops::Range};

use super::{super::filtered_by::FilteredBy, PLANTED, ResponseRow, SurveyRow, World};

/// The range of a request without `start` and `end`.
const EVERYTHING: Range<i64> = i64::MIN..i64::MAX;

impl World {
    /// Returns a predicate that is true if the response's time of kind `by` is in the range. No response has a time of
    /// kind `Launched` or `Nothing`, so only the unlimited range contains it. The list filters creation times itself,
    /// so for `Created` and `Ignored` the predicate is always true.
    pub(crate) fn responses_within(&self, by: FilteredBy, range: Range<i64>) -> impl Fn(&ResponseRow) -> bool + use<> {
        let mut sessions: HashMap<u32, i64> = HashMap::new();
        if by == FilteredBy::Session {
            for row in self.responses.iter().filter(|row| row.session != PLANTED) {
                let start = sessions.entry(row.session).or_insert(row.created_ms);
                *start = row.created_ms.min(*start);
            }
        }
        move |row| match by {
            FilteredBy::Created | FilteredBy::Ignored => true,
            _ if range == EVERYTHING => true,
            FilteredBy::Updated => range.contains(&row.updated_ms),
            FilteredBy::Session => range.contains(sessions.get(&row.session).unwrap_or(&row.created_ms)),
            FilteredBy::Launched | FilteredBy::Nothing => false,
        }
    }

    /// Returns a predicate that is true if the survey's time of kind `by` is in the range. A survey without such a time
    /// is in no limited range. The list filters creation times itself, so for `Created` and `Ignored` the predicate is
    /// always true.
    pub(crate) fn surveys_within(&self, by: FilteredBy, range: Range<i64>) -> impl Fn(&SurveyRow) -> bool + '_ {
        move |row| {
            let survey = self.survey_table.get(row.survey as usize).filter(|_| row.raw.is_none());
            match by {
                FilteredBy::Created | FilteredBy::Ignored => true,
                _ if range == EVERYTHING => true,
                FilteredBy::Updated => survey.is_some_and(|survey| range.contains(&survey.updated_ms)),
                FilteredBy::Launched => {
                    survey.and_then(|survey| survey.launched_ms).is_some_and(|launched| range.contains(&launched))
                }
                FilteredBy::Session | FilteredBy::Nothing => false,
            }
        }
    }
}
