//! `studysync users`: people, read one by one and sent one by one.

mod pull;

use clap::{Args, Subcommand};

use super::{CommandError, Context};

/// People at the service: reads them into the warehouse.
///
/// Exit codes: those of the subcommand, see `studysync users pull --help`.
#[derive(Args, Debug)]
pub(super) struct UsersArgs {
    #[command(subcommand)]
    command: UsersCommand,
}

#[derive(Debug, Subcommand)]
enum UsersCommand {
    Pull(pull::PullArgs),
}

pub(super) async fn run(args: UsersArgs, context: Context) -> Result<u8, CommandError> {
    match args.command {
        UsersCommand::Pull(args) => pull::run(args, context).await,
    }
}
