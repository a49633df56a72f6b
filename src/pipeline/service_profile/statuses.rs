//! Measures which surveys the service lists if a request names no status, and which of the contract's three spellings
//! of `status` it understands. If the service lists archived surveys only on request, a survey that is archived would
//! seem to have vanished without this measure.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use arrow::array::{Array as _, AsArray as _};

use crate::{
    flatten::flatten_page,
    model::{
        DAY_MS, DriftRules, FlagSet, PageRequest, Scope, StatusFilter, StatusSpelling, Stream, SurveyStatus, Window,
        behaviour_names, is_recent,
    },
    pipeline::{error::PipelineError, threads::blocking},
    source::{Answer, Range, Source},
    state::State,
    wording::counted,
};

use super::report::{Measured, STATUS_BEHAVIOURS};

/// The value that is stored if the service understands no spelling.
const NONE: &str = "none";
/// The time after which the measure is repeated if the service understands no spelling.
const MEASURE_AGE_MAX_MS: i64 = 30 * DAY_MS;
/// The smallest page size.
const ROWS_MIN: u32 = 10;
/// The maximum number of pages that are read of a list of surveys.
const PAGES_MAX: usize = 1000;

/// The result of the measure.
struct StatusMeasure {
    /// The spelling that the service understands. `None` if it understands no spelling.
    spelling: Option<StatusSpelling>,
    /// True if a request without a status lists all surveys. `None` if the listed surveys do not show it.
    lists_all: Option<bool>,
    /// Statuses of the surveys that a request without a status lists.
    by_default: BTreeSet<SurveyStatus>,
    /// Statuses that are only listed if a request names all statuses. `None` without a spelling.
    on_request: Option<BTreeSet<SurveyStatus>>,
    /// The evidence, in words.
    how: String,
}

/// The behaviours about statuses of surveys that earlier runs measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownStatuses {
    /// `None` if a measure of the spelling is due; `Some(None)` if the service understands no spelling.
    spelling: Option<Option<StatusSpelling>>,
    /// True if a request without a status lists all surveys. `None` if it is unknown.
    lists_all: Option<bool>,
}

impl KnownStatuses {
    /// Loads the stored behaviours.
    pub fn load(state: &State, now_ms: i64) -> Result<KnownStatuses, PipelineError> {
        let spelling = state.behaviour::<String>(behaviour_names::SURVEY_STATUS_FORM)?;
        let lists_all = state.behaviour(behaviour_names::SURVEYS_LISTED_WHOLE)?;
        let spelling = spelling.and_then(|(spelling, at_ms)| match spelling.as_str() {
            NONE => is_recent(at_ms, now_ms, MEASURE_AGE_MAX_MS).then_some(None),
            spelling => serde_json::from_value(spelling.into()).ok().map(Some),
        });
        Ok(KnownStatuses { spelling, lists_all: lists_all.map(|(lists_all, _)| lists_all) })
    }

    /// Returns true if a measure is due: the spelling is unknown, or the listed surveys did not show whether a request
    /// without a status lists all surveys.
    pub fn need_measure(self) -> bool {
        match self.spelling {
            None => true,
            Some(None) => false,
            Some(Some(_)) => self.lists_all.is_none(),
        }
    }

    /// Returns true if a measure found that the service understands no spelling.
    pub fn understands_no_spelling(self) -> bool {
        matches!(self.spelling, Some(None))
    }

    /// Returns the status filter for requests of surveys, or `None` to name no status. `wanted` are the statuses of the
    /// settings; empty for surveys of all statuses.
    pub fn filter(self, wanted: &[SurveyStatus]) -> Option<StatusFilter> {
        let spelling = self.spelling.flatten()?;
        match (wanted, self.lists_all) {
            // A request without a status also lists surveys with a status that the contract does not know.
            ([], Some(true) | None) => None,
            ([], Some(false)) => Some(StatusFilter { spelling, statuses: SurveyStatus::ALL.to_vec() }),
            (wanted, _) => Some(StatusFilter { spelling, statuses: wanted.to_vec() }),
        }
    }
}

