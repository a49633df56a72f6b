//! `studysync completions`: shell completions.

use clap::Args;
use clap_complete::Shell;

use super::{CommandError, Context, command_line};

/// Prints completions for a shell.
///
/// Exit codes: 0 printed; 1 cannot be printed; 2 unknown shell.
#[derive(Args, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs, context: Context) -> Result<u8, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command_line::build(), "studysync", &mut script);
    context.printer.write(|out| out.write_all(&script))?;
    Ok(0)
}
