//! The architecture as tests: which module may import which, which module may use which crate, and rules for every
//! file.
//!
//! The program is the crate in `src/`. Each other crate of this repository is a folder in `crates/`; the tables list
//! its files below its name.
//!
//! Code that is compiled for tests only may import any module and use any crate. The rules for files apply to it too.

mod circles;
mod code;
mod functions;
mod names;
mod size;
mod words;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use code::{Token, begins_path, has, modules_named, test_modules, tokens, without_tests};

/// The modules that each module of `src/` may import, besides itself.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("clock", &[]),
    ("files", &["model"]),
    ("bucket", &["model", "clock", "tls"]),
    ("json", &["model"]),
    ("page", &["json"]),
    ("process_group", &[]),
    ("redact", &[]),
    ("text", &[]),
    ("tls", &[]),
    ("wording", &[]),
    ("telemetry", &["wording"]),
    ("schema", &["model"]),
    ("plan", &["model"]),
    ("state", &["model", "files"]),
    ("archive", &["model", "bucket", "files"]),
    ("source", &["model", "clock", "json", "page", "redact", "text", "tls", "wording"]),
    ("upsert", &["model", "json", "text"]),
    ("flatten", &["model", "json", "page", "schema", "text"]),
    ("person", &["model", "files", "json", "page", "schema", "text"]),
    ("load", &["model", "bucket", "clock", "files", "json", "schema", "person"]),
    ("recordings", &["model", "files"]),
    ("config", &["model", "files", "plan", "process_group", "redact", "text", "wording"]),
    (
        "pipeline",
        &[
            "model",
            "clock",
            "files",
            "config",
            "page",
            "schema",
            "plan",
            "source",
            "upsert",
            "archive",
            "flatten",
            "person",
            "load",
            "recordings",
            "state",
            "text",
            "wording",
        ],
    ),
    ("report", &["model", "load", "state"]),
    (
        "erase",
        &[
            "model",
            "clock",
            "files",
            "config",
            "source",
            "archive",
            "person",
            "load",
            "recordings",
            "state",
            "pipeline",
        ],
    ),
    ("sync_status", &["model", "config", "source", "state", "pipeline"]),
    ("metrics", &["model", "files", "sync_status"]),
    ("otlp", &["config", "metrics", "telemetry", "tls"]),
    (
        "notify",
        &[
            "model",
            "files",
            "config",
            "process_group",
            "redact",
            "source",
            "pipeline",
            "sync_status",
            "metrics",
            "otlp",
            "tls",
        ],
    ),
    (
        "serve",
        &[
            "model",
            "clock",
            "config",
            "redact",
            "schema",
            "flatten",
            "person",
            "load",
            "state",
            "pipeline",
            "sync_status",
            "metrics",
            "notify",
            "otlp",
            "erase",
            "report",
        ],
    ),
];
/// Modules that may import all others.
const SEE_ALL: &[&str] = &["cli", "main", "lib"];

