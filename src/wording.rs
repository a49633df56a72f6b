//! Text for people: numbers with their nouns, and lines that are wrapped at blanks. No word is broken: a word that is
//! longer than a line gets a line of its own.

use unicode_width::UnicodeWidthStr as _;

/// Returns the number with its noun: `1 page`, `2 pages`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Wraps a paragraph at `columns` columns. `first` is the indent of the first line, and `next` that of the other lines.
/// Colours have no width. A word that does not fit beside the indent `next` gets a line with less indent. Each line
/// ends with a line break.
pub fn wrapped(paragraph: &str, columns: usize, first: &str, next: &str) -> String {
    let (mut lines, mut line, mut used, mut has_word) = (String::new(), first.to_owned(), width(first), false);
    for word in paragraph.split(' ') {
        if has_word && used + 1 + width(word) > columns {
            lines.push_str(line.trim_end());
            lines.push('\n');
            let indent = next.get(..columns.saturating_sub(width(word))).unwrap_or(next);
            (line, used, has_word) = (indent.to_owned(), width(indent), false);
        }
        if has_word {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += width(word);
        has_word = true;
    }
    lines + line.trim_end() + "\n"
}

/// Wraps the lines of a text that are longer than `columns` columns. The parts of a line have its indent; all but the
/// first have two more blanks.
pub fn wrapped_lines(text: &str, columns: usize) -> String {
    let wrapped_line = |line: &str| {
        if width(line.trim_end()) <= columns {
            return line.to_owned();
        }
        let words = line.trim_start_matches(' ');
        let indent = " ".repeat(line.len() - words.len());
        let lines = wrapped(words.trim_end(), columns, &indent, &format!("{indent}  "));
        if line.ends_with('\n') { lines } else { lines.trim_end().to_owned() }
    };
    text.split_inclusive('\n').map(wrapped_line).collect()
}

fn width(text: &str) -> usize {
    anstream::adapter::strip_str(text).map(|part| part.width()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_is_wrapped_between_words() {
        let words = "word ".repeat(60);
        for line in wrapped(&format!("{:<24} {words}", "name"), 80, "  ", "     ").lines() {
            assert!(line.chars().count() <= 80 && !line.ends_with(' '), "{line}");
        }
        assert_eq!(wrapped("", 80, "  ", "  "), "\n");
        assert_eq!(wrapped(&"x".repeat(100), 80, "", ""), format!("{}\n", "x".repeat(100)));
    }

    #[test]
    fn a_long_word_gets_less_indent() {
        let id = "8e91492f-c5d4-495c-8cd8-9fc3dbf43345";
        assert_eq!(wrapped(&format!("visitor UUID: {id}"), 40, "", "      "), format!("visitor UUID:\n    {id}\n"));
        assert_eq!(wrapped(&format!("path {id}{id}"), 40, "", "      "), format!("path\n{id}{id}\n"));
    }

    #[test]
    fn long_lines_break_at_blanks_and_keep_their_indent() {
        let text = "short\n  hint: check the address and the network\nhttps://a.very.long.example/of/an/address end\n";
        let broken = "short\n  hint: check the\n    address and the\n    network\nhttps://a.very.long.example/of/an/address\n  end\n";
        assert_eq!(wrapped_lines(text, 20), broken);
        assert_eq!(wrapped_lines(text, 80), text);
        let styled = "\u{1b}[31mFAIL\u{1b}[0m it\n";
        assert_eq!(wrapped_lines(styled, 7), styled, "colours have no width");
    }
}
