//! The command line: one file per command. Data goes to stdout through one printer, messages go to stderr.

mod check;
mod command_line;
mod completions;
mod config;
mod demo;
mod diff;
mod disk;
mod erase;
mod exit;
mod flags;
mod forget;
mod health;
mod http;
mod init;
mod person;
mod plan;
mod printer;
mod progress;
mod query;
mod rebind;
mod replay;
mod report;
mod sandbox;
mod schema;
mod serve;
mod service_profile;
mod signals;
mod status;
mod sync;
mod terminal;
mod users;
mod verify;
mod warehouse;

use std::process::ExitCode;

use clap::FromArgMatches as _;
use tracing::Level;

use crate::{
    config::OtlpSettings,
    files,
    otlp::OtlpExporter,
    process_group,
    telemetry::{self, LogFormat},
};

pub use command_line::accepts;
use command_line::{Cli, Command, LogFormatArg};
use exit::CommandError;
use printer::{Context, Printer};
use signals::on_runtime;

/// Runs the program: parses the command line, runs the command and returns its exit code.
pub fn main() -> ExitCode {
    files::keep_private();
    let matches = command_line::build().try_get_matches().unwrap_or_else(|error| command_line::exit_with(&error));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let progress = progress::on_stderr();
    // On a terminal, the progress line replaces the log lines of a run. `serve` has only log lines.
    let has_progress_line =
        std::io::IsTerminal::is_terminal(&std::io::stderr()) && !matches!(cli.command, Command::Serve(_));
    let level = match (cli.quiet, cli.verbose, has_progress_line) {
        (true, ..) => Level::ERROR,
        (_, 0, true) => Level::WARN,
        (_, 0, false) | (_, 1, true) => Level::INFO,
        _ => Level::DEBUG,
    };
    let format = match cli.log_format {
        LogFormatArg::Text => LogFormat::Text,
        LogFormatArg::Json => LogFormat::Json,
    };
    let otlp = OtlpExporter::start(&OtlpSettings::from_environment());
    telemetry::init(format, level, progress.clone(), otlp.layer());
    let context = Context { config: cli.config, printer: Printer::stdout(), progress, is_quiet: cli.quiet };
    let outcome = run(cli.command, context);
    process_group::kill_all();
    otlp.finish();
    ExitCode::from(outcome.unwrap_or_else(|error| error.report()))
}

/// Runs a command and returns its exit code. Commands that use the network run on a runtime.
fn run(command: Command, context: Context) -> Result<u8, CommandError> {
    match command {
        Command::Init(args) => init::run(&args, context),
        Command::Plan(args) => plan::run(&args, context),
        Command::Status(args) => status::run(&args, context),
        Command::Forget(args) => forget::run(&args, context),
        Command::Query(args) => query::run(&args, context),
        Command::Report(args) => report::run(&args, context),
        Command::Diff(args) => diff::run(&args, context),
        Command::Rebind(args) => rebind::run(&args, context),
        Command::Config(args) => config::run(&args, context),
        Command::Schema(args) => schema::run(&args, context),
        Command::Completions(args) => completions::run(&args, command_line::build(), context),
        Command::Health(args) => health::run(&args, context),
        Command::Check(args) => on_runtime(check::run(args, context)),
        Command::Sync(args) => on_runtime(sync::sync(args, context)),
        Command::Backfill(args) => on_runtime(sync::backfill(args, context)),
        Command::Users(args) => on_runtime(users::run(args, context)),
        Command::Verify(args) => on_runtime(verify::run(args, context)),
        Command::Replay(args) => on_runtime(replay::run(args, context)),
        Command::Erase(args) => on_runtime(erase::run(args, context)),
        Command::Person(args) => on_runtime(person::run(args, context)),
        Command::Serve(args) => on_runtime(serve::run(args, context)),
        Command::Sandbox(args) => on_runtime(sandbox::run(args, context)),
        Command::Demo(args) => demo::run(&args, context),
    }
}
