//! Measures the largest page size that the service answers in time, and the order of the list, with the same pages of
//! responses.
//!
//! Measures the form of `Retry-After`. No 429 is provoked: the evidence is a 429 that a run received anyway.

use crate::{
    model::{DAY_MS, ListOrder, PageRequest, RetryAfterForm, Window, behaviour_names},
    pipeline::error::PipelineError,
    plan::page_boundaries::PageMoments,
    source::{Answer, Failure, Range},
    state::State,
};

use super::{
    report::{self, MeasureContext, Measured},
    rows::{RowTimes, most_informative, rows_of},
    stored::order_of,
    tie_probe::moments_of,
    users::user_ids_of,
};

/// Page sizes to try, largest first.
const SIZES: [u32; 6] = [1000, 500, 250, 100, 50, 10];
/// The range of the first attempts. A range of all history may be too slow for the service.
const RECENT_DAYS: i64 = 30;
/// The maximum number of further pages that are read to find two rows of one millisecond.
const MORE_PAGES_MAX: usize = 5;

/// Pages of responses.
pub(super) struct ResponseSample {
    pages: Vec<PageMoments>,
    /// The rows of the first page, with their times.
    first: Vec<RowTimes>,
}

impl ResponseSample {
    /// Returns a creation time that two rows share, in epoch milliseconds. Returns `None` if there is no such time.
    pub fn tie(&self) -> Option<i64> {
        self.pages.iter().find_map(|page| page.tie_ms)
    }

    /// Returns the number of rows on all pages.
    pub fn rows(&self) -> usize {
        self.pages.iter().map(|page| page.rows.len()).sum()
    }

    /// Returns the row of the first page that shows best by which time the service filters.
    pub fn most_informative(&self) -> Option<&RowTimes> {
        most_informative(&self.first)
    }
}

/// The result of requesting a page of one size.
enum PageAttempt {
    Page {
        moments: PageMoments,
        /// The rows of the page, with their times.
        first: Vec<RowTimes>,
        /// Ids of the users on the page.
        users: Vec<String>,
        rows: usize,
        latency_ms: u64,
        /// The request of the next page.
        request: PageRequest,
        has_next: bool,
    },
    /// The list is empty, or the service refused the request.
    Empty,
    Failed(Failure),
}

/// Measures the page size and the order of responses. Tries page sizes from the largest until a page takes at most half
/// of the time limit. Returns the pages for further measures, or `None` if no page arrived; all behaviours of responses
/// stay unknown in this case.
pub(super) async fn measure(context: &mut MeasureContext) -> Result<Option<ResponseSample>, PipelineError> {
    let end_ms = context.now_ms.saturating_add(DAY_MS);
    let recent = Window::new(context.now_ms.saturating_sub(RECENT_DAYS * DAY_MS), end_ms);
    let mut window = recent;
    let (mut tried, mut index) = (Vec::new(), 0);
    while let Some(size) = SIZES.get(index).copied() {
        let answer = try_size(context, window, size).await?;
        let is_short = match &answer {
            PageAttempt::Page { rows, has_next, .. } => !has_next && *rows < size as usize,
            PageAttempt::Empty => true,
            PageAttempt::Failed(_) => false,
        };
        if is_short && window == recent {
            window = Window::new(0, end_ms);
            continue;
        }
        match answer {
            PageAttempt::Page { moments, first, users, rows, latency_ms, request, has_next } => {
                let is_in_time = latency_ms <= context.timeout_ms / 2;
                tried.push(format!("{size} rows in {latency_ms} ms"));
                if is_in_time || index + 1 == SIZES.len() {
                    let is_full = has_next || rows >= size as usize;
                    add_page_size(context, size, is_full || index > 0, rows, &tried);
                    (context.user_ids, context.page_rows) = (users, size);
                    let sample = ResponseSample { pages: vec![moments], first };
                    return finish(context, sample, request).await.map(Some);
                }
            }
            PageAttempt::Empty => {
                report::fill_unknown(
                    &mut context.measured,
                    report::RESPONSES_BEHAVIOURS,
                    "the service lists no responses",
                );
                return Ok(None);
            }
            PageAttempt::Failed(failure) => tried.push(format!("{size} rows: {}", failure.kind())),
        }
        index += 1;
    }
    report::fill_unknown(
        &mut context.measured,
        report::RESPONSES_BEHAVIOURS,
        &format!("no page of responses arrived: {}", tried.join(", ")),
    );
    Ok(None)
}

