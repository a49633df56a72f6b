//! Lengths of time as text.

/// Formats a number of seconds in its one or two largest units, rounded down: `45 s`, `12 min`, `3 h 20 min`,
/// `2 days 4 h`.
pub fn format_duration(secs: u64) -> String {
    let (minutes, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    let (large, rest) = match secs {
        0..60 => (format!("{secs} s"), None),
        60..3600 => (format!("{minutes} min"), None),
        3600..172_800 => (format!("{hours} h"), Some((minutes % 60, "min"))),
        _ => (format!("{days} days"), Some((hours % 24, "h"))),
    };
    match rest {
        Some((count @ 1.., unit)) => format!("{large} {count} {unit}"),
        _ => large,
    }
}

/// Formats a number of seconds like [`format_duration`], for narrow lines: `45s`, `12m`, `3h20m`, `2d4h`.
pub fn format_duration_short(secs: u64) -> String {
    format_duration(secs).replace("days", "d").replace("min", "m").replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_shown_in_its_two_largest_units() {
        for (secs, text, short) in [
            (0, "0 s", "0s"),
            (59, "59 s", "59s"),
            (60, "1 min", "1m"),
            (3_599, "59 min", "59m"),
            (7_300, "2 h 1 min", "2h1m"),
            (26 * 3600, "26 h", "26h"),
            (172_800, "2 days", "2d"),
            (190_000, "2 days 4 h", "2d4h"),
        ] {
            assert_eq!((format_duration(secs), format_duration_short(secs)), (text.to_owned(), short.to_owned()));
        }
    }
}
