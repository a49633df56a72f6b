//! `studysync users pull`: the stream of users alone, or a few people.

use clap::Args;

use crate::{
    model::{USER_ID_BYTES_MAX, can_request_user},
    pipeline::{PeopleAsk, Request},
};

use super::super::{
    CommandError, Context,
    sync::{RunFlags, run_request},
};

/// Reads people into the tables users, user_attributes and user_events: one request a person.
///
/// Without --user-id the command reads every person that answers and snapshots name (external_user_id), unless the
/// person was read within `refresh_after` under [streams.users] (30d). A person whom the service did not know (404) is
/// requested again after `ask_again_after` (7d).
/// `sync` and `backfill` do the same at their end if [streams.users] is enabled.
///
/// The key is sent as `API-Key KEY`; `[service] auth` in the configuration changes this.
///
/// Exit codes: 0 done; 1 failed, committed data stays; 2 usage or configuration; 3 done, but something needs attention
/// (very many people seem to be gone at once: they stay until you say --accept-vanished; a person that cannot be
/// placed); 4 key refused; 5 another run holds the lease; 6 stopped early at a deadline, a budget or a rate limit,
/// resumable; 130 interrupted, resumable.
#[derive(Args, Debug)]
pub(super) struct PullArgs {
    /// Only these people, whenever they were last read
    #[arg(long = "user-id", value_name = "ID", num_args = 1..)]
    user_ids: Vec<String>,

    #[command(flatten)]
    run: RunFlags,
}

pub(super) async fn run(args: PullArgs, context: Context) -> Result<u8, CommandError> {
    if let Some(user_id) = args.user_ids.iter().find(|user_id| !can_request_user(user_id)) {
        return Err(CommandError::Usage(format!(
            "'{user_id}' cannot be asked for: an address cannot carry '', '.', '..' or more than {USER_ID_BYTES_MAX} bytes"
        )));
    }
    let people = match args.user_ids.is_empty() {
        true => PeopleAsk::Due,
        false => PeopleAsk::These(args.user_ids),
    };
    let accept_vanished = args.run.accept_vanished;
    let request = Request { command: "users pull", backfill: None, accept_vanished, people };
    run_request(request, args.run.given(&context).settings()?, args.run.json, context).await
}
