//! `studysync users`: reads or sends users, one request each.

mod pull;
mod push;

use clap::{Args, Subcommand};

use super::{CommandError, Context};

/// Pulls users into the warehouse, or pushes them to the service.
///
/// Exit codes: those of the subcommand, see `studysync users pull --help` and `studysync users push --help`.
#[derive(Args, Debug)]
pub(super) struct UsersArgs {
    #[command(subcommand)]
    command: UsersCommand,
}

#[derive(Debug, Subcommand)]
enum UsersCommand {
    Pull(pull::PullArgs),
    Push(push::PushArgs),
}

pub(super) async fn run(args: UsersArgs, context: Context) -> Result<u8, CommandError> {
    match args.command {
        UsersCommand::Pull(args) => pull::run(args, context).await,
        UsersCommand::Push(args) => push::run(args, context).await,
    }
}
