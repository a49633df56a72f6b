//! Measures lists: which time of a row `start` and `end` mean, and whether both are inclusive. Also measures how the
//! service marks the end of results and an empty list, and how many rows a page of themes has.

use bytes::Bytes;

use crate::{
    flatten::flatten_page,
    model::{DAY_MS, EndStyle, FlagSet, PageRequest, RowTime, Scope, Stream, ThemeTime, Window, behaviour_names},
    pipeline::error::PipelineError,
    source::{Answer, Range},
    wording::counted,
};

use super::{
    paging::ResponseSample,
    report::{self, MeasureContext, Measured},
    rows::{RowTimes, SmallList, SmallListReader, most_informative, rows_of},
    theme_times::measure_theme_times,
    tie_probe::{MomentRequester, moments_of},
};

/// A window without any row: one of the first milliseconds of 1970.
const EMPTY_WINDOW: Window = Window { start_ms: 1, end_ms: 2 };

/// The names of the behaviours about the range of a list.
struct RangeNames {
    filtered_by: &'static str,
    start_inclusive: &'static str,
    end_inclusive: &'static str,
}

const RESPONSES_RANGE: RangeNames = RangeNames {
    filtered_by: behaviour_names::RESPONSES_FILTERED_BY,
    start_inclusive: behaviour_names::START_INCLUSIVE,
    end_inclusive: behaviour_names::END_INCLUSIVE,
};
const SURVEYS_RANGE: RangeNames = RangeNames {
    filtered_by: behaviour_names::SURVEYS_FILTERED_BY,
    start_inclusive: behaviour_names::SURVEYS_START_INCLUSIVE,
    end_inclusive: behaviour_names::SURVEYS_END_INCLUSIVE,
};
const THEMES_RANGE: RangeNames = RangeNames {
    filtered_by: behaviour_names::THEMES_FILTERED_BY,
    start_inclusive: behaviour_names::THEMES_START_INCLUSIVE,
    end_inclusive: behaviour_names::THEMES_END_INCLUSIVE,
};

/// Measures the list of responses, with requests for small windows around one row of the sample. If no row has a
/// creation time, all behaviours of the list stay unknown.
pub(super) async fn measure(context: &mut MeasureContext, sample: &ResponseSample) -> Result<(), PipelineError> {
    let Some(row) = sample.most_informative() else {
        report::fill_unknown(
            &mut context.measured,
            report::RESPONSES_BEHAVIOURS,
            "no row has a creation time that can be read",
        );
        return Ok(());
    };
    let requester = context.requester.clone();
    let window = Window::new(row.created_ms, row.created_ms + 1);
    let lists = context.small_lists(&requester, row.key);
    let around = lists.read(window, Range::Window).await?;
    list_end(context, row.created_ms, &around);
    let empty = lists.read(EMPTY_WINDOW, Range::Window).await?;
    empty_list(context, &empty);
    ranges(context, &requester, &RESPONSES_RANGE, row, [&empty, &around]).await
}

/// Adds how the service marks the end of a list, and whether an empty page follows the last row. `around` is the list
/// of the creation time `at_ms` of a row. Both stay unknown if the list is empty or was not read to its end.
fn list_end(context: &mut MeasureContext, at_ms: i64, around: &SmallList) {
    let (style, trailing) = (behaviour_names::END_STYLE, behaviour_names::TRAILING_EMPTY_PAGE);
    let how = format!("a list of {}", counted(around.rows as u64, "row"));
    match around.end.filter(|_| around.rows > 0) {
        Some(end) => {
            context.add(Measured::known(style, end, how.clone()));
            context.add(Measured::known(trailing, around.has_trailing_empty_page, how));
        }
        None => {
            let why = format!("the list of {at_ms} ms alone was not read to its end");
            context.add(Measured::unknown(style, why.clone()));
            context.add(Measured::unknown(trailing, why));
        }
    }
}

/// Adds whether the service answers an empty list with 404. `empty` is the list of a window that should have no rows.
fn empty_list(context: &mut MeasureContext, empty: &SmallList) {
    let name = behaviour_names::NOT_FOUND_WHEN_EMPTY;
    let how = "the responses of 1970-01-01T00:00:00.001Z";
    context.add(match empty.end {
        Some(_) if empty.rows > 0 => {
            Measured::unknown(name, format!("{how}: the list has {}", counted(empty.rows as u64, "row")))
        }
        Some(end) => Measured::known(name, end == EndStyle::NotFound && !empty.has_trailing_empty_page, how),
        None => Measured::unknown(name, format!("{how}: the list was not read to its end")),
    });
}