/// The modules or files that may use each crate.
const CRATE_HOMES: &[(&str, &[&str])] = &[
    ("reqwest", &["source", "notify"]),
    ("duckdb", &["load"]),
    ("parquet", &["load"]),
    ("object_store", &["bucket"]),
    ("rusqlite", &["state"]),
    ("rusqlite_migration", &["state"]),
    ("axum", &["sandbox", "serve"]),
    ("clap", &["cli"]),
    ("backoff", &["source/backoff.rs"]),
    ("zstd", &["archive"]),
    ("csv", &["pipeline/push/results.rs", "pipeline/push/past_results.rs"]),
    ("encoding_rs", &["text"]),
    ("plotters", &["report"]),
    ("hyper", &["serve"]),
    ("hyper_util", &["serve", "source/proxies.rs"]),
    ("http_body_util", &["serve"]),
    ("croner", &["serve", "config/serve.rs"]),
    ("chrono_tz", &["serve", "model/time_zone.rs"]),
    ("maud", &["report", "serve"]),
    ("tracing_subscriber", &["telemetry", "otlp"]),
    ("tracing_opentelemetry", &["otlp"]),
    ("opentelemetry", &["otlp"]),
    ("opentelemetry_sdk", &["otlp"]),
    ("opentelemetry_otlp", &["otlp"]),
    ("secrecy", &["redact"]),
    ("studysync_sandbox", &["cli/sandbox.rs"]),
    ("unicode_normalization", &["model", "person"]),
    ("idna", &["model"]),
];
/// Token sequences that only the listed modules or files may contain.
const REACH_HOMES: &[(&[&str], &[&str])] = &[
    (&["Utc", "::", "now"], &["clock"]),
    (&["Local", "::", "now"], &["clock"]),
    (&["SystemTime", "::", "now"], &["clock"]),
    (&["env", "::", "var"], &["config"]),
    (&["env", "::", "vars"], &["config"]),
    (&["env", "::", "var_os"], &["config"]),
    (&["env", "::", "args"], &["cli"]),
    (&["env", "::", "current_exe"], &["cli", "config"]),
    (&["env", "::", "temp_dir"], &["cli", "config"]),
    (&["use", "std", "::", "env"], &["config"]),
    (&["println", "!"], &["cli/printer.rs"]),
    (&["print", "!"], &["cli/printer.rs"]),
    (&["stdout", "(", ")", "."], &["cli/printer.rs", "files/output.rs"]),
    (&["io", "::", "stdout"], &["cli/printer.rs", "files/output.rs"]),
    (&["eprintln", "!"], &["cli"]),
    (&["dbg", "!"], &[]),
    (&["process", "::", "exit"], &["cli"]),
    // Only `files` renames over an existing file, because it follows links and keeps permissions. The other modules
    // move folders, or rename to an unused name.
    (
        &["fs", "::", "rename"],
        &["files", "load/store/parquet/disk.rs", "load/replace.rs", "pipeline/push/results.rs", "state/damage.rs"],
    ),
    // `files` makes files durable. The other modules append to a file, or write a file of their own format.
    (&["sync_all"], &["files", "load", "archive", "recordings/partial.rs", "pipeline/push/past_results.rs"]),
    (&["sync_data"], &["archive"]),
    // A command that takes the lease must use a session.
    (&["take_lease"], &["state", "pipeline/session.rs"]),
    (&["unsafe"], &["load/engine/arrow_scan.rs", "load/engine/row_visits.rs", "json/special_bytes.rs", "main.rs"]),
];

/// Module names without meaning.
const EMPTY_NAMES: &[&str] = &["utils", "util", "helpers", "helper", "common", "manager", "misc"];
const LINES_MAX: usize = 500;
/// The page that lists the folders.
const MAP: &str = "docs/architecture.md";

/// A source file: its path below the folder that is read, with `/`, and its text.
#[derive(Clone, Debug)]
struct SourceFile {
    place: String,
    text: String,
}

impl SourceFile {
    /// Maps `source/gate/shell.rs` to source, gate, shell; a `mod.rs` is its folder.
    fn module(&self) -> Vec<String> {
        let place = self.place.trim_end_matches(".rs").trim_end_matches("/mod");
        place.split('/').map(str::to_owned).collect()
    }

    fn is_at(&self, home: &str) -> bool {
        self.place == home || self.module()[0] == home
    }
}

/// Returns the other crates of this repository, by their folders in `crates/`.
fn other_crates() -> Vec<String> {
    let folders = std::fs::read_dir(root().join("crates")).unwrap();
    folders.map(|folder| folder.unwrap().file_name().into_string().unwrap()).collect()
}

/// The source files of all crates: `source/body.rs` of the program, `sandbox/control.rs` of the crate `sandbox`.
fn read_crates() -> Vec<SourceFile> {
    let mut files = read_folder("src");
    for name in other_crates() {
        let read = read_folder(&format!("crates/{name}/src"));
        files.extend(read.into_iter().map(|file| SourceFile { place: format!("{name}/{}", file.place), ..file }));
    }
    files
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every `.rs` file below a folder of the repository.
fn read_folder(name: &str) -> Vec<SourceFile> {
    let root = root().join(name);
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let parts = path.strip_prefix(&root).unwrap().iter().map(|part| part.to_str().unwrap());
                let place = parts.collect::<Vec<_>>().join("/");
                files.push(SourceFile { place, text: std::fs::read_to_string(&path).unwrap() });
            }
        }
    }
    files.sort_by(|left, right| left.place.cmp(&right.place));
    files
}

/// Returns the files that are not for tests only, with their tokens.
fn product_code(files: &[SourceFile]) -> Vec<(&SourceFile, Vec<Token>)> {
    let read: Vec<(&SourceFile, Vec<Token>)> = files.iter().map(|file| (file, tokens(&file.text))).collect();
    let for_tests: BTreeSet<Vec<String>> = read
        .iter()
        .flat_map(|(file, tokens)| {
            let inside = |name: String| [file.module(), vec![name]].concat();
            test_modules(tokens).into_iter().map(inside).collect::<Vec<_>>()
        })
        .collect();
    let is_product = |file: &SourceFile| {
        let module = file.module();
        !(1..=module.len()).any(|depth| for_tests.contains(&module[..depth]))
    };
    read.into_iter().filter(|(file, _)| is_product(file)).map(|(file, tokens)| (file, without_tests(&tokens))).collect()
}