/// Measures how the service lists surveys by status. A behaviour that the answers do not show stays unknown. `known` is
/// what earlier runs measured, whose spelling is tried first. Leaves the client without a status filter.
pub async fn measure_statuses(source: &Source, known: KnownStatuses) -> Result<Vec<Measured>, PipelineError> {
    let outcome = measure(source, known.spelling.flatten()).await;
    source.list_surveys_with(None);
    let (form, whole) = (behaviour_names::SURVEY_STATUS_FORM, behaviour_names::SURVEYS_LISTED_WHOLE);
    let StatusMeasure { spelling, lists_all, by_default, on_request, how } = match outcome? {
        Ok(measure) => measure,
        Err(why) => return Ok(STATUS_BEHAVIOURS.map(|name| Measured::unknown(name, why)).into()),
    };
    let default = match by_default.is_empty() {
        false => Measured::known(behaviour_names::DEFAULT_STATUSES, names(&by_default), how.clone()),
        true => {
            Measured::unknown(behaviour_names::DEFAULT_STATUSES, format!("{how}; none has a status of the contract"))
        }
    };
    let more = match on_request {
        Some(on_request) => Measured::known(behaviour_names::STATUSES_ON_REQUEST, names(&on_request), how.clone()),
        None => Measured::unknown(behaviour_names::STATUSES_ON_REQUEST, how.clone()),
    };
    let form = match spelling {
        Some(spelling) => Measured::known(form, spelling, how.clone()),
        None => Measured::known(form, NONE, how.clone()),
    };
    let whole = match lists_all {
        Some(lists_all) => Measured::known(whole, lists_all, how),
        None => Measured::unknown(whole, format!("{how}; no draft or no archived survey is listed")),
    };
    Ok(vec![form, whole, default, more])
}

/// Returns the names of statuses, sorted.
fn names(statuses: &BTreeSet<SurveyStatus>) -> Vec<&'static str> {
    let mut names: Vec<&str> = statuses.iter().map(|status| status.name()).collect();
    names.sort_unstable();
    names
}

/// The surveys of one list: for each hash of a key, the status. A status that the contract does not know is `None`.
/// Such a status may be any text, even a person's name, and behaviours are logged and shown (promise P9).
type SurveyList = BTreeMap<u128, Option<SurveyStatus>>;

/// Requests the list without a status, and with all statuses in each spelling until the service understands a spelling.
/// If nothing can be concluded, returns why as the inner error: the list without a status does not arrive, or no survey
/// is listed.
///
/// The service understands a spelling if the list grows with all statuses, or if two statuses list exactly their
/// surveys. A spelling that an earlier run measured (`known`) only has to list all surveys.
async fn measure(
    source: &Source,
    known: Option<StatusSpelling>,
) -> Result<Result<StatusMeasure, &'static str>, PipelineError> {
    let Some(plain) = list(source, None).await? else { return Ok(Err("the list of surveys did not arrive")) };
    let has = |status| plain.values().any(|other| *other == Some(status));
    let mut lists_all = (has(SurveyStatus::Draft) && has(SurveyStatus::Archived)).then_some(true);
    let others = StatusSpelling::ALL.into_iter().filter(|spelling| Some(*spelling) != known);
    for spelling in known.into_iter().chain(others) {
        let all = StatusFilter { spelling, statuses: SurveyStatus::ALL.to_vec() };
        let Some(listed) = list(source, Some(all)).await? else { continue };
        let has_all = plain.keys().all(|key| listed.contains_key(key));
        if has_all && listed.len() > plain.len() {
            let how =
                format!("{} without a status, {} with all six", counted(plain.len() as u64, "survey"), listed.len());
            return Ok(Ok(StatusMeasure {
                lists_all: Some(false),
                ..compare(Some(spelling), &plain, Some(&listed), how)
            }));
        }
        if has_all && (Some(spelling) == known || is_understood(source, spelling, &listed).await?) {
            let how = format!("{}, with all six statuses and without", counted(plain.len() as u64, "survey"));
            return Ok(Ok(StatusMeasure { lists_all, ..compare(Some(spelling), &plain, Some(&listed), how) }));
        }
        // More surveys with statuses disprove that a request without a status lists all surveys.
        lists_all = lists_all.filter(|_| listed.len() <= plain.len());
    }
    if plain.is_empty() {
        // Every spelling would list the same: nothing.
        return Ok(Err("the service lists no survey"));
    }
    let how = format!("{}; the service understands no spelling", counted(plain.len() as u64, "survey"));
    Ok(Ok(StatusMeasure { lists_all, ..compare(None, &plain, None, how) }))
}

