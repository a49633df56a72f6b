//! Reasons why data may be wrong or incomplete: rows of the view `untrusted`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The window must be scanned again, because the last scan was unsure.
pub const NEEDS_RECHECK: &str = "needs_recheck";
/// Rows seem to have vanished, but are too many to believe.
pub const WITHHELD: &str = "withheld";
/// The clock of the service is days off.
pub const CLOCK: &str = "clock";

/// One reason why data may be wrong or incomplete, for one range of creation time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Untrusted {
    /// What is wrong: `withheld`, `needs_recheck` or `clock` in the run JSON; the view has more reasons.
    pub reason: String,
    /// The stream; absent if the reason concerns all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// The survey; absent if the reason concerns all surveys, or the survey is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survey_id: Option<i64>,
    /// Start of the range of creation time, RFC 3339; absent: no start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_start: Option<String>,
    /// End of the range, exclusive, RFC 3339; absent: no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_end: Option<String>,
    /// Number of records, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<i64>,
    /// When it was last found, RFC 3339; absent in the run JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_at: Option<String>,
    /// What was found, in words.
    pub detail: String,
}

impl Untrusted {
    /// Returns the stream and the survey that the reason concerns, in words; empty if it concerns all.
    pub fn concerns(&self) -> String {
        let survey = self.survey_id.map(|id| format!("survey {id}"));
        let of: Vec<&str> = [self.stream.as_deref(), survey.as_deref()].into_iter().flatten().collect();
        of.join(", ")
    }

    /// Returns the start and the end of the range to the minute, without their zone; empty for an open end.
    pub fn minutes(&self) -> [String; 2] {
        [&self.range_start, &self.range_end].map(|time| {
            let time = time.as_deref().unwrap_or_default();
            time.get(..16).unwrap_or(time).replace('T', " ")
        })
    }
}
