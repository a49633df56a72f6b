//! Each relative link leads to an existing file and heading. Pages of the book link only to pages of the book, so that
//! the built site has no dead links. Pages name other files of the repository without a link.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use pulldown_cmark::{Event, Tag, TagEnd};

use super::{Page, book, documents, page, repository};

impl Page {
    /// Returns the targets of links and pictures, with their lines.
    fn links(&self) -> Vec<(String, usize)> {
        let link = |(event, line)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some((dest_url.into_string(), line))
            }
            _ => None,
        };
        self.events().filter_map(link).collect()
    }

    /// Returns the anchors of the headings, as mdBook and code hosts generate them.
    fn anchors(&self) -> BTreeSet<String> {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut anchors = BTreeSet::new();
        let mut heading: Option<String> = None;
        for (event, _) in self.events() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    let count = seen.entry(anchor.clone()).or_default();
                    anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
                    *count += 1;
                }
                _ => {}
            }
        }
        anchors
    }
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

/// Resolves `.` and `..` in a path.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::ParentDir => assert!(plain.pop(), "{} leaves the repository", path.display()),
            Component::CurDir => {}
            part => plain.push(part),
        }
        plain
    })
}

fn is_elsewhere(link: &str) -> bool {
    link.starts_with("https://") || link.starts_with("http://") || link.starts_with("mailto:")
}

/// Returns what is wrong with a link of a page.
fn fault(from: &Page, link: &str) -> Option<String> {
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let folder = Path::new(&from.name).parent().unwrap();
    let target = if path.is_empty() { PathBuf::from(&from.name) } else { plain(&folder.join(path)) };
    if !repository().join(&target).exists() {
        return Some(format!("there is no {}", target.display()));
    }
    let is_page = target.extension().is_some_and(|extension| extension == "md");
    let is_known = || page(target.to_str().unwrap()).anchors().contains(fragment);
    if !(fragment.is_empty() || is_page && is_known()) {
        return Some(format!("{} has no heading #{fragment}", target.display()));
    }
    let is_book = |path: &Path| path.starts_with("docs");
    (is_book(Path::new(&from.name)) && !is_book(&target))
        .then(|| "it leaves the book: name the file instead".to_owned())
}

#[test]
fn every_link_leads_somewhere() {
    let mut faults = Vec::new();
    let mut count = 0;
    for page in documents() {
        for (link, line) in page.links().into_iter().filter(|(link, _)| !is_elsewhere(link)) {
            count += 1;
            faults.extend(fault(&page, &link).map(|fault| format!("{}:{line}: {link}: {fault}", page.name)));
        }
    }
    assert!(count > 150, "only {count} links were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_dead_link_is_noticed() {
    let from = Page { name: "docs/guide/made-up.md".into(), text: "# Made *up* `x`\n".into() };
    assert_eq!(from.anchors().into_iter().collect::<Vec<_>>(), ["made-up-x"]);
    for (link, said) in [
        ("../install.md", ""),
        ("reading.md#deleted-rows", ""),
        ("reading.md#no-such-heading", "no heading"),
        ("no-such-page.md", "there is no"),
        ("../../README.md", "leaves the book"),
    ] {
        let fault = fault(&from, link).unwrap_or_default();
        assert!(fault.contains(said) && fault.is_empty() == said.is_empty(), "{link}: {fault}");
    }
}

#[test]
fn the_summary_names_each_page_once() {
    let summary = page("docs/SUMMARY.md");
    let mut named: Vec<_> = summary.links().into_iter().map(|(link, _)| format!("docs/{link}")).collect();
    named.sort();
    let pages: Vec<_> = book().into_iter().map(|page| page.name).filter(|name| *name != summary.name).collect();
    assert_eq!(named, pages);
}

#[test]
fn the_readme_is_two_screens() {
    let lines = page("README.md").text.lines().count();
    assert!(lines <= 100, "{lines} lines");
}