fn wrong_arrows(files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for (file, tokens) in product_code(files) {
        let module = file.module();
        let own = module[0].as_str();
        if SEE_ALL.contains(&own) {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == own) else {
            problems.push(format!("{}: the module '{own}' has no line in ARROWS", file.place));
            continue;
        };
        for named in modules_named(&tokens, &module) {
            if named != own && !allowed.contains(&named.as_str()) {
                problems.push(format!("{}: {own} may not import {named}", file.place));
            }
        }
    }
    problems
}

fn strangers(files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for (file, tokens) in product_code(files) {
        let is_home = |homes: &[&str]| homes.iter().any(|home| file.is_at(home));
        for (name, homes) in CRATE_HOMES {
            if begins_path(&tokens, name) && !is_home(homes) {
                problems.push(format!("{}: the crate {name} lives in {}", file.place, homes.join(", ")));
            }
        }
        for (reach, homes) in REACH_HOMES {
            if has(&tokens, reach) && !is_home(homes) {
                problems.push(format!("{}: {} is for {homes:?} alone", file.place, reach.concat()));
            }
        }
    }
    problems
}

fn bad_habits(files: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        let place = &file.place;
        if !file.text.starts_with("//!") {
            problems.push(format!("{place}: does not open with '//!' and what it is for"));
        }
        let lines = file.text.lines().count();
        if lines > LINES_MAX {
            problems.push(format!("{place}: {lines} lines; at most {LINES_MAX}"));
        }
        if file.module().iter().any(|part| EMPTY_NAMES.contains(&part.as_str())) {
            problems.push(format!("{place}: a name that says nothing"));
        }
    }
    problems
}

