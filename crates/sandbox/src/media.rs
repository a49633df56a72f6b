//! The settings of served recordings. The module `service` implements them.

use serde::{Deserialize, Serialize};

/// Recordings of VIDEOVOICE answers, and the links to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Media {
    /// True if links lead to this sandbox, which serves recordings below `/media/`. Otherwise links lead to
    /// `media.example.com`, which serves nothing.
    pub is_served: bool,
    /// The host of links, to which the port of the list request is added. Empty for the host of the list request.
    /// `media.example.com` leaves links as generated.
    pub host: String,
    /// A number in each link. A request to a link with another number gets a 403, as if the link had expired.
    pub generation: u64,
    /// Minimum bytes of a recording; the maximum is 1.5 times this number. Default 40,000.
    pub bytes: u64,
    /// Percentage of recordings that are answered with 404.
    pub lost_percent: u64,
    /// True if a web page is sent in place of each recording.
    pub is_web_page: bool,
    /// True if `Range` is ignored, and no `ETag` is sent.
    pub has_no_ranges: bool,
}

impl Default for Media {
    fn default() -> Self {
        Self {
            is_served: false,
            host: String::new(),
            generation: 0,
            bytes: 40_000,
            lost_percent: 0,
            is_web_page: false,
            has_no_ranges: false,
        }
    }
}
