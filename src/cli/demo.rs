//! `studysync demo`: shows the program in under a minute, with the commands that a user would type.
//!
//! The sandbox runs as a separate process on a free port. Each step runs this program once more.

use std::{
    fs::OpenOptions,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use clap::Args;

use crate::{
    clock,
    config::{CONFIG_FILE_NAME, keys},
    model::{DAY_MS, format_ms},
};

use super::{
    CommandError, Context,
    http::{Response, request},
};

const KEY: &str = "demo-key";
const DAYS: i64 = 90;
/// The key that says where DuckDB's extensions are.
const EXTENSIONS: &str = "[warehouse] extension_directory";
/// Time limit of a control call.
const TIMEOUT: Duration = Duration::from_secs(60);
const CHANGES: &str = r#"{"seed":7,"new_answers":600,"edits":40,"soft_deletes":12,"vanish_visitors":1,"status_changes":1,"status_to":"PAUSED","late":8,"within_ms":1728000000}"#;

/// Shows a backfill, a nightly sync and SQL on generated data.
///
/// The demo writes a DuckDB file and a Parquet folder to a temporary folder, which stays. With --parquet or --iceberg
/// it writes only that warehouse, for example to a bucket. At its end it prints three commands to try on the data.
///
/// Exit codes: 0 shown; 1 a step failed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync demo
  studysync demo --responses 5000 --folder demo")]
pub(super) struct DemoArgs {
    /// Answers to generate
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    responses: u64,

    /// Folder to write to [default: a new temporary folder]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,

    /// The only warehouse: a Parquet folder, or s3://, gs:// or az://BUCKET/FOLDER
    #[arg(long, value_name = "PATH")]
    parquet: Option<PathBuf>,

    /// The only warehouse: an Iceberg REST catalog, https://HOST?warehouse=NAME&namespace=NAME
    #[arg(long, value_name = "ADDRESS", conflicts_with = "parquet")]
    iceberg: Option<String>,
}

impl DemoArgs {
    /// Returns the only warehouse, as a key of the configuration file and its value; `None` for those of the demo.
    fn warehouse(&self) -> Option<(&'static str, String)> {
        let parquet = self.parquet.as_ref().map(|path| ("parquet", path.to_string_lossy().into_owned()));
        parquet.or_else(|| self.iceberg.clone().map(|address| ("iceberg", address)))
    }
}

/// Shows the demo step by step, and prints how long it took.
pub(super) fn run(args: &DemoArgs, context: Context) -> Result<u8, CommandError> {
    let started = Instant::now();
    let demo = Demo::start(args, &context)?;
    let from = format_ms((clock::now_ms() - DAYS * DAY_MS).div_euclid(DAY_MS) * DAY_MS);
    demo.explain(&format!(
        "A study feedback service with {} answers of {DAYS} days is listening on\n{}. First night: a backfill.",
        args.responses, demo.service.base_url
    ))?;
    demo.studysync(&["backfill", "--from", &from])?;
    demo.service.post("/_sandbox/clock", &format!("{{\"advance_ms\":{DAY_MS}}}"))?;
    demo.service.post("/_sandbox/changes", CHANGES)?;
    demo.explain(
        "A day passes at the service: new answers, late answers, edits, deletions, a purged visitor, a paused survey. Its \
         clock is now a day ahead of this machine's, which the run reports.\n\
         Second night: the command that cron would run.",
    )?;
    demo.studysync(&["sync"])?;
    demo.explain("What the second night changed:")?;
    demo.query(WHAT_CHANGED)?;
    demo.query(ONE_EDIT)?;
    demo.query(STATUS_CHANGES)?;
    demo.explain("Is everything in the warehouse?")?;
    demo.studysync(&["status"])?;
    demo.explain("Three questions, in plain SQL. Which options do people choose?")?;
    demo.query(CHOICES)?;
    demo.explain("Which themes do answers have?")?;
    demo.query(THEMES)?;
    demo.explain("What is our NPS by month?")?;
    demo.query(NPS_BY_MONTH)?;
    let folder = demo.folder.display();
    let written = match args.warehouse() {
        None => format!("The folder {folder} has the warehouses (warehouse.duckdb, parquet/) and the configuration."),
        Some((_, place)) => format!("The warehouse is {place}.\nThe folder {folder} has the configuration."),
    };
    demo.explain(&format!(
        "This took {:.0} s. {written}\nTo explore the data, paste:\n\n{}\nRemove the folder when you are done.",
        started.elapsed().as_secs_f64(),
        demo.commands_to_paste()
    ))?;
    Ok(0)
}

const WHAT_CHANGED: &str = "\
SELECT reason, count(*) AS answers FROM response_history GROUP BY reason
UNION ALL SELECT 'new', count(*) FROM responses
WHERE _run_id = (SELECT max(_run_id) FROM responses)
  AND _first_seen_at = _synced_at
ORDER BY reason";

const ONE_EDIT: &str = "\
SELECT h.question_type, h.answer_json AS was, r.answer_json AS is_now,
  h.valid_to AS found_at
FROM response_history h
JOIN responses r USING (response_group_uid, question_id)
WHERE h.reason = 'edited' AND h.answer_json <> r.answer_json
  AND length(r.answer_json) < 40 AND length(h.answer_json) < 40
ORDER BY h.created_at, h.question_id LIMIT 3";

const STATUS_CHANGES: &str = "\
SELECT s.name, c.old_status, c.new_status
FROM survey_status_changes c JOIN surveys s ON s.id = c.survey_id
WHERE c.old_status IS NOT NULL ORDER BY s.name";

const NPS_BY_MONTH: &str = "\
SELECT strftime(created_at, '%Y-%m') AS month, count(*) AS answers,
  count(*) FILTER (answer_number >= 9) AS promoters,
  count(*) FILTER (answer_number <= 6) AS detractors,
  round(100.0 * (promoters - detractors) / answers, 1) AS nps
FROM responses
WHERE question_type = 'NPS' AND NOT is_skipped
  AND deleted_at IS NULL AND _vanished_at IS NULL
GROUP BY month ORDER BY month";

const CHOICES: &str = "\
SELECT c.label, count(*) AS chosen
FROM response_choices c
JOIN responses r USING (response_group_uid, question_id)
WHERE r.deleted_at IS NULL AND r._vanished_at IS NULL AND c.label IS NOT NULL
GROUP BY c.label ORDER BY chosen DESC, c.label LIMIT 5";

const THEMES: &str = "\
SELECT theme, count(*) AS answers FROM themes
WHERE _vanished_at IS NULL
GROUP BY theme ORDER BY answers DESC, theme LIMIT 5";

/// The files and folders that the demo creates in its folder.
const CREATED: [&str; 4] = [CONFIG_FILE_NAME, "warehouse.duckdb", "parquet", "state"];

fn config(base_url: &str, warehouse: Option<(&str, String)>) -> String {
    let warehouses = match warehouse {
        None => "duckdb = \"warehouse.duckdb\"\nparquet = \"parquet\"".to_owned(),
        Some((key, place)) => format!("{key} = {}", toml::Value::from(place)),
    };
    format!(
        "# Written by `studysync demo`. Its service has ended; `studysync sandbox` starts another.\n\
         [service]\nbase_url = \"{base_url}\"\n\n\
         [warehouse]\n{warehouses}\n\n\
         [state]\npath = \"state/checkpoints.sqlite\"\n"
    )
}

struct Demo<'a> {
    program: PathBuf,
    folder: PathBuf,
    service: Service,
    context: &'a Context,
}

