//! Formats texts of the service and numbers for people.

use super::limits::TEXT_CHARS_MAX;
use crate::model::{DAY_MS, format_ms, is_display_control};

/// Makes a text of the service safe to show: shortens it and replaces control characters.
pub fn sanitized(text: &str) -> String {
    sanitized_up_to(text, TEXT_CHARS_MAX)
}

/// Makes a text of the service safe to show as [`sanitized`] does, up to this number of characters.
pub fn sanitized_up_to(text: &str, chars_max: usize) -> String {
    let mut letters = text.chars();
    let mut shown: String = letters
        .by_ref()
        .take(chars_max)
        .map(|letter| match letter {
            '\n' | '\t' => ' ',
            letter if is_display_control(letter) => char::REPLACEMENT_CHARACTER,
            letter => letter,
        })
        .collect();
    if letters.next().is_some() {
        shown.push('…');
    }
    shown
}

/// Formats an integer with thousands separators: `12,345`.
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

/// Returns the number with its noun: `1 answer`, `12,345 answers`.
pub fn counted(number: i64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Formats a share of 0 to 1 as a percentage: `42.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats a number with one decimal, and never as a negative zero.
pub fn decimal(number: f64) -> String {
    let text = format!("{number:.1}");
    if text == "-0.0" { "0.0".to_owned() } else { text }
}

/// Formats a day, given in days since 1970, as `2026-01-31`.
pub fn day_text(day: i64) -> String {
    format_ms(day.saturating_mul(DAY_MS))
}
