//! How recordings are served. Only data: what it does stands in `service`.

use serde::{Deserialize, Serialize};

/// Recordings of VIDEOVOICE answers, and the links to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Media {
    /// Links lead to this sandbox, which serves recordings below `/media/`.
    /// Else they lead to `media.example.com`, where nothing is.
    pub is_served: bool,
    /// The host of links; empty: the one that was asked for the answers.
    /// `media.example.com` leaves them as they are generated.
    pub host: String,
    /// Links carry this number, and those with another one have aged: they are answered with 403.
    pub generation: u64,
    /// Bytes of the smallest recording; the largest has half as many more. Default 40,000.
    pub bytes: u64,
    /// Share of recordings that are answered with 404, in percent.
    pub lost_percent: u64,
    /// A web page is sent in the place of each.
    pub is_web_page: bool,
    /// Nothing is sent in parts, nor is any version told.
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
