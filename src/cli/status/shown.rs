//! Moments as `status` shows them.

use crate::model::format_ms;

/// A moment, to the second.
pub(super) fn seconds(at_ms: i64) -> String {
    format_ms(at_ms.div_euclid(1000) * 1000)
}
