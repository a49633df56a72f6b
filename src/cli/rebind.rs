//! `studysync rebind`: binds the stored data to another address or label of the same service.

use clap::Args;

use crate::{
    load::Identity,
    pipeline,
    source::{SourceError, checked_address},
};

use super::{CommandError, Context, flags::LocationArgs};

/// Binds the stored data to a new address of the same service.
///
/// Checkpoints, warehouse and archive are bound to the address of their service and the label of its environment. They
/// refuse another service, because all stored rows would look vanished there. When the service has moved, first set
/// base_url (or environment) to the new value. Then name the old value with --from (or --from-environment). No row
/// changes, and no request is sent. The archive's files are rewritten, which takes as long as copying them. After an
/// interruption, the same command resumes.
///
/// Use this only for the same service at another address.
/// For another service or environment, name another --state, warehouse and archive.
///
/// Exit codes: 0 bound, or nothing to do; 1 failed, the same command resumes; 2 usage or configuration, or something
/// belongs to a third service; 5 another run holds the lease.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync rebind --from https://old.example.com
  studysync rebind --from-environment staging")]
pub(super) struct RebindArgs {
    /// The old address [default: the address did not change]
    #[arg(long, value_name = "URL", required_unless_present = "from_environment")]
    from: Option<String>,

    /// The old environment label [default: the label did not change]
    #[arg(long, value_name = "LABEL")]
    from_environment: Option<String>,

    #[command(flatten)]
    locations: LocationArgs,
}

/// Binds the stored data to the configured service. Fails if the configuration still has the old value.
pub(super) fn run(args: &RebindArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.locations.settings(&context).build()?;
    let to = pipeline::identity(&settings)?;
    let from = Identity {
        base_url: args.from.as_deref().map_or(Ok(to.base_url.clone()), checked_address).map_err(SourceError::from)?,
        environment: args.from_environment.clone().unwrap_or_else(|| to.environment.clone()),
    };
    if pipeline::is_same_identity(&from, &to) {
        let why = format!(
            "the configuration still has the old value, {} ({}): set the new value there first",
            to.base_url, to.environment
        );
        return Err(CommandError::Usage(why));
    }
    let bound = pipeline::rebind(&settings, &from)?;
    let mut text = format!("bound to {} ({}):", to.base_url, to.environment);
    match bound.is_empty() {
        true => text.push_str(" nothing was bound to the old value"),
        false => bound.iter().for_each(|part| text.push_str(&format!("\n  {part}"))),
    }
    context.printer.print_wrapped(&text)?;
    Ok(0)
}
