//! Configuration files with valid and invalid values.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{declare::ValueType, resolve::resolve_with, setting_variables::SettingVariables, tables::ConfigFile, *};
use crate::model::{CatalogAddress, DriftMode, DriftRules, Flag, FlagSet, Location, Stream, WarehouseKind};

fn settings(text: &str) -> Result<Settings, String> {
    settings_with(text, &[])
}

fn settings_with(text: &str, variables: &[(&str, &str)]) -> Result<Settings, String> {
    let path = Path::new("/etc/studysync/studysync.toml");
    ConfigFile::parse(text, path)
        .and_then(|file| {
            resolve_with(file, &SettingVariables::of(variables), Some(path.to_owned()), Overrides::default())
        })
        .map_err(|error| error.to_string())
}

#[test]
fn the_comments_of_the_template_are_the_defaults() {
    let examples: BTreeSet<&str> = keys().filter(SettingKey::is_example).map(|key| key.name).collect();
    let written = settings(&template(true, None)).unwrap();
    // A long list has a line for each value.
    let full = template(true, None).replace("[\n#     ", "[").replace(",\n#     ", ", ").replace(",\n# ]", "]");
    let uncommented: String = full
        .lines()
        .filter(|line| {
            let setting = line.strip_prefix("# ").and_then(|line| line.split_once(" = "));
            // The file shows a second list of flags.
            setting.is_none_or(|(name, _)| name != "flags" && !examples.contains(name))
        })
        .map(|line| match line.strip_prefix("# ") {
            Some(setting) if setting.split_once(" = ").is_some_and(|(key, _)| !key.contains(' ')) => {
                format!("{setting}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    assert!(uncommented.lines().any(|line| line.starts_with("rescan")));
    let explicit = settings(&uncommented).unwrap();
    assert_eq!(format!("{written:?}"), format!("{explicit:?}"));
    assert_eq!(written.warehouse.locations, WarehouseKind::DuckDb.at("/etc/studysync/warehouse.duckdb"));
    assert_eq!(written.state_path, PathBuf::from("/etc/studysync/studysync-state/checkpoints.sqlite"));
    assert_eq!(written.archive_location, PathBuf::from("/etc/studysync/studysync-state/archive").into());
    assert_eq!(written.streams.len(), 3);
}

#[test]
fn an_unknown_key_error_has_its_line_and_the_nearest_key() {
    let error = settings("[service]\nbase_ulr = 'https://x.example'\n").unwrap_err();
    assert!(
        error.contains("line 2") && error.contains("'base_ulr'") && error.contains("did you mean 'base_url'?"),
        "{error}"
    );
    let error = settings("[streams.answers]\nenabled = true\n").unwrap_err();
    assert!(error.contains("no stream 'answers'"), "{error}");
    let error = settings("[streams.responses]\nflags = ['with_url']\n").unwrap_err();
    assert!(error.contains("no flag 'with_url'") && error.contains("with_urls"), "{error}");
}

#[test]
fn a_value_of_the_wrong_type_names_its_key() {
    for (text, expected) in [
        (
            "[service]\ntimeout_secs = \"ten\"\n",
            "line 2: [service] timeout_secs: expected a whole number of 0 or more, not a text",
        ),
        ("[service]\nbase_url = 5", "[service] base_url: expected a text in quotes, not this whole number"),
        ("[throttle]\nin_flight_max = -1", "[throttle] in_flight_max: expected a whole number of 0 or more"),
        (
            "[throttle]\nrequests_per_sec_max = true",
            "[throttle] requests_per_sec_max: expected a number, not true or false",
        ),
        ("[streams.responses]\nenabled = \"yes\"", "[streams.responses] enabled: expected true or false"),
        ("[streams.responses]\nflags = \"with_urls\"", "[streams.responses] flags: expected a list"),
        ("[warehouse]\nduckdb = 1", "[warehouse] duckdb: expected a text"),
        ("service = 1", "service: expected a table"),
    ] {
        let error = settings(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn p11_an_error_says_where_a_misplaced_secret_belongs() {
    for (text, expected) in [
        ("[service]\napi_key = \"s3cr3t\"", "api_key_file under [service]"),
        ("[service]\ntoken = \"s3cr3t\"", "STUDYSYNC_API_KEY"),
        ("[serve]\nsecret = \"s3cr3t\"", "STUDYSYNC_WEBHOOK_SECRET"),
        ("[service]\napi_key_env = \"s3cr3t-1\"", "the name of an environment variable"),
        ("[serve]\ntoken_env = \"s3cr3t 1\"", "the name of an environment variable"),
        ("[serve]\nstatus_token_env = \"s3cr3t 1\"", "the name of an environment variable"),
    ] {
        let error = settings(text).unwrap_err();
        assert!(error.contains(expected) && !error.contains("s3cr3t"), "{text}: {error}");
    }
    let lower = settings("[service]\napi_key_env = \"s3cr3t_of_mine\"").map(|_| ());
    assert_eq!(lower, Ok(()), "a variable may have any name");
}

#[test]
fn studies_is_another_name_of_surveys() {
    let read =
        settings("[streams.studies]\nenabled = false\n[streams.studies.drift]\ntype_clashes = 'freeze'").unwrap();
    assert!(read.streams.iter().all(|stream| stream.stream != Stream::Surveys));
    assert_eq!(read.drift.of(Stream::Surveys).type_clashes, DriftMode::Freeze);
    let both = settings("[streams.studies]\n[streams.surveys]\n").unwrap_err();
    assert!(both.contains("the same stream"), "{both}");
}

#[test]
fn a_file_may_begin_with_a_byte_order_mark() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("studysync.toml");
    let text = "\u{feff}[service]\r\nbase_url = 'https://a.example'\r\nenvironment = 'ü'\r\n";
    for bytes in [text.as_bytes().to_vec(), text.encode_utf16().flat_map(u16::to_le_bytes).collect()] {
        std::fs::write(&path, bytes).unwrap();
        let read = resolve(Overrides { config: Some(path.clone()), ..Overrides::default() }).unwrap();
        assert_eq!((read.base_url().unwrap(), read.service.environment.as_str()), ("https://a.example", "ü"));
    }
    std::fs::write(&path, b"# caf\xe9\n").unwrap();
    let error = resolve(Overrides { config: Some(path), ..Overrides::default() }).unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("not UTF-8"), "{error}");
}

#[test]
fn the_example_address_of_the_template_is_refused() {
    for unedited in
        [template(true, None), template(false, None), "[service]\nbase_url = \"https://api.example.com/\"".to_owned()]
    {
        let refused = settings(&unedited).unwrap().base_url().map(str::to_owned).unwrap_err().to_string();
        assert!(refused.contains("only an example"), "{refused}");
    }
    let empty = settings("[service]\nbase_url = \"\"").unwrap().base_url().map(str::to_owned).unwrap_err().to_string();
    assert!(empty.contains("no service is named"), "{empty}");
    let written = template(false, Some("https://a.example/\"x"));
    assert_eq!(settings(&written).unwrap().base_url().unwrap(), "https://a.example/\"x");
    assert!(!written.contains("example, which is refused"), "{written}");
}

#[test]
fn a_template_fits_into_80_columns_and_the_short_one_on_a_page() {
    for text in [template(true, None), template(false, None)] {
        let long: Vec<&str> = text.lines().filter(|line| line.len() > 80).collect();
        assert!(long.is_empty(), "{long:#?}");
    }
    let short = template(false, None);
    assert!((25..=45).contains(&short.lines().count()), "{short}");
    for key in ["base_url", "api_key_env", "flags", "since", "duckdb", "parquet"] {
        assert!(short.contains(&format!("{key} = ")), "{key}: {short}");
    }
}

#[test]
fn an_invalid_value_names_the_file_and_line() {
    for (text, expected) in [
        ("[service]\nauth = 'basic'", "studysync.toml: line 2: [service] auth: 'basic' is neither"),
        ("\n\n[streams.answers]\n", "line 3: [streams.answers]: there is no stream 'answers'"),
        ("[streams.studies]\nenabled = true\npage_rows = 0", "line 3: [streams.surveys] page_rows: 0 is not"),
        ("notify.on = []", "line 1: [notify] on: "),
        ("[warehouse]\nduckdb = '~bob/w.duckdb'", "line 2: [warehouse] duckdb: "),
    ] {
        let error = settings(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_key_of_another_table_names_that_table() {
    for (text, expected) in [
        (
            "base_url = 'https://a.example'",
            "line 1: there is no key 'base_url'; did you mean base_url under [service]?",
        ),
        ("[warehouse]\nbase_url = 'x'", "line 2: there is no key 'base_url'; did you mean base_url under [service]?"),
        ("[service]\npage_rows = 5", "page_rows under [streams.NAME]?"),
        ("[streams.themes]\nunknown_fields = 'freeze'", "unknown_fields under [streams.NAME.drift]?"),
        ("path = 'x'", "path under [state] or [archive] or [recordings]?"),
    ] {
        let error = settings(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn values_out_of_range_name_the_range() {
    for (text, expected) in [
        ("[streams.responses]\npage_rows = 1001", "between 1 and 1000"),
        ("[streams.responses]\npage_rows = 0", "between 1 and 1000"),
        ("[streams.themes]\nflags = ['with_urls']", "only responses"),
        ("[streams.themes]\nstatuses = ['NEW']", "only surveys"),
        ("[streams.surveys]\nstatuses = ['LIVE']", "IN_PROGRESS"),
        ("[streams.surveys]\nstatuses = []", "requests no survey"),
        ("[throttle]\nin_flight_max = 65", "between 1 and 64"),
        ("[throttle]\nrequests_per_sec_max = 0.0", "more than 0"),
        ("[streams.responses]\nrescan = ['30d daily', '3d every run']", "youngest"),
        ("[streams.responses]\nsince = 'yesterday'", "not a date"),
        ("[warehouse]\nmemory_limit_mb = 1", "less than 256"),
        (
            "[warehouse]\nmemory_limit_mb = 511\nduckdb = 'w.duckdb'\nparquet = 'p'",
            "less than 512: each warehouse needs at least 256",
        ),
        ("[warehouse]\nparquet = 's3://'", "names no bucket"),
        ("[warehouse]\nduckdb = 's3://bucket/x'", "cannot be in a bucket"),
        ("[warehouse]\nducklake = 'md:answers'", "cannot be in MotherDuck"),
        ("[state]\npath = 's3://bucket/x'", "may be in a bucket"),
        ("[warehouse]\nduckdb = '~bob/w.duckdb'", "[warehouse] duckdb: "),
        ("[state]\npath = '$HOME/s'", "[state] path: "),
        ("[service]\ntimeout_secs = 0", "between 1 and 86400"),
        ("[streams.themes]\nsettle_secs = 9223372036854775807", "[streams.themes] settle_secs: "),
        ("[service]\nauth = 'basic'", "neither"),
        ("[service", "line 1"),
        ("[notify]\non = []", "names no event"),
        ("[notify]\non = ['killed']", "neither 'failed'"),
        ("[notify]\nkind = 'irc'", "'irc' is none of 'slack', 'teams', 'google_chat', 'discord', 'generic'"),
        ("[notify]\nurl = 'http://'", "does not begin with"),
        ("[notify]\nurl = 'hooks.example.com/x'", "does not begin with"),
    ] {
        let error = settings(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn the_command_line_wins() {
    let text =
        "[service]\nbase_url = 'https://a.example/'\n[streams.themes]\nenabled = false\n[archive]\npath = 'none'";
    let file = ConfigFile::parse(text, Path::new("x")).unwrap();
    let overrides = Overrides {
        base_url: Some("http://127.0.0.1:1/".to_owned()),
        streams: vec![Stream::Themes],
        state: Some(PathBuf::from("/tmp/s/state.sqlite")),
        ..Overrides::default()
    };
    let variables = SettingVariables::of(&[("STUDYSYNC_SERVICE_BASE_URL", "http://127.0.0.1:2")]);
    let settings = resolve_with(file, &variables, None, overrides).unwrap();
    assert_eq!(settings.base_url().unwrap(), "http://127.0.0.1:1");
    assert_eq!(settings.streams.iter().map(|stream| stream.stream).collect::<Vec<_>>(), [Stream::Themes]);
    assert_eq!(
        (settings.archive.clone(), settings.archive_location.clone()),
        (ArchiveChoice::Nothing, PathBuf::from("/tmp/s/state.sqlite.spool").into())
    );
    assert!(settings.require_warehouse().unwrap_err().to_string().contains("--duckdb"));
}

#[test]
fn paths_of_a_ducklake_are_those_of_the_file() {
    for (written, expected) in [
        ("w.ducklake", "/etc/studysync/w.ducklake, /etc/studysync/w.ducklake.files"),
        ("w.ducklake?data=s3://b/f", "/etc/studysync/w.ducklake, s3://b/f"),
        ("w.ducklake?data=files", "/etc/studysync/w.ducklake, /etc/studysync/files"),
        ("postgres://h/d?data=files", "postgres://h/d?schema=studysync, /etc/studysync/files"),
        ("postgres://h/d?data=s3://b/f", "postgres://h/d?schema=studysync, s3://b/f"),
    ] {
        let settings = settings(&format!("[warehouse]\nducklake = '{written}'")).unwrap();
        let address = settings.warehouse.locations[&WarehouseKind::DuckLake].catalog.as_ref().unwrap().address.clone();
        let CatalogAddress::DuckLake { data, .. } = &address else { panic!("{written}") };
        assert_eq!(format!("{address}, {data}"), expected, "{written}");
    }
}

#[test]
fn workers_share_no_folder_of_pages() {
    let shard = || Overrides { shard: Some("1/2".parse().unwrap()), ..Overrides::default() };
    let read = |archive: &str, overrides| {
        let file = ConfigFile::parse(&format!("[archive]\npath = '{archive}'"), Path::new("x")).unwrap();
        resolve_with(file, &SettingVariables::of(&[]), None, overrides).map_err(|error| error.to_string())
    };
    let refused = read("/pages", shard()).unwrap_err();
    assert!(refused.contains("each worker needs a folder of its own"), "{refused}");
    for (archive, overrides) in [
        ("/pages", Overrides::default()),
        ("/pages", Overrides { archive: Some(ArchiveChoice::Folder("/mine".into())), ..shard() }),
        ("s3://bucket/pages", shard()),
        ("none", shard()),
    ] {
        read(archive, overrides).unwrap();
    }
}

#[test]
fn an_archive_in_a_bucket_has_its_spools_here() {
    let file = "[state]\npath = '/tmp/s/state.sqlite'\n[archive]\npath = 's3://bucket/pages/'\n";
    let of_file = settings(file).unwrap();
    let here = PathBuf::from("/tmp/s/state.sqlite.spool");
    let expected = Location::in_bucket("s3://bucket/pages/".parse().unwrap(), here);
    assert_eq!(of_file.archive_location, expected);
    assert_eq!(of_file.archive, ArchiveChoice::Folder("s3://bucket/pages/".into()));
    let variables = SettingVariables::of(&[("STUDYSYNC_ARCHIVE_PATH", "s3://bucket/pages")]);
    let read = resolve_with(ConfigFile::default(), &variables, None, Overrides::default()).unwrap();
    assert_eq!(read.archive_location.to_string(), "s3://bucket/pages");
    for (archive, parquet, expected) in [
        ("s3://bucket/a//b", "p", "[archive] path: 's3://bucket/a//b' is no address of a bucket"),
        ("s3://bucket/a/archive", "s3://bucket/a", "are in one another"),
        ("ftp://bucket/a", "p", "only [warehouse] parquet and [archive] path"),
    ] {
        let error = settings(&format!("[archive]\npath = '{archive}'\n[warehouse]\nparquet = '{parquet}'\n"));
        let error = error.unwrap_err();
        assert!(error.contains(expected), "{archive}: {error}");
    }
}

#[test]
fn deleted_answers_are_requested_by_default() {
    let flags = |text: &str| {
        let settings = settings(text).unwrap();
        settings.streams.iter().find(|stream| stream.stream == Stream::Responses).unwrap().flags
    };
    assert_eq!(flags(""), FlagSet::EMPTY.with(Flag::WithDeletedResponses));
    assert_eq!(flags("[streams.responses]\nflags = []"), FlagSet::EMPTY);
}

#[test]
fn disabled_streams_have_a_drift_policy_too() {
    let text = "[streams.themes]\nenabled = false\n[streams.themes.drift]\nunknown_fields = \"discard_row\"\n";
    let read = settings(text).unwrap();
    assert_eq!(read.drift.of(Stream::Themes).unknown_fields, DriftMode::DiscardRow);
    assert_eq!(read.drift.of(Stream::Themes).type_clashes, DriftMode::Evolve);
    assert_eq!(read.drift.of(Stream::Responses), DriftRules::default());
    let error = settings("[streams.surveys.drift]\ntype_clashes = \"discard\"\n").unwrap_err();
    for words in ["[streams.surveys.drift] type_clashes", "'discard'", "evolve, freeze, discard_row, discard_value"] {
        assert!(error.contains(words), "{error}");
    }
    let error = settings("[streams.surveys.drift]\nunknown_field = \"evolve\"\n").unwrap_err();
    assert!(error.contains("did you mean 'unknown_fields'?"), "{error}");
}

#[test]
fn the_environment_wins_over_the_file() {
    let text = "[service]\nbase_url = 'https://file.example'\nenvironment = 'file'\n[streams.studies]\npage_rows = 7\n";
    let read = settings_with(
        text,
        &[
            ("STUDYSYNC_SERVICE_BASE_URL", "https://env.example/"),
            ("STUDYSYNC_STREAMS_SURVEYS_ENABLED", "false"),
            ("STUDYSYNC_STREAMS_RESPONSES_FLAGS", "with_urls, with_meta"),
            ("STUDYSYNC_STREAMS_RESPONSES_RESCAN", "[\"3d every run\", \"all weekly\"]"),
            ("STUDYSYNC_STREAMS_RESPONSES_DRIFT_TYPE_CLASHES", "freeze"),
            ("STUDYSYNC_THROTTLE_REQUESTS_PER_SEC_MAX", "2"),
            ("STUDYSYNC_WAREHOUSE_DUCKDB", "w/x.duckdb"),
            ("STUDYSYNC_STATE_PATH", "~/s.sqlite"),
            ("STUDYSYNC_ARCHIVE_PATH", "none"),
            ("STUDYSYNC_SERVE_WEBHOOK", "off"),
            ("STUDYSYNC_API_KEY", "k"),
            ("STUDYSYNC_SERVICE_HOST", "10.0.0.1"),
            ("STUDYSYNC_SERVICE_PORT_HTTP", "80"),
            ("STUDYSYNC_SERVE_PORT_8788_TCP_ADDR", "10.0.0.1"),
        ],
    )
    .unwrap();
    assert_eq!((read.base_url().unwrap(), read.service.environment.as_str()), ("https://env.example", "file"));
    assert_eq!(
        read.streams.iter().map(|stream| stream.stream).collect::<Vec<_>>(),
        [Stream::Responses, Stream::Themes]
    );
    let flags = [Flag::WithUrls, Flag::WithMeta].into_iter().fold(FlagSet::EMPTY, FlagSet::with);
    assert_eq!(read.streams[0].flags, flags);
    assert_eq!(read.drift.of(Stream::Responses).type_clashes, DriftMode::Freeze);
    assert_eq!(read.throttle.requests_per_sec_max, Some(2.0));
    let here = std::env::current_dir().unwrap();
    assert_eq!(
        read.warehouse.locations,
        WarehouseKind::DuckDb.at(here.join("w/x.duckdb")),
        "relative to where the program runs"
    );
    assert!(read.state_path.ends_with("s.sqlite") && !read.state_path.starts_with("~"));
    assert_eq!((read.archive, read.serve.webhook), (ArchiveChoice::Nothing, None));
}

#[test]
fn an_error_names_the_invalid_variable() {
    for (name, text, expected) in [
        ("STUDYSYNC_THROTTLE_IN_FLIGHT_MAX", "four", "STUDYSYNC_THROTTLE_IN_FLIGHT_MAX: 'four' is not a whole number"),
        ("STUDYSYNC_STREAMS_RESPONSES_PAGE_ROWS", "1001", "STUDYSYNC_STREAMS_RESPONSES_PAGE_ROWS: 1001 is not between"),
        ("STUDYSYNC_SERVICE_AUTH", "basic", "STUDYSYNC_SERVICE_AUTH: 'basic' is neither"),
        ("STUDYSYNC_ERASE_GRACE_DAYS", "-1", "not a whole number of 0 or more"),
        ("STUDYSYNC_WAREHOUSE_FULL_TEXT_SEARCH", "yes", "neither true nor false"),
        ("STUDYSYNC_STATE_PATH", "s3://bucket/x", "STUDYSYNC_STATE_PATH: 's3://bucket/x' is an address"),
        ("STUDYSYNC_WAREHOUSE_DUCKDB", "$HOME/x", "variables are not expanded"),
        ("STUDYSYNC_STREAMS_RESPONSES_FLAGS", "[1, 2", "is not a list"),
        ("STUDYSYNC_SERVICE_BASE_ULR", "https://x", "did you mean STUDYSYNC_SERVICE_BASE_URL?"),
        ("STUDYSYNC_WAREHOUSE_DUCK_DB", "x", "did you mean STUDYSYNC_WAREHOUSE_DUCKDB?"),
        ("STUDYSYNC_DUCKDB", "x", "did you mean STUDYSYNC_WAREHOUSE_DUCKDB?"),
        ("STUDYSYNC_API_KEY_FILE", "x", "did you mean STUDYSYNC_SERVICE_API_KEY_FILE?"),
        ("STUDYSYNC_SERVE_PORT", "9000", "there is no such setting"),
    ] {
        let error = settings_with("", &[(name, text)]).unwrap_err();
        assert!(error.contains(expected), "{name}: {error}");
    }
    let secret = settings_with("", &[("STUDYSYNC_SERVICE_API_KEY", "s3cr3t")]).unwrap_err();
    assert!(secret.contains("STUDYSYNC_API_KEY") && !secret.contains("s3cr3t"), "{secret}");
    let named = "[service]\napi_key_env = 'STUDYSYNC_SERVICE_SECRET_KEY'\n";
    let named = settings_with(named, &[("STUDYSYNC_SERVICE_SECRET_KEY", "s3cr3t")]).map(|_| ());
    assert_eq!(named, Ok(()), "the file names it");
}

#[test]
fn a_variable_replaces_an_alternative_key_of_the_file() {
    let text = "[service]\napi_key_command = 'pass x'\n[notify]\nurl_file = 'hook'\n";
    let read = settings_with(
        text,
        &[("STUDYSYNC_SERVICE_API_KEY_FILE", "/k"), ("STUDYSYNC_NOTIFY_URL", "https://hooks.example.com/x")],
    )
    .unwrap();
    assert_eq!(read.service.api_key_source, SecretSource::File("/k".into()));
    assert!(read.notify.has_webhook());
    let both = [("STUDYSYNC_SERVICE_API_KEY_FILE", "/k"), ("STUDYSYNC_SERVICE_API_KEY_COMMAND", "pass x")];
    assert!(settings_with("", &both).unwrap_err().contains("keep one of the two"));
}

#[test]
fn a_number_that_is_too_large_names_its_key_or_variable() {
    let error = settings("[streams.responses]\npage_rows = 5000000000").unwrap_err();
    assert!(error.contains("[streams.responses] page_rows: expected a whole number from 0 to 4294967295"), "{error}");
    let variables = SettingVariables::of(&[
        ("STUDYSYNC_STREAMS_THEMES_SINCE", "30d"),
        ("STUDYSYNC_STREAMS_RESPONSES_PAGE_ROWS", "5000000000"),
    ]);
    let error = ConfigFile::default().with_variables(&variables).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("STUDYSYNC_STREAMS_RESPONSES_PAGE_ROWS: "), "{error}");
    assert!(error.contains("from 0 to 4294967295"), "{error}");
}

fn known_to_the_file(table: &str) -> BTreeSet<String> {
    let text = format!("[{table}]\nno_such_key = 1\n");
    let error = ConfigFile::parse(&text, Path::new("x")).unwrap_err().to_string();
    let names = error.split_once("known here: ").unwrap().1.trim_end_matches(')');
    names.split(", ").map(str::to_owned).collect()
}

#[test]
fn the_list_has_every_key_of_the_file() {
    let error = ConfigFile::parse("[no_such_table]\n", Path::new("x")).unwrap_err().to_string();
    let names = error.split_once("known here: ").unwrap().1.trim_end_matches(')');
    let listed: BTreeSet<String> = keys().map(|key| key.table.split('.').next().unwrap().to_owned()).collect();
    assert_eq!(listed, names.split(", ").map(str::to_owned).collect());
    for table in keys().map(|key| key.table).filter(|table| !table.starts_with("streams")) {
        let listed: BTreeSet<String> = keys().filter(|key| key.table == table).map(|key| key.name.to_owned()).collect();
        assert_eq!(listed, known_to_the_file(&table), "[{table}]");
    }
    let of_streams: BTreeSet<String> = keys()
        .filter(|key| key.table.split('.').count() == 2)
        .map(|key| key.name.to_owned())
        .chain(["drift".to_owned()])
        .collect();
    assert_eq!(of_streams, known_to_the_file("streams.responses"));
    let of_drift = keys().filter(|key| key.table == "streams.users.drift").map(|key| key.name.to_owned());
    assert_eq!(of_drift.collect::<BTreeSet<_>>(), known_to_the_file("streams.users.drift"));
}

#[test]
fn no_two_keys_share_a_variable() {
    let variables: BTreeSet<String> = keys().map(|key| key.variable()).collect();
    assert_eq!(variables.len(), keys().count());
    assert!(variables.contains("STUDYSYNC_STREAMS_RESPONSES_DRIFT_UNKNOWN_FIELDS"));
}

#[test]
fn a_tilde_is_expanded_in_every_path_of_the_file() {
    let is_path = |kind| matches!(kind, ValueType::Path | ValueType::PathOrNone | ValueType::PathOrTable);
    for key in keys().filter(|key| is_path(key.value_type)) {
        let error = settings(&format!("[{}]\n{} = \"~nobody/x\"\n", key.table, key.name)).unwrap_err();
        // The home folder of another user is refused, with the name of the setting.
        assert!(error.contains(&key.label()), "{}: {error}", key.label());
    }
}
