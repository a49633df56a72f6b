//! Checks that the warehouse or the service knows the surveys that the command line names. A mistyped survey would be
//! read as empty, and its coverage would stay in the checkpoints for ever.

use std::time::Duration;

use arrow::{array::AsArray as _, datatypes::Int64Type};
use serde_json::Value;

use crate::{
    config::WarehouseSettings,
    load::{LoadError, Reader},
    model::{FlagSet, PageRequest, Scope, Stream, Window},
    page::{DATA, PageParts, PageRecord},
    pipeline::{
        assemble::{failed, open_reader},
        error::{PipelineError, UnknownSurveys},
        threads::blocking,
    },
    source::{Answer, Range, SourceError},
};

use super::run::Run;

/// The page size of requests for surveys, in rows.
const PAGE_ROWS: u32 = 1000;
/// The maximum number of pages of surveys that are read. No company has so many surveys.
const PAGES_MAX: usize = 20;
/// Time limit of a query.
const TIME_MAX: Duration = Duration::from_secs(300);

/// Returns the named surveys that have neither a row nor an answer in the warehouse. Returns `None` if the warehouse
/// knows all named surveys, or if its table of surveys is empty, which proves nothing.
pub fn unknown_surveys(reader: &mut Reader, named: &[i64]) -> Result<Option<UnknownSurveys>, LoadError> {
    let unknown = find_unknown(reader, named)?;
    Ok((!unknown.ids.is_empty() && !unknown.known.is_empty()).then_some(unknown))
}

/// Opens the warehouse, and returns the [`unknown_surveys`]. Returns `None` if there are none, or if the warehouse
/// cannot be read.
pub fn unknown_in_warehouse(warehouse: &WarehouseSettings, named: &[i64]) -> Option<UnknownSurveys> {
    if named.is_empty() {
        return None;
    }
    let (_, mut reader) = open_reader(warehouse, TIME_MAX).ok()?;
    unknown_surveys(&mut reader, named).ok()?
}

/// Returns the named surveys that have neither a row nor an answer in the warehouse, and the surveys that have a row.
fn find_unknown(reader: &mut Reader, named: &[i64]) -> Result<UnknownSurveys, LoadError> {
    let mut unknown = UnknownSurveys { ids: named.to_vec(), ..UnknownSurveys::default() };
    let listed: Vec<String> = named.iter().map(i64::to_string).collect();
    let sql = format!(
        "SELECT id, coalesce(name, '') AS name FROM surveys WHERE id IS NOT NULL
         UNION ALL SELECT DISTINCT survey_id, NULL FROM responses WHERE survey_id IN ({})",
        listed.join(", ")
    );
    reader.stream(&sql, usize::MAX, |batch| {
        let (ids, names) = (batch.column(0).as_primitive_opt::<Int64Type>(), batch.column(1).as_string_opt::<i32>());
        let (Some(ids), Some(names)) = (ids, names) else {
            return Err(LoadError::DamagedRows("ids of surveys are not integers".into()));
        };
        for (id, name) in ids.iter().zip(names.iter()) {
            let Some(id) = id else { continue };
            unknown.ids.retain(|unknown| *unknown != id);
            if let Some(name) = name {
                unknown.known.insert(id, name.to_owned());
            }
        }
        Ok(())
    })?;
    Ok(unknown)
}

impl Run {
    /// Checks the surveys of the settings before they are scanned. Sends requests only for surveys that the warehouse
    /// does not know. A stop is recorded in the findings.
    ///
    /// # Errors
    /// `UnknownSurveys` if neither the warehouse nor the service knows one of the surveys.
    pub(super) async fn check_surveys(&mut self) -> Result<(), PipelineError> {
        if self.session.settings.surveys.is_empty() {
            return Ok(());
        }
        let mut unknown = self.unknown_in_own_warehouse().await?;
        if unknown.ids.is_empty() {
            return Ok(());
        }
        match self.remove_surveys_of_service(&mut unknown).await {
            Ok(()) if unknown.ids.is_empty() => Ok(()),
            Ok(()) => Err(PipelineError::UnknownSurveys(unknown)),
            Err(SourceError::Stopped(stop)) => {
                self.findings.stop = Some(stop);
                Ok(())
            }
            Err(error) => Err(PipelineError::Source(error)),
        }
    }

