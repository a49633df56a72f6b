//! Breaks lines for people at the width of their terminal.

use unicode_width::UnicodeWidthStr as _;

/// Returns the width of the terminal; `None` without a terminal, and for one that does not know its width and says 0.
pub(super) fn terminal_width() -> Option<u16> {
    comfy_table::Table::new().width().filter(|columns| *columns > 0)
}

/// Breaks lines that are longer than `columns` at blanks. A continued line has the indent of its line and two more
/// blanks. A word that is longer than a line stays as it is.
pub(super) fn wrapped(text: &str, columns: Option<u16>) -> String {
    let Some(columns) = columns.map(usize::from) else { return text.to_owned() };
    let width = |part: &str| anstream::adapter::strip_str(part).to_string().width();
    let mut wrapped = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if width(line.trim_end()) <= columns {
            wrapped.push_str(line);
            continue;
        }
        let indent = line.len() - line.trim_start_matches(' ').len();
        let (start, rest) = line.split_at(indent);
        wrapped.push_str(start);
        let mut used = indent;
        for word in rest.split_inclusive(' ') {
            if used > indent + 2 && used + width(word.trim_end()) > columns {
                let kept = wrapped.trim_end_matches(' ').len();
                wrapped.truncate(kept);
                wrapped.push_str(&format!("\n{start}  "));
                used = indent + 2;
            }
            wrapped.push_str(word);
            used += width(word);
        }
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_break_at_blanks_and_keep_their_indent() {
        let text = "short\n  hint: check the address and the network\nhttps://a.very.long.example/of/an/address end\n";
        let broken = "short\n  hint: check the\n    address and the\n    network\nhttps://a.very.long.example/of/an/address\n  end\n";
        assert_eq!(wrapped(text, Some(20)), broken);
        assert_eq!(wrapped(text, None), text);
        assert_eq!(wrapped(text, Some(80)), text);
        let styled = "\u{1b}[31mFAIL\u{1b}[0m it\n";
        assert_eq!(wrapped(styled, Some(7)), styled, "colours have no width");
    }
}