impl<'a> Demo<'a> {
    /// Creates the folder, starts the sandbox, and writes the configuration file. Fails if the folder has files of an
    /// earlier demo.
    fn start(args: &DemoArgs, context: &'a Context) -> Result<Self, CommandError> {
        let program = std::env::current_exe().map_err(CommandError::failed("cannot find the path of this program"))?;
        let folder = match &args.folder {
            Some(folder) => folder.clone(),
            None => std::env::temp_dir().join(format!("studysync-demo-{}", clock::now_ms())),
        };
        std::fs::create_dir_all(&folder)
            .map_err(CommandError::failed(format!("cannot create {}", folder.display())))?;
        // An existing file may belong to the user, or to an earlier demo.
        if let Some(existing) = CREATED.iter().map(|name| folder.join(name)).find(|path| path.exists()) {
            return Err(CommandError::Usage(format!("{} exists already: name another --folder", existing.display())));
        }
        let path = folder.join(CONFIG_FILE_NAME);
        let failed = CommandError::failed(format!("cannot write {}", path.display()));
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(&failed)?;
        let service = Service::start(&program, args.responses)?;
        file.write_all(config(&service.base_url, args.warehouse()).as_bytes()).map_err(failed)?;
        Ok(Self { program, folder, service, context })
    }

