//! The documentation is correct: links resolve, commands exist and run, SQL and configuration are accepted, and the
//! reference matches the output of the program.
//!
//! A page can say how a test treats the block below: `<!-- exit: 6 -->` is the expected exit code. `<!-- not run -->`
//! marks a block that is parsed and not run, on a page whose blocks run.

mod blocks;
mod build;
mod commands;
mod configuration;
mod dictionary;
mod links;
mod prose;
mod reference;
pub mod run_json;
mod walkthroughs;

use std::{
    fs,
    path::{Path, PathBuf},
};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Documents outside of `docs/`.
const OTHER_DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

/// A document.
struct Page {
    /// The path relative to the repository.
    name: String,
    text: String,
}

/// A fenced block of a document.
#[derive(Debug)]
struct Block {
    /// The page and the line.
    place: String,
    language: String,
    text: String,
    /// The expected exit code.
    exit_code: i32,
    is_run: bool,
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the pages of the book, in the order of their names.
fn book() -> Vec<Page> {
    let mut files = Vec::new();
    let mut folders = vec![repository().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.sort();
    files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")).map(read).collect()
}

/// Returns the pages of the book and the documents outside of it.
fn documents() -> Vec<Page> {
    let others = OTHER_DOCUMENTS.iter().map(|name| read(&repository().join(name)));
    others.chain(book()).collect()
}

fn page(name: &str) -> Page {
    read(&repository().join(name))
}

fn read(path: &PathBuf) -> Page {
    let name = path.strip_prefix(repository()).unwrap().to_str().unwrap().to_owned();
    Page { name, text: fs::read_to_string(path).unwrap() }
}

impl Page {
    fn events(&self) -> impl Iterator<Item = (Event<'_>, usize)> {
        let events = Parser::new_ext(&self.text, Options::ENABLE_TABLES).into_offset_iter();
        events.map(|(event, range)| (event, self.text[..range.start].matches('\n').count() + 1))
    }

    /// Returns the fenced blocks.
    fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let (mut is_inside, mut exit_code, mut is_run) = (false, 0, true);
        for (event, line) in self.events() {
            match event {
                Event::Html(html) => {
                    let html = html.trim();
                    let promised = html.strip_prefix("<!-- exit: ").and_then(|rest| rest.strip_suffix(" -->"));
                    exit_code = promised.map_or(exit_code, |code| code.parse().unwrap());
                    is_run &= html != "<!-- not run -->";
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    let (place, language) = (format!("{}:{line}", self.name), language.into_string());
                    blocks.push(Block { place, language, text: String::new(), exit_code, is_run });
                    (is_inside, exit_code, is_run) = (true, 0, true);
                }
                Event::End(TagEnd::CodeBlock) => is_inside = false,
                Event::Text(text) if is_inside => blocks.last_mut().unwrap().text.push_str(&text),
                _ => {}
            }
        }
        blocks
    }
}

/// Compares a generated document with its file; `STUDYSYNC_WRITE=1` writes the file.
#[expect(clippy::disallowed_methods, reason = "the rule is for the program")]
fn assert_generated(name: &str, text: &str) {
    let path = repository().join(name);
    if std::env::var_os("STUDYSYNC_WRITE").is_some() {
        return fs::write(path, text).unwrap();
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    let line = kept.lines().zip(text.lines()).position(|(kept, new)| kept != new);
    let line = line.unwrap_or_else(|| kept.lines().count().min(text.lines().count()));
    let new = text.lines().nth(line).unwrap_or_default();
    assert!(kept == text, "{name}, line {}: the program says {new:?}. STUDYSYNC_WRITE=1 writes the page", line + 1);
}

/// Compares the part of a page between `<!-- generated: NAME -->` and `<!-- end -->`, or writes it.
fn assert_generated_part(name: &str, part: &str, text: &str) {
    let page = page(name).text;
    let begin = format!("<!-- generated: {part} -->\n");
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("{name} has no passage {part}"));
    let (_, after) = rest.split_once("<!-- end -->").unwrap_or_else(|| panic!("{name}: {part} has no end"));
    assert_generated(name, &format!("{before}{begin}\n{}\n\n<!-- end -->{after}", text.trim()));
}
