//! `studysync config`: shows the settings that a command would use.

use clap::{Args, Subcommand};

use unicode_width::UnicodeWidthStr as _;

use crate::{
    config::{EffectiveSetting, EffectiveSettings, assignment, effective},
    wording::wrapped,
};

use super::{CommandError, Context, flags::LocationArgs, terminal::text_columns};

/// Column of the origins, if the values are short enough.
const ORIGIN_COLUMN: usize = 48;

/// Shows the settings in effect.
///
/// Exit codes: those of the subcommand, see `studysync config show --help`.
#[derive(Args, Debug)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    Show(ShowArgs),
}

/// Prints every setting with its value and where the value comes from.
///
/// A value comes from a flag, an environment variable, a line of the configuration file, or the default. The first of
/// them wins. Secrets are never printed. The file is the one of --config, else of STUDYSYNC_CONFIG, else
/// ./studysync.toml, else /etc/studysync/studysync.toml.
///
/// Exit codes: 0 printed; 1 cannot be printed; 2 usage or configuration.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync config show
  studysync config show --json --config /etc/studysync/studysync.toml")]
pub(super) struct ShowArgs {
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    locations: LocationArgs,
}

pub(super) fn run(args: &ConfigArgs, context: Context) -> Result<u8, CommandError> {
    let ConfigCommand::Show(args) = &args.command;
    let overrides = args.locations.overrides(&context);
    let shown = effective(overrides)?;
    if args.json { context.printer.print_json(&shown) } else { context.printer.print(&describe(&shown)) }?;
    Ok(0)
}

/// Returns the settings as TOML, with the origins as comments: beside the values, or above values that are too long.
fn describe(EffectiveSettings { config, settings }: &EffectiveSettings) -> String {
    let mut text = match config {
        Some(path) => comment(&format!("configuration: {}", path.display())),
        None => comment("no configuration file: `studysync init` writes one"),
    };
    let mut table = "";
    for setting in settings {
        if table != setting.table {
            table = &setting.table;
            text += &format!("\n[{table}]\n");
        }
        text += &line(setting);
    }
    text
}

fn line(EffectiveSetting { key, value, from, is_hidden, .. }: &EffectiveSetting) -> String {
    match value {
        None => comment(&format!("{key} is not set")),
        Some(note) if *is_hidden => comment(&format!("{key} {note}, {from}")),
        Some(value) => {
            let columns = text_columns();
            let padded = columns.saturating_sub(from.width() + "  # ".len()).min(ORIGIN_COLUMN);
            let line = format!("{:<padded$}  # {from}\n", format!("{key} = {value}"));
            match line.trim_end().width() <= columns {
                true => line,
                false => comment(from) + &assignment(key, value, true, columns),
            }
        }
    }
}

/// Returns a comment of TOML, wrapped.
fn comment(text: &str) -> String {
    let lines = wrapped(text, text_columns().saturating_sub("# ".len()), "", "");
    lines.lines().map(|line| format!("# {line}\n")).collect()
}
