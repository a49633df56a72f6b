//! Examples in the help of each command. A test parses each example.

use clap::Command;

struct Examples {
    command: &'static str,
    lines: &'static [&'static str],
}

const fn examples(command: &'static str, lines: &'static [&'static str]) -> Examples {
    Examples { command, lines }
}

/// The examples of each command. A subcommand is named with its parent command: `users pull`.
const EXAMPLES: &[Examples] = &[
    examples("init", &["studysync init", "studysync init /etc/studysync/studysync.toml"]),
    examples("check", &["studysync check", "studysync check --service-profile"]),
    examples("plan", &["studysync plan", "studysync plan --from 2024-01-01 --days"]),
    examples("sync", &["studysync sync", "studysync sync --deadline 3h30m --json >> runs.ndjson"]),
    examples(
        "backfill",
        &["studysync backfill --from 2024-01-01", "studysync backfill --from 2026-03 --to 2026-04 --stream responses"],
    ),
    examples("status", &["studysync status", "studysync status --max-lag 26h"]),
    examples("verify", &["studysync verify --from 2026-03 --to 2026-04", "studysync verify --from 7d --all-keys"]),
    examples("replay", &["studysync replay", "studysync replay --from 2026-03 --to 2026-04"]),
    examples(
        "rebind",
        &["studysync rebind --from https://old.example.com", "studysync rebind --from-environment staging"],
    ),
    examples(
        "erase",
        &["studysync erase --email zoe@example.com --dry-run", "studysync erase --file people.txt --yes --json"],
    ),
    examples("forget", &["studysync forget --survey 4100", "studysync forget --survey 4100 --survey 4200"]),
    examples(
        "query",
        &[
            "studysync query \"FROM nps_by_week ORDER BY week\"",
            "studysync query \"FROM current_responses\" --out answers.parquet",
        ],
    ),
    examples("report", &["studysync report --out report.html", "studysync report --since 7d --out week.html"]),
    examples("diff", &["studysync diff --since yesterday", "studysync diff --since 2026-03 --until 2026-04 --json"]),
    examples("users pull", &["studysync users pull", "studysync users pull --user-id u-1 u-2"]),
    examples("users push", &["studysync users push users.csv --dry-run", "studysync users push users.csv"]),
    examples("schema", &["studysync schema responses", "studysync schema --format json"]),
    examples("serve", &["studysync serve", "studysync serve --config /etc/studysync/studysync.toml"]),
    examples("health", &["studysync health", "studysync health --ready --listen 127.0.0.1:8788"]),
    examples(
        "sandbox",
        &["studysync sandbox --responses 10000", "studysync sandbox --data rough --listen 127.0.0.1:8080"],
    ),
    examples("demo", &["studysync demo", "studysync demo --responses 5000 --folder demo"]),
    examples(
        "completions",
        &["studysync completions bash > /etc/bash_completion.d/studysync", "studysync completions zsh"],
    ),
];

/// Adds the examples to the help of each command.
pub(super) fn with_examples(cli: Command) -> Command {
    EXAMPLES.iter().fold(cli, |cli, Examples { command, lines }| {
        let text = format!("Examples:\n  {}", lines.join("\n  "));
        add(cli, command, &text)
    })
}

/// Adds a text to the help of the command at `path`, such as `users pull`.
fn add(cli: Command, path: &str, text: &str) -> Command {
    match path.split_once(' ') {
        Some((above, below)) => cli.mut_subcommand(above, |command| add(command, below, text)),
        None => cli.mut_subcommand(path, |command| command.after_help(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::command_line::build, *};

    /// Splits a command line as a shell does, up to a redirection.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (at, piece) in line.split('"').enumerate() {
            match at % 2 {
                0 => words.extend(piece.split_whitespace().map(str::to_owned)),
                _ => words.push(piece.to_owned()),
            }
        }
        words.into_iter().take_while(|word| !word.starts_with('>')).collect()
    }

    #[test]
    fn every_command_has_two_examples_that_can_be_typed() {
        let mut paths: Vec<String> = Vec::new();
        for command in build().get_subcommands() {
            let below: Vec<_> = command.get_subcommands().collect();
            match below.is_empty() {
                true => paths.push(command.get_name().to_owned()),
                false => paths.extend(below.iter().map(|below| format!("{} {}", command.get_name(), below.get_name()))),
            }
        }
        let listed: Vec<&str> = EXAMPLES.iter().map(|examples| examples.command).collect();
        for path in paths {
            assert!(listed.contains(&path.as_str()), "{path} has no examples");
        }
        for Examples { command, lines } in EXAMPLES {
            assert!(lines.len() >= 2, "{command}");
            for line in *lines {
                assert!(line.starts_with(&format!("studysync {command}")) && line.len() <= 78, "{line}");
                let read = build().try_get_matches_from(words(line));
                assert!(read.is_ok(), "{line}: {}", read.unwrap_err());
            }
        }
    }
}
