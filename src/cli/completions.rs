//! `studysync completions`: shell completions.

use clap::{Args, Command};
use clap_complete::Shell;

use super::{CommandError, Context};

/// Prints completions for a shell.
///
/// Exit codes: 0 printed; 1 cannot be printed; 2 unknown shell.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync completions bash > /etc/bash_completion.d/studysync
  studysync completions zsh")]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completions for the shell. `command_line` defines all commands and flags of the program.
pub(super) fn run(args: &CompletionsArgs, mut command_line: Command, context: Context) -> Result<u8, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command_line, "studysync", &mut script);
    context.printer.write(|out| Ok(out.write_all(&script)?))?;
    Ok(0)
}
