//! Detects characters of foreign text that must not reach a screen unescaped.

/// Whether a character steers a display instead of being shown: control characters (a terminal obeys them) and those
/// that turn the direction of writing (they make a text read otherwise than it is).
pub fn is_display_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_any_script_are_no_steering() {
        assert!("aé日本😀\u{301}שלום\u{200d}".chars().all(|letter| !is_display_control(letter)));
        assert!("\0\u{1b}\n\u{7f}\u{9b}\u{202e}\u{2066}".chars().all(is_display_control));
    }
}
