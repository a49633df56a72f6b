//! `studysync forget`: what is known complete of a survey is forgotten. No row is touched.

use clap::Args;

use crate::{
    load::Identity,
    model::Scope,
    pipeline::{Session, System},
    state::{State, StateError},
};

use super::{
    CommandError, Context,
    flags::{PlaceFlags, SurveyFlags},
};

/// Forgets what is known of single surveys; deletes no row.
///
/// Removes the coverage, the last read time and the unfinished scans of each named survey from the checkpoints.
///
/// `sync --survey ID` and `backfill --survey ID` record these, and `status` and `report` list them separately. Use this
/// command for surveys that were mistyped or are no longer read alone. Rows and pages stay, and so does the coverage of
/// all surveys together. A later run that names the survey reads it again. To remove people, use `erase`.
///
/// Exit codes: 0 forgotten; 1 the checkpoints cannot be written; 2 usage or configuration, or nothing is known of such
/// a survey alone; 5 another run holds the lease.
#[derive(Args, Debug)]
pub(super) struct ForgetArgs {
    #[command(flatten)]
    place: PlaceFlags,

    #[command(flatten)]
    surveys: SurveyFlags,
}

pub(super) fn run(args: &ForgetArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.place.given(&context).surveys(&args.surveys).settings()?;
    if settings.surveys.is_empty() {
        return Err(CommandError::Usage("name a survey with --survey".to_owned()));
    }
    let path = &settings.state_path;
    let Some(read) = State::open_read_only(path).map_err(CommandError::State)? else {
        return Err(CommandError::Usage(format!("nothing is known yet: there is no state file {}", path.display())));
    };
    let facts = || -> Result<(String, String, Vec<Scope>), StateError> {
        let fact = |key| read.meta(key).map(Option::unwrap_or_default);
        Ok((fact("base_url")?, fact("environment")?, read.single_surveys()?))
    };
    let (base_url, environment, known) = facts().map_err(CommandError::State)?;
    drop(read);
    let is_known = |id: &i64| known.iter().any(|scope| scope.survey_id == Some(*id));
    if let Some(unknown) = settings.surveys.iter().find(|id| !is_known(id)) {
        return Err(CommandError::Usage(nothing_known(*unknown, &known)));
    }
    let forget = || -> Result<(), StateError> {
        let session = Session::open(&settings, &Identity { base_url, environment }, "forget", &System::default())?;
        settings.surveys.iter().try_for_each(|id| session.state().forget_survey(*id))
    };
    forget().map_err(CommandError::State)?;
    for scope in known.iter().filter(|scope| scope.survey_id.is_some_and(|id| settings.surveys.contains(&id))) {
        context.printer.print(&format!("forgotten: {scope}"))?;
    }
    Ok(0)
}

fn nothing_known(id: i64, known: &[Scope]) -> String {
    let mut ids: Vec<String> = known.iter().filter_map(|scope| scope.survey_id).map(|id| id.to_string()).collect();
    ids.dedup();
    match ids.is_empty() {
        true => format!("nothing is known of survey {id} alone, nor of any other"),
        false => format!("nothing is known of survey {id} alone; there are {}", ids.join(", ")),
    }
}
