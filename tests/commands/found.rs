//! Where the configuration is found, what a command says without one, and what `init` and `config show` write.

use crate::harness::{Done, KEY, Place, Service, small};

fn bare(place: &Place, arguments: &[&str]) -> Done {
    Done::from(place.bare(arguments).output().unwrap())
}

/// A place without a configuration and without the key.
fn empty() -> Place {
    Place::at("http://127.0.0.1:1").without_config().with_env("STUDYSYNC_API_KEY", "")
}

#[test]
fn an_empty_folder_leads_to_init() {
    let place = empty();
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["status", "--max-lag", "26h"],
        &["plan"],
        &["check"],
        &["sync"],
        &["query", "SELECT 1"],
        &["report"],
        &["diff", "--since", "7d"],
        &["verify", "--from", "7d"],
        &["replay"],
        &["serve"],
        &["backfill", "--from", "2024-01-01"],
        &["erase", "--user-id", "x", "--dry-run"],
    ] {
        let done = bare(&place, arguments).expect(2);
        assert!(done.stderr.contains("no configuration here: "), "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.contains("hint: `studysync init` writes one"), "{arguments:?}: {}", done.stderr);
        assert_eq!(done.stdout, "", "{arguments:?}");
    }
    assert_eq!(place.files("."), Vec::<std::path::PathBuf>::new());
    // A service or a warehouse by flag is a configuration.
    let done = bare(&place, &["status", "--duckdb", "w.duckdb"]).expect(0);
    assert!(done.stdout.contains("Nothing was synced yet"), "{}", done.stdout);
    let done = bare(&place, &["sync", "--duckdb", "w.duckdb"]).expect(2);
    assert!(done.stderr.contains("no service is named"), "{}", done.stderr);
}

/// The file of the value of `[service] environment` in effect.
fn environment(place: &Place, arguments: &[&str]) -> (String, String) {
    let shown = bare(place, &[&["config", "show", "--json"], arguments].concat()).expect(0).json();
    let settings = shown["settings"].as_array().unwrap();
    let setting = settings.iter().find(|setting| setting["key"] == "environment").unwrap();
    (shown["config"].as_str().unwrap_or_default().to_owned(), setting["value"].as_str().unwrap().to_owned())
}

#[test]
fn a_flag_a_variable_and_the_folder_name_the_file() {
    let place = empty();
    for name in ["flag", "variable", "studysync"] {
        let text = format!("# {name}\n[service]\nenvironment = \"{name}\"\n");
        std::fs::write(place.path(&format!("{name}.toml")), text).unwrap();
    }
    assert_eq!(environment(&place, &[]), ("studysync.toml".to_owned(), "\"studysync\"".to_owned()));
    let place = place.with_env("STUDYSYNC_CONFIG", "variable.toml");
    assert_eq!(environment(&place, &[]), ("variable.toml".to_owned(), "\"variable\"".to_owned()));
    let named = environment(&place, &["--config", "flag.toml"]);
    assert_eq!(named, ("flag.toml".to_owned(), "\"flag\"".to_owned()));
    // The errors name the file that was read.
    let done = bare(&place, &["sync"]).expect(2);
    assert!(done.stderr.contains("under [service] in variable.toml"), "{}", done.stderr);
    let done = bare(&place, &["init"]).expect(2);
    assert!(done.stderr.contains("variable.toml exists already"), "{}", done.stderr);
}

/// Runs the program where /etc has only this file as studysync/studysync.toml. Returns `None` if this system does not
/// let the test mount a folder.
#[cfg(target_os = "linux")]
fn with_system_file(place: &Place, arguments: &str) -> Option<Done> {
    let program = env!("CARGO_BIN_EXE_studysync");
    let script = format!(
        "mount -t tmpfs none /etc && mkdir /etc/studysync && cp system.toml /etc/studysync/studysync.toml && echo mounted >&2 \
         && exec {program} {arguments}"
    );
    let mut command = place.bare(&[]);
    let variables: Vec<_> =
        command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
    command = std::process::Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", &script]).current_dir(place.root());
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let done = Done::from(command.output().ok()?);
    done.stderr.starts_with("mounted").then_some(done)
}

