//! The largest page that comes in time, and the order of the list: both from the same pages of responses.

use crate::{
    model::{DAY_MS, ListOrder, PageRequest, Window, behaviour_names},
    plan::page_boundaries::PageMoments,
    source::{Answer, Failure, Range},
};

use super::{
    super::ties::{TieProbeError, moments_of},
    lab::Lab,
    learned::order_of,
    report,
    report::Measured,
    rows::{RowTimes, rows_of, telling},
    users::user_ids_of,
};

/// Page sizes that are tried, largest first.
const SIZES: [u32; 6] = [1000, 500, 250, 100, 50, 10];
/// The days that are looked at first: all of history at once may be more than the service can find its way through.
const RECENT_DAYS: i64 = 30;
/// The most further pages that are looked at for two rows of one millisecond.
const MORE_PAGES_MAX: usize = 5;

/// Pages of responses as they came.
pub(super) struct Sample {
    pages: Vec<PageMoments>,
    /// The rows of the first page, with their times.
    first: Vec<RowTimes>,
}

impl Sample {
    pub fn tie(&self) -> Option<i64> {
        self.pages.iter().find_map(|page| page.tie_ms)
    }

    pub fn rows(&self) -> usize {
        self.pages.iter().map(|page| page.rows.len()).sum()
    }

    /// The row of the first page that tells most of what ranges mean.
    pub fn telling(&self) -> Option<&RowTimes> {
        telling(&self.first)
    }
}

/// What asking for a page of one size brought.
enum Tried {
    Came {
        moments: PageMoments,
        first: Vec<RowTimes>,
        users: Vec<String>,
        rows: usize,
        latency_ms: u64,
        request: PageRequest,
        has_next: bool,
    },
    Empty,
    Failed(Failure),
}

/// `None` if the service shows no rows: then nothing else can be measured.
pub(super) async fn measure(lab: &mut Lab) -> Result<Option<Sample>, TieProbeError> {
    let end_ms = lab.now_ms.saturating_add(DAY_MS);
    let recent = Window::new(lab.now_ms.saturating_sub(RECENT_DAYS * DAY_MS), end_ms);
    let mut window = recent;
    let (mut tried, mut at) = (Vec::new(), 0);
    while let Some(size) = SIZES.get(at).copied() {
        let answer = try_size(lab, window, size).await?;
        let is_short = match &answer {
            Tried::Came { rows, has_next, .. } => !has_next && *rows < size as usize,
            Tried::Empty => true,
            Tried::Failed(_) => false,
        };
        if is_short && window == recent {
            window = Window::new(0, end_ms);
            continue;
        }
        match answer {
            Tried::Came { moments, first, users, rows, latency_ms, request, has_next } => {
                let is_in_time = latency_ms <= lab.timeout_ms / 2;
                tried.push(format!("{size} rows in {latency_ms} ms"));
                if is_in_time || at + 1 == SIZES.len() {
                    let is_full = has_next || rows >= size as usize;
                    note_size(lab, size, is_full || at > 0, rows, &tried);
                    (lab.user_ids, lab.page_rows) = (users, size);
                    let sample = Sample { pages: vec![moments], first };
                    return finish(lab, sample, request).await.map(Some);
                }
            }
            Tried::Empty => {
                report::fill(&mut lab.found, report::OF_RESPONSES, "the service shows no responses");
                return Ok(None);
            }
            Tried::Failed(failure) => tried.push(format!("{size} rows: {}", failure.kind())),
        }
        at += 1;
    }
    report::fill(&mut lab.found, report::OF_RESPONSES, &format!("no page of responses came: {}", tried.join(", ")));
    Ok(None)
}

async fn try_size(lab: &Lab, window: Window, size: u32) -> Result<Tried, TieProbeError> {
    let asker = &lab.asker;
    let mut request = PageRequest { scope: asker.scope, window, flags: asker.flags, page_rows: size, token: None };
    Ok(match asker.source.ask(&request, Range::Window).await.map_err(TieProbeError::Source)? {
        Answer::Page { page, .. } if page.rows == 0 && page.next.is_none() => Tried::Empty,
        Answer::Page { page, latency_ms } => {
            let flat = asker.flatten(page.body).await?;
            request.token = page.next;
            let stream = asker.scope.stream;
            let (moments, first, users) = (moments_of(stream, &flat), rows_of(stream, &flat), user_ids_of(&flat));
            let has_next = request.token.is_some();
            Tried::Came { moments, first, users, rows: page.rows, latency_ms, request, has_next }
        }
        Answer::Rejected { .. } => Tried::Empty,
        Answer::Failed(failure) => Tried::Failed(failure),
    })
}

fn note_size(lab: &mut Lab, size: u32, is_told: bool, rows: usize, tried: &[String]) {
    let name = behaviour_names::PAGE_ROWS;
    lab.note(match is_told {
        true => Measured::known(name, size, tried.join(", ")),
        false => Measured::unknown(name, format!("not enough rows: all {rows} come on one page")),
    });
}

/// The order, and more pages as long as none shows two rows of one millisecond.
async fn finish(lab: &mut Lab, mut sample: Sample, mut request: PageRequest) -> Result<Sample, TieProbeError> {
    let name = behaviour_names::ORDER;
    let rows = sample.rows();
    lab.note(match sample.pages.first().and_then(order_of) {
        Some(order @ ListOrder::None) => Measured::known(name, order, "the rows of a page go up and down in time"),
        Some(order) => Measured::known(name, order, format!("{rows} rows of a page, all in that order")),
        None => Measured::unknown(name, format!("not enough rows: {rows}")),
    });
    while sample.tie().is_none() && request.token.is_some() && sample.pages.len() <= MORE_PAGES_MAX {
        let answer = lab.asker.source.ask(&request, Range::Window).await.map_err(TieProbeError::Source)?;
        let Answer::Page { page, .. } = answer else { break };
        let flat = lab.asker.flatten(page.body).await?;
        sample.pages.push(moments_of(lab.asker.scope.stream, &flat));
        request.token = page.next;
    }
    Ok(sample)
}
