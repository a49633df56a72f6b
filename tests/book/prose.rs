//! Statements of the pages about the repository are correct: paths and targets of `make` exist, and counts match the
//! sources.

use std::{collections::BTreeMap, fs, path::PathBuf};

use pulldown_cmark::{Event, Tag, TagEnd};
use regex::Regex;

use super::{Page, documents, page, read, repository};

/// Pages of folders that are not in the book.
const READMES: &[&str] = &[
    "examples/README.md",
    "crates/sandbox/README.md",
    "schemas/README.md",
    "state/README.md",
    "tests/cases/README.md",
];
/// Folders whose files name paths of the repository in comments and commands.
const FOLDERS: &[&str] = &["examples", "packaging", "scripts", "schemas", "views"];
/// File endings in [`FOLDERS`] that are read; a file without an ending is read too.
const ENDINGS: &[&str] = &["", "sh", "py", "yml", "yaml", "sql", "toml", "service", "timer", "conf", "in"];
/// Placeholders that match any name.
const PLACEHOLDERS: &[&str] = &["NAME", "TABLE", "STREAM", "STORE", "NNN-title"];

/// Returns every page that describes this version. The changelog describes earlier versions too.
fn pages() -> Vec<Page> {
    let book = documents().into_iter().filter(|page| page.name != "CHANGELOG.md");
    book.chain(READMES.iter().map(|name| page(name))).collect()
}

/// Returns the files of examples, packages and scripts.
fn files() -> Vec<Page> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|name| repository().join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let ending = path.extension().map_or("", |ending| ending.to_str().unwrap()).to_owned();
            match path.is_dir() {
                true => folders.push(path),
                false if ENDINGS.contains(&ending.as_str()) => files.push(path),
                false => {}
            }
        }
    }
    files.sort();
    files.iter().map(read).chain([page("Makefile")]).collect()
}

impl Page {
    /// Returns sentences and cells with their lines: texts and code, without the targets of links.
    fn sentences(&self) -> Vec<(String, usize)> {
        let mut sentences = vec![(String::new(), 1)];
        for (event, line) in self.events() {
            match event {
                Event::Text(text) | Event::Code(text) => {
                    let last = sentences.last_mut().unwrap();
                    if last.0.is_empty() {
                        last.1 = line;
                    }
                    last.0.push_str(&text);
                }
                Event::SoftBreak | Event::HardBreak => sentences.last_mut().unwrap().0.push(' '),
                Event::Start(Tag::Paragraph | Tag::TableCell | Tag::Item | Tag::Heading { .. } | Tag::CodeBlock(_))
                | Event::End(TagEnd::TableCell | TagEnd::Item | TagEnd::CodeBlock) => {
                    sentences.push((String::new(), line));
                }
                _ => {}
            }
        }
        sentences.retain(|(text, _)| !text.is_empty());
        sentences
    }
}

/// Returns the wrong paths in a text. A path begins with a folder of the repository.
fn path_faults(text: &str) -> Vec<String> {
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || "/._-*<>".contains(sign);
    let words = text.split(|sign: char| !is_part(sign) && !"~$:=@".contains(sign));
    let mut faults = Vec::new();
    for word in words.map(|word| word.trim_end_matches(['.', '-'])).filter(|word| word.chars().all(is_part)) {
        let Some((first, rest)) = word.split_once('/') else { continue };
        // `target/` contains build outputs; `state/` is also the folder of a state file.
        let is_ours = !matches!(first, "" | "." | ".." | "target") && repository().join(first).is_dir();
        let is_state = first == "state" && !rest.ends_with(".md") && !rest.ends_with(".sql");
        if !is_ours || is_state || rest.is_empty() {
            continue;
        }
        let is_placeholder = |part: &&str| {
            part.contains(['*', '<']) || PLACEHOLDERS.contains(&part.split('.').next().unwrap_or_default())
        };
        let fixed: PathBuf = word.split('/').take_while(|part| !is_placeholder(part)).collect();
        let is_written = [&["fuzz", "artifacts"], &["fuzz", "corpus"]]
            .iter()
            .any(|made| fixed.starts_with(made.iter().collect::<PathBuf>()));
        if !is_written && !repository().join(&fixed).exists() {
            faults.push(format!("there is no {}", fixed.display()));
        }
    }
    faults
}

/// Returns the right counts by the name of the counted things.
fn counts() -> BTreeMap<&'static str, Vec<usize>> {
    let files = |folder: &str, ending: &str| {
        let entries = fs::read_dir(repository().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_str().unwrap().ends_with(ending)).count()
    };
    let lines = |name: &str, pattern: &str| Regex::new(pattern).unwrap().find_iter(&page(name).text).count();
    let (views, macros) = (files("views", ".sql"), files("views/macros", ".sql"));
    let alerts = lines("examples/prometheus/alerts.yml", "- alert:");
    BTreeMap::from([
        ("views and macros", vec![views + macros]),
        ("views", vec![views]),
        ("macros", vec![macros]),
        ("tables", vec![files("schemas", ".toml")]),
        ("metrics", vec![studysync::metrics::ALL.len()]),
        ("alerts", vec![alerts]),
        ("alert rules", vec![alerts]),
        ("questions", vec![lines("examples/questions.sql", r"(?m)^-- [0-9]+\.")]),
        ("commands", vec![lines("docs/reference/commands.md", "(?m)^## ") - 1]),
        ("decisions", vec![files("docs/decisions", ".md") - 1]),
        ("seeds of the simulator", vec![constant("tests/simulation/mod.rs", "SEEDS")]),
        ("promises", vec![lines("docs/architecture.md", r"(?m)^- \*\*P[0-9]+\*\*")]),
    ])
}

