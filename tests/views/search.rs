//! The text search with and without DuckDB's extension `fts`, through the program and over HTTP, compared with a second
//! computation.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;
use studysync_sandbox::{ChangeRequest, ListName, RowKey};
use unicode_normalization::{UnicodeNormalization as _, char::is_combining_mark};

use super::{flows::open_answers, truth::Truth, warehouse::Warehouse};
use crate::harness::{ALL_FLAGS, DAY_MS, Place, Service, Tables, days_ago, expected::Expected, small};

const DAYS: i64 = 6;
/// The folder of an extension below DuckDB's folder of extensions, for the newest version whose extension can be
/// downloaded.
const PLATFORM: &str = "v1.5.5/linux_amd64";
/// The same for the version that the program is linked with.
const PLATFORM_LINKED: &str = "v1.5.6/linux_amd64";
const FILE: &str = "fts.duckdb_extension";
const SCHEMAS: &str = "SELECT count(*) FROM duckdb_schemas() WHERE schema_name LIKE 'fts%'";

/// Kana, Han and Thai: scripts without blanks between words.
const STANDS_ALONE: [std::ops::RangeInclusive<char>; 3] =
    ['\u{3040}'..='\u{30ff}', '\u{3400}'..='\u{9fff}', '\u{0e00}'..='\u{0e4f}'];

/// Hostile texts, each in its own session.
const TEXTS: &[(&str, &str)] = &[
    ("quote", "It's \"quoted\"; DROP TABLE responses; -- done"),
    ("wild", "100% of my_file \\ path * ?"),
    ("emoji", "😀😀 great 👍🏽"),
    ("only-emoji", "😀"),
    ("cyrillic", "Возврат денег — быстро! ЁЛКА"),
    ("chinese", "我要退款，太慢了"),
    ("chinese-other", "款式很好，不退"),
    ("hindi", "यह की किताब"),
    ("composed", "Café crème"),
    ("apart", "Cafe\u{301} noir"),
    ("unaccented", "cafe au lait"),
    ("blank", "   "),
    ("points", "...!?"),
    ("twice", "refund REFUND refund, please"),
    ("once", "a refund for the slow export of a very long report that nobody reads"),
    ("inside", "refundable"),
    ("digits", "error 404 at 10:30"),
    ("sharp", "Die Straße ist zu groß"),
    ("sharp-capitals", "DIE STRASSE IST GROSS"),
    ("sigma", "Μεγάλος δρόμος"),
    ("sigma-capitals", "ΜΕΓΆΛΟΣ ΔΡΌΜΟΣ"),
];

/// Search texts, and the sessions that contain all of their words.
const WANTED: &[(&str, &[&str])] = &[
    ("it''s", &["quote"]),
    ("DROP table", &["quote"]),
    ("my_file", &["wild"]),
    ("100%", &["wild"]),
    ("%", &["wild"]),
    ("_", &["wild"]),
    ("\\", &["wild"]),
    ("😀", &["emoji", "only-emoji"]),
    ("great", &["emoji"]),
    ("ДЕНЕГ возврат", &["cyrillic"]),
    ("елка", &["cyrillic"]),
    ("退款", &["chinese"]),
    ("款 退", &["chinese", "chinese-other"]),
    ("的", &[]),
    ("की", &["hindi"]),
    ("का", &[]),
    ("CAFÉ", &["composed", "apart", "unaccented"]),
    ("cafe\u{301} noir", &["apart"]),
    ("cafe", &["composed", "apart", "unaccented"]),
    ("refund", &["twice", "once"]),
    ("refund export", &["once"]),
    ("refund nothing", &[]),
    ("404", &["digits"]),
    ("10:30", &["digits"]),
    ("!?", &["points"]),
];

/// Search texts for a search without regard to case, and the sessions found, with and without an index.
const WANTED_IN_ANY_CASE: &[(&str, &[&str])] = &[
    ("strasse", &["sharp", "sharp-capitals"]),
    ("Straße", &["sharp", "sharp-capitals"]),
    ("STRAẞE", &["sharp", "sharp-capitals"]),
    ("GROSS", &["sharp", "sharp-capitals"]),
    ("δρόμος", &["sigma", "sigma-capitals"]),
    ("ΔΡΌΜΟΣ", &["sigma", "sigma-capitals"]),
    ("ΜΕΓΆΛΟΣ", &["sigma", "sigma-capitals"]),
    ("δρο\u{301}μος", &["sigma", "sigma-capitals"]),
];

