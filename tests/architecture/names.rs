//! The pages for contributors name files, folders, types and functions. Each name in backticks must exist.
//!
//! The test checks paths of the repository, Rust names and targets of `make`. It ignores any other text in backticks,
//! and fenced blocks.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::PathBuf,
};

use pulldown_cmark::{Event, Options, Parser};

use super::{code::tokens, read_folder, root};

/// Pages and folders of pages that are checked.
const PAGES: &[&str] = &[
    "ARCHITECTURE.md",
    "docs/architecture.md",
    "docs/testing.md",
    "docs/decisions",
    "docs/contributing",
    "docs/formats",
];
/// Folders whose Rust files define the names.
const SOURCES: &[&str] = &["src", "crates", "tests"];
/// Modules of other crates that a page may name.
const OTHER_CRATES: &[&str] = &["std", "tokio", "serde_json", "arrow", "parquet", "rusqlite"];

/// The words of the sources: identifiers of Rust code, and all words of the contracts.
struct Words {
    /// For each word, the numbers of the files that contain it.
    files_of: HashMap<String, BTreeSet<usize>>,
}

impl Words {
    fn read() -> Words {
        let mut files_of: HashMap<String, BTreeSet<usize>> = HashMap::new();
        let mut add = |word: &str, file| {
            files_of.entry(word.to_owned()).or_default().insert(file);
        };
        let rust = SOURCES.iter().flat_map(|folder| read_folder(folder)).enumerate();
        for (number, file) in rust {
            file.module().iter().for_each(|part| add(part, number));
            tokens(&file.text).iter().filter(|token| token.is_word()).for_each(|token| add(token.as_str(), number));
        }
        for entry in fs::read_dir(root().join("schemas")).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            let words = text.split(|sign: char| !(sign.is_alphanumeric() || sign == '_'));
            words.for_each(|word| add(word, usize::MAX));
        }
        Words { files_of }
    }

    fn has(&self, word: &str) -> bool {
        match word.strip_suffix('*') {
            Some(begin) => self.files_of.keys().any(|known| known.starts_with(begin)),
            None => self.files_of.contains_key(word),
        }
    }

    /// Returns whether one file contains both words, as code or in its path.
    fn has_together(&self, left: &str, right: &str) -> bool {
        let files = |word: &str| self.files_of.get(word);
        files(left).zip(files(right)).is_some_and(|(left, right)| !left.is_disjoint(right))
    }
}

/// Returns what is wrong with a text in backticks; `None` if it is right, or if it is no name.
fn fault(text: &str, words: &Words) -> Option<String> {
    if let Some(target) = text.strip_prefix("make ") {
        let target = target.split_whitespace().next().unwrap_or_default();
        let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
        let is_there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
        return (!is_there).then(|| format!("the Makefile has no target {target}"));
    }
    path_fault(text).or_else(|| name_fault(text, words))
}

/// A text is a path if it begins with a top-level entry and a slash, or has the ending of a file of the repository.
fn path_fault(text: &str) -> Option<String> {
    let is_path_sign = |sign: char| sign.is_ascii_alphanumeric() || "/._-*<>".contains(sign);
    if text.is_empty() || !text.chars().all(is_path_sign) {
        return None;
    }
    let (first, rest) = text.split_once('/').unwrap_or((text, ""));
    // `target/` contains build outputs and is not in the repository.
    let is_ours = !matches!(first, "" | "target") && !rest.is_empty() && root().join(first).is_dir();
    let is_source = text.ends_with(".rs") || text.ends_with(".md");
    if !is_ours && !is_source {
        return None;
    }
    // A placeholder (`NAME.rs`, `*.json`, `<table>.toml`) stands for any file of its folder.
    let is_placeholder = |part: &str| {
        let stem = part.split('.').next().unwrap_or_default();
        part.contains(['*', '<']) || matches!(stem, "NAME" | "TABLE" | "STREAM" | "STORE" | "NNN-title")
    };
    let fixed: PathBuf = text.split('/').take_while(|part| !is_placeholder(part)).collect();
    (!root().join(&fixed).exists()).then(|| format!("there is no {}", fixed.display()))
}