/// Compares the list without a status (`plain`) with the list with all statuses (`all`). Leaves `lists_all` unknown.
fn compare(
    spelling: Option<StatusSpelling>,
    plain: &SurveyList,
    all: Option<&SurveyList>,
    how: String,
) -> StatusMeasure {
    let by_default: BTreeSet<SurveyStatus> = plain.values().filter_map(|status| *status).collect();
    let on_request = all.map(|all| {
        let added = all.iter().filter(|(key, _)| !plain.contains_key(key)).filter_map(|(_, status)| *status);
        added.filter(|status| !by_default.contains(status)).collect()
    });
    StatusMeasure { spelling, lists_all: None, by_default, on_request, how }
}

/// Returns true if a request for two statuses lists exactly the surveys with these statuses. Requests the two statuses
/// that are rarest in `all`, the list with all statuses. So a service that ignores the filter lists more surveys than
/// expected.
async fn is_understood(source: &Source, spelling: StatusSpelling, all: &SurveyList) -> Result<bool, PipelineError> {
    if all.is_empty() {
        // A service that ignores the filter would give the same answer.
        return Ok(false);
    }
    let count = |status: &SurveyStatus| all.values().filter(|other| **other == Some(*status)).count();
    let mut statuses = SurveyStatus::ALL;
    statuses.sort_by_key(count);
    let two = vec![statuses[0], statuses[1]];
    let expected: HashSet<u128> =
        all.iter().filter(|(_, other)| other.is_some_and(|other| two.contains(&other))).map(|(key, _)| *key).collect();
    let listed = list(source, Some(StatusFilter { spelling, statuses: two })).await?;
    Ok(listed.is_some_and(|listed| listed.into_keys().collect::<HashSet<_>>() == expected))
}

/// Reads the list of surveys with a status filter. Retries a failed first page with a smaller page size. Returns `None`
/// if a request is refused or fails, or if the list does not end.
async fn list(source: &Source, filter: Option<StatusFilter>) -> Result<Option<SurveyList>, PipelineError> {
    source.list_surveys_with(filter);
    let (scope, page_rows) = (Scope::all(Stream::Surveys), Stream::Surveys.page_rows_max().unwrap_or(0));
    let window = Window::new(0, i64::MAX);
    let mut request = PageRequest { scope, window, flags: FlagSet::EMPTY, page_rows, token: None };
    let (mut listed, mut tokens) = (SurveyList::new(), HashSet::new());
    for _ in 0..PAGES_MAX {
        let page = match source.ask(&request, Range::Window).await? {
            Answer::Page(page) => page,
            Answer::Rejected { status: 404, is_web_page: false } => return Ok(Some(listed)),
            // A smaller page may succeed.
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

fn statuses_of(body: &[u8]) -> Result<SurveyList, PipelineError> {
    let flat = flatten_page(Stream::Surveys, body, DriftRules::default())?;
    let status = flat.table(Stream::Surveys.name()).and_then(|rows| rows.column_by_name("status"));
    let status = status.and_then(|column| column.as_string_opt::<i32>());
    let status_of = |row: usize| {
        let name = status.filter(|texts| texts.is_valid(row)).map(|texts| texts.value(row))?;
        SurveyStatus::from_name(name)
    };
    Ok(flat.key_hashes.iter().enumerate().map(|(row, key)| (*key, status_of(row))).collect())
}
