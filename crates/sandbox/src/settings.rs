//! The settings with which a sandbox starts. Settings that may change while the sandbox runs are in `faults`.

use std::io;

use super::faults::Faults;

/// Maximum responses of a sandbox. Row numbers have 32 bits, and a row takes about 200 bytes of memory.
pub const RESPONSES_MAX: u64 = 20_000_000;
/// Maximum surveys of a sandbox.
pub const SURVEYS_MAX: u32 = 2000;
/// Maximum days of history.
pub const DAYS_MAX: u32 = 20_000;
/// The largest allowed [`Settings::text_bytes`].
pub const TEXT_BYTES_MAX: u32 = 16 << 20;

with_defaults! {
    /// How often rough data occurs, as shares from 0.0 to 1.0. Rough data obeys the contract, but evenly generated data
    /// never has it.
    #[derive(Copy)]
    pub struct Rough {
        /// Share of sessions that begin at the first or last millisecond of a day or an hour. Half of these sessions
        /// have all their responses at midnight, like data that was imported with dates only.
        edge_share: f64 = 0.005,
        /// Share of responses that fit no table, because their question has no id.
        reject_share: f64 = 0.0001,
        /// Share of responses with the key of another response, but another answer.
        twice_share: f64 = 0.0001,
    }

    /// The settings with which a sandbox starts. The same settings give the same rows, byte by byte.
    pub struct Settings {
        /// Seed of all data.
        seed: u64 = 1,
        /// The service's clock at the start, epoch milliseconds. The data ends here.
        now_ms: i64 = 1_769_846_400_000,
        /// True if only `advance` moves the service's clock. By default the clock runs at real speed.
        frozen_clock: bool,
        /// Responses to generate, exactly; soft-deleted ones included.
        responses: u64 = 50_000,
        /// Days of history before `now_ms`.
        days: u32 = 90,
        /// Surveys to generate. With 12 or more, every question type occurs.
        surveys: u32 = 24,
        /// Share of responses that are soft-deleted, 0.0 to 1.0.
        deleted_share: f64 = 0.01,
        /// Share of OPEN answers with a text that have themes, 0.0 to 1.0.
        theme_share: f64 = 0.25,
        /// Share of responses that are hostile: unlike any record that the contract shows. 0.0 to 1.0. See
        /// `world::irregular`.
        hostile_share: f64,
        /// Number of consecutive responses that get the same creation time; 0 and 1 change no times.
        ties_per_ms: u32,
        /// The shares of rough data; `None` for none. See `world::irregular`.
        rough: Option<Rough>,
        /// Bytes of text that each response record carries in addition: in a text answer that is not empty, else in a
        /// field that the contract does not know.
        text_bytes: u32,
        /// The only accepted API key.
        api_key: String = "sandbox-key".into(),
        /// Maximum requests in the log; the oldest are dropped.
        log_entries_max: usize = 1_000_000,
        /// How the service answers; the default has no faults.
        faults: Faults,
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