#[cfg(target_os = "linux")]
#[test]
fn the_file_of_the_system_is_used_in_any_folder() {
    let place = empty();
    std::fs::write(place.path("system.toml"), "[warehouse]\nduckdb = \"w.duckdb\"\n").unwrap();
    let Some(done) = with_system_file(&place, "config show") else { return };
    let text = done.expect(0).stdout;
    assert!(text.starts_with("# configuration: /etc/studysync/studysync.toml\n"), "{text}");
    assert!(text.contains("duckdb = \"/etc/studysync/w.duckdb\"") && text.contains("# line 2\n"), "{text}");
    std::fs::write(place.path("studysync.toml"), "[warehouse]\nduckdb = \"here.duckdb\"\n").unwrap();
    let text = with_system_file(&place, "config show").unwrap().expect(0).stdout;
    assert!(text.starts_with("# configuration: studysync.toml\n") && text.contains("\"here.duckdb\""), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_broken_file_of_the_system_stops_no_command_with_flags() {
    let service = Service::start(small(60, 3));
    let place = Place::new(&service).without_config();
    let file = place.duckdb().display().to_string();
    let run = format!("--base-url {} --duckdb {file} --state here.sqlite --archive none", service.base_url());
    for broken in ["[warehouse\n", "[warehouse]\nduckdb = 7\n"] {
        std::fs::write(place.path("system.toml"), broken).unwrap();
        // A run without the place of its checkpoints could begin new ones.
        let some = run.replace("--state here.sqlite", "");
        let Some(refused) = with_system_file(&place, &format!("sync {some}")) else { return };
        assert!(refused.expect(2).stderr.contains("error: /etc/studysync/studysync.toml: line "));
        let done = with_system_file(&place, &format!("sync {run}")).unwrap().expect(0);
        assert!(done.stderr.contains("WARN the configuration is not used"), "{}", done.stderr);
        let query = "query 'SELECT count(*) > 0 AS has FROM responses' --format csv";
        let done = with_system_file(&place, &format!("{query} --duckdb {file}")).unwrap().expect(0);
        assert_eq!(done.stdout, "has\ntrue\n");
        assert!(done.stderr.contains("/etc/studysync/studysync.toml"), "{}", done.stderr);
        with_system_file(&place, query).unwrap().expect(2);
        with_system_file(&place, &format!("{query} --duckdb {file} --config /etc/studysync/studysync.toml"))
            .unwrap()
            .expect(2);
    }
}

#[test]
fn config_show_names_the_origin_of_each_value() {
    let place = empty()
        .with_config("[service]\nbase_url = 'https://a.example'\ntimeout_secs = 9\n[streams.studies]\npage_rows = 7\n")
        .with_env("STUDYSYNC_THROTTLE_IN_FLIGHT_MAX", "3");
    let text = bare(&place, &["config", "show", "--duckdb", "w.duckdb", "--state", "s/s.sqlite"]).expect(0).stdout;
    let line = |start: &str| {
        let found = text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start}: {text}"));
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("base_url"), "base_url = \"https://a.example\" # line 2");
    assert_eq!(line("timeout_secs"), "timeout_secs = 9 # line 3");
    assert_eq!(line("in_flight_max"), "in_flight_max = 3 # STUDYSYNC_THROTTLE_IN_FLIGHT_MAX");
    assert_eq!(line("duckdb"), "duckdb = \"w.duckdb\" # --duckdb");
    assert_eq!(line("patience_secs"), "patience_secs = 3600 # default");
    assert_eq!(line("# publish"), "# publish is not set");
    assert!(text.contains("path = \"s/archive\"") || text.contains("path = \"s/s.sqlite.archive\""), "{text}");
    assert!(text.contains("[streams.surveys]") && text.contains("page_rows = 7"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("# default\nstatuses = [\"NEW\", "), "{text}");
    // The output is a configuration file with the same values.
    std::fs::write(place.path("again.toml"), &text).unwrap();
    let again = bare(&place, &["config", "show", "--config", "again.toml"]).expect(0).stdout;
    let values = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains(" = "));
        lines.map(|line| line.split_once("  #").map_or(line, |(value, _)| value).trim_end().to_owned()).collect()
    };
    assert_eq!(values(&again), values(&text));
    let refused = bare(&place.with_config("[service]\nauth = 'basic'\n"), &["config", "show"]).expect(2);
    assert!(refused.stderr.contains("studysync.toml: line 2: [service] auth: 'basic'"), "{}", refused.stderr);
}

#[test]
fn p11_config_show_prints_no_secret() {
    let place = Place::at("http://127.0.0.1:1").with_config(
        "[service]\nbase_url = 'https://me:s3cr3t@a.example'\napi_key_command = 'echo s3cr3t'\n\
         [serve]\ntoken_command = 'echo s3cr3t'\nstatus_token_env = 's3cr3t_lower'\ntoken_env = 's3cr3t_of_mine'\n\
         [notify]\nurl = 'https://hooks.example.com/s3cr3t'\ncommand = ['tell', '--token', 's3cr3t']\n",
    );
    for arguments in [&["config", "show"][..], &["config", "show", "--json"]] {
        let done = bare(&place, arguments).expect(0);
        assert!(!done.stdout.contains("s3cr3t") && !done.stdout.contains(KEY), "{}", done.stdout);
        assert!(done.stdout.contains("may contain a secret"), "{}", done.stdout);
    }
    let place = place.with_config("[service]\napi_key_file = 'sk_live_s3cr3t_0123456789'\n");
    assert!(!bare(&place, &["config", "show"]).expect(0).stdout.contains("s3cr3t"));
}

#[test]
fn init_writes_a_short_file_that_works() {
    let service = Service::start(small(100, 5));
    let place = Place::new(&service).without_config();
    let said = bare(&place, &["init", "--base-url", &format!(" {}/ ", service.base_url())]).expect(0).stdout;
    assert!(!said.contains("set base_url"), "{said}");
    let written = std::fs::read_to_string(place.path("studysync.toml")).unwrap();
    assert!(written.lines().count() <= 45 && written.contains("init --full"), "{written}");
    bare(&place, &["sync"]).expect(0);
    bare(&place, &["status"]).expect(0);
    for wrong in ["feedback.example.com", "https://", "ftp://x", "https://a b"] {
        let refused = bare(&empty(), &["init", "--base-url", wrong]).expect(2);
        assert!(refused.stderr.contains("such as https://feedback.example.com"), "{}", refused.stderr);
    }
    let place = empty();
    let said = bare(&place, &["init", "--full"]).expect(0).stdout;
    assert!(said.contains("set base_url in it") && said.ends_with("run `studysync check`.\n"), "{said}");
    let said = bare(&place, &["init", "other.toml"]).expect(0).stdout;
    assert!(said.ends_with("run `studysync check --config other.toml`.\n"), "{said}");
    let full = std::fs::read_to_string(place.path("studysync.toml")).unwrap();
    let long: Vec<&str> = full.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(long.is_empty() && full.contains("[notify]"), "{long:#?}");
}

#[test]
fn a_run_logs_which_configuration_it_read() {
    let service = Service::start(small(50, 3));
    let place = Place::new(&service);
    let done = place.run(&["sync"]).expect(0);
    assert!(done.stderr.contains("configuration read") && done.stderr.contains("studysync.toml"), "{}", done.stderr);
}