    /// Returns the surveys of the settings that the warehouse does not know. Before that, publishes the warehouses and
    /// releases their locks, because the reader opens the files itself.
    async fn unknown_in_own_warehouse(&self) -> Result<UnknownSurveys, PipelineError> {
        for destination in &self.destinations {
            self.publish(destination).await?;
        }
        self.release_locks().await?;
        let (warehouse, named) = (self.session.settings.warehouse.clone(), self.session.settings.surveys.clone());
        blocking(move || {
            let (name, mut reader) = open_reader(&warehouse, TIME_MAX)?;
            find_unknown(&mut reader, &named).map_err(failed(name))
        })
        .await?
    }

    /// Removes from `unknown` the surveys that the service lists or has answers to. A survey whose request fails counts
    /// as known. All surveys count as known if the list of surveys fails, or if no request returns a page, because 404
    /// alone proves nothing.
    async fn remove_surveys_of_service(&self, unknown: &mut UnknownSurveys) -> Result<(), SourceError> {
        let source = &self.context.source;
        source.probe().await?;
        let now_ms = source.service_now_ms().unwrap_or_else(|| self.session.now_ms());
        let window = Window::new(0, now_ms.max(1));
        let flags = FlagSet::EMPTY;
        let scope = Scope::all(Stream::Surveys);
        let mut has_page = false;
        let mut request = PageRequest { scope, window, flags, page_rows: PAGE_ROWS, token: None };
        for _ in 0..PAGES_MAX {
            let page = match source.ask(&request, Range::Window).await? {
                Answer::Page(page) => page,
                Answer::Rejected { status: 404, is_web_page: false } => break,
                Answer::Rejected { .. } | Answer::Failed(_) => {
                    unknown.ids.clear();
                    return Ok(());
                }
            };
            has_page = true;
            for survey in records(&page.body) {
                if let Some(id) = survey["id"].as_i64() {
                    unknown.ids.retain(|unknown| *unknown != id);
                    unknown.known.insert(id, survey["name"].as_str().unwrap_or_default().to_owned());
                }
            }
            request.token = page.next;
            if request.token.is_none() || unknown.ids.is_empty() {
                break;
            }
        }
        for id in unknown.ids.clone() {
            let scope = Scope { stream: Stream::Responses, survey_id: Some(id) };
            let request = PageRequest { scope, window, flags, page_rows: 1, token: None };
            let has_answers = match source.ask(&request, Range::Window).await? {
                Answer::Page(page) => {
                    has_page = true;
                    // A page without records and with a next page says nothing about the survey.
                    page.next.is_some() || records(&page.body).iter().any(|answer| answer["surveyId"] == id)
                }
                Answer::Rejected { status, is_web_page } => status != 404 || is_web_page,
                Answer::Failed(_) => true,
            };
            if has_answers {
                unknown.ids.retain(|unknown| *unknown != id);
            }
        }
        if !has_page {
            unknown.ids.clear();
        }
        Ok(())
    }
}

/// Returns the records of a page that are valid JSON.
fn records(body: &[u8]) -> Vec<Value> {
    let parts = PageParts::parse(body, &[DATA]).unwrap_or_default();
    let value = |record: &PageRecord| serde_json::from_slice(body.get(record.range.clone())?).ok();
    parts.records().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_record_does_not_hide_the_others() {
        let ids =
            |body: &str| -> Vec<_> { records(body.as_bytes()).iter().map(|survey| survey["id"].as_i64()).collect() };
        for odd in ["", r#",{"id":2,"name":"\ud800"}"#, r#",{"id":2,"x":1e999}"#, r#",{"id":2,"x":NaN}"#] {
            assert_eq!(ids(&format!("\u{feff}{{\"data\":[{{\"id\":1}}{odd}],\"cursor\":null}}")), [Some(1)], "{odd}");
        }
        assert!(ids("no page").is_empty());
    }
}
