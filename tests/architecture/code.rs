//! A tokenizer for the checks: tokens without comments, literals and test code, and the paths that the tokens form.
//!
//! It parses only the part of Rust's grammar that the checks need. It would miss a macro that builds a path from
//! pieces; the code has none.

/// One word, `::`, or one punctuation character, and its line, counted from 1.
#[derive(Clone, Debug)]
pub struct Token {
    text: String,
    pub line: usize,
}

impl Token {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_word(&self) -> bool {
        self.text.starts_with(is_word_sign)
    }
}

impl PartialEq<str> for Token {
    fn eq(&self, other: &str) -> bool {
        self.text == other
    }
}

impl PartialEq<&str> for Token {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

fn is_word_sign(sign: char) -> bool {
    sign.is_alphanumeric() || sign == '_'
}

/// Stands for each string and character literal in [`all_tokens`].
const LITERAL: &str = "\"";

pub fn is_literal(token: &Token) -> bool {
    token == LITERAL
}

/// Returns the tokens of a file, without comments, strings and character literals.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = all_tokens(text);
    tokens.retain(|token| !is_literal(token));
    tokens
}

/// Returns the tokens of a file, without comments.
pub fn all_tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut tokens = Vec::new();
    let (mut index, mut line, mut counted) = (0, 1, 0);
    while index < chars.len() {
        line += chars[counted..index].iter().filter(|sign| **sign == '\n').count();
        counted = index;
        let sign = at(index);
        if sign == '/' && at(index + 1) == '/' {
            while index < chars.len() && at(index) != '\n' {
                index += 1;
            }
        } else if sign == '/' && at(index + 1) == '*' {
            index = end_of_block_comment(&chars, index);
        } else if let Some(end) = end_of_literal(&chars, index) {
            tokens.push(Token { text: LITERAL.to_owned(), line });
            index = end;
        } else if sign == '\'' {
            // A lifetime.
            index += 1;
        } else if is_word_sign(sign) {
            let end = (index..chars.len()).find(|end| !is_word_sign(at(*end))).unwrap_or(chars.len());
            tokens.push(Token { text: chars[index..end].iter().collect(), line });
            index = end;
        } else {
            let is_path_sign = sign == ':' && at(index + 1) == ':';
            if !sign.is_whitespace() {
                let text = if is_path_sign { "::".to_owned() } else { sign.to_string() };
                tokens.push(Token { text, line });
            }
            index += if is_path_sign { 2 } else { 1 };
        }
    }
    tokens
}

fn end_of_block_comment(chars: &[char], begin: usize) -> usize {
    let (mut depth, mut index) = (0, begin);
    while index < chars.len() {
        match chars[index..] {
            ['/', '*', ..] => (depth, index) = (depth + 1, index + 2),
            ['*', '/', ..] => (depth, index) = (depth - 1, index + 2),
            _ => index += 1,
        }
        if depth == 0 {
            break;
        }
    }
    index
}

/// Returns the end of the string or character literal that begins here. 'x' and '\n' are characters; any other quote
/// starts a lifetime.
fn end_of_literal(chars: &[char], begin: usize) -> Option<usize> {
    match chars[begin..] {
        ['"', ..] => Some(end_of_text(chars, begin)),
        ['\'', '\\', ..] => Some(begin + 4 + chars[begin + 3..].iter().position(|sign| *sign == '\'').unwrap_or(0)),
        ['\'', _, '\'', ..] => Some(begin + 3),
        _ => end_of_raw_text(chars, begin),
    }
}

fn end_of_text(chars: &[char], begin: usize) -> usize {
    let mut index = begin + 1;
    while index < chars.len() && chars[index] != '"' {
        index += if chars[index] == '\\' { 2 } else { 1 };
    }
    index + 1
}

/// `r"..."` and `r#"..."#`, also with the prefix `b`.
fn end_of_raw_text(chars: &[char], begin: usize) -> Option<usize> {
    let is_inside_word = begin > 0 && is_word_sign(chars[begin - 1]);
    let letters = if chars[begin..].starts_with(&['b', 'r']) { 2 } else { 1 };
    if is_inside_word || chars.get(begin + letters - 1) != Some(&'r') {
        return None;
    }
    let hashes = chars[begin + letters..].iter().take_while(|sign| **sign == '#').count();
    let open = begin + letters + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let length = chars[open + 1..].windows(close.len()).position(|window| window == close)?;
    Some(open + 1 + length + close.len())
}

