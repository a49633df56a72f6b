//! The definition of the command line: commands, global options, and the flags that each command's help lists.

use std::path::PathBuf;

use clap::{
    Arg, ArgAction, ArgMatches, CommandFactory as _, Parser, Subcommand, ValueEnum,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::model::WarehouseKind;

use super::{
    check, completions, config, demo, diff, erase, exit, forget, health, init, person, plan, printer::write_stderr,
    query, rebind, replay, report, sandbox, schema, serve, status, sync, users, verify,
};

/// Keeps a warehouse in step with a study feedback service.
#[derive(Debug, Parser)]
#[command(name = "studysync", version, max_term_width = 80)]
#[command(after_help = exit::ALL_CODES)]
pub(super) struct Cli {
    /// Configuration file [default: STUDYSYNC_CONFIG, else ./studysync.toml, else /etc/studysync/studysync.toml]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub config: Option<PathBuf>,

    /// Format of log lines
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        hide_possible_values = false,
        help_heading = "Global options"
    )]
    pub log_format: LogFormatArg,

    /// More log lines; -vv also logs every request
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Global options")]
    pub verbose: u8,

    /// No progress line, and only log lines of errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = "Global options")]
    pub quiet: bool,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogFormatArg {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Init(init::InitArgs),
    Config(config::ConfigArgs),
    Check(check::CheckArgs),
    Plan(plan::PlanArgs),
    Sync(sync::SyncArgs),
    Backfill(sync::BackfillArgs),
    Status(status::StatusArgs),
    Verify(verify::VerifyArgs),
    Replay(replay::ReplayArgs),
    Rebind(rebind::RebindArgs),
    Erase(erase::EraseArgs),
    Person(person::PersonArgs),
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

/// Stands for the flags of all warehouses.
const WAREHOUSES: &str = "warehouses";
/// For each command, the location flags that it accepts and ignores. The help of the command does not list them.
const IGNORED_FLAGS: &[(&str, &[&str])] = &[
    ("plan", &["archive"]),
    ("status", &["base_url", "api_key_file", "archive"]),
    ("query", &["base_url", "api_key_file", "state", "archive"]),
    ("report", &["base_url", "api_key_file", "archive"]),
    ("person", &["api_key_file"]),
    ("replay", &["api_key_file"]),
    ("health", &["base_url", "api_key_file", WAREHOUSES, "state", "archive"]),
    ("forget", &["base_url", "api_key_file", WAREHOUSES, "archive"]),
];

/// Returns the command line.
pub(super) fn build() -> clap::Command {
    IGNORED_FLAGS.iter().fold(Cli::command(), |cli, (name, flags)| {
        cli.mut_subcommand(name, |command| {
            let names = flags.iter().flat_map(|flag| match *flag {
                WAREHOUSES => WarehouseKind::ALL.map(WarehouseKind::name).to_vec(),
                flag => vec![flag],
            });
            names.fold(command, |command, name| command.mut_arg(name, |flag| flag.hide(true)))
        })
    })
}

/// Checks that the program accepts these arguments (without the program's name). Tests of the documentation call it.
///
/// # Errors
/// The message that the program would print.
pub fn accepts(arguments: &[&str]) -> Result<(), String> {
    match build().try_get_matches_from(std::iter::once(&"studysync").chain(arguments)) {
        Err(error) if error.use_stderr() => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Prints an error of clap and ends the program. If the command does not have a flag but another command has it, the
/// error names the commands that have it.
pub(super) fn exit_with(error: &clap::Error) -> ArgMatches {
    let flag = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) => Some(flag.as_str()),
        _ => None,
    };
    let name = std::env::args().skip(1).find(|word| build().find_subcommand(word).is_some());
    if let (Some(flag), Some(name)) = (flag, name)
        && let Some(hint) = other_command(&name, flag)
    {
        let flag = name_of(flag);
        let problem = match commands_with(flag).contains(&name) {
            true => format!("--{flag} stands before `{name}`"),
            false => format!("`studysync {name}` has no --{flag}"),
        };
        // A failure to write is ignored, because the exit code still shows the result.
        exit::write_error(&mut anstream::stderr(), &problem, Some(&hint)).ok();
        std::process::exit(error.exit_code());
    }
    if !error.use_stderr() {
        error.exit();
    }
    write_stderr(&error.render().ansi().to_string());
    std::process::exit(error.exit_code())
}

/// Returns the name of a flag, without its value.
fn name_of(flag: &str) -> &str {
    let flag = flag.trim_start_matches("--");
    flag.split_once('=').map_or(flag, |(flag, _)| flag)
}

fn commands_with(flag: &str) -> Vec<String> {
    let has_name = |arg: &Arg| {
        arg.get_long() == Some(flag) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&flag))
    };
    let cli = build();
    let having = cli.get_subcommands().filter(|command| command.get_arguments().any(has_name));
    having.map(|command| command.get_name().to_owned()).collect()
}