fn long_word() -> String {
    "überlang".repeat(5000)
}

fn plant(service: &Service, session: &str, text: &str) {
    let at = "2026-01-29T10:00:00.000Z";
    let record = json!({
        "createdAt": at, "updatedAt": at, "deletedAt": null, "externalUserId": "", "questionId": 77, "questionText": "Why?",
        "questionType": "OPEN", "response": text, "responseGroupUid": format!("search-{session}"), "surveyId": 901, "visitorId": 5,
        "visitorUuid": format!("visitor-{session}"),
    });
    service.control().plant(ListName::Responses, &record.to_string(), None).unwrap();
}

fn service(responses: u64) -> Service {
    let service = Service::start(small(responses, DAYS as u32));
    TEXTS.iter().for_each(|(session, text)| plant(&service, session, text));
    plant(&service, "long", &long_word());
    service
}

/// The folder to which `scripts/test-tools.sh` downloads the extension and DuckDB's library of the same version.
fn tools() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("duckdb-extensions").join(PLATFORM)
}

/// The extension as `scripts/test-tools.sh` installs it. A program with DuckDB compiled in cannot load it.
pub fn extension() -> Option<PathBuf> {
    if platform() != PLATFORM {
        println!("SKIPPED: no fts {PLATFORM} in {} (scripts/test-tools.sh installs it)", tools().display());
        return None;
    }
    Some(tools().join(FILE))
}

/// The folder in which the program looks for the extension.
fn platform() -> &'static str {
    let is_there = tools().join(FILE).is_file() && tools().join("libduckdb.so").is_file();
    if is_there && !cfg!(feature = "bundled") { PLATFORM } else { PLATFORM_LINKED }
}

/// A place with the index enabled.
fn place(service: &Service, more: &str) -> Place {
    with_extensions(Place::new(service).with_config(&config(&format!("full_text_search = true\n{more}"))))
}

/// Gives the place its own home folder, and therefore its own folder of extensions. Its program uses DuckDB's library
/// of the extension's version.
pub fn with_extensions(place: Place) -> Place {
    let home = place.path("home").display().to_string();
    place.with_env("HOME", &home).with_env("LD_LIBRARY_PATH", &tools().display().to_string())
}

pub fn config(warehouse: &str) -> String {
    format!("{ALL_FLAGS}\n[warehouse]\n{warehouse}\n")
}

/// The path at which DuckDB looks for the extension of a place.
pub fn installed(place: &Place) -> PathBuf {
    place.path("home/.duckdb/extensions").join(platform()).join(FILE)
}

pub fn install(place: &Place, from: &Path) {
    let path = installed(place);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = std::fs::remove_file(&path);
    std::fs::copy(from, path).unwrap();
}

fn sessions(warehouse: &Warehouse, wanted: &str) -> BTreeSet<String> {
    let rows = warehouse.query(&format!("SELECT response_group_uid FROM search_answers('{wanted}')"));
    rows.into_iter().flatten().flatten().collect()
}

fn planted(sessions: &[&str]) -> BTreeSet<String> {
    sessions.iter().map(|session| format!("search-{session}")).collect()
}

/// The words of each current answer, as this test splits texts.
fn words_of_answers(service: &Service) -> BTreeMap<(String, String), Vec<String>> {
    let truth = Truth::of(&Expected::now(service));
    let words = |text: &str| -> Vec<String> {
        let mut words = vec![String::new()];
        for letter in text.nfd().filter(|letter| !is_combining_mark(*letter)) {
            let stands_alone = STANDS_ALONE.iter().any(|range| range.contains(&letter));
            if stands_alone || !letter.is_alphanumeric() {
                words.push(if stands_alone { letter.to_string() } else { String::new() });
            }
            match words.last_mut() {
                _ if stands_alone => words.push(String::new()),
                Some(word) if matches!(letter, 'ß' | 'ẞ') => word.push_str("ss"),
                Some(word) if letter.is_alphanumeric() => word.extend(letter.to_lowercase()),
                _ => {}
            }
        }
        words.retain(|word| !word.is_empty());
        words
    };
    let answers = open_answers(&truth).into_iter().filter_map(|row| {
        let text = row[6].clone().filter(|text| !text.trim().is_empty())?;
        Some(((row[0].clone()?, row[1].clone()?), words(&text)))
    });
    answers.collect()
}

