//! Detects characters that change how a screen shows a text. Text from outside must not reach a screen with such
//! characters.

/// Returns true if a character controls the display instead of being shown. Terminals obey control characters, and
/// direction marks make a text look different from what it is.
pub fn is_display_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_any_script_are_not_display_controls() {
        assert!("aé日本😀\u{301}שלום\u{200d}".chars().all(|letter| !is_display_control(letter)));
        assert!("\0\u{1b}\n\u{7f}\u{9b}\u{202e}\u{2066}".chars().all(is_display_control));
    }
}
