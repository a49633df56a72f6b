//! The settings of served recordings. The module `service` implements them.

use serde::{Deserialize, Serialize};

/// How a request for a range of a recording is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RangeAnswer {
    /// With the requested range.
    #[default]
    Requested,
    /// With the whole file and status 206.
    Whole,
    /// From the byte before the requested one.
    Earlier,
    /// Without the last byte.
    Fewer,
    /// With a `Content-Range` that does not say how long the file is.
    UnknownLength,
    /// Without `Content-Range`.
    Unnamed,
    /// With the requested range, and status 200.
    Status200,
    /// With status 400.
    Status400,
    /// With status 500.
    Status500,
}

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
    /// The id of an upload whose recording has [`Media::large_bytes`]; empty for none.
    pub large_upload: String,
    /// Bytes of the recording of `large_upload`.
    pub large_bytes: u64,
    /// Percentage of recordings that are answered with 404.
    pub lost_percent: u64,
    /// True if a web page is sent in place of each recording.
    pub is_web_page: bool,
    /// True if `Range` is ignored, and no `ETag` is sent.
    pub has_no_ranges: bool,
    /// How a request for a range is answered.
    pub range_answer: RangeAnswer,
    /// True if recordings are compressed, whatever `Accept-Encoding` says.
    pub is_gzip: bool,
}

impl Default for Media {
    fn default() -> Self {
        Self {
            is_served: false,
            host: String::new(),
            generation: 0,
            bytes: 40_000,
            large_upload: String::new(),
            large_bytes: 0,
            lost_percent: 0,
            is_web_page: false,
            has_no_ranges: false,
            range_answer: RangeAnswer::Requested,
            is_gzip: false,
        }
    }
}
