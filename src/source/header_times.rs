//! Times in the headers of an answer. `Date` is the service's time: a run reads up to this time (P7), because this
//! machine's clock may be wrong by any amount. `Retry-After` is read in every legal form and every form seen in
//! practice. An unusable value yields `None`; the gate then falls back to backoff.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use reqwest::header::{AGE, DATE, HeaderMap, RETRY_AFTER};
use tokio::time::Instant;

use crate::model::RetryAfterForm;

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

/// The longest wait, so that arithmetic cannot overflow. A longer wait is reduced to this value.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Values that are read as epoch seconds: 2001 to 2100.
const EPOCH_SECS: std::ops::Range<i64> = 1_000_000_000..4_102_444_800;

/// Returns the wait that `Retry-After` names; `None` if no header is usable. Of repeated headers the longest wait
/// counts. A date is compared with `date_ms`, the *service's* time, because this machine's clock may be wrong.
pub(super) fn retry_after(headers: &HeaderMap, date_ms: i64) -> Option<Duration> {
    let values = headers.get_all(RETRY_AFTER).iter().filter_map(|value| value.to_str().ok());
    values.filter_map(|value| wait(value.trim(), date_ms)).max()
}

/// Classifies the form of the first `Retry-After` header.
pub(super) fn retry_after_form(headers: &HeaderMap, date_ms: i64) -> RetryAfterForm {
    let Some(value) = headers.get(RETRY_AFTER) else { return RetryAfterForm::Absent };
    let text = value.to_str().unwrap_or_default().trim();
    match wait(text, date_ms) {
        None => RetryAfterForm::Useless,
        Some(_) if !is_decimal(text) => RetryAfterForm::HttpDate,
        Some(_) if epoch_ms(text).is_some() => RetryAfterForm::Epoch,
        Some(_) if text.contains('.') => RetryAfterForm::Fraction,
        Some(_) => RetryAfterForm::Seconds,
    }
}

/// Reads a positive number of seconds, with or without a fraction, a future HTTP date, or a future time in epoch
/// seconds or milliseconds. Zero, a time in the past and everything else yield `None`, so that the caller backs off
/// instead of retrying at once.
fn wait(text: &str, date_ms: i64) -> Option<Duration> {
    let wait = if let Some(moment_ms) = epoch_ms(text) {
        Duration::from_millis(u64::try_from(moment_ms.checked_sub(date_ms)?).ok()?)
    } else if is_decimal(text) {
        let secs: f64 = text.parse().ok()?;
        Duration::try_from_secs_f64(secs).unwrap_or(LONGEST)
    } else {
        let ahead_ms = http_date_ms(text)?.checked_sub(date_ms)?;
        Duration::from_millis(u64::try_from(ahead_ms).ok()?)
    };
    (!wait.is_zero()).then(|| wait.min(LONGEST))
}

/// Reads a number as epoch seconds or milliseconds if it lies within [`EPOCH_SECS`]; returns epoch milliseconds. As a
/// number of seconds to wait, such a number would mean decades.
fn epoch_ms(text: &str) -> Option<i64> {
    let number: f64 = if is_decimal(text) { text.parse().ok()? } else { return None };
    let is_epoch_secs = |secs: f64| EPOCH_SECS.contains(&(secs as i64));
    if is_epoch_secs(number) {
        Some((number * 1000.0) as i64)
    } else if is_epoch_secs(number / 1000.0) {
        Some(number as i64)
    } else {
        None
    }
}

/// Returns true if a text is digits with at most one point between them. Rust's number parser would accept `inf`, `nan`
/// and `1e9`.
fn is_decimal(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(text),
    }
}

