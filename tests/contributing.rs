//! The things that the first pages for contributors name exist: targets of `make`, scripts, and the development
//! container.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The targets of the Makefile.
fn targets() -> BTreeSet<String> {
    let text = read("Makefile");
    let names = text.lines().filter(|line| !line.starts_with(['#', '\t', '.', ' '])).filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (!rest.starts_with('=')).then(|| name.to_owned())
    });
    names.collect()
}

/// The pages that a contributor reads first.
fn pages() -> Vec<PathBuf> {
    let pages = std::fs::read_dir(root().join("docs/contributing")).unwrap().map(|entry| entry.unwrap().path());
    pages.chain(["README.md", "CONTRIBUTING.md", "tests/cases/README.md"].map(|name| root().join(name))).collect()
}

/// Returns the words that follow a word in `sh` blocks, without comments.
fn words_after(text: &str, command: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_shell = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_shell = line.trim() == "```sh";
        } else if is_shell {
            let words: Vec<&str> = line.split('#').next().unwrap().split_whitespace().collect();
            found.extend(words.windows(2).filter(|pair| pair[0] == command).map(|pair| pair[1].to_owned()));
        }
    }
    found
}

#[test]
fn make_alone_lists_every_target_in_80_columns() {
    let mut make = Command::new("make");
    make.current_dir(root()).env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    let Ok(done) = make.output() else { return println!("SKIPPED: make is not there") };
    let list = String::from_utf8(done.stdout).unwrap();
    let listed: BTreeSet<String> =
        list.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect();
    // Other targets depend on it; users do not call it.
    let expected: BTreeSet<String> = targets().into_iter().filter(|name| name != "build-quick").collect();
    assert!(expected.len() > 15, "{expected:?}");
    assert_eq!(listed, expected, "a target without a text behind ## is not listed");
    let wide: Vec<&str> = list.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn every_make_target_in_the_pages_exists() {
    let targets = targets();
    let mut count = 0;
    for page in pages() {
        for word in words_after(&std::fs::read_to_string(&page).unwrap(), "make") {
            count += 1;
            assert!(targets.contains(&word), "{}: make {word}", page.display());
        }
    }
    assert!(count > 10, "only {count} commands were found");
}

#[test]
fn the_development_container_names_files_that_exist() {
    let text = read(".devcontainer/devcontainer.json");
    let without_comments: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let container: Value = serde_json::from_str(&without_comments.join("\n")).unwrap();

    let command = container["postCreateCommand"].as_str().unwrap();
    let script = command.strip_prefix("bash ").unwrap();
    let is_valid = Command::new("bash").args(["-n", script]).current_dir(root()).status().unwrap();
    assert!(is_valid.success(), "{script} is no script");
    let script = read(script);
    let named: Vec<&str> = script.split_whitespace().filter(|word| word.starts_with("scripts/")).collect();
    assert!(named.len() >= 3, "{named:?}");
    for name in named {
        assert!(root().join(name).is_file(), "{name} is not there");
    }

    // The library is in the folder that the script and scripts/cargo.sh use.
    let library = "target/libduckdb";
    assert!(script.contains(&format!("fetch-libduckdb.sh {library} ")));
    for variable in ["DUCKDB_LIB_DIR", "LD_LIBRARY_PATH"] {
        assert_eq!(container["containerEnv"][variable], format!("${{containerWorkspaceFolder}}/{library}"));
    }
    let settings = &container["customizations"]["vscode"];
    assert!(settings["extensions"].as_array().unwrap().contains(&"rust-lang.rust-analyzer".into()));
    assert_eq!(settings["settings"]["rust-analyzer.cargo.noDefaultFeatures"], true);
}