/// Measures which time of a row `start` and `end` mean, and whether both are inclusive. `lists` has the list of an
/// empty window, and the list of the creation time of `row`.
async fn ranges(
    context: &mut MeasureContext,
    requester: &MomentRequester,
    names: &RangeNames,
    row: &RowTimes,
    lists: [&SmallList; 2],
) -> Result<(), PipelineError> {
    let filter_time = filter_time(&context.small_lists(requester, row.key), names.filtered_by, row, lists).await?;
    let time = filter_time.value.clone();
    context.add(filter_time);
    if time.is_some() && time == serde_json::to_value(RowTime::Created).ok() {
        return inclusive_ends(context, requester, names, row).await;
    }
    let why = match &time {
        Some(time) => {
            format!("start and end do not mean the creation of a row ({})", time.as_str().unwrap_or_default())
        }
        None => "it is unknown what start and end mean".to_owned(),
    };
    report::fill_unknown(&mut context.measured, [names.start_inclusive, names.end_inclusive], &why);
    Ok(())
}

/// Measures by which time of the row the service filters. Requests the row at each of its times that differ from the
/// creation time, unless `around` already has the row. `empty` is the list of a window that should have no rows.
async fn filter_time(
    lists: &SmallListReader<'_>,
    name: &'static str,
    row: &RowTimes,
    [empty, around]: [&SmallList; 2],
) -> Result<Measured, PipelineError> {
    if empty.rows > 0 {
        let how = format!("the range of 1970-01-01T00:00:00.001Z has {}", counted(empty.rows as u64, "row"));
        return Ok(Measured::known(name, RowTime::Ignored, how));
    }
    let row_name = format!("a row of {} ms", row.created_ms);
    let distinct: Vec<(RowTime, i64)> = row.distinct_times().collect();
    if around.has_row {
        let equal: Vec<String> =
            row.others.iter().filter(|other| !distinct.contains(other)).map(|(time, _)| time.to_string()).collect();
        let also = match equal.is_empty() {
            true => String::new(),
            false => format!("; these times of the row are equal: {}", equal.join(", ")),
        };
        return Ok(Measured::known(name, RowTime::Created, format!("{row_name} is listed at its creation{also}")));
    }
    let mut are_complete = around.end.is_some();
    for (time, at_ms) in distinct {
        let list = lists.read(Window::new(at_ms, at_ms.saturating_add(1)), Range::Part).await?;
        if list.has_row {
            return Ok(Measured::known(name, time, format!("{row_name} is listed at {at_ms} ms, its time '{time}'")));
        }
        are_complete &= list.end.is_some();
    }
    Ok(match are_complete {
        true => Measured::known(name, RowTime::Other, format!("{row_name} is listed at none of its times")),
        false => Measured::unknown(name, format!("{row_name}: the lists of its times were not read to their end")),
    })
}

/// Measures whether a range contains its ends. Requests a row once with its creation time as `start`, and once as
/// `end`.
async fn inclusive_ends(
    context: &mut MeasureContext,
    requester: &MomentRequester,
    names: &RangeNames,
    row: &RowTimes,
) -> Result<(), PipelineError> {
    let (at_ms, key) = (row.created_ms, row.key);
    let lists = context.small_lists(requester, key);
    let at_start = lists.read(Window::new(at_ms, at_ms + 1), Range::Exactly).await?;
    add_end(context, names.start_inclusive, &at_start, format!("a row of {at_ms} ms, requested with start={at_ms}"));
    let at_end = lists.read(Window::new(at_ms - 1, at_ms), Range::Exactly).await?;
    add_end(context, names.end_inclusive, &at_end, format!("a row of {at_ms} ms, requested with end={at_ms}"));
    Ok(())
}

/// Adds whether a range contains one of its ends: true if `list` has the row. Stays unknown if the list was not read to
/// its end and lacks the row.
fn add_end(context: &mut MeasureContext, name: &'static str, list: &SmallList, how: String) {
    context.add(match list.end {
        // An incomplete list does not prove that a row is missing.
        None if !list.has_row => Measured::unknown(name, format!("{how}: the list was not read to its end")),
        _ => Measured::known(name, list.has_row, how),
    });
}

