//! The message about named surveys that neither the warehouse nor the service knows.

use std::{collections::BTreeMap, fmt};

/// The maximum number of known surveys that the message suggests.
const SUGGESTED_MAX: usize = 3;

/// Surveys by id, with their names.
pub type SurveyNames = BTreeMap<i64, String>;

/// Named surveys that are unknown, and the known surveys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnknownSurveys {
    /// The named surveys that are unknown.
    pub ids: Vec<i64>,
    /// The known surveys.
    pub known: SurveyNames,
}

impl fmt::Display for UnknownSurveys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = self.ids.iter().map(i64::to_string).collect();
        let (noun, verb) = if ids.len() == 1 { ("survey", "is") } else { ("surveys", "are") };
        write!(f, "{noun} {} {verb} not known", ids.join(", "))?;
        let near: Vec<String> = self.near().map(|(id, name)| format!("{id} ({name})")).collect();
        if !near.is_empty() {
            write!(f, "; did you mean {}?", near.join(" or "))?;
        }
        Ok(())
    }
}

impl UnknownSurveys {
    /// Returns the known surveys whose ids are most similar to an unknown id, at most [`SUGGESTED_MAX`].
    fn near(&self) -> impl Iterator<Item = (&i64, &String)> {
        let distance = |id: i64| {
            let wrong =
                self.ids.iter().map(|unknown| strsim::damerau_levenshtein(&unknown.to_string(), &id.to_string()));
            wrong.min().unwrap_or(usize::MAX)
        };
        let mut known: Vec<_> = self.known.iter().collect();
        known.sort_by_key(|(id, _)| (distance(**id), **id));
        known.into_iter().take(SUGGESTED_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_ids_are_suggested_first() {
        let known = [(4100, "Onboarding"), (4101, "Prices"), (52, "Old"), (4200, "Exit")];
        let known: SurveyNames = known.into_iter().map(|(id, name)| (id, name.to_owned())).collect();
        let message = UnknownSurveys { ids: vec![4010], known: known.clone() }.to_string();
        assert!(message.starts_with("survey 4010 is not known; did you mean 4100 (Onboarding) or "), "{message}");
        let two = UnknownSurveys { ids: vec![1, 2], known: SurveyNames::new() }.to_string();
        assert_eq!(two, "surveys 1, 2 are not known");
    }
}