/// Reads `Retry-After` from header lines, for the fuzzer. Lines that are no valid value of a header are left out.
#[cfg(fuzzing)]
pub fn retry_after_of_lines(lines: &[&[u8]], date_ms: i64) -> Option<Duration> {
    let mut headers = HeaderMap::new();
    for value in lines.iter().filter_map(|line| reqwest::header::HeaderValue::from_bytes(line).ok()) {
        headers.append(RETRY_AFTER, value);
    }
    retry_after(&headers, date_ms)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

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

    /// Sun, 06 Nov 1994 08:49:37 GMT
    const NOW_MS: i64 = 784_111_777_000;

    fn read_one(value: &'static str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
        retry_after(&headers, NOW_MS)
    }

    #[test]
    fn p5_retry_after_is_read_in_every_legal_form() {
        assert_eq!(read_one("120"), Some(Duration::from_secs(120)));
        assert_eq!(read_one(" 1 "), Some(Duration::from_secs(1)));
        assert_eq!(read_one("0.25"), Some(Duration::from_millis(250)));
        let later = Some(Duration::from_secs(23));
        assert_eq!(read_one("Sun, 06 Nov 1994 08:50:00 GMT"), later);
        assert_eq!(read_one("Sunday, 06-Nov-94 08:50:00 GMT"), later);
        assert_eq!(read_one("Sun Nov  6 08:50:00 1994"), later);
    }

    #[test]
    fn the_form_is_that_of_the_first_value() {
        let form_of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(value));
            retry_after_form(&headers, NOW_MS)
        };
        assert_eq!(retry_after_form(&HeaderMap::new(), NOW_MS), RetryAfterForm::Absent);
        assert_eq!([form_of("12"), form_of("1.5")], [RetryAfterForm::Seconds, RetryAfterForm::Fraction]);
        assert_eq!(form_of("Sun, 06 Nov 1994 08:50:00 GMT"), RetryAfterForm::HttpDate);
        for useless in ["0", "-5", "soon", "Sun, 06 Nov 1994 08:49:36 GMT"] {
            assert_eq!(form_of(useless), RetryAfterForm::Useless, "{useless}");
        }
    }

    #[test]
    fn p5_an_unusable_value_is_ignored() {
        let past = "Sun, 06 Nov 1994 08:49:36 GMT";
        let present = "Sun, 06 Nov 1994 08:49:37 GMT";
        let garbage = ["", "soon", "-5", "+5", "1e3", "inf", "NaN", "5s", ".5", "5.", "1.2.3", "0x10", "1 2"];
        for value in ["0", "0.0", "000", past, present].into_iter().chain(garbage) {
            assert_eq!(read_one(value), None, "{value:?}");
        }
    }

    #[test]
    fn p5_absurd_values_are_long_waits_and_no_overflow() {
        assert_eq!(read_one("86400"), Some(Duration::from_secs(86_400)));
        assert_eq!(read_one("99999999999999999999999999"), Some(LONGEST));
        assert_eq!(read_one("Fri, 31 Dec 9999 23:59:59 GMT"), Some(LONGEST));
    }

    #[test]
    fn p5_a_number_of_this_century_is_a_time() {
        let now_ms = 1_795_000_000_000 - 90_000;
        for text in ["1795000000", "1795000000000", "1795000000.0"] {
            assert_eq!(wait(text, now_ms), Some(Duration::from_secs(90)), "{text}");
            assert_eq!(wait(text, now_ms + 90_000), None, "{text}: in the past");
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
            assert_eq!(retry_after_form(&headers, now_ms), RetryAfterForm::Epoch, "{text}");
        }
        for (text, secs) in [("2592000", 2_592_000), ("999999999", LONGEST.as_secs())] {
            assert_eq!(wait(text, now_ms), Some(Duration::from_secs(secs)), "{text}: a wait, however long");
        }
    }

    #[test]
    fn p5_the_longest_of_several_counts() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(&headers, NOW_MS), None);
        for value in ["2", "7", "never"] {
            headers.append(RETRY_AFTER, HeaderValue::from_static(value));
        }
        assert_eq!(retry_after(&headers, NOW_MS), Some(Duration::from_secs(7)));
    }
}
