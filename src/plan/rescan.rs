//! How often an interval is scanned again, by its age. Only a re-scan finds edits and deletions (promise P4).

use std::{fmt, str::FromStr};

use crate::model::{DAY_MS, HOUR_MS, Window};

/// One tier: how often intervals younger than an age are scanned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The tier covers answers younger than this, in milliseconds; `None` covers all older answers.
    pub younger_than_ms: Option<i64>,
    /// How long a scan stays fresh, in milliseconds; 0 means that every run scans again.
    pub every_ms: i64,
}

/// The tiers, youngest first. Default: younger than 3 days every run, 30 days daily, a year weekly, all others monthly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RescanRules {
    tiers: Vec<Tier>,
}

/// Share of [`Tier::every_ms`] after which a re-scan is due. The share is below 1, because a nightly job starts a
/// little early sometimes.
const DUE_SHARE: f64 = 0.9;

impl Default for RescanRules {
    fn default() -> Self {
        let tier = |days: Option<i64>, every_ms| Tier { younger_than_ms: days.map(|days| days * DAY_MS), every_ms };
        Self {
            tiers: vec![tier(Some(3), 0), tier(Some(30), DAY_MS), tier(Some(365), 7 * DAY_MS), tier(None, 30 * DAY_MS)],
        }
    }
}

impl RescanRules {
    /// Returns rules without tiers: a sync never scans complete windows again.
    pub fn never() -> Self {
        Self { tiers: Vec::new() }
    }

    /// Returns for each tier, youngest first, its range of creation time and the oldest scan time that is still fresh.
    /// The ranges start on UTC days, where windows end.
    pub(super) fn bands(&self, now_ms: i64) -> Vec<(Window, i64)> {
        let mut bands = Vec::with_capacity(self.tiers.len());
        let mut end_ms = i64::MAX;
        for tier in &self.tiers {
            let start_ms =
                tier.younger_than_ms.map_or(i64::MIN, |age_ms| (now_ms - age_ms).div_euclid(DAY_MS) * DAY_MS);
            let fresh_from_ms =
                if tier.every_ms == 0 { i64::MAX } else { now_ms - (tier.every_ms as f64 * DUE_SHARE) as i64 };
            bands.push((Window::new(start_ms, end_ms), fresh_from_ms));
            end_ms = start_ms;
        }
        bands
    }
}

impl fmt::Display for RescanRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.tiers.iter().map(Tier::to_string).collect();
        f.write_str(&texts.join(", "))
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.younger_than_ms {
            Some(age_ms) => write!(f, "{}d ", age_ms / DAY_MS)?,
            None => f.write_str("all ")?,
        }
        match self.every_ms {
            0 => f.write_str("every run"),
            every_ms if every_ms % DAY_MS == 0 => write!(f, "every {}d", every_ms / DAY_MS),
            every_ms => write!(f, "every {}h", every_ms / HOUR_MS),
        }
    }
}

impl FromStr for Tier {
    type Err = String;

    /// Parses "3d every run", "30d daily", "365d weekly", "all monthly", "7d every 12h".
    fn from_str(text: &str) -> Result<Tier, String> {
        let wrong = || {
            format!(
                "'{text}' is not a re-scan rule: write '3d every run', '30d daily', '365d weekly', 'all monthly' or '7d every 12h'"
            )
        };
        let (age, often) = text.trim().split_once(' ').ok_or_else(wrong)?;
        let younger_than_ms = match age {
            "all" => None,
            age => Some(length_ms(age).ok_or_else(wrong)?),
        };
        let every_ms = match often.trim() {
            "every run" => 0,
            "daily" => DAY_MS,
            "weekly" => 7 * DAY_MS,
            "monthly" => 30 * DAY_MS,
            often => often.strip_prefix("every ").and_then(|often| length_ms(often.trim())).ok_or_else(wrong)?,
        };
        Ok(Tier { younger_than_ms, every_ms })
    }
}

/// Parses "30d" or "12h" into milliseconds; `None` if the text has another form.
fn length_ms(text: &str) -> Option<i64> {
    let (number, unit_ms) = match text.strip_suffix('d') {
        Some(days) => (days, DAY_MS),
        None => (text.strip_suffix('h')?, HOUR_MS),
    };
    number.parse::<u32>().ok().filter(|number| (1..=100_000).contains(number)).map(|number| i64::from(number) * unit_ms)
}

impl TryFrom<Vec<Tier>> for RescanRules {
    type Error = String;

    /// Creates rules from tiers. Fails unless their ages increase.
    fn try_from(tiers: Vec<Tier>) -> Result<Self, String> {
        let ages: Vec<i64> = tiers.iter().map(|tier| tier.younger_than_ms.unwrap_or(i64::MAX)).collect();
        if ages.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err("re-scan rules go from the youngest to 'all', each age once".to_owned());
        }
        Ok(Self { tiers })
    }
}
