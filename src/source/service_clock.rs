//! The service's time, from the `Date` header of its latest answer. A run reads up to this time (P7), because this
//! machine's clock may be wrong by any amount.

use std::{
    sync::{Mutex, PoisonError},
    time::UNIX_EPOCH,
};

use reqwest::header::{AGE, DATE, HeaderMap};
use tokio::time::Instant;

/// The latest `Date`, and its time of arrival by the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct ServiceClock(Mutex<Option<(i64, Instant)>>);

impl ServiceClock {
    /// Records the `Date` of an answer that arrived at `now`.
    pub fn note(&self, date_ms: Option<i64>, now: Instant) {
        if let Some(date_ms) = date_ms {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((date_ms, now));
        }
    }

    /// Returns the service's time in epoch milliseconds; `None` before the first answer with a `Date`. `Date` has a
    /// resolution of one second, so the returned time is up to a second behind and never ahead.
    pub fn now_ms(&self, now: Instant) -> Option<i64> {
        let (date_ms, noted) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let since_ms = i64::try_from(now.saturating_duration_since(noted).as_millis()).unwrap_or(i64::MAX);
        Some(date_ms.saturating_add(since_ms))
    }
}

/// Returns the `Date` of an answer in epoch milliseconds, plus the `Age` header of a cache. `None` if no `Date` can be
/// read.
pub(super) fn date_ms(headers: &HeaderMap) -> Option<i64> {
    let date_ms = http_date_ms(headers.get(DATE)?.to_str().ok()?)?;
    let age_secs = headers.get(AGE).and_then(|age| age.to_str().ok()?.trim().parse::<u32>().ok()).unwrap_or(0);
    Some(date_ms.saturating_add(i64::from(age_secs).saturating_mul(1000)))
}

/// Parses a date in any of the three forms that HTTP allows, to epoch milliseconds.
pub(super) fn http_date_ms(text: &str) -> Option<i64> {
    let moment = httpdate::parse_http_date(text.trim()).ok()?;
    i64::try_from(moment.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_services_time_goes_on_between_answers() {
        let clock = ServiceClock::default();
        let start = Instant::now();
        assert_eq!(clock.now_ms(start), None);
        clock.note(http_date_ms("Sun, 06 Nov 1994 08:49:37 GMT"), start);
        clock.note(None, start + Duration::from_secs(1));
        assert_eq!(clock.now_ms(start + Duration::from_millis(2_500)), Some(784_111_779_500));
        clock.note(Some(1_000), start + Duration::from_secs(3));
        assert_eq!(clock.now_ms(start + Duration::from_secs(4)), Some(2_000), "the latest answer counts");
    }

    #[test]
    fn an_answer_from_a_cache_is_as_old_as_it_says() {
        use reqwest::header::HeaderValue;
        let mut headers = HeaderMap::new();
        headers.insert(DATE, HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
        for (age, later_ms) in [("90", 90_000), ("-5", 0), ("soon", 0)] {
            headers.insert(AGE, HeaderValue::from_static(age));
            assert_eq!(date_ms(&headers), Some(784_111_777_000 + later_ms), "{age}");
        }
    }

    #[test]
    fn the_three_forms_of_a_date_are_one_moment() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(http_date_ms(text), Some(784_111_777_000), "{text}");
        }
        assert_eq!(http_date_ms("yesterday"), None);
    }
}