fn assert_none(problems: Vec<String>) {
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn modules_import_only_what_their_arrows_allow() {
    let files = read_folder("src");
    assert!(files.len() > 50, "the sources were not found: {}", files.len());
    assert_none(wrong_arrows(&files));
}

#[test]
fn each_crate_and_each_reach_outside_has_one_home() {
    assert_none(strangers(&read_crates()));
}

#[test]
fn every_file_says_what_it_is_for_and_stays_small() {
    assert_none([read_crates(), read_folder("tests")].iter().flat_map(|files| bad_habits(files)).collect());
}

#[test]
fn the_map_names_every_folder() {
    // A package from a registry has no page to compare with.
    let Ok(map) = std::fs::read_to_string(root().join(MAP)) else {
        return;
    };
    let files = read_folder("src");
    let folders: BTreeSet<&str> = files.iter().filter_map(|file| file.place.split_once('/')).map(|at| at.0).collect();
    let folders = folders.into_iter().map(|folder| format!("src/{folder}"));
    let crates = other_crates().into_iter().map(|name| format!("crates/{name}"));
    let missing = folders.chain(crates).filter(|folder| !map.contains(folder));
    assert_none(missing.map(|folder| format!("{MAP} does not name {folder}")).collect());
}

/// Returns the crates of this repository that this crate depends on. The lock file also lists the dependencies of tests
/// and builds.
fn own_dependencies(lock: &toml::Table, name: &str) -> Vec<String> {
    let packages: Vec<&toml::Value> = lock["package"].as_array().unwrap().iter().collect();
    let own = packages.iter().filter(|package| package.get("source").is_none());
    let own: BTreeSet<&str> = own.map(|package| package["name"].as_str().unwrap()).collect();
    let package = packages.iter().find(|package| package["name"].as_str() == Some(name)).unwrap();
    let needed = package.get("dependencies").and_then(|needed| needed.as_array()).into_iter().flatten();
    needed.map(|needed| needed.as_str().unwrap()).filter(|needed| own.contains(needed)).map(str::to_owned).collect()
}

#[test]
fn the_sandbox_depends_on_no_crate_of_ours() {
    let lock: toml::Table = std::fs::read_to_string(root().join("Cargo.lock")).unwrap().parse().unwrap();
    assert_eq!(own_dependencies(&lock, "studysync-sandbox"), [""; 0]);
    assert_eq!(own_dependencies(&lock, "studysync"), ["studysync-sandbox"]);
}

#[test]
fn every_arrow_and_every_home_is_still_in_use() {
    let planned: [&str; 0] = [];
    let files = read_crates();
    let exists = |home: &str| planned.contains(&home) || files.iter().any(|file| file.is_at(home));
    let homes =
        CRATE_HOMES.iter().flat_map(|(_, homes)| *homes).chain(REACH_HOMES.iter().flat_map(|(_, homes)| *homes));
    let modules = ARROWS.iter().flat_map(|(name, allowed)| std::iter::once(name).chain(*allowed));
    let gone: BTreeSet<&str> = homes.chain(modules).copied().filter(|home| !exists(home)).collect();
    assert_none(gone.into_iter().map(|home| format!("the tables name {home}, which is not there")).collect());
}

fn made_up(place: &str, text: &str) -> Vec<SourceFile> {
    vec![SourceFile { place: place.to_owned(), text: text.to_owned() }]
}

#[test]
fn the_checker_sees_every_form_of_an_import() {
    let forms = [
        "use crate::config;",
        "use crate::config::Settings as S;",
        "use crate::{\n    model::{self, Window},\n    config::{Settings, resolve::{A, B}},\n};",
        "use crate::{self, model, config};",
        "pub(crate) use crate::config::*;",
        "fn f() { crate::config::resolve(); }",
        "fn f<T: crate::config::Trait>() {}",
        "use super::super::config;",
        "use super::super::{model, config::Settings};",
        "/* a /* nested */ comment */ use crate::config;",
        "fn f(a: &'static str) -> char { '\"' } use crate::config; fn g() { '\\'' }",
        "const T: &str = r#\"an \" odd text\"#; use crate::config;",
    ];
    for form in forms {
        let problems = wrong_arrows(&made_up("plan/due.rs", form));
        assert_eq!(problems, ["plan/due.rs: plan may not import config"], "{form}");
    }
}

#[test]
fn the_checker_leaves_alone_what_is_no_import() {
    let others = [
        "use crate::model::Window; use crate::plan::Due; use super::Due;",
        "// use crate::config;\n/// [`crate::config`]\nstruct A;",
        "const TEXT: &str = \"use crate::config;\"; const RAW: &str = r\"crate::config\";",
        "#[cfg(test)]\nmod tests {\n    use crate::config;\n    fn f() { if true {} }\n}",
        "#[cfg(test)]\nuse crate::config;\nuse crate::model;",
        "use super::config;",
    ];
    for other in others {
        assert_eq!(wrong_arrows(&made_up("plan/due.rs", other)), [""; 0], "{other}");
    }
    let after = "#[cfg(test)]\nmod tests {}\nuse crate::config;";
    assert_eq!(wrong_arrows(&made_up("plan/due.rs", after)).len(), 1);
    let mut files = made_up("load/mod.rs", "#[cfg(test)]\nmod conformance;");
    files.extend(made_up("load/conformance/pages.rs", "use crate::config;"));
    assert_eq!(wrong_arrows(&files), [""; 0]);
    files.extend(made_up("load/other.rs", "use crate::config;"));
    assert_eq!(wrong_arrows(&files).len(), 1);
    assert!(wrong_arrows(&made_up("newcomer.rs", "//! New.")).pop().unwrap().contains("no line in ARROWS"));
}

#[test]
fn the_checker_finds_crates_and_reaches_away_from_home() {
    let seen = |place: &str, text: &str| strangers(&made_up(place, text)).len();
    for (home, text) in [
        ("source/wire.rs", "use reqwest::Client;"),
        ("load/engine.rs", "fn f(c: &duckdb::Connection) {}"),
        ("cli/mod.rs", "use clap;"),
        ("source/backoff.rs", "use {backoff::ExponentialBackoff};"),
        ("clock.rs", "fn f() { chrono::Utc::now(); }"),
        ("config/resolve.rs", "fn f() { std::env::var(\"X\"); }"),
        ("cli/printer.rs", "fn f() { println!(\"x\"); io::stdout().lock(); }"),
    ] {
        assert_eq!(seen(home, text), 0, "{text}");
        assert!(seen("archive/store.rs", text) > 0, "{text}");
    }
    for harmless in [
        "struct A { duckdb: Option<u8> }",
        "use super::{x, duckdb::{file, y}};",
        "fn f(c: C) { c.stdout(p); env!(\"X\"); }",
    ] {
        assert_eq!(seen("cli/flags.rs", harmless), 0, "{harmless}");
    }
    assert_eq!(bad_habits(&made_up("plan/due.rs", "//! Fine.\n")), [""; 0]);
    assert_eq!(bad_habits(&made_up("plan/helpers.rs", &"x\n".repeat(501))).len(), 3);
}
