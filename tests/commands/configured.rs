//! Settings from environment variables and from commands that print secrets, and the output of `--help`.

use crate::harness::{Done, KEY, Place, Service, small};

/// Sets by environment variables what other tests set by flags.
fn by_variables(service: &Service) -> Place {
    Place::new(service)
        .without_config()
        .with_env("STUDYSYNC_API_KEY", "")
        .with_env("STUDYSYNC_SERVICE_BASE_URL", &service.base_url())
        .with_env("STUDYSYNC_SERVICE_API_KEY_COMMAND", &format!("printf '%s\\n' {KEY} | cat"))
        .with_env("STUDYSYNC_WAREHOUSE_DUCKDB", "here/w.duckdb")
        .with_env("STUDYSYNC_STATE_PATH", "here/state.sqlite")
        .with_env("STUDYSYNC_STREAMS_THEMES_ENABLED", "false")
        .with_env("STUDYSYNC_STREAMS_RESPONSES_PAGE_ROWS", "100")
}

fn bare(place: &Place, arguments: &[&str]) -> Done {
    Done::from(place.bare(arguments).output().unwrap())
}

#[test]
fn environment_variables_alone_configure_a_sync() {
    let service = Service::start(small(900, 12));
    let place = by_variables(&service);
    let report = bare(&place, &["sync", "--json"]).expect(0).json();
    assert!(report["streams"]["responses"]["inserted"].as_u64().unwrap() > 100, "{report}");
    assert!(report["streams"].get("themes").is_none(), "{report}");
    assert!(place.path("here/w.duckdb").exists() && place.path("here/state.sqlite").exists());
    let limits: Vec<_> =
        service.log().into_iter().flat_map(|entry| entry.query).filter(|(name, _)| name == "limit").collect();
    assert!(limits.iter().any(|(_, rows)| rows == "100"), "{limits:?}");
    // Flags win over variables, and the program reads the configuration file that a variable names.
    std::fs::write(place.path("elsewhere.toml"), "[service]\nenvironment = 'other'\n").unwrap();
    let place = place.with_env("STUDYSYNC_CONFIG", "elsewhere.toml");
    let other = bare(&place, &["sync"]).expect(2);
    assert!(other.stderr.contains("'other'"), "another label than the state file's: {}", other.stderr);
    // The folder of a mistyped path is not created.
    let own = ["sync", "--state", "own/state.sqlite", "--duckdb", "own/w.duckdb"];
    let mistyped = bare(&place, &own).expect(2);
    assert!(
        mistyped.stderr.contains("--duckdb: there is no folder own;") && !place.path("own").exists(),
        "{mistyped:?}"
    );
    std::fs::create_dir(place.path("own")).unwrap();
    bare(&place, &own).expect(0);
    assert!(place.path("own/w.duckdb").exists());
}

#[test]
fn an_error_names_the_variable_or_command_that_failed() {
    let service = Service::start(small(100, 5));
    for (name, text, expected) in [
        ("STUDYSYNC_STREAMS_RESPONSES_PAGE_ROWS", "many", "STUDYSYNC_STREAMS_RESPONSES_PAGE_ROWS: 'many'"),
        ("STUDYSYNC_STREAMS_RESPONSES_PAGE_ROW", "10", "did you mean STUDYSYNC_STREAMS_RESPONSES_PAGE_ROWS?"),
        (
            "STUDYSYNC_SERVICE_API_KEY_COMMAND",
            "exit 7",
            "[service] api_key_command: the command ended with exit code 7",
        ),
        ("STUDYSYNC_CONFIG", "missing.toml", "missing.toml"),
    ] {
        let refused = bare(&by_variables(&service).with_env(name, text), &["sync"]).expect(2);
        assert!(refused.stderr.contains(expected), "{name}: {}", refused.stderr);
    }
    for name in ["STUDYSYNC_STATE_PATH", "STUDYSYNC_CONFIG", "STUDYSYNC_API_KEY"] {
        use std::os::unix::ffi::OsStrExt as _;
        let text = std::ffi::OsStr::from_bytes(b"here/\xff");
        let refused = Done::from(by_variables(&service).bare(&["sync"]).env(name, text).output().unwrap()).expect(2);
        assert!(refused.stderr.contains(&format!("{name}: its value is not UTF-8")), "{}", refused.stderr);
    }
    assert_eq!(service.log().len(), 0);
}