/// Returns where a flag belongs that the command line has in a wrong place; `None` if no command has it.
fn other_command(name: &str, flag: &str) -> Option<String> {
    let flag = name_of(flag);
    if name == "sync" && ["from", "since", "to", "until"].contains(&flag) {
        return Some("`sync` pulls what is new; `studysync backfill --from DATE` pulls a range".to_owned());
    }
    if name == "report" && flag == "until" {
        return Some(
            "--from and --to are the range of the answers; --since also shows what changed since then".to_owned(),
        );
    }
    let having = commands_with(flag);
    if having.iter().any(|having| having == name) {
        return Some(format!("write it after the command: studysync {name} --{flag} ..."));
    }
    let having: Vec<String> = having.iter().map(|name| format!("`{name}`")).collect();
    (!having.is_empty()).then(|| format!("--{flag} is a flag of {}", having.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a command line as a shell does, up to a redirection.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        let quote = if line.contains('\'') { '\'' } else { '"' };
        for (at, piece) in line.split(quote).enumerate() {
            match at % 2 {
                0 => words.extend(piece.split_whitespace().map(str::to_owned)),
                _ => words.push(piece.to_owned()),
            }
        }
        words.into_iter().take_while(|word| !word.starts_with('>')).collect()
    }

    #[test]
    fn help_lists_only_flags_that_a_command_reads() {
        let mut built = build();
        built.build();
        let help = |name: &str| built.clone().find_subcommand_mut(name).unwrap().render_help().to_string();
        let query = help("query");
        assert!(query.contains("--duckdb") && !query.contains("--base-url") && !query.contains("--archive"), "{query}");
        for (name, flag) in [
            ("query", "--survey"),
            ("query", "--stream"),
            ("report", "--stream"),
            ("erase", "--stream"),
            ("check", "--survey"),
        ] {
            assert!(!help(name).contains(flag), "{name} {flag}");
        }
        for (name, flag) in
            [("status", "--survey"), ("plan", "--stream"), ("report", "--survey"), ("verify", "--stream")]
        {
            assert!(help(name).contains(flag), "{name} {flag}");
        }
    }

    #[test]
    fn a_flag_of_another_command_is_known() {
        assert_eq!(
            other_command("init", "--accept-vanished=3").unwrap(),
            "--accept-vanished is a flag of `sync`, `backfill`"
        );
        assert!(other_command("sync", "--since").unwrap().contains("studysync backfill --from DATE"));
        assert_eq!(other_command("query", "--streams"), None);
        let before = other_command("check", "--postgres=secret").unwrap();
        assert_eq!(before, "write it after the command: studysync check --postgres ...");
    }

    #[test]
    fn the_command_line_fits_together() {
        Cli::command().debug_assert();
        build().debug_assert();
    }

    #[test]
    fn every_command_lists_its_exit_codes() {
        for command in Cli::command().get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            assert!(help.to_lowercase().contains("exit codes"), "{} --help", command.get_name());
        }
    }

    #[test]
    fn every_command_has_two_examples_that_can_be_typed() {
        let mut commands: Vec<(String, clap::Command)> = Vec::new();
        for command in build().get_subcommands() {
            let name = command.get_name().to_owned();
            match command.has_subcommands() {
                false => commands.push((name, command.clone())),
                true => commands.extend(
                    command.get_subcommands().map(|below| (format!("{name} {}", below.get_name()), below.clone())),
                ),
            }
        }
        assert!(commands.len() >= 22, "{}", commands.len());
        for (name, command) in commands {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = text.strip_prefix("Examples:\n").unwrap_or_default().lines().collect();
            assert!(lines.len() >= 2, "{name} has no examples: {text}");
            for line in lines {
                let line = line.strip_prefix("  ").unwrap();
                assert!(line.starts_with(&format!("studysync {name}")) && line.len() <= 78, "{line}");
                let read = build().try_get_matches_from(words(line));
                assert!(read.is_ok(), "{line}: {}", read.unwrap_err());
            }
        }
    }
}