/// Compares the results for many words of the service's answers with a second computation. Returns the number of words.
fn assert_follows(service: &Service, warehouse: &Warehouse) -> usize {
    let answers = words_of_answers(service);
    let mut holders: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for ((session, _), words) in &answers {
        for word in words.iter().filter(|word| word.is_ascii()) {
            holders.entry(word).or_default().insert(session.clone());
        }
    }
    for (word, wanted) in &holders {
        assert_eq!(&sessions(warehouse, word), wanted, "{word}");
    }
    holders.len()
}

#[test]
fn the_search_index_ranks_whole_words_best_first() {
    let Some(extension) = extension() else { return };
    let service = service(1500);
    let place = place(&service, "");
    install(&place, &extension);
    let done = place.run(&["backfill", "--from", &days_ago(DAYS + 2)]).expect(0);
    assert!(done.stderr.contains("made the index of words"), "{}", done.stderr);
    let warehouse = Warehouse::duckdb(&place);
    for (wanted, expected) in WANTED.iter().chain(WANTED_IN_ANY_CASE) {
        let found: BTreeSet<String> =
            sessions(&warehouse, wanted).into_iter().filter(|session| session.starts_with("search-")).collect();
        assert_eq!(found, planted(expected), "{wanted}");
    }
    assert_eq!(sessions(&warehouse, &long_word()), planted(&["long"]));
    assert_eq!(sessions(&warehouse, "überlang"), planted(&[]), "a part of a word");
    assert!(assert_follows(&service, &warehouse) > 20);
    assert_scores(&service, &warehouse);
    let columns = "SELECT string_agg(column_name || ' ' || column_type, ', ') FROM (DESCRIBE FROM search_answers('x'))";
    let parquet = Warehouse::parquet(&place);
    assert_eq!(warehouse.text(columns), parquet.text(columns), "the columns are a contract");
    assert!(warehouse.text(columns).unwrap().ends_with("answer VARCHAR, score DOUBLE"));
    let all = warehouse.text("SELECT count(*) FROM search_answers('')");
    assert_eq!(
        all,
        warehouse.text("SELECT count(*) FROM open_answers WHERE NOT is_empty"),
        "no word leaves nothing out"
    );
    // The program's own query, which loads no extension.
    let asked = place.run(&["query", "SELECT response_group_uid FROM search_answers('refund export')"]).expect(0);
    assert!(asked.stdout.contains("search-once"), "{}", asked.stdout);
    // `check` opens the file for writing.
    drop(warehouse);
    let check = place.run(&["check"]).expect(0);
    assert!(check.stdout.contains("ok   search"), "{}", check.stdout);
}

/// Asserts that each answer with a word has the BM25 score that is computed here, and that the best answer is first.
fn assert_scores(service: &Service, warehouse: &Warehouse) {
    let of_ascii = |words: &&Vec<String>| words.iter().filter(|word| *word == "export").count();
    let answers = words_of_answers(service);
    let lengths: BTreeMap<_, usize> = answers.iter().map(|(key, words)| (key, words.len())).collect();
    let n = answers.len() as f64;
    let mean = lengths.values().sum::<usize>() as f64 / n;
    let df = answers.values().filter(|words| of_ascii(words) > 0).count() as f64;
    let mut expected: BTreeMap<String, f64> = BTreeMap::new();
    for (key, words) in answers.iter().filter(|(_, words)| of_ascii(words) > 0) {
        let (tf, len) = (of_ascii(&words) as f64, lengths[key] as f64);
        let score = ((n - df + 0.5) / (df + 0.5) + 1.0).log10() * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * len / mean));
        expected.insert(format!("{} {}", key.0, key.1), score);
    }
    let rows = warehouse.query("SELECT response_group_uid || ' ' || question_id, score FROM search_answers('export')");
    let found: Vec<(String, f64)> =
        rows.into_iter().map(|row| (row[0].clone().unwrap(), row[1].as_deref().unwrap().parse().unwrap())).collect();
    assert_eq!(found.len(), expected.len());
    for (key, score) in &found {
        assert!((score - expected[key]).abs() < 1e-9, "{key}: {score}, {}", expected[key]);
    }
    assert!(found.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{found:?}");
}

