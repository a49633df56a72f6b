//! Which surveys the service lists when it is not asked for any state, and in which of the contract's three spellings
//! it understands the question. Measured once: a survey that is archived would else seem to have vanished.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use arrow::array::{Array as _, AsArray as _};

use crate::{
    flatten::flatten_page,
    model::{
        DAY_MS, DriftRules, FlagSet, PageRequest, Scope, StatusFilter, StatusSpelling, Stream, SurveyStatus, Window,
        behaviour_names,
    },
    source::{Answer, Range, Source},
    state::State,
};

use super::{
    super::{PipelineError, threads::blocking, ties::TieProbeError},
    Measured,
    report::OF_SURVEYS,
};

/// What is remembered where no spelling is understood.
const NONE: &str = "none";
/// That no spelling is understood is measured again after this time.
const MEASURE_AGE_MAX_MS: i64 = 30 * DAY_MS;
/// The smallest page that is asked for.
const ROWS_MIN: u32 = 10;
/// The longest state, and the most states, that are told.
const STATUS_BYTES_MAX: usize = 40;
const STATUSES_MAX: usize = 12;
/// The most pages of a list of surveys.
const PAGES_MAX: usize = 1000;

/// What was measured.
struct Found {
    spelling: Option<StatusSpelling>,
    /// `None`: what is listed does not tell.
    is_whole: Option<bool>,
    /// States of the surveys that are listed when none is asked for.
    by_default: Vec<String>,
    /// States of those that are listed only when all are asked for; `None`: nobody could ask.
    on_request: Option<Vec<String>>,
    how: String,
}

/// What earlier runs found.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct KnownStatuses {
    /// `None`: not measured. Without a spelling: none is understood.
    form: Option<Option<StatusSpelling>>,
    is_whole: Option<bool>,
}

impl KnownStatuses {
    pub fn load(state: &State, now_ms: i64) -> Result<KnownStatuses, PipelineError> {
        let form = state.behaviour::<String>(behaviour_names::SURVEY_STATUS_FORM)?;
        let is_whole = state.behaviour(behaviour_names::SURVEYS_LISTED_WHOLE)?;
        let form = form.and_then(|(form, at_ms)| match form.as_str() {
            // A service may learn.
            NONE => (now_ms - at_ms < MEASURE_AGE_MAX_MS).then_some(None),
            form => serde_json::from_value(form.into()).ok().map(Some),
        });
        Ok(KnownStatuses { form, is_whole: is_whole.map(|(is_whole, _)| is_whole) })
    }

    /// Whether it has to be measured: never done, or without a draft and an archived survey that could have told.
    pub fn are_open(self) -> bool {
        match self.form {
            None => true,
            Some(None) => false,
            Some(Some(_)) => self.is_whole.is_none(),
        }
    }

    /// What lists of surveys ask for; `wanted` is empty for all.
    pub fn filter(self, wanted: &[SurveyStatus]) -> Option<StatusFilter> {
        let spelling = self.form.flatten()?;
        match (wanted, self.is_whole) {
            // A state that the contract does not know is listed as long as none is asked for.
            ([], Some(true) | None) => None,
            ([], Some(false)) => Some(StatusFilter { spelling, statuses: SurveyStatus::ALL.to_vec() }),
            (wanted, _) => Some(StatusFilter { spelling, statuses: wanted.to_vec() }),
        }
    }
}

/// Measures. Leaves open what the service does not answer or show.
pub(in super::super) async fn choose_statuses(
    source: &Source,
    known: KnownStatuses,
) -> Result<Vec<Measured>, TieProbeError> {
    let outcome = measure(source, known.form.flatten()).await;
    source.list_surveys_with(None);
    let (form, whole) = (behaviour_names::SURVEY_STATUS_FORM, behaviour_names::SURVEYS_LISTED_WHOLE);
    let Some(Found { spelling, is_whole, by_default, on_request, how }) = outcome? else {
        return Ok(OF_SURVEYS.map(|name| Measured::unknown(name, "the list of surveys did not come")).into());
    };
    let default = match by_default.is_empty() {
        false => Measured::known(behaviour_names::DEFAULT_STATUSES, by_default, how.clone()),
        true => Measured::unknown(behaviour_names::DEFAULT_STATUSES, format!("{how}; none has a state")),
    };
    let more = match on_request {
        Some(on_request) => Measured::known(behaviour_names::STATUSES_ON_REQUEST, on_request, how.clone()),
        None => Measured::unknown(behaviour_names::STATUSES_ON_REQUEST, how.clone()),
    };
    let form = match spelling {
        Some(spelling) => Measured::known(form, spelling, how.clone()),
        None => Measured::known(form, NONE, how.clone()),
    };
    let whole = match is_whole {
        Some(is_whole) => Measured::known(whole, is_whole, how),
        None => Measured::unknown(whole, format!("{how}; no draft or no archived survey is listed")),
    };
    Ok(vec![form, whole, default, more])
}

/// The surveys of one list: hash of the key, and status.
type Listed = BTreeMap<u128, Option<String>>;

