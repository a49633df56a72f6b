//! Counts the size of the code by top-level module. `make size` prints it; a test rejects growth.

use std::collections::BTreeMap;

use super::{
    code::{Token, all_tokens, is_literal, without_tests},
    functions::functions_in,
    product_code, read_crates,
};

/// Tokens and files as of the last commit that changed them. docs/contributing/size.md says how to change them.
const RECORDED: Size = Size { tokens: 738_700, files: 561 };
/// The recorded number must be lowered once the tokens are this far below it.
const SLACK: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    tokens: usize,
    files: usize,
}

/// The size of a top-level module, without test code.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    files: usize,
    lines: usize,
    code_lines: usize,
    doc_lines: usize,
    comment_lines: usize,
    tokens: usize,
    types: usize,
    functions: usize,
    use_lines: usize,
}

impl std::ops::AddAssign for Room {
    fn add_assign(&mut self, other: Room) {
        self.files += other.files;
        self.lines += other.lines;
        self.code_lines += other.code_lines;
        self.doc_lines += other.doc_lines;
        self.comment_lines += other.comment_lines;
        self.tokens += other.tokens;
        self.types += other.types;
        self.functions += other.functions;
        self.use_lines += other.use_lines;
    }
}

/// Returns the text of a file without its test module, which is at the end.
fn without_test_module(text: &str) -> &str {
    text.split_once("\n#[cfg(test)]\nmod tests {").map_or(text, |(product, _)| product)
}

fn room_of(text: &str) -> Room {
    let text = without_test_module(text);
    let tokens = without_tests(&all_tokens(text));
    let code: Vec<Token> = tokens.iter().filter(|token| !is_literal(token)).cloned().collect();
    let lines = || text.lines().map(str::trim);
    let doc_lines = lines().filter(|line| line.starts_with("///") || line.starts_with("//!")).count();
    let comment_lines = lines().filter(|line| line.starts_with("//")).count() - doc_lines;
    let use_line = |token: &&Token| *token == "use";
    Room {
        files: 1,
        lines: lines().count(),
        code_lines: lines().filter(|line| !line.is_empty()).count() - doc_lines - comment_lines,
        doc_lines,
        comment_lines,
        tokens: tokens.len(),
        types: code.iter().filter(|token| matches!(token.as_str(), "struct" | "enum" | "trait" | "type")).count(),
        functions: functions_in(&code),
        use_lines: code.iter().filter(use_line).count(),
    }
}

fn rooms() -> BTreeMap<String, Room> {
    let files = read_crates();
    let mut rooms: BTreeMap<String, Room> = BTreeMap::new();
    for (file, _) in product_code(&files) {
        *rooms.entry(file.module().swap_remove(0)).or_default() += room_of(&file.text);
    }
    rooms
}

#[test]
fn the_code_does_not_grow() {
    let rooms = rooms();
    let mut all = Room::default();
    let row = |name: &str, room: &Room| {
        let Room { files, lines, code_lines, doc_lines, comment_lines, tokens, types, functions, use_lines } = *room;
        println!(
            "{name:<14}{files:>6}{lines:>8}{code_lines:>8}{doc_lines:>7}{comment_lines:>9}{tokens:>9}{types:>7}{functions:>11}{use_lines:>6}"
        );
    };
    println!("{:<14} files   lines    code   docs comments   tokens  types  functions   use", "room");
    for (name, room) in &rooms {
        row(name, room);
        all += *room;
    }
    row("all", &all);
    let found = Size { tokens: all.tokens, files: all.files };
    let is_recorded =
        found.files == RECORDED.files && found.tokens <= RECORDED.tokens && found.tokens + SLACK > RECORDED.tokens;
    assert!(is_recorded, "{found:?}, recorded: {RECORDED:?}: docs/contributing/size.md says what to do");
}

#[test]
fn literals_are_tokens_and_comments_are_none() {
    let room = room_of("//! Doc.\nuse a::b; // why\nfn f() { g(\"x y\", 'c', r#\"z\"#) }\n#[cfg(test)]\nmod t;\n");
    assert_eq!((room.tokens, room.doc_lines, room.functions, room.use_lines), (5 + 14, 1, 1, 1));
}