#[test]
fn first_guesses_at_help_and_schema_work() {
    let place = Place::at("http://127.0.0.1:1");
    let said = |arguments: &[&str]| bare(&place, arguments).expect(0).stdout;
    assert_eq!(said(&["help", "sync"]), said(&["sync", "--help"]));
    assert!(said(&["help", "users", "push"]).contains("Examples:\n  studysync users push users.csv"));
    let overview = said(&["--help"]);
    assert!(overview.lines().all(|line| line.len() <= 80), "{overview}");
    let themes = said(&["schema", "--format", "md", "themes", "theme_trend"]);
    assert_eq!(themes.lines().filter(|line| line.starts_with("## ")).count(), 2, "{themes}");
    // `schema | less` is for people, too.
    let text = said(&["schema", "responses"]);
    assert!(said(&["schema"]).starts_with("Tables, and the meaning of one row:"));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.starts_with("responses: ") && text.contains(" answer_number "), "{text}");
    let unknown = bare(&place, &["schema", "response"]).expect(2);
    assert!(unknown.stderr.contains("did you mean 'responses'?"), "{}", unknown.stderr);
}

#[test]
fn wrong_values_are_refused_when_the_file_is_read() {
    let service = Service::start(small(100, 5));
    let mut place = Place::new(&service).with_config("[serve]\nschedule = \"0 25 * * *\"\n");
    let refused = place.run(&["sync"]).expect(2);
    assert!(refused.stderr.contains("line 2: [serve] schedule: '0 25 * * *' is not a time"), "{}", refused.stderr);
    place = place.with_config("[serve]\ntimezone = \"Mars/Olympus\"\n");
    let refused = place.run(&["sync"]).expect(2);
    assert!(refused.stderr.contains("line 2: [serve] timezone: there is no zone"), "{}", refused.stderr);
    place = place.with_config("");
    place.set_base_url(format!("{}/v1/responses/", service.base_url()));
    let refused = place.run(&["sync"]).expect(2);
    assert!(refused.stderr.contains("--base-url: leave out /v1/responses at its end"), "{}", refused.stderr);
    place = place.with_config("[service]\nbase_url = \"http://127.0.0.1:1/v1/themes\"\n");
    let refused = bare(&place, &["plan"]).expect(2);
    assert!(refused.stderr.contains("line 2: [service] base_url: leave out /v1/themes"), "{}", refused.stderr);
}

#[test]
fn an_ignored_variable_names_the_nearest_known_one() {
    let service = Service::start(small(100, 5));
    for (name, meant) in
        [("STUDYSYNC_APIKEY", "STUDYSYNC_API_KEY"), ("STUDYSYNC_BASEURL", "STUDYSYNC_SERVICE_BASE_URL")]
    {
        let warned = by_variables(&service).with_env(name, "x").run(&["plan"]).expect(0);
        let warning = format!("{name} is ignored: no setting has this name; did you mean {meant}?");
        assert_eq!(warned.stderr.matches(&warning).count(), 1, "{}", warned.stderr);
    }
    // Names of other programs with the same prefix, and the variables of a notification.
    for name in ["STUDYSYNC_SEEDS", "STUDYSYNC_WRITE", "STUDYSYNC_EVENT", "STUDYSYNC_SERVICE_HOST"] {
        let quiet = by_variables(&service).with_env(name, "1").run(&["plan"]).expect(0);
        assert!(!quiet.stderr.contains("is ignored"), "{}", quiet.stderr);
    }
}
