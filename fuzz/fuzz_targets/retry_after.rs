//! For any value of `Retry-After`, the wait is none, or positive and bounded.
//! The first eight bytes are the service's clock.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use studysync::source::retry_after_of_lines;

const TEN_YEARS: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

fuzz_target!(|input: &[u8]| {
    let Some((clock, values)) = input.split_first_chunk::<8>() else { return };
    let lines: Vec<&[u8]> = values.split(|byte| *byte == b'\n').collect();
    let all = retry_after_of_lines(&lines, i64::from_le_bytes(*clock));
    let each: Vec<_> = lines.iter().map(|line| retry_after_of_lines(&[line], i64::from_le_bytes(*clock))).collect();
    assert_eq!(all, each.iter().copied().flatten().max(), "the longest of several counts");
    for wait in each.into_iter().flatten() {
        assert!(!wait.is_zero() && wait <= TEN_YEARS, "{wait:?}");
    }
    // A number is a count of seconds, exact to the microsecond, unless it is so large that it must be a time.
    if let (Ok(text), Some(wait)) = (std::str::from_utf8(values), all) {
        if let Some(secs) = text.trim().parse::<u32>().ok().filter(|secs| *secs < 1_000_000_000) {
            assert_eq!(wait, Duration::from_secs(secs.into()).min(TEN_YEARS));
        }
    }
});
