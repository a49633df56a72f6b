//! Where lists begin and end: whether `start` and `end` belong to the range, how the end of results is said, what an empty
//! result looks like, and how long a page of themes is.

use bytes::Bytes;

use crate::{
    flatten::flatten_page,
    model::{DAY_MS, EndStyle, FlagSet, PageRequest, Scope, Stream, Window, trait_names},
    source::{Answer, Range},
};

use super::{
    super::{
        PipelineError,
        theme_measure::measure as measure_theme_times,
        ties::{Asker, LookError, moments_of},
    },
    lab::Lab,
    paging::Sample,
    report,
    report::Measured,
};

/// The most pages of a small list.
const PAGES_MAX: usize = 4;

/// A small list, read to its end.
struct Small {
    has_row: bool,
    rows: usize,
    /// `None` if it did not come to one.
    end: Option<EndStyle>,
    /// Whether its last page held nothing, and was not its first.
    is_trailing: bool,
}

/// The list of a window of a few milliseconds, and whether a row of `at_ms` is in it.
async fn small_list(lab: &Lab, window: Window, range: Range, at_ms: i64) -> Result<Small, LookError> {
    let asker = &lab.asker;
    let page_rows = asker.scope.stream.page_rows_max().unwrap_or(0);
    let mut request = PageRequest { scope: asker.scope, window, flags: asker.flags, page_rows, token: None };
    let mut small = Small { has_row: false, rows: 0, end: None, is_trailing: false };
    for page_at in 0..PAGES_MAX {
        match asker.source.ask(&request, range).await.map_err(LookError::Source)? {
            Answer::Page { page, .. } => {
                let flat = asker.flatten(page.body).await?;
                small.has_row |= !moments_of(asker.scope.stream, &flat).keys_at(at_ms).is_empty();
                small.rows += page.rows;
                small.is_trailing = page_at > 0 && page.rows == 0;
                small.end = page.end;
                request.token = page.next;
                if request.token.is_none() {
                    break;
                }
            }
            Answer::Rejected { status: 404, is_web_page: false } => {
                (small.end, small.is_trailing) = (Some(EndStyle::NotFound), page_at > 0);
                break;
            }
            Answer::Rejected { .. } | Answer::Failed(_) => break,
        }
    }
    Ok(small)
}

pub(super) async fn measure(lab: &mut Lab, sample: &Sample) -> Result<(), LookError> {
    let Some(at_ms) = sample.moment() else {
        report::fill(&mut lab.found, report::OF_RESPONSES, "no row has a creation time that can be read");
        return Ok(());
    };
    list_end(lab, at_ms).await?;
    range_ends(lab, at_ms).await?;
    empty_list(lab).await
}

async fn list_end(lab: &mut Lab, at_ms: i64) -> Result<(), LookError> {
    let around = small_list(lab, Window::new(at_ms, at_ms + 1), Range::Window, at_ms).await?;
    let (style, trailing) = (trait_names::END_STYLE, trait_names::TRAILING_EMPTY_PAGE);
    let how = format!("a list of {} rows", around.rows);
    match around.end.filter(|_| around.rows > 0) {
        Some(end) => {
            lab.note(Measured::known(style, end, how.clone()));
            lab.note(Measured::known(trailing, around.is_trailing, how));
        }
        None => {
            let why = format!("the rows of {at_ms} ms alone did not come with an end");
            lab.note(Measured::unknown(style, why.clone()));
            lab.note(Measured::unknown(trailing, why));
        }
    }
    Ok(())
}

/// A row is asked for with its own time as `start`, then as `end`.
async fn range_ends(lab: &mut Lab, at_ms: i64) -> Result<(), LookError> {
    let at_start = small_list(lab, Window::new(at_ms, at_ms + 1), Range::Exactly, at_ms).await?;
    note_end(
        lab,
        trait_names::START_INCLUSIVE,
        &at_start,
        format!("a row of {at_ms} ms, asked for with start={at_ms}"),
    );
    let at_end = small_list(lab, Window::new(at_ms - 1, at_ms), Range::Exactly, at_ms).await?;
    note_end(lab, trait_names::END_INCLUSIVE, &at_end, format!("a row of {at_ms} ms, asked for with end={at_ms}"));
    Ok(())
}

fn note_end(lab: &mut Lab, name: &'static str, list: &Small, how: String) {
    lab.note(match list.end {
        // A list that was not read to its end proves only what it had.
        None if !list.has_row => Measured::unknown(name, format!("{how}: the list has no end")),
        _ => Measured::known(name, list.has_row, how),
    });
}

/// Nobody answered a survey in the first milliseconds of 1970.
async fn empty_list(lab: &mut Lab) -> Result<(), LookError> {
    let name = trait_names::NOT_FOUND_WHEN_EMPTY;
    let empty = small_list(lab, Window::new(1, 2), Range::Window, 1).await?;
    let how = "the responses of 1970-01-01T00:00:00.001Z";
    lab.note(match empty.end {
        Some(_) if empty.rows > 0 => Measured::unknown(name, format!("{how} hold {} rows", empty.rows)),
        Some(end) => Measured::known(name, end == EndStyle::NotFound && !empty.is_trailing, how),
        None => Measured::unknown(name, format!("{how} did not come with an end")),
    });
    Ok(())
}

/// No page size can be asked for here, so a page with another one behind it is as long as pages are.
pub(super) async fn themes(lab: &mut Lab) -> Result<(), LookError> {
    let name = trait_names::THEMES_PAGE_ROWS;
    let window = Window::new(0, lab.now_ms.saturating_add(DAY_MS));
    let scope = Scope::all(Stream::Themes);
    let request = PageRequest { scope, window, flags: FlagSet::EMPTY, page_rows: 0, token: None };
    let answer = lab.asker.source.ask(&request, Range::Window).await.map_err(LookError::Source)?;
    let first = match &answer {
        Answer::Page { page, .. } => Some(page.body.clone()),
        Answer::Rejected { .. } | Answer::Failed(_) => None,
    };
    lab.note(match answer {
        Answer::Page { page, .. } if page.next.is_some() && page.rows > 0 => {
            Measured::known(name, page.rows, "the first page of themes, which another follows")
        }
        Answer::Page { page, .. } => Measured::unknown(name, format!("not enough rows: {} themes in all", page.rows)),
        Answer::Rejected { status, .. } => Measured::unknown(name, format!("no themes (status {status})")),
        Answer::Failed(failure) => Measured::unknown(name, format!("themes did not come: {}", failure.kind())),
    });
    theme_times(lab, scope, window, first).await
}

/// Themes are asked for at the moment of their own creation.
async fn theme_times(lab: &mut Lab, scope: Scope, window: Window, first_page: Option<Bytes>) -> Result<(), LookError> {
    let name = trait_names::THEMES_FILTERED_BY;
    let asker = Asker { scope, flags: FlagSet::EMPTY, ..lab.asker.clone() };
    let found = match first_page {
        Some(body) => {
            let flat = flatten_page(Stream::Themes, &body, asker.rules).map_err(PipelineError::Flatten)?;
            measure_theme_times(&asker, window, &moments_of(Stream::Themes, &flat)).await?
        }
        None => None,
    };
    lab.note(match found {
        Some(time) => Measured::known(name, time, "some themes, asked for at the moment of their own creation"),
        None => Measured::unknown(name, "no theme could be asked for at the moment of its creation"),
    });
    Ok(())
}
