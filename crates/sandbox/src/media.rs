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

with_defaults! {
    /// Recordings of VIDEOVOICE answers, and the links to them.
    pub struct Media {
        /// True if links lead to this sandbox, which serves recordings below `/media/`. Otherwise links lead to
        /// `media.example.com`, which serves nothing.
        is_served: bool,
        /// The host of links, to which the port of the list request is added. Empty for the host of the list request.
        /// `media.example.com` leaves links as generated.
        host: String,
        /// A number in each link. A request to a link with another number gets a 403, as if the link had expired.
        generation: u64,
        /// Minimum bytes of a recording; the maximum is 1.5 times this number. Default 40,000.
        bytes: u64 = 40_000,
        /// The id of an upload whose recording has [`Media::large_bytes`]; empty for none.
        large_upload: String,
        /// Bytes of the recording of `large_upload`.
        large_bytes: u64,
        /// Percentage of recordings that are answered with 404.
        lost_percent: u64,
        /// True if a web page is sent in place of each recording.
        is_web_page: bool,
        /// True if `Range` is ignored, and no `ETag` is sent.
        has_no_ranges: bool,
        /// How a request for a range is answered.
        range_answer: RangeAnswer,
        /// True if recordings are compressed, whatever `Accept-Encoding` says.
        is_gzip: bool,
    }
}