/// Reads an integer constant from a Rust file.
fn constant(file: &str, name: &str) -> usize {
    let text = page(file).text;
    let (_, rest) = text.split_once(&format!("const {name}: u64 = ")).unwrap();
    rest.split(';').next().unwrap().parse().unwrap()
}

const NUMBERS: &[&str] = &[
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
];

/// Finds counts of things in texts.
struct Counter {
    counts: BTreeMap<&'static str, Vec<usize>>,
    pattern: Regex,
}

impl Counter {
    fn new(counts: BTreeMap<&'static str, Vec<usize>>) -> Counter {
        // Longer names first: `views and macros` is not a count of views.
        let names: Vec<&str> = counts.keys().rev().copied().collect();
        let pattern = format!(r"(?i-u)\b({}|[0-9]+) (?:[a-z-]+ )?({})\b", NUMBERS.join("|"), names.join("|"));
        Counter { counts, pattern: Regex::new(&pattern).unwrap() }
    }

    /// Returns the wrong counts in a text. A number below five counts some of the things, not all.
    fn faults(&self, text: &str) -> Vec<String> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut faults = Vec::new();
        for found in self.pattern.captures_iter(&text) {
            let (number, name) = (found[1].to_lowercase(), found[2].to_lowercase());
            let word = NUMBERS.iter().position(|word| *word == number).map(|at| at + 5);
            let number = word.unwrap_or_else(|| number.parse().unwrap());
            // `1,200 metrics` and `3.5 metrics` are not counts to check.
            let before = text[..found.get(0).unwrap().start()].chars().last();
            let is_count = number >= 5 && !before.is_some_and(|sign| ",.".contains(sign));
            let right = &self.counts[name.as_str()];
            if is_count && !right.contains(&number) {
                faults.push(format!("{}: there are {right:?}", &found[0]));
            }
        }
        faults
    }
}

#[test]
fn paths_in_prose_exist() {
    let mut faults = Vec::new();
    for page in pages() {
        for (text, line) in page.sentences() {
            faults.extend(path_faults(&text).into_iter().map(|fault| format!("{}:{line}: {fault}", page.name)));
        }
    }
    for file in files() {
        for (line, text) in file.text.lines().enumerate() {
            faults.extend(path_faults(text).into_iter().map(|fault| format!("{}:{}: {fault}", file.name, line + 1)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn targets_of_make_in_prose_exist() {
    let makefile = page("Makefile").text;
    let mut faults = Vec::new();
    let mut count = 0;
    for page in pages() {
        for (event, line) in page.events() {
            let Event::Code(text) = event else { continue };
            let Some(target) = text.strip_prefix("make ").and_then(|rest| rest.split_whitespace().next()) else {
                continue;
            };
            count += 1;
            let is_there = makefile.lines().any(|rule| rule.starts_with(&format!("{target}:")));
            let is_there = is_there || target.contains('=');
            faults.extend((!is_there).then(|| format!("{}:{line}: the Makefile has no target {target}", page.name)));
        }
    }
    assert!(count > 30, "only {count} targets were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn counts_in_prose_are_right() {
    let counter = Counter::new(counts());
    let mut faults = Vec::new();
    for page in pages() {
        for (text, line) in page.sentences() {
            faults.extend(counter.faults(&text).into_iter().map(|fault| format!("{}:{line}: {fault}", page.name)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The crontab of the page equals that of the example, in the form of a user's own crontab.
#[test]
fn the_crontab_of_the_page_is_the_example() {
    let block = page("docs/guide/nightly.md").blocks().into_iter().find(|block| block.language == "cron").unwrap();
    let example =
        page("examples/cron/studysync").text.replace("studysync  sh ", "sh ").replace("studysync  cd ", "cd ");
    let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let known: Vec<String> = example.lines().map(squeeze).collect();
    for line in block.text.lines().map(squeeze).filter(|line| !line.is_empty()) {
        assert!(known.contains(&line), "examples/cron/studysync has no line {line:?}");
    }
    for needed in ["PATH=", "MAILTO="] {
        assert!(block.text.contains(needed), "cron needs {needed}");
    }
}

#[test]
fn a_wrong_path_or_count_is_noticed() {
    for (text, said) in [
        ("examples/cron/nightly.sh and `packaging/systemd/`.", ""),
        ("`examples/systemd/studysync-serve.service` runs it", "there is no examples/systemd/studysync-serve.service"),
        ("see docs/no-such-page.md.", "there is no docs/no-such-page.md"),
        ("src/cli/NAME.rs, src/*/fuzzing.rs, target/book, ../docs/x.md, https://a.example/docs/x", ""),
        ("state/checkpoints.sqlite.inbox", ""),
    ] {
        let faults = path_faults(text).join("; ");
        assert!(faults.contains(said) && faults.is_empty() == said.is_empty(), "{text}: {faults}");
    }
    let counter =
        Counter::new(BTreeMap::from([("views", vec![39]), ("views and macros", vec![50]), ("questions", vec![15])]));
    for (text, is_right) in [
        ("typed tables and 39 views in UTC", true),
        ("typed tables and 50 views in UTC", false),
        ("50 views and macros", true),
        ("has ten\nquestions that", false),
        ("has fifteen questions", true),
        ("two views, and 1,200 views", true),
        ("39 typed views", true),
        ("12 typed views", false),
    ] {
        assert_eq!(counter.faults(text).is_empty(), is_right, "{text}");
    }
}
