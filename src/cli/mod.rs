//! The command line: one file a command. Data goes to stdout through the one printer, talk to stderr.

mod bars;
mod check;
mod command_line;
mod completions;
mod context;
mod demo;
mod diff;
mod erase;
mod exit;
mod flags;
mod forget;
mod health;
mod help;
mod init;
mod output;
mod plan;
mod printer;
mod query;
mod rebind;
mod replay;
mod report;
mod runtime;
mod sandbox;
mod schema;
mod serve;
mod service_profile;
mod status;
mod sync;
mod users;
mod verify;

use std::process::ExitCode;

use clap::{ArgAction, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use indicatif::MultiProgress;
use tracing::Level;

use crate::{
    config::OtlpSettings,
    files,
    otlp::OtlpExporter,
    telemetry::{self, LogFormat},
};

pub use command_line::accepts;
use context::Context;
use exit::CommandError;
use printer::Printer;
use runtime::on_runtime;

/// Keeps a warehouse in step with a study feedback service.
#[derive(Debug, Parser)]
#[command(name = "studysync", version, max_term_width = 80)]
#[command(after_help = exit::ALL_CODES)]
struct Cli {
    /// Configuration file [default: STUDYSYNC_CONFIG, else studysync.toml if it is there]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    config: Option<std::path::PathBuf>,

    /// Format of log lines
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        hide_possible_values = false,
        help_heading = "Global options"
    )]
    log_format: LogFormatArg,

    /// More log lines; twice for every request
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Global options")]
    verbose: u8,

    /// No progress line, and no log lines but errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Global options")]
    quiet: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormatArg {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::InitArgs),
    Check(check::CheckArgs),
    Plan(plan::PlanArgs),
    Sync(sync::SyncArgs),
    Backfill(sync::BackfillArgs),
    Status(status::StatusArgs),
    Verify(verify::VerifyArgs),
    Replay(replay::ReplayArgs),
    Rebind(rebind::RebindArgs),
    Erase(erase::EraseArgs),
    Forget(forget::ForgetArgs),
    Query(query::QueryArgs),
    Report(report::ReportArgs),
    Diff(diff::DiffArgs),
    Users(users::UsersArgs),
    Schema(schema::SchemaArgs),
    Serve(serve::ServeArgs),
    Health(health::HealthArgs),
    Sandbox(sandbox::SandboxArgs),
    Demo(demo::DemoArgs),
    Completions(completions::CompletionsArgs),
}

/// The whole program.
pub fn main() -> ExitCode {
    files::keep_private();
    let matches = command_line::build().try_get_matches().unwrap_or_else(|error| command_line::refuse(&error));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let bars = MultiProgress::new();
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let level = match (cli.quiet, cli.verbose, is_terminal) {
        (true, ..) => Level::ERROR,
        // A terminal has the progress line instead.
        (_, 0, true) => Level::WARN,
        (_, 0, false) | (_, 1, true) => Level::INFO,
        _ => Level::DEBUG,
    };
    let format = match cli.log_format {
        LogFormatArg::Text => LogFormat::Text,
        LogFormatArg::Json => LogFormat::Json,
    };
    let otlp = OtlpExporter::start(&OtlpSettings::from_environment());
    telemetry::init(format, level, bars.clone(), otlp.layer());
    let context = Context { config: cli.config, printer: Printer::stdout(), bars, is_quiet: cli.quiet };
    let outcome = run(cli.command, context);
    otlp.finish();
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => ExitCode::from(error.report()),
    }
}

fn run(command: Command, context: Context) -> Result<u8, CommandError> {
    let reads_no_file = match &command {
        Command::Schema(_) => Some("schema"),
        Command::Sandbox(_) => Some("sandbox"),
        Command::Demo(_) => Some("demo"),
        Command::Completions(_) => Some("completions"),
        _ => None,
    };
    if let (Some(name), Some(_)) = (reads_no_file, &context.config) {
        return Err(CommandError::Usage(format!("`studysync {name}` reads no configuration file: leave --config out")));
    }
    match command {
        Command::Init(args) => init::run(&args, context),
        Command::Plan(args) => plan::run(&args, context),
        Command::Status(args) => status::run(&args, context),
        Command::Forget(args) => forget::run(&args, context),
        Command::Query(args) => query::run(&args, context),
        Command::Report(args) => report::run(&args, context),
        Command::Diff(args) => diff::run(&args, context),
        Command::Rebind(args) => rebind::run(&args, context),
        Command::Schema(args) => schema::run(&args, context),
        Command::Completions(args) => completions::run(&args, context),
        Command::Health(args) => health::run(&args, context),
        Command::Check(args) => on_runtime(check::run(args, context)),
        Command::Sync(args) => on_runtime(sync::sync(args, context)),
        Command::Backfill(args) => on_runtime(sync::backfill(args, context)),
        Command::Users(args) => on_runtime(users::run(args, context)),
        Command::Verify(args) => on_runtime(verify::run(args, context)),
        Command::Replay(args) => on_runtime(replay::run(args, context)),
        Command::Erase(args) => on_runtime(erase::run(args, context)),
        Command::Serve(args) => on_runtime(serve::run(args, context)),
        Command::Sandbox(args) => on_runtime(sandbox::run(args, context)),
        Command::Demo(args) => demo::run(&args, context),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_fits_together() {
        Cli::command().debug_assert();
        command_line::build().debug_assert();
    }

    #[test]
    fn every_command_lists_its_exit_codes() {
        for command in Cli::command().get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            assert!(help.to_lowercase().contains("exit codes"), "{} --help", command.get_name());
        }
    }
}
