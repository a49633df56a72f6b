//! `studysync forget`: removes the checkpoints of single surveys, and no row.

use clap::Args;

use crate::{
    load::Identity,
    model::Scope,
    pipeline::{Session, System},
    state::State,
};

use super::{
    CommandError, Context,
    flags::{LocationArgs, SurveyArgs},
};

/// Removes the checkpoints of single surveys; deletes no row.
///
/// Removes the coverage, the last read time and the unfinished scans of each named survey from the checkpoints.
///
/// `sync --survey ID` and `backfill --survey ID` write these checkpoints, and `status` and `report` list them
/// separately. Use this command for surveys that were mistyped or are no longer synced separately. Rows and pages stay,
/// and so does the coverage of all surveys together. A later run that names the survey reads it again. To remove
/// people, use `erase`.
///
/// Exit codes: 0 forgotten; 1 the checkpoints cannot be written; 2 usage or configuration, or a survey has no
/// checkpoints of its own; 5 another run holds the lease.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync forget --survey 4100
  studysync forget --survey 4100 --survey 4200")]
pub(super) struct ForgetArgs {
    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    surveys: SurveyArgs,
}

/// Removes the checkpoints of the named surveys. Fails if a survey has no checkpoints, before anything is removed.
pub(super) fn run(args: &ForgetArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.locations.settings(&context).surveys(&args.surveys).build()?;
    if settings.surveys.is_empty() {
        return Err(CommandError::Usage("name a survey with --survey".to_owned()));
    }
    let path = &settings.state_path;
    let Some(state) = State::open_read_only(path)? else {
        return Err(CommandError::Usage(format!("nothing was synced yet: there is no state file {}", path.display())));
    };
    let meta = |key| state.meta(key).map(Option::unwrap_or_default);
    let identity = Identity { base_url: meta("base_url")?, environment: meta("environment")? };
    let known = state.survey_scopes()?;
    drop(state);
    let is_known = |id: &i64| known.iter().any(|scope| scope.survey_id == Some(*id));
    if let Some(unknown) = settings.surveys.iter().find(|id| !is_known(id)) {
        return Err(CommandError::Usage(no_checkpoints_message(*unknown, &known)));
    }
    let session = Session::open(&settings, &identity, "forget", &System::default())?;
    settings.surveys.iter().try_for_each(|id| session.state().forget_survey(*id))?;
    drop(session);
    for scope in known.iter().filter(|scope| scope.survey_id.is_some_and(|id| settings.surveys.contains(&id))) {
        context.printer.print_wrapped(&format!("forgotten: {scope}"))?;
    }
    Ok(0)
}

/// Returns the message for a survey without checkpoints of its own. `known` is sorted by survey.
fn no_checkpoints_message(id: i64, known: &[Scope]) -> String {
    let mut ids: Vec<String> = known.iter().filter_map(|scope| scope.survey_id).map(|id| id.to_string()).collect();
    ids.dedup();
    match ids.is_empty() {
        true => format!("survey {id} has no checkpoints of its own, and neither has any other survey"),
        false => format!("survey {id} has no checkpoints of its own; these surveys have: {}", ids.join(", ")),
    }
}
