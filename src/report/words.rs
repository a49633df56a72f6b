//! Texts of the service and numbers as people read them.

use super::limits::TEXT_CHARS_MAX;
use crate::model::is_display_control;

/// A text of the service as text: cut, and what steers a display is a mark.
pub fn clean(text: &str) -> String {
    let mut letters = text.chars();
    let mut kept: String = letters
        .by_ref()
        .take(TEXT_CHARS_MAX)
        .map(|letter| match letter {
            '\n' | '\t' => ' ',
            letter if is_display_control(letter) => char::REPLACEMENT_CHARACTER,
            letter => letter,
        })
        .collect();
    if letters.next().is_some() {
        kept.push('…');
    }
    kept
}

/// `12,345`
pub fn whole(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// A share of 0 to 1: `42.3 %`
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// One decimal; never a negative zero.
pub fn decimal(number: f64) -> String {
    let text = format!("{number:.1}");
    if text == "-0.0" { "0.0".to_owned() } else { text }
}
