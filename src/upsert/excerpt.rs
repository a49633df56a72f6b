//! Excerpts of input values for the reasons why a row is set aside.

use crate::model::is_display_control;

/// Maximum length of an excerpt, in characters.
const EXCERPT_CHARS: usize = 40;

/// Returns the first [`EXCERPT_CHARS`] characters of a text, and `…` if the text is longer. Characters that control the
/// display become U+FFFD.
pub(super) fn excerpt(text: &str) -> String {
    let letters = text.chars().map(|letter| if is_display_control(letter) { '\u{fffd}' } else { letter });
    let mut short: String = letters.take(EXCERPT_CHARS).collect();
    if text.chars().nth(EXCERPT_CHARS).is_some() {
        short.push('…');
    }
    short
}