#[test]
fn without_the_extension_the_plain_search_works_with_a_warning() {
    let service = service(300);
    let place = place(&service, "");
    let wanted: BTreeSet<String> = planted(&["twice", "once", "inside"]);
    let assert_plain = |done: &str, why: &str| {
        for named in ["full_text_search is on", why, "INSTALL fts", "extension_directory"] {
            assert!(done.contains(named), "{named}: {done}");
        }
        let warehouse = Warehouse::duckdb(&place);
        assert_eq!(sessions(&warehouse, "REFUND"), wanted);
        for (wanted, expected) in WANTED_IN_ANY_CASE {
            assert_eq!(sessions(&warehouse, wanted), planted(expected), "{wanted}");
        }
        assert_eq!(warehouse.text("SELECT count(score) FROM search_answers('refund')").as_deref(), Some("0"));
        assert_eq!(warehouse.text(SCHEMAS).as_deref(), Some("0"));
    };
    let done = place.run(&["backfill", "--from", &days_ago(DAYS + 2)]).expect(0);
    let missing = format!("there is no {}", installed(&place).display());
    assert_plain(&done.stderr, &missing);
    let check = place.run(&["check"]).expect(1);
    assert!(check.stdout.contains("FAIL search") && check.stdout.contains(&missing), "{}", check.stdout);
    assert!(check.stdout.contains("hint: install it"), "{}", check.stdout);
    // A file that is not an extension.
    std::fs::create_dir_all(installed(&place).parent().unwrap()).unwrap();
    std::fs::write(installed(&place), vec![b'x'; 4096]).unwrap();
    assert_plain(&place.run(&["sync"]).expect(0).stderr, "cannot be loaded");
    place.run(&["check"]).expect(1);
}

#[test]
fn the_search_index_follows_edits_and_deletions() {
    let Some(extension) = extension() else { return };
    let service = service(1200);
    let folder = tempfile::tempdir().unwrap();
    let place =
        place(&service, &format!("extension_directory = \"{}\"\npublish = \"copy.duckdb\"", folder.path().display()));
    std::fs::create_dir_all(folder.path().join(PLATFORM)).unwrap();
    std::fs::copy(&extension, folder.path().join(PLATFORM).join(FILE)).unwrap();
    place.run(&["backfill", "--from", &days_ago(DAYS + 2)]).expect(0);
    let made = |done: &crate::harness::Done| done.stderr.contains("made the index of words");
    service.change(&ChangeRequest {
        edits: 150,
        soft_deletes: 60,
        new_answers: 100,
        within_ms: Some(DAY_MS),
        ..ChangeRequest::default()
    });
    plant(&service, "once", "the money back, please");
    service.control().remove_row(&RowKey { group: "search-cyrillic".into(), question: "77".into() });
    service.advance_days(1);
    let done = place.run(&["sync"]).expect(0);
    assert!(made(&done), "{}", done.stderr);
    let warehouse = Warehouse::duckdb(&place);
    assert!(assert_follows(&service, &warehouse) > 20);
    assert_eq!(sessions(&warehouse, "refund"), planted(&["twice"]));
    assert_eq!(sessions(&warehouse, "money back"), planted(&["once"]));
    assert_eq!(sessions(&warehouse, "денег"), planted(&[]));
    drop(warehouse);
    assert_eq!(Tables::duckdb(&place.path("copy.duckdb")).count("SELECT count(*) FROM search_answers('money')"), 1);
    let before = std::fs::metadata(place.duckdb()).unwrap().modified().unwrap();
    place.run(&["sync"]).expect(0);
    let idle = place.run(&["sync"]).expect(0);
    assert!(!made(&idle), "{}", idle.stderr);
    assert!(std::fs::metadata(place.duckdb()).unwrap().modified().unwrap() >= before);
}