/// Requests the first page of a window with one page size.
async fn try_size(context: &MeasureContext, window: Window, size: u32) -> Result<PageAttempt, PipelineError> {
    let requester = &context.requester;
    let mut request =
        PageRequest { scope: requester.scope, window, flags: requester.flags, page_rows: size, token: None };
    Ok(match requester.source.ask(&request, Range::Window).await? {
        Answer::Page(page) if page.rows == 0 && page.next.is_none() => PageAttempt::Empty,
        Answer::Page(page) => {
            let latency_ms = page.latency_ms;
            let flat = requester.flatten(page.body).await?;
            request.token = page.next;
            let stream = requester.scope.stream;
            let (moments, first, users) = (moments_of(stream, &flat), rows_of(stream, &flat), user_ids_of(&flat));
            let has_next = request.token.is_some();
            PageAttempt::Page { moments, first, users, rows: page.rows, latency_ms, request, has_next }
        }
        Answer::Rejected { .. } => PageAttempt::Empty,
        Answer::Failed(failure) => PageAttempt::Failed(failure),
    })
}

/// Adds the measured page size. `is_proven` is false if the page has all rows of the list, so that nothing shows
/// whether the service delivers a full page. `tried` has the attempts, in words.
fn add_page_size(context: &mut MeasureContext, size: u32, is_proven: bool, rows: usize, tried: &[String]) {
    let name = behaviour_names::PAGE_ROWS;
    context.add(match is_proven {
        true => Measured::known(name, size, tried.join(", ")),
        false => Measured::unknown(name, format!("not enough rows: one page has all {rows}")),
    });
}

/// Adds the measured order, and reads up to [`MORE_PAGES_MAX`] more pages until two rows share a millisecond. `request`
/// is the request of the next page. Returns the sample with all pages.
async fn finish(
    context: &mut MeasureContext,
    mut sample: ResponseSample,
    mut request: PageRequest,
) -> Result<ResponseSample, PipelineError> {
    let name = behaviour_names::ORDER;
    let rows = sample.rows();
    context.add(match sample.pages.first().and_then(order_of) {
        Some(order @ ListOrder::None) => Measured::known(name, order, "the times of a page rise and fall"),
        Some(order) => Measured::known(name, order, format!("all {rows} rows of a page are in this order")),
        None => Measured::unknown(name, format!("not enough rows: {rows}")),
    });
    while sample.tie().is_none() && request.token.is_some() && sample.pages.len() <= MORE_PAGES_MAX {
        let answer = context.requester.source.ask(&request, Range::Window).await?;
        let Answer::Page(page) = answer else { break };
        let flat = context.requester.flatten(page.body).await?;
        sample.pages.push(moments_of(context.requester.scope.stream, &flat));
        request.token = page.next;
    }
    Ok(sample)
}

/// Adds the form of `Retry-After` that this check received, or the stored form of an earlier run. The form stays
/// unknown if no run was rate limited.
pub(super) fn measure_retry_after(context: &mut MeasureContext, state: &State) -> Result<(), PipelineError> {
    let name = behaviour_names::RETRY_AFTER;
    // An entry of a spent request budget is replaced, because this measure needs no request.
    context.measured.retain(|measured| measured.name != name);
    let received = context.requester.source.retry_after_form();
    let stored = state.behaviour::<RetryAfterForm>(name)?;
    context.add(match (received, stored) {
        (Some(form), _) => Measured::known(name, form, "a 429 during this check"),
        (None, Some((form, at_ms))) => {
            let how = state.behaviour_evidence(name)?;
            let how = how.unwrap_or_else(|| "a 429 in an earlier run".to_owned());
            // The time of the earlier measure stays.
            Measured { measured_ms: Some(at_ms), ..Measured::known(name, form, how) }
        }
        (None, None) => Measured::unknown(name, "no run was rate limited"),
    });
    Ok(())
}
