//! `studysync completions`: shell completions and manual pages.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use super::{CommandError, Context};

/// Prints completions for a shell, or writes manual pages.
///
/// Exit codes: 0 printed or written; 1 cannot be printed or written; 2 usage.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync completions bash > /etc/bash_completion.d/studysync
  studysync completions --man /usr/local/share/man/man1")]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, required_unless_present = "man")]
    shell: Option<Shell>,

    /// Write a manual page for each command into this folder, which exists
    #[arg(long, value_name = "FOLDER", conflicts_with = "shell")]
    man: Option<PathBuf>,
}

/// Prints the completions or writes the pages. `command_line` defines all commands and flags of the program.
pub(super) fn run(args: &CompletionsArgs, mut command_line: Command, context: Context) -> Result<u8, CommandError> {
    if let Some(folder) = &args.man {
        let failed = CommandError::failed(format!("cannot write manual pages into {}", folder.display()));
        clap_mangen::generate_to(command_line.clone(), folder).map_err(failed)?;
    }
    let Some(shell) = args.shell else { return Ok(0) };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command_line, "studysync", &mut script);
    context.printer.write(|out| Ok(out.write_all(&script)?))?;
    Ok(0)
}