    /// Returns three command lines for a shell that explore the data.
    fn commands_to_paste(&self) -> String {
        let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
        let (folder, program) = (quoted(&self.folder), quoted(&self.program));
        format!(
            "  cd {folder}\n  {program} query \"FROM nps_by_week ORDER BY week\"\n  {program} report --out report.html\n"
        )
    }

    fn explain(&self, text: &str) -> Result<(), CommandError> {
        self.context.printer.print_wrapped(&format!("\n{text}"))
    }

    /// Prints a command line and runs it.
    fn studysync(&self, arguments: &[&str]) -> Result<(), CommandError> {
        self.context.printer.print_wrapped(&format!("\n$ studysync {}", arguments.join(" ")))?;
        self.command(arguments)
    }

    fn query(&self, sql: &str) -> Result<(), CommandError> {
        self.context.printer.print_wrapped(&format!("\n$ studysync query \"{sql}\""))?;
        self.command(&["query", sql])
    }

    /// Runs this program with the arguments in the folder of the demo. Fails if its exit code is not 0.
    fn command(&self, arguments: &[&str]) -> Result<(), CommandError> {
        let mut command = Command::new(&self.program);
        // Variables with settings of the user's own warehouse must not change the demo. The folder of extensions is
        // one of the machine.
        keys().filter(|key| key.label() != EXTENSIONS).for_each(|key| {
            command.env_remove(key.variable());
        });
        let status = command
            .args(["--config", CONFIG_FILE_NAME])
            .args(arguments)
            .env("STUDYSYNC_API_KEY", KEY)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .status()
            .map_err(CommandError::failed("cannot run this program again"))?;
        if status.success() {
            return Ok(());
        }
        let code = status.code().map_or("a signal".to_owned(), |code| format!("exit code {code}"));
        Err(CommandError::Refused(format!("`studysync {}` ended with {code}", arguments.first().unwrap_or(&""))))
    }
}

/// The sandbox process; killed when it is dropped.
struct Service {
    process: Child,
    base_url: String,
}

impl Service {
    /// Starts the sandbox process and waits until it listens.
    fn start(program: &Path, responses: u64) -> Result<Service, CommandError> {
        let failed = CommandError::failed("cannot start the sandbox");
        let mut process = Command::new(program)
            .args(["sandbox", "--until-stdin-ends", "--listen", "127.0.0.1:0", "--api-key", KEY, "--seed", "20260131"])
            .args(["--responses", &responses.to_string(), "--days", &DAYS.to_string()])
            // Without this flag the sandbox says how to start it again, which the demo does not need.
            .args(["--now", &clock::now_ms().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(&failed)?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
        }
        match line.trim().strip_prefix("listening on ") {
            Some(base_url) => Ok(Service { base_url: base_url.to_owned(), process }),
            None => Err(CommandError::Refused("the sandbox did not start".to_owned())),
        }
    }

    /// Sends a control call to the sandbox.
    fn post(&self, path: &str, body: &str) -> Result<(), CommandError> {
        let failed = CommandError::failed("the sandbox does not answer");
        let address = self.base_url.trim_start_matches("http://").parse().map_err(io::Error::other).map_err(&failed)?;
        match request(address, &format!("POST {path}"), body, TIMEOUT).map_err(failed)? {
            Response { status: Some(200), .. } => Ok(()),
            Response { body, .. } => Err(CommandError::Refused(format!("the sandbox refused {path}: {body}"))),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
