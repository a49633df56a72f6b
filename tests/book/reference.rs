//! The pages of commands, exit codes and environment variables match the program's help.

use super::{assert_generated, assert_generated_part};
use crate::harness::{Done, Place};

/// A command and its help text.
struct Help {
    words: Vec<String>,
    text: String,
}

impl Help {
    fn of(words: &[String]) -> Help {
        let place = Place::at("http://127.0.0.1:1").without_config();
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("--help");
        let done = Done::from(place.bare(&arguments).env("COLUMNS", "100").output().unwrap()).expect(0);
        let lines: Vec<&str> = done.stdout.trim_end().lines().map(str::trim_end).collect();
        Help { words: words.to_vec(), text: lines.join("\n") }
    }

    /// Returns the subcommands.
    fn commands(&self) -> Vec<Help> {
        let list =
            self.text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let words = |line: &str| [&self.words[..], &[line.split_whitespace().next().unwrap().to_owned()]].concat();
        // `help` prints the same as --help, and has no help itself.
        names
            .map(words)
            .filter(|words| words.last().is_none_or(|name| name != "help"))
            .map(|words| Help::of(&words))
            .collect()
    }

    fn name(&self) -> String {
        self.words.join(" ")
    }

    /// Returns the exit codes in the help: the code and its meaning.
    fn exit_codes(&self) -> Vec<(String, String)> {
        let from =
            self.text.find("Exit codes: ").unwrap_or_else(|| panic!("{} says nothing of exit codes", self.name()));
        let passage = self.text[from..].split("\n\n").next().unwrap().replace('\n', " ");
        let passage = passage.trim_start_matches("Exit codes: ").trim_end_matches('.').to_owned();
        let mut codes: Vec<(String, String)> = Vec::new();
        for part in passage.split("; ") {
            match part.split_once(' ').filter(|(code, _)| code.parse::<u8>().is_ok()) {
                Some((code, meaning)) => codes.push((code.to_owned(), meaning.to_owned())),
                // A meaning may contain a semicolon.
                None => codes.last_mut().unwrap().1.push_str(&format!("; {part}")),
            }
        }
        codes
    }
}

/// Returns every command, with the subcommands after their group.
fn commands() -> Vec<Help> {
    let commands = Help::of(&[]).commands();
    assert!(commands.len() >= 20, "{} commands", commands.len());
    commands
        .into_iter()
        .flat_map(|command| {
            let below = command.commands();
            std::iter::once(command).chain(below)
        })
        .collect()
}

#[test]
fn the_reference_has_the_help_of_each_command() {
    let mut text = String::from("# Commands\n\nGenerated: this is what `studysync COMMAND --help` prints.\n");
    text.push_str(&format!("\n## studysync\n\n```text\n{}\n```\n", Help::of(&[]).text));
    for command in commands() {
        text.push_str(&format!("\n## {}\n\n```text\n{}\n```\n", command.name(), command.text));
    }
    assert_generated("docs/reference/commands.md", &text);
}

#[test]
fn the_reference_has_the_exit_codes_of_each_command() {
    let mut table = String::from("| command | exit code | meaning |\n|---|---|---|\n");
    for command in commands().iter().filter(|command| !["users", "config"].contains(&command.name().as_str())) {
        let name = command.name();
        let codes = command.exit_codes();
        assert!(!codes.is_empty(), "{name} names no exit code");
        for (at, (code, meaning)) in codes.iter().enumerate() {
            let name = if at == 0 { format!("`{name}`") } else { String::new() };
            table.push_str(&format!("| {name} | {code} | {meaning} |\n"));
        }
    }
    assert_generated_part("docs/reference/exit-codes.md", "exit codes", &table);
}

#[test]
fn the_exit_codes_are_those_of_the_program() {
    let program = Help::of(&[]).exit_codes();
    let page = super::page("docs/reference/exit-codes.md").text;
    let listed: Vec<&str> = page
        .split("<!-- generated")
        .next()
        .unwrap()
        .lines()
        .filter_map(|line| {
            let code = line.strip_prefix("| ")?.split(' ').next()?;
            code.parse::<u8>().is_ok().then_some(code)
        })
        .collect();
    assert_eq!(listed, program.iter().map(|(code, _)| code.as_str()).collect::<Vec<_>>());
}

#[test]
fn the_reference_has_the_variables_of_settings() {
    let row = |key: studysync::config::SettingKey| format!("| `{}` | `{}` |\n", key.variable(), key.label());
    let rows: String = studysync::config::keys().map(row).collect();
    let text = format!("| variable | setting |\n|---|---|\n{rows}");
    assert_generated_part("docs/reference/environment.md", "settings", &text);
}
