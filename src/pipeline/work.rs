//! What there is to do: for each scope its coverage, its rules and what is due.

use crate::{
    config::{Settings, StreamSettings},
    model::{DAY_MS, Scope, Segment, Stream, Window, trait_names},
    plan::{Ask, Due, Rules, due},
    state::{State, StateError},
};

/// One scope and what is due in it.
#[derive(Clone, Debug)]
pub struct ScopeWork {
    pub scope: Scope,
    pub rules: Rules,
    /// Rows asked for in one call.
    pub page_rows: u32,
    /// What is proven complete.
    pub held: Vec<Segment>,
    pub due: Vec<Due>,
}

/// What `sync` (`backfill` is `None`) or `backfill` of a window has to do at the service's time `now_ms`, most urgent first.
pub fn work(
    settings: &Settings,
    state: Option<&State>,
    backfill: Option<Window>,
    now_ms: i64,
) -> Result<Vec<ScopeWork>, StateError> {
    let mut all = Vec::new();
    let page_rows_known = |stream| page_rows_known(state, stream);
    for stream in &settings.streams {
        for scope in scopes(settings, stream) {
            let held = held(state, scope)?;
            let ask = match backfill {
                Some(window) => Ask::Backfill { window },
                None => Ask::Sync {
                    first_since_ms: first_since_ms(stream, now_ms),
                    known_since_ms: state.map(|state| state.extent_start_ms(scope)).transpose()?.flatten(),
                },
            };
            let rules = Rules {
                flags: stream.flags,
                settle_ms: i64::try_from(stream.settle.as_millis()).unwrap_or(i64::MAX),
                rescan: stream.rescan.clone(),
            };
            let due = due(scope, &held, &rules, ask, now_ms);
            let page_rows = page_rows_known(stream.stream)?.map_or(stream.page_rows, |rows| rows.min(stream.page_rows));
            all.push(ScopeWork { scope, rules, page_rows, held, due });
        }
    }
    Ok(all)
}

/// The largest page that is known to come: of responses the largest in time, of themes the only one there is.
fn page_rows_known(state: Option<&State>, stream: Stream) -> Result<Option<u32>, StateError> {
    let name = match stream {
        Stream::Responses => trait_names::PAGE_ROWS,
        Stream::Themes => trait_names::THEMES_PAGE_ROWS,
        Stream::Surveys => return Ok(None),
    };
    let known = state.map(|state| state.service_trait::<u32>(name)).transpose()?.flatten();
    Ok(known.map(|(rows, _)| rows.max(1)))
}

fn scopes(settings: &Settings, stream: &StreamSettings) -> Vec<Scope> {
    if settings.surveys.is_empty() || !stream.stream.has_survey_filter() {
        return vec![Scope::all(stream.stream)];
    }
    settings.surveys.iter().map(|id| Scope { stream: stream.stream, survey_id: Some(*id) }).collect()
}

/// What is covered for all surveys is covered for each.
fn held(state: Option<&State>, scope: Scope) -> Result<Vec<Segment>, StateError> {
    let Some(state) = state else { return Ok(Vec::new()) };
    let mut held = state.coverage(scope)?;
    if scope.survey_id.is_some() {
        held.extend(state.coverage(Scope::all(scope.stream))?);
        held.sort_by_key(|segment| segment.window.start_ms);
    }
    Ok(held)
}

fn first_since_ms(stream: &StreamSettings, now_ms: i64) -> i64 {
    stream.since_ms.unwrap_or_else(|| (now_ms - crate::config::FIRST_SYNC_DAYS * DAY_MS).div_euclid(DAY_MS) * DAY_MS)
}