/// Removes the code that is compiled for tests only: everything after `#[cfg(test)]`, up to its `;` or closing brace.
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        if is_test_mark(&tokens[index..]) {
            index = end_of_item(tokens, index + TEST_MARK.len());
        } else {
            kept.push(tokens[index].clone());
            index += 1;
        }
    }
    kept
}

const TEST_MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];

fn is_test_mark(tokens: &[Token]) -> bool {
    tokens.len() >= TEST_MARK.len() && TEST_MARK.iter().zip(tokens).all(|(mark, token)| token == mark)
}

pub fn end_of_item(tokens: &[Token], begin: usize) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(begin) {
        match token.as_str() {
            "{" => depth += 1,
            "}" if depth == 1 => return index + 1,
            "}" => depth -= 1,
            ";" if depth == 0 => return index + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Returns the modules that a file declares for tests only: `#[cfg(test)] mod NAME;`.
pub fn test_modules(tokens: &[Token]) -> Vec<String> {
    let declared = tokens.windows(TEST_MARK.len() + 3).filter(|window| is_test_mark(window));
    declared
        .filter_map(|window| match &window[TEST_MARK.len()..] {
            [word, name, end] if word == "mod" && end == ";" => Some(name.text.clone()),
            _ => None,
        })
        .collect()
}

/// Returns the top-level modules of this crate that a module's code names, by `crate::` or by enough `super::`.
pub fn modules_named(tokens: &[Token], module: &[String]) -> Vec<String> {
    let mut named = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let begins_path = index == 0 || tokens[index - 1] != "::";
        let rest = &tokens[index..];
        if token == "crate" {
            heads(&rest[1..], &mut named);
        } else if token == "super" && begins_path {
            let climbs = rest.chunks(2).take_while(|pair| pair[0] == "super").count();
            // Inside the brackets of a `use`, `super::` before the brackets counts too. No file writes that, so it is
            // not supported.
            if climbs == module.len() {
                heads(&rest[climbs * 2 - 1..], &mut named);
            }
        }
    }
    named.sort();
    named.dedup();
    named
}

/// Collects the names after `crate`: `:: name`, or `:: { name, name::{..}, .. }`.
fn heads(rest: &[Token], named: &mut Vec<String>) {
    if rest.first().is_none_or(|token| token != "::") {
        return;
    }
    let Some(first) = rest.get(1) else { return };
    if first != "{" {
        named.push(first.text.clone());
        return;
    }
    let (mut depth, mut is_head) = (1, true);
    for token in &rest[2..] {
        match token.as_str() {
            "{" => depth += 1,
            "}" if depth == 1 => return,
            "}" => depth -= 1,
            "," if depth == 1 => is_head = true,
            "self" => is_head = false,
            _ if is_head => {
                named.push(token.text.clone());
                is_head = false;
            }
            _ => {}
        }
    }
}

/// Returns whether a path begins with this name: `name::..`, or `use name;`. A name that continues another path does
/// not count: in `a::{name::B}`, `name` is a module of `a`.
pub fn begins_path(tokens: &[Token], name: &str) -> bool {
    let mut groups_continue: Vec<bool> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| tokens[before].as_str());
        let after = tokens.get(index + 1).map(Token::as_str);
        match token.as_str() {
            "{" => groups_continue.push(before == Some("::")),
            "}" => drop(groups_continue.pop()),
            _ => {}
        }
        let is_head = !matches!(before, Some("::" | ".")) && groups_continue.last() != Some(&true);
        if token == name && is_head && (after == Some("::") || before == Some("use")) {
            return true;
        }
    }
    false
}

/// Returns whether these tokens occur in the code, one directly after the other.
pub fn has(tokens: &[Token], wanted: &[&str]) -> bool {
    tokens.windows(wanted.len()).any(|window| window.iter().zip(wanted).all(|(token, wanted)| *token == *wanted))
}
