//! `studysync users pull`: reads all due users, or the named ones.

use clap::Args;

use crate::{
    model::{USER_ID_BYTES_MAX, can_request_user},
    pipeline::PeopleSelection,
};

use super::super::{
    CommandError, Context,
    sync::{RunArgs, pull_users},
};

/// Reads users into the tables users, user_attributes and user_events, one request each.
///
/// Without --user-id the command reads every user that answers and snapshots name (external_user_id), unless the user
/// was read within `refresh_after` under [streams.users] (30d). A user that the service did not know (404) is requested
/// again after `ask_again_after` (7d). `sync` and `backfill` do the same at their end if [streams.users] is enabled.
///
/// The key is sent as `API-Key KEY`; `[service] auth` in the configuration changes this.
///
/// Exit codes: 0 done; 1 failed, committed data stays; 2 usage or configuration; 3 done, but something needs attention
/// (very many users are missing at once, and stay until you add --accept-vanished; a user without a place in the
/// tables); 4 key refused; 5 another run holds the lease; 6 stopped early at a deadline, a budget or a rate limit,
/// resumable; 130 interrupted, resumable.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync users pull
  studysync users pull --user-id u-1 u-2")]
pub(super) struct PullArgs {
    /// Only these users, even if they were read recently
    #[arg(long = "user-id", value_name = "ID", num_args = 1..)]
    user_ids: Vec<String>,

    #[command(flatten)]
    run: RunArgs,
}

/// Reads the users of `--user-id`, or all due users without it. Sends nothing if one of the ids cannot be part of a
/// URL.
pub(super) async fn run(args: PullArgs, context: Context) -> Result<u8, CommandError> {
    if let Some(user_id) = args.user_ids.iter().find(|user_id| !can_request_user(user_id)) {
        return Err(CommandError::Usage(format!(
            "'{user_id}' cannot be requested: a URL cannot contain '', '.', '..' or more than {USER_ID_BYTES_MAX} bytes as a user id"
        )));
    }
    let people = match args.user_ids.is_empty() {
        true => PeopleSelection::Due,
        false => PeopleSelection::These(args.user_ids),
    };
    pull_users(args.run, people, context).await
}
