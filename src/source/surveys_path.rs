//! Chooses the path of the list of surveys: `/v1/surveys` or `/v1/studies`. Some services serve only one of the two
//! paths. Until one path has answered with a page, the caller tries the other path after a 404. This module sends
//! nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use super::address::Address;
use crate::model::Stream;

const SURVEYS: &str = "/v1/surveys";
const STUDIES: &str = "/v1/studies";

/// The path of the list of surveys that is in use.
#[derive(Debug, Default)]
pub(super) struct SurveysPath {
    /// True if the path in use is `/v1/studies`.
    is_studies: AtomicBool,
    /// True if a page was read from the path in use.
    has_answered: AtomicBool,
    /// True if both paths were answered with 404.
    has_neither: AtomicBool,
}

impl SurveysPath {
    /// Starts with the path of an earlier run: `/v1/studies` if `is_studies`.
    pub fn new(is_studies: bool) -> Self {
        SurveysPath { is_studies: is_studies.into(), ..Self::default() }
    }

    /// Returns true if the list is served at `/v1/studies`, false if at `/v1/surveys`. `None` until a page was read.
    pub fn is_studies(&self) -> Option<bool> {
        self.has_answered.load(Ordering::Relaxed).then(|| self.is_studies.load(Ordering::Relaxed))
    }

    /// Returns the address with the path in use, `/v1/studies`. `None` if the address can be requested as it is.
    pub fn in_use(&self, address: &Address) -> Option<Address> {
        if self.is_studies.load(Ordering::Relaxed) { renamed(address, STUDIES) } else { None }
    }

    /// Returns the address with the path that is not in use. `None` if a path has answered with a page, if both paths
    /// were answered with 404, or for an address of another list.
    pub fn other(&self, address: &Address) -> Option<Address> {
        if self.has_answered.load(Ordering::Relaxed) || self.has_neither.load(Ordering::Relaxed) {
            return None;
        }
        let is_studies = self.is_studies.load(Ordering::Relaxed);
        renamed(address, if is_studies { SURVEYS } else { STUDIES })
    }

    /// Records that a page was read from this address. Addresses of other lists are ignored.
    pub fn answered(&self, address: &Address) {
        if is_of_surveys(address) {
            self.is_studies.store(address.url.path().ends_with(STUDIES), Ordering::Relaxed);
            self.has_answered.store(true, Ordering::Relaxed);
        }
    }

    /// Records that both paths were answered with 404.
    pub fn neither_answered(&self) {
        self.has_neither.store(true, Ordering::Relaxed);
    }
}

/// Returns true if the address is that of the list of surveys, with either path.
fn is_of_surveys(address: &Address) -> bool {
    let path = address.url.path();
    address.posted.is_none() && (path.ends_with(Stream::Surveys.path()) || path.ends_with(STUDIES))
}

/// Replaces the path of the list of surveys by `name`. `None` if the address has this path already or is of another
/// list.
fn renamed(address: &Address, name: &str) -> Option<Address> {
    if !is_of_surveys(address) || address.url.path().ends_with(name) {
        return None;
    }
    let (path, old) = (address.url.path(), if name == SURVEYS { STUDIES } else { SURVEYS });
    let mut url = address.url.clone();
    url.set_path(&format!("{}{name}", path.strip_suffix(old)?));
    let start = address.shown.split('?').next().and_then(|shown| shown.rfind(old))?;
    let mut shown = address.shown.clone();
    shown.replace_range(start..start + old.len(), name);
    Some(Address { shown, url, ..address.clone() })
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::{super::address, *};

    #[test]
    fn the_other_name_is_asked_until_one_has_answered() {
        let base_url = Url::parse("https://example.com/v1/surveys-eu").unwrap();
        let surveys = address::of_probe(&base_url, Stream::Surveys);
        let path = SurveysPath::default();
        assert!(path.in_use(&surveys).is_none() && path.is_studies().is_none());
        let studies = path.other(&surveys).unwrap();
        assert_eq!(studies.url.as_str(), "https://example.com/v1/surveys-eu/v1/studies?limit=1");
        assert!(studies.shown.ends_with("/v1/studies?limit=1"));
        path.answered(&studies);
        assert_eq!(path.is_studies(), Some(true));
        assert_eq!(path.in_use(&surveys).unwrap().url, studies.url);
        assert!(path.other(&surveys).is_none(), "one has answered");
        let resumed = SurveysPath::new(true);
        assert_eq!(resumed.other(&resumed.in_use(&surveys).unwrap()).unwrap().url, surveys.url);
        resumed.neither_answered();
        assert!(resumed.other(&studies).is_none());
    }
}
