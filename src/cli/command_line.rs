//! The command line as clap reads it: which flags each command's help lists,
//! and what is said of a flag that a command lacks.

use std::io::Write as _;

use clap::{
    Arg, ArgMatches, Command, CommandFactory as _,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::{Cli, help};

/// Flags of a place that a command takes, so that one set of them serves a whole job, and does not read:
/// its help leaves them out.
const UNREAD: &[(&str, &[&str])] = &[
    ("plan", &["archive"]),
    ("status", &["base_url", "api_key_file", "archive"]),
    ("query", &["base_url", "api_key_file", "state", "archive"]),
    ("report", &["base_url", "api_key_file", "archive"]),
    ("replay", &["api_key_file"]),
    ("health", &["base_url", "api_key_file", "duckdb", "parquet", "state", "archive"]),
    ("forget", &["base_url", "api_key_file", "duckdb", "parquet", "archive"]),
];

/// The command line, with examples in the help of each command.
pub(super) fn build() -> Command {
    let cli = help::with_examples(Cli::command());
    UNREAD.iter().fold(cli, |cli, (name, flags)| {
        cli.mut_subcommand(name, |command| {
            flags.iter().fold(command, |command, flag| command.mut_arg(flag, |flag| flag.hide(true)))
        })
    })
}

/// Whether the program takes this command line, its own name left out; else the error.
/// Tests of the documentation ask it.
pub fn accepts(arguments: &[&str]) -> Result<(), String> {
    match build().try_get_matches_from(std::iter::once(&"studysync").chain(arguments)) {
        Err(error) if error.use_stderr() => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Prints what clap says, and ends the program. A flag of other commands is told from one that nobody knows.
pub(super) fn refuse(error: &clap::Error) -> ArgMatches {
    let flag = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) => Some(flag.as_str()),
        _ => None,
    };
    let name = std::env::args().skip(1).find(|word| build().find_subcommand(word).is_some());
    if let (Some(flag), Some(name)) = (flag.filter(|flag| is_known(flag)), name) {
        let text = format!("error: `studysync {name}` has no {flag}: it would change nothing there\n\n");
        std::io::stderr().write_all(text.as_bytes()).ok();
    }
    error.exit()
}

/// Whether any command has the flag.
fn is_known(flag: &str) -> bool {
    let name = flag.trim_start_matches("--");
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    let has_name = |arg: &Arg| {
        arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    };
    build().get_subcommands().any(|command| command.get_arguments().any(has_name))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(is_known("--stream") && is_known("--max-requests=3") && !is_known("--streams"));
    }
}