/// Runs a command that is killed when it opens a file; returns false if strace is missing.
fn is_killed_at(place: &Place, path: &Path, arguments: &[&str]) -> bool {
    let own = place.command(arguments);
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=openat", "-e", "inject=openat:signal=KILL", "-P"]);
    traced.arg(path).arg(own.get_program()).args(own.get_args()).current_dir(place.root());
    traced.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let Ok(done) = traced.output() else { return false };
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.signal() == Some(9) || done.status.code() == Some(137), "{:?}: {said}", done.status);
    true
}

#[test]
fn p2_the_next_run_indexes_what_a_kill_left_out() {
    let Some(extension) = extension() else { return };
    let service = service(600);
    let place = place(&service, "");
    install(&place, &extension);
    place.run(&["backfill", "--from", &days_ago(DAYS + 2)]).expect(0);
    plant(&service, "twice", "another text");
    service.control().remove_row(&RowKey { group: "search-once".into(), question: "77".into() });
    plant(&service, "new", "a refund for me");
    service.advance_days(1);
    // The engine opens the extension after every answer is committed and before an index exists.
    if !is_killed_at(&place, &installed(&place), &["sync"]) {
        return println!("SKIPPED: there is no strace");
    }
    // The search joins the old index to the current answers: it does not find deleted answers, and does not yet find
    // new ones.
    let warehouse = Warehouse::duckdb(&place);
    let texts = "SELECT string_agg(answer, ';' ORDER BY answer) FROM search_answers('refund')";
    assert_eq!(warehouse.text(texts).as_deref(), Some("another text"));
    assert_eq!(
        warehouse.text("SELECT count(*) FROM open_answers WHERE answer = 'a refund for me'").as_deref(),
        Some("1")
    );
    drop(warehouse);
    install(&place, &extension);
    let done = place.run(&["sync"]).expect(0);
    assert!(done.stderr.contains("made the index of words"), "{}", done.stderr);
    let warehouse = Warehouse::duckdb(&place);
    assert_eq!(sessions(&warehouse, "refund"), planted(&["new"]));
    assert!(assert_follows(&service, &warehouse) > 20);
}

#[test]
fn the_next_run_drops_a_disabled_or_unusable_index() {
    let Some(extension) = extension() else { return };
    let service = service(200);
    let place = place(&service, "");
    install(&place, &extension);
    let with_index = |place: &Place| {
        let done = place.run(&["backfill", "--from", &days_ago(DAYS + 2)]).expect(0);
        let warehouse = Warehouse::duckdb(place);
        assert_eq!(warehouse.text(SCHEMAS).as_deref(), Some("1"), "{}", done.stderr);
        assert_eq!(sessions(&warehouse, "refund"), planted(&["once", "twice"]));
    };
    let assert_plain = |place: &Place| {
        let warehouse = Warehouse::duckdb(place);
        assert_eq!(warehouse.text(SCHEMAS).as_deref(), Some("0"));
        assert_eq!(sessions(&warehouse, "refund"), planted(&["once", "twice", "inside"]));
        let left = "SELECT count(*) FROM _studysync WHERE key LIKE 'search%'";
        assert_eq!(warehouse.text(left).as_deref(), Some("0"));
    };
    with_index(&place);
    std::fs::remove_file(installed(&place)).unwrap();
    let done = place.run(&["sync"]).expect(0);
    assert!(done.stderr.contains("there is no "), "{}", done.stderr);
    assert_plain(&place);
    install(&place, &extension);
    with_index(&place);
    let place = place.with_config(&config(""));
    let done = place.run(&["sync"]).expect(0);
    assert!(done.stderr.contains("dropped the index of words"), "{}", done.stderr);
    assert_plain(&place);
    // A replay builds another file, with an index.
    let place = place.with_config(&config("full_text_search = true"));
    with_index(&place);
    place.run(&["replay"]).expect(0);
    with_index(&place);
    place.run(&["verify", "--from", &days_ago(DAYS + 2)]).expect(0);
    let without = Place::new(&service).without_duckdb().with_config(&config("full_text_search = true"));
    let refused = without.run(&["sync"]).expect(2);
    assert!(refused.stderr.contains("[warehouse] full_text_search"), "{}", refused.stderr);
}