/// Measures which time of a survey `start` and `end` mean, and whether both are inclusive. Runs do not need these
/// behaviours, because they read all surveys each time.
pub(super) async fn surveys(context: &mut MeasureContext) -> Result<(), PipelineError> {
    let scope = Scope::all(Stream::Surveys);
    let requester = MomentRequester { scope, flags: FlagSet::EMPTY, ..context.requester.clone() };
    let (window, page_rows) = (Window::new(0, i64::MAX), Stream::Surveys.page_rows_max().unwrap_or(0));
    let request = PageRequest { scope, window, flags: FlagSet::EMPTY, page_rows, token: None };
    let rows = match requester.source.ask(&request, Range::Window).await? {
        Answer::Page(page) => rows_of(Stream::Surveys, &requester.flatten(page.body).await?),
        Answer::Rejected { .. } | Answer::Failed(_) => Vec::new(),
    };
    let Some(row) = most_informative(&rows) else {
        report::fill_unknown(
            &mut context.measured,
            report::SURVEY_RANGE_BEHAVIOURS,
            "no survey has a creation time that can be read",
        );
        return Ok(());
    };
    let lists = context.small_lists(&requester, row.key);
    let empty = lists.read(EMPTY_WINDOW, Range::Part).await?;
    let window = Window::new(row.created_ms, row.created_ms.saturating_add(1));
    let around = lists.read(window, Range::Part).await?;
    ranges(context, &requester, &SURVEYS_RANGE, row, [&empty, &around]).await
}

/// Measures the list of themes: its page size, and what `start` and `end` mean. A request cannot set the page size of
/// themes, so it is measured as the length of a page that another page follows.
pub(super) async fn themes(context: &mut MeasureContext) -> Result<(), PipelineError> {
    let name = behaviour_names::THEMES_PAGE_ROWS;
    let window = Window::new(0, context.now_ms.saturating_add(DAY_MS));
    let scope = Scope::all(Stream::Themes);
    let request = PageRequest { scope, window, flags: FlagSet::EMPTY, page_rows: 0, token: None };
    let answer = context.requester.source.ask(&request, Range::Window).await?;
    let first = match &answer {
        Answer::Page(page) => Some(page.body.clone()),
        Answer::Rejected { .. } | Answer::Failed(_) => None,
    };
    context.add(match answer {
        Answer::Page(page) if page.next.is_some() && page.rows > 0 => {
            Measured::known(name, page.rows, "the first page of themes, which another follows")
        }
        Answer::Page(page) => Measured::unknown(name, format!("not enough rows: there are only {} themes", page.rows)),
        Answer::Rejected { status, .. } => Measured::unknown(name, format!("no themes (status {status})")),
        Answer::Failed(failure) => Measured::unknown(name, format!("no page of themes arrived: {}", failure.kind())),
    });
    theme_times(context, scope, window, first).await
}

/// Measures what `start` and `end` of themes mean, with requests for themes at their creation time. `window` is the
/// window of `first_page`, which is `None` if no page arrived.
async fn theme_times(
    context: &mut MeasureContext,
    scope: Scope,
    window: Window,
    first_page: Option<Bytes>,
) -> Result<(), PipelineError> {
    let name = behaviour_names::THEMES_FILTERED_BY;
    let requester = MomentRequester { scope, flags: FlagSet::EMPTY, ..context.requester.clone() };
    let (mut filtered_by, mut rows) = (None, Vec::new());
    if let Some(body) = first_page {
        let flat = flatten_page(Stream::Themes, &body, requester.rules)?;
        let moments = moments_of(Stream::Themes, &flat);
        filtered_by = measure_theme_times(&requester, window, &moments).await?;
        rows = rows_of(Stream::Themes, &flat);
    }
    context.add(match filtered_by {
        Some(time) => Measured::known(name, time, "requests for some themes at their creation time"),
        None => Measured::unknown(name, "requests for themes at their creation time were inconclusive"),
    });
    match most_informative(&rows).filter(|_| filtered_by == Some(ThemeTime::Theme)) {
        Some(row) => inclusive_ends(context, &requester, &THEMES_RANGE, row).await,
        None => {
            let why = "it is unknown whether start and end mean the creation of themes";
            report::fill_unknown(
                &mut context.measured,
                [THEMES_RANGE.start_inclusive, THEMES_RANGE.end_inclusive],
                why,
            );
            Ok(())
        }
    }
}