async fn measure(source: &Source, known: Option<StatusSpelling>) -> Result<Option<Found>, TieProbeError> {
    let Some(plain) = list(source, None).await? else { return Ok(None) };
    let statuses: BTreeSet<&str> = plain.values().filter_map(Option::as_deref).collect();
    let mut is_whole = [SurveyStatus::Draft, SurveyStatus::Archived]
        .iter()
        .all(|status| statuses.contains(status.name()))
        .then_some(true);
    let first = known.into_iter().chain(StatusSpelling::ALL.into_iter().filter(|spelling| Some(*spelling) != known));
    for spelling in first {
        let all = StatusFilter { spelling, statuses: SurveyStatus::ALL.to_vec() };
        let Some(listed) = list(source, Some(all)).await? else { continue };
        let has_all = plain.keys().all(|key| listed.contains_key(key));
        if has_all && listed.len() > plain.len() {
            let how = format!("{} surveys without a status, {} with all six", plain.len(), listed.len());
            return Ok(Some(Found { is_whole: Some(false), ..found(Some(spelling), &plain, Some(&listed), how) }));
        }
        if has_all && (Some(spelling) == known || is_understood(source, spelling, &listed).await?) {
            let how = format!("{} surveys, with all six statuses and without", plain.len());
            return Ok(Some(Found { is_whole, ..found(Some(spelling), &plain, Some(&listed), how) }));
        }
        // In none of the spellings does it name more.
        is_whole = is_whole.filter(|_| listed.len() <= plain.len());
    }
    let how = format!("{} surveys, in no spelling as asked for", plain.len());
    Ok(Some(Found { is_whole, ..found(None, &plain, None, how) }))
}

/// What the lists without a state and with all of them show. States are the service's words:
/// what is no word is left out.
fn found(spelling: Option<StatusSpelling>, plain: &Listed, all: Option<&Listed>, how: String) -> Found {
    let states = |listed: &Listed, is_meant: &dyn Fn(&u128) -> bool| -> BTreeSet<String> {
        let meant = listed.iter().filter(|(key, _)| is_meant(key)).filter_map(|(_, status)| status.clone());
        meant.filter(|status| status.len() <= STATUS_BYTES_MAX).collect()
    };
    let by_default = states(plain, &|_| true);
    let on_request = all.map(|all| {
        let more = states(all, &|key| !plain.contains_key(key));
        more.difference(&by_default).take(STATUSES_MAX).cloned().collect()
    });
    let by_default = by_default.into_iter().take(STATUSES_MAX).collect();
    Found { spelling, is_whole: None, by_default, on_request, how }
}

/// Whether two states alone are listed where they alone are asked for: the two that the fewest surveys have.
async fn is_understood(source: &Source, spelling: StatusSpelling, all: &Listed) -> Result<bool, TieProbeError> {
    let count = |status: &SurveyStatus| all.values().filter(|held| held.as_deref() == Some(status.name())).count();
    let mut statuses = SurveyStatus::ALL;
    statuses.sort_by_key(count);
    let two = vec![statuses[0], statuses[1]];
    let expected: HashSet<u128> = all
        .iter()
        .filter(|(_, held)| two.iter().any(|status| held.as_deref() == Some(status.name())))
        .map(|(key, _)| *key)
        .collect();
    let listed = list(source, Some(StatusFilter { spelling, statuses: two })).await?;
    Ok(listed.is_some_and(|listed| listed.into_keys().collect::<HashSet<_>>() == expected))
}

/// `None` where the service refuses the question, or does not answer.
async fn list(source: &Source, filter: Option<StatusFilter>) -> Result<Option<Listed>, TieProbeError> {
    source.list_surveys_with(filter);
    let (scope, page_rows) = (Scope::all(Stream::Surveys), Stream::Surveys.page_rows_max().unwrap_or(0));
    let window = Window::new(0, i64::MAX);
    let mut request = PageRequest { scope, window, flags: FlagSet::EMPTY, page_rows, token: None };
    let (mut listed, mut tokens) = (Listed::new(), HashSet::new());
    for _ in 0..PAGES_MAX {
        let page = match source.ask(&request, Range::Window).await.map_err(TieProbeError::Source)? {
            Answer::Page { page, .. } => page,
            Answer::Rejected { status: 404, is_web_page: false } => return Ok(Some(listed)),
            // The list may come in smaller pages.
            Answer::Failed(_) if request.page_rows > ROWS_MIN && request.token.is_none() => {
                request.page_rows /= 10;
                continue;
            }
            Answer::Rejected { .. } | Answer::Failed(_) => return Ok(None),
        };
        listed.extend(blocking(move || statuses_of(&page.body)).await??);
        match page.next {
            None => return Ok(Some(listed)),
            Some(token) if !tokens.insert(token.clone()) => return Ok(None),
            token => request.token = token,
        }
    }
    Ok(None)
}

fn statuses_of(body: &[u8]) -> Result<Listed, PipelineError> {
    let flat = flatten_page(Stream::Surveys, body, DriftRules::default())?;
    let status = flat.table(Stream::Surveys.name()).and_then(|rows| rows.column_by_name("status"));
    let status = status.and_then(|column| column.as_string_opt::<i32>());
    let of = |at: usize| status.filter(|texts| texts.is_valid(at)).map(|texts| texts.value(at).to_owned());
    Ok(flat.key_hashes.iter().enumerate().map(|(at, key)| (*key, of(at))).collect())
}
