//! Checks the length of test names and comment lines.

use std::path::Path;

use super::{
    SourceFile, assert_none,
    code::{Token, tokens},
    read_folder,
};

/// Maximum length of a test name without its promise numbers, exit codes and `slow_`.
const NAME_MAX: usize = 60;
/// Maximum width of a comment line, in columns.
const COLUMNS_MAX: usize = 120;

/// Reads the folders with Rust code. `crates` and `fuzz` are not in every copy of the repository.
fn all_files() -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "tests", "benches", "crates", "fuzz"].into_iter().filter(|name| root.join(name).is_dir());
    let named = |folder: &str| {
        let in_folder = |file: SourceFile| SourceFile { place: format!("{folder}/{}", file.place), ..file };
        read_folder(folder).into_iter().map(in_folder).collect::<Vec<_>>()
    };
    folders.flat_map(named).collect()
}

/// Returns the name of the function after each `#[test]` and `#[tokio::test(..)]`.
fn test_names(tokens: &[Token]) -> Vec<&str> {
    let is_test = |at: usize| {
        let rest: Vec<&str> = tokens[at..].iter().take(5).map(Token::as_str).collect();
        rest.starts_with(&["#", "[", "test", "]"]) || rest == ["#", "[", "tokio", "::", "test"]
    };
    let name = |at: usize| {
        let behind = &tokens[at..];
        behind.iter().position(|token| token == "fn").and_then(|index| behind.get(index + 1)).map(Token::as_str)
    };
    (0..tokens.len()).filter(|at| is_test(*at)).filter_map(name).collect()
}

/// Returns a name without `p1_p2_`, `exit_4_5_` and `slow_`.
fn without_prefix(name: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut rest = name;
    while let Some((word, after)) = rest.split_once('_') {
        let is_promise = word.strip_prefix('p').is_some_and(is_number);
        if !(is_promise || is_number(word) || ["exit", "slow"].contains(&word)) {
            break;
        }
        rest = after;
    }
    rest
}

fn long_names(files: &[SourceFile]) -> Vec<String> {
    let of_file = |file: &SourceFile| {
        let tokens = tokens(&file.text);
        let names = test_names(&tokens).into_iter().filter(|name| without_prefix(name).len() > NAME_MAX);
        names.map(|name| format!("{}: {name}: longer than {NAME_MAX}", file.place)).collect::<Vec<_>>()
    };
    files.iter().flat_map(of_file).collect()
}

fn wide_comments(files: &[SourceFile]) -> Vec<String> {
    let of_file = |file: &SourceFile| {
        let lines = file.text.lines().enumerate();
        let wide = lines.filter(|(_, line)| line.trim_start().starts_with("//") && line.chars().count() > COLUMNS_MAX);
        wide.map(|(at, _)| format!("{}:{}: wider than {COLUMNS_MAX}", file.place, at + 1)).collect::<Vec<_>>()
    };
    files.iter().flat_map(of_file).collect()
}

#[test]
fn names_of_tests_are_short() {
    let files = all_files();
    let count: usize = files.iter().map(|file| test_names(&tokens(&file.text)).len()).sum();
    assert!(count > 1000, "only {count} tests were found");
    assert_none(long_names(&files));
}

#[test]
fn comments_fit_120_columns() {
    assert_none(wide_comments(&all_files()));
}

#[test]
fn long_names_and_wide_comments_are_found() {
    let file = |text: String| [SourceFile { place: "a.rs".to_owned(), text }];
    let long = "a".repeat(NAME_MAX + 1);
    for head in ["#[test]\nfn ", "#[tokio::test(start_paused = true)]\n#[ignore = \"x\"]\nasync fn "] {
        for prefix in ["", "slow_", "p1_p12_exit_4_5_slow_"] {
            assert_eq!(long_names(&file(format!("{head}{prefix}{long}() {{}}"))).len(), 1, "{head}{prefix}");
            assert_eq!(long_names(&file(format!("{head}{prefix}{}() {{}}", &long[1..]))), [""; 0], "{head}{prefix}");
        }
    }
    assert_eq!(long_names(&file(format!("fn {long}() {{}} #[test] fn short() {{}}"))), [""; 0]);
    let comment = |columns: usize| format!("fn f() {{\n    // {}\n}}", "é".repeat(columns - 7));
    assert_eq!(wide_comments(&file(comment(COLUMNS_MAX))), [""; 0]);
    assert_eq!(wide_comments(&file(comment(COLUMNS_MAX + 1))), ["a.rs:2: wider than 120"]);
}
