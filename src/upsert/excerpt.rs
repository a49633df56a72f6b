//! Foreign texts in reasons.

use crate::model::is_display_control;

/// Letters of a value that a reason shows.
const SHOWN_LETTERS: usize = 40;

/// The beginning of a foreign text, harmless on a screen.
pub(super) fn excerpt(text: &str) -> String {
    let letters = text.chars().map(|letter| if is_display_control(letter) { '\u{fffd}' } else { letter });
    let mut short: String = letters.take(SHOWN_LETTERS).collect();
    if text.chars().nth(SHOWN_LETTERS).is_some() {
        short.push('…');
    }
    short
}
