//! Moments and lengths as `status` shows them.

use crate::model::format_ms;

/// A moment, to the second.
pub(super) fn seconds(at_ms: i64) -> String {
    format_ms(at_ms.div_euclid(1000) * 1000)
}

/// A length in its largest unit.
pub(super) fn length(secs: i64) -> String {
    match secs {
        0..120 => format!("{secs} s"),
        120..7200 => format!("{} min", secs / 60),
        7200..172_800 => format!("{} h", secs / 3600),
        _ => format!("{} days", secs / 86_400),
    }
}
