//! The settings with which a sandbox starts. Settings that may change while the sandbox runs are in `faults`.

use std::io;

use serde::{Deserialize, Serialize};

use super::faults::Faults;

/// Maximum responses of a sandbox. Row numbers have 32 bits, and a row takes about 200 bytes of memory.
pub const RESPONSES_MAX: u64 = 20_000_000;
/// Maximum surveys of a sandbox.
pub const SURVEYS_MAX: u32 = 2000;
/// Maximum days of history.
pub const DAYS_MAX: u32 = 20_000;
/// The largest allowed [`Settings::text_bytes`].
pub const TEXT_BYTES_MAX: u32 = 16 << 20;

/// How often rough data occurs, as shares from 0.0 to 1.0. Rough data obeys the contract, but evenly generated data
/// never has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rough {
    /// Share of sessions that begin at the first or last millisecond of a day or an hour. Half of these sessions have
    /// all their responses at midnight, like data that was imported with dates only.
    pub edge_share: f64,
    /// Share of responses that fit no table, because their question has no id.
    pub reject_share: f64,
    /// Share of responses with the key of another response, but another answer.
    pub twice_share: f64,
}

impl Default for Rough {
    fn default() -> Self {
        Self { edge_share: 0.005, reject_share: 0.0001, twice_share: 0.0001 }
    }
}

/// The settings with which a sandbox starts. The same settings give the same rows, byte by byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Seed of all data.
    pub seed: u64,
    /// The service's clock at the start, epoch milliseconds. The data ends here.
    pub now_ms: i64,
    /// True if only `advance` moves the service's clock. By default the clock runs at real speed.
    pub frozen_clock: bool,
    /// Responses to generate, exactly; soft-deleted ones included.
    pub responses: u64,
    /// Days of history before `now_ms`.
    pub days: u32,
    /// Surveys to generate. With 12 or more, every question type occurs.
    pub surveys: u32,
    /// Share of responses that are soft-deleted, 0.0 to 1.0.
    pub deleted_share: f64,
    /// Share of OPEN answers with a text that have themes, 0.0 to 1.0.
    pub theme_share: f64,
    /// Share of responses that are hostile: unlike any record that the contract shows. 0.0 to 1.0. See
    /// `world::hostile`.
    pub hostile_share: f64,
    /// Number of consecutive responses that get the same creation time; 0 and 1 change no times.
    pub ties_per_ms: u32,
    /// The shares of rough data; `None` for none. See `world::rough`.
    pub rough: Option<Rough>,
    /// Bytes of text that each response record carries in addition: in a text answer that is not empty, else in a field
    /// that the contract does not know.
    pub text_bytes: u32,
    /// The only accepted API key.
    pub api_key: String,
    /// Maximum requests in the log; the oldest are dropped.
    pub log_entries_max: usize,
    /// How the service answers; the default has no faults.
    pub faults: Faults,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            now_ms: 1_769_846_400_000,
            frozen_clock: false,
            responses: 50_000,
            days: 90,
            surveys: 24,
            deleted_share: 0.01,
            theme_share: 0.25,
            hostile_share: 0.0,
            ties_per_ms: 0,
            rough: None,
            text_bytes: 0,
            api_key: "sandbox-key".into(),
            log_entries_max: 1_000_000,
            faults: Faults::default(),
        }
    }
}

impl Settings {
    /// Fails with `InvalidInput` if a setting is out of range, the API key is empty, or `Faults::validate` fails.
    pub(crate) fn validate(&self) -> io::Result<()> {
        let Rough { edge_share, reject_share, twice_share } = self.rough.unwrap_or_default();
        let shares = [self.deleted_share, self.theme_share, self.hostile_share, edge_share, reject_share, twice_share];
        let problem = if self.responses > RESPONSES_MAX {
            format!("responses: at most {RESPONSES_MAX}")
        } else if !(1..=DAYS_MAX).contains(&self.days) {
            format!("days: 1 to {DAYS_MAX}")
        } else if !(1..=SURVEYS_MAX).contains(&self.surveys) {
            format!("surveys: 1 to {SURVEYS_MAX}")
        } else if self.text_bytes > TEXT_BYTES_MAX {
            format!("text_bytes: at most {TEXT_BYTES_MAX}")
        } else if shares.iter().any(|share| !(0.0..=1.0).contains(share)) {
            "shares: 0.0 to 1.0".to_owned()
        } else if self.now_ms < 0 {
            "now: after 1970".to_owned()
        } else if self.api_key.is_empty() {
            "the API key is empty".to_owned()
        } else if let Err(problem) = self.faults.validate() {
            format!("faults: {problem}")
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
    }
}