/// A Rust name is a path with `::`, a call, a type or a constant.
fn name_fault(text: &str, words: &Words) -> Option<String> {
    let is_call = text.ends_with("()");
    let name = text.trim_end_matches("()").trim_end_matches('!');
    let is_word = |part: &str| {
        let word = part.strip_suffix('*').unwrap_or(part);
        word.starts_with(|sign: char| sign.is_ascii_alphabetic() || sign == '_')
            && word.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_')
    };
    let parts: Vec<&str> = name.split("::").collect();
    if !parts.iter().all(|part| is_word(part)) || OTHER_CRATES.contains(&parts[0]) {
        return None;
    }
    let is_type = name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
    if parts.len() == 1 && !is_call && !is_type && !is_constant(name) {
        return None;
    }
    let missing = parts.iter().find(|part| !words.has(part));
    if let Some(missing) = missing {
        return Some(format!("no file of src, tests or schemas has {missing}"));
    }
    let apart = parts.windows(2).find(|pair| !pair[1].ends_with('*') && !words.has_together(pair[0], pair[1]));
    apart.map(|pair| format!("no file has both {} and {}", pair[0], pair[1]))
}

/// `READY_MAX`; an environment variable does not count.
fn is_constant(name: &str) -> bool {
    let is_variable = ["STUDYSYNC_", "INSTA_", "CARGO_", "DUCKDB_", "LD_"].iter().any(|begin| name.starts_with(begin));
    name.contains('_') && !is_variable && name.chars().all(|sign| sign.is_ascii_uppercase() || sign == '_')
}

/// The texts in backticks of a page, with their lines.
fn in_backticks(page: &str) -> Vec<(String, usize)> {
    let events = Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter();
    let line = |start: usize| page[..start].matches('\n').count() + 1;
    let code = events.filter_map(|(event, range)| match event {
        Event::Code(text) => Some((text.into_string(), line(range.start))),
        _ => None,
    });
    code.collect()
}

/// The pages, with their text.
fn pages() -> Vec<(String, String)> {
    let mut pages = Vec::new();
    for name in PAGES {
        let path = root().join(name);
        let files: Vec<PathBuf> = match path.is_dir() {
            true => fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect(),
            false => vec![path],
        };
        let read = |path: PathBuf| {
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(&path).unwrap())
        };
        pages.extend(files.into_iter().map(read));
    }
    pages.sort();
    pages
}

#[test]
fn pages_for_contributors_name_what_exists() {
    let words = Words::read();
    let mut faults = Vec::new();
    let mut names = 0;
    for (page, text) in pages() {
        for (name, line) in in_backticks(&text) {
            names += 1;
            faults.extend(fault(&name, &words).map(|fault| format!("{page}:{line}: `{name}`: {fault}")));
        }
    }
    assert!(names > 300, "only {names} names were found");
    assert!(faults.is_empty(), "{} stale names\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn a_stale_name_is_noticed() {
    let words = Words::read();
    for (name, said) in [
        ("src/pipeline/scan/commit.rs", ""),
        ("src/pipeline/no_such_file.rs", "there is no src/pipeline/no_such_file.rs"),
        ("pipeline/commit.rs", "there is no pipeline/commit.rs"),
        ("tests/cases/flatten/*.json", ""),
        ("tests/no_cases/*.json", "there is no tests/no_cases"),
        ("src/cli/NAME.rs", ""),
        ("CONTRIBUTING.md", ""),
        ("created_month=2026-01-01/data.parquet", ""),
        ("schemas/", ""),
        ("make check", ""),
        ("make nothing", "no target nothing"),
        ("PipelineError", ""),
        ("NoSuchType", "has NoSuchType"),
        ("pipeline::commit", ""),
        ("pipeline::no_such_module", "has no_such_module"),
        ("plan::reqwest", "no file has both plan and reqwest"),
        ("no_such_function()", "has no_such_function"),
        ("PAGE_BYTES_MAX", ""),
        ("NO_SUCH_LIMIT_MAX", "has NO_SUCH_LIMIT_MAX"),
        ("response_group_uid", ""),
        ("STUDYSYNC_WRITE=1", ""),
        ("STUDYSYNC_API_KEY", ""),
    ] {
        let fault = fault(name, &words).unwrap_or_default();
        assert!(fault.contains(said) && fault.is_empty() == said.is_empty(), "{name}: {fault}");
    }
    let page = "`a` and\n\n```sh\n`b`\n```\n\n| `c` |\n|---|\n| `d` |\n";
    let found: Vec<_> = in_backticks(page).into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, ["a", "c", "d"]);
}
