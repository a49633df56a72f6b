//! The receipt of an erasure as text.

use std::path::Path;

use crate::erase::Receipt;

use super::super::wording::outcome_words;

/// Returns the receipt as text; `path` is the file of the receipt.
pub(super) fn describe(receipt: &Receipt, path: &Path) -> String {
    let mut text = format!("erase {}: receipt {}\n", outcome_words(receipt.outcome), path.display());
    let removed: u64 = receipt.removed.values().sum();
    text.push_str(&format!("  removed: {removed} rows and records\n"));
    if let Some(from) = &receipt.suppressed_from {
        text.push_str(&format!("  suppressed from {from} on\n"));
    }
    for (name, place) in &receipt.verified.places {
        if place.left + place.unexplained > 0 {
            text.push_str(&format!("  LEFT in {name}: {}\n", place.left + place.unexplained));
        }
        for (column, rows) in &place.in_tables_of_others {
            text.push_str(&format!("  STILL IN YOUR OWN TABLE in {name}, {column}: {rows} rows; remove them there\n"));
        }
        for (column, rows) in &place.mentions {
            text.push_str(&format!("  mentioned by others in {name}, {column}: {rows}\n"));
        }
    }
    if receipt.verified.mentions() > 0 {
        text.push_str("  texts of other people stay; --redact-mentions replaces the identifiers in them\n");
    }
    if receipt.service_refused_all {
        text.push_str(
            "  THE SERVICE ACCEPTED NO IDENTIFIER (400 or 404): ask there whether the people are purged; they are suppressed here\n",
        );
    }
    if receipt.redacted > 0 {
        text.push_str(&format!("  replaced in {} rows and pages\n", receipt.redacted));
    }
    if receipt.kept_under_other_names > 0 {
        text.push_str(&format!(
            "  LEFT UNDER OTHER NAMES (hard links): {} files; delete these names, which keep the removed data\n",
            receipt.kept_under_other_names
        ));
    }
    if receipt.not_followed > 0 {
        text.push_str(&format!(
            "  {} linked identifiers were not followed, because other people have them too\n",
            receipt.not_followed
        ));
    }
    text
}
