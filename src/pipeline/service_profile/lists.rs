//! Where lists begin and end: what `start` and `end` mean, whether they belong to the range, how the end of results is
//! said, what an empty result looks like, and how long a page of themes is.

use bytes::Bytes;

use crate::{
    flatten::flatten_page,
    model::{DAY_MS, EndStyle, FlagSet, PageRequest, RowTime, Scope, Stream, ThemeTime, Window, behaviour_names},
    source::{Answer, Range},
};

use super::{
    super::{
        PipelineError,
        theme_measure::measure as measure_theme_times,
        ties::{Asker, TieProbeError, moments_of},
    },
    lab::Lab,
    paging::Sample,
    report,
    report::Measured,
    rows::{RowTimes, rows_of, telling},
    small_list::{Small, SmallLists},
};

/// The window in which nobody answered a survey, and nobody made one: the first milliseconds of 1970.
const NOTHING: Window = Window { start_ms: 1, end_ms: 2 };

/// What `start` and `end` of a list mean, and whether they belong to the range.
struct RangeNames {
    filtered_by: &'static str,
    start_inclusive: &'static str,
    end_inclusive: &'static str,
}

const OF_RESPONSES: RangeNames = RangeNames {
    filtered_by: behaviour_names::RESPONSES_FILTERED_BY,
    start_inclusive: behaviour_names::START_INCLUSIVE,
    end_inclusive: behaviour_names::END_INCLUSIVE,
};
const OF_SURVEYS: RangeNames = RangeNames {
    filtered_by: behaviour_names::SURVEYS_FILTERED_BY,
    start_inclusive: behaviour_names::SURVEYS_START_INCLUSIVE,
    end_inclusive: behaviour_names::SURVEYS_END_INCLUSIVE,
};
const OF_THEMES: RangeNames = RangeNames {
    filtered_by: behaviour_names::THEMES_FILTERED_BY,
    start_inclusive: behaviour_names::THEMES_START_INCLUSIVE,
    end_inclusive: behaviour_names::THEMES_END_INCLUSIVE,
};

pub(super) async fn measure(lab: &mut Lab, sample: &Sample) -> Result<(), TieProbeError> {
    let Some(row) = sample.telling() else {
        report::fill(&mut lab.found, report::OF_RESPONSES, "no row has a creation time that can be read");
        return Ok(());
    };
    let asker = lab.asker.clone();
    let window = Window::new(row.created_ms, row.created_ms + 1);
    let lists = lab.small_lists(&asker, row.key);
    let around = lists.ask(window, Range::Window).await?;
    list_end(lab, row.created_ms, &around);
    let empty = lists.ask(NOTHING, Range::Window).await?;
    empty_list(lab, &empty);
    ranges(lab, &asker, &OF_RESPONSES, row, [&empty, &around]).await
}

fn list_end(lab: &mut Lab, at_ms: i64, around: &Small) {
    let (style, trailing) = (behaviour_names::END_STYLE, behaviour_names::TRAILING_EMPTY_PAGE);
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
}

fn empty_list(lab: &mut Lab, empty: &Small) {
    let name = behaviour_names::NOT_FOUND_WHEN_EMPTY;
    let how = "the responses of 1970-01-01T00:00:00.001Z";
    lab.note(match empty.end {
        Some(_) if empty.rows > 0 => Measured::unknown(name, format!("{how} hold {} rows", empty.rows)),
        Some(end) => Measured::known(name, end == EndStyle::NotFound && !empty.is_trailing, how),
        None => Measured::unknown(name, format!("{how} did not come with an end")),
    });
}

/// What a range of a list means. `lists`: what the range in which nothing is brought, and what the range around the
/// creation of the row brought.
async fn ranges(
    lab: &mut Lab,
    asker: &Asker,
    names: &RangeNames,
    row: &RowTimes,
    lists: [&Small; 2],
) -> Result<(), TieProbeError> {
    let meaning = meaning(&lab.small_lists(asker, row.key), names.filtered_by, row, lists).await?;
    let time = meaning.value.clone();
    lab.note(meaning);
    if time.is_some() && time == serde_json::to_value(RowTime::Created).ok() {
        return ends(lab, asker, names, row).await;
    }
    let why = match &time {
        Some(time) => {
            format!("start and end do not mean the creation of a row ({})", time.as_str().unwrap_or_default())
        }
        None => "it is not known what start and end mean".to_owned(),
    };
    report::fill(&mut lab.found, [names.start_inclusive, names.end_inclusive], &why);
    Ok(())
}

/// Which time of the row decides whether it is listed.
async fn meaning(
    asked_for: &SmallLists<'_>,
    name: &'static str,
    row: &RowTimes,
    [nothing, around]: [&Small; 2],
) -> Result<Measured, TieProbeError> {
    if nothing.rows > 0 {
        let how = format!("the range of 1970-01-01T00:00:00.001Z has {} rows", nothing.rows);
        return Ok(Measured::known(name, RowTime::Ignored, how));
    }
    let asked = format!("a row of {} ms, asked for", row.created_ms);
    let apart: Vec<(RowTime, i64)> = row.apart().collect();
    if around.has_row {
        let alike: Vec<String> =
            row.others.iter().filter(|other| !apart.contains(other)).map(|(time, _)| time.to_string()).collect();
        let open = match alike.is_empty() {
            true => String::new(),
            false => format!("; not told apart, since the moment is the same: {}", alike.join(", ")),
        };
        return Ok(Measured::known(name, RowTime::Created, format!("{asked} at its own creation{open}")));
    }
    let mut are_whole = around.end.is_some();
    for (time, at_ms) in apart {
        let list = asked_for.ask(Window::new(at_ms, at_ms.saturating_add(1)), Range::Part).await?;
        if list.has_row {
            return Ok(Measured::known(name, time, format!("{asked} at {at_ms} ms, its time '{time}'")));
        }
        are_whole &= list.end.is_some();
    }
    Ok(match are_whole {
        true => Measured::known(name, RowTime::Other, format!("{asked} at each of its times, is never listed")),
        false => Measured::unknown(name, format!("{asked} at its times: the lists have no end")),
    })
}

/// A row is asked for with its own time as `start`, then as `end`.
async fn ends(lab: &mut Lab, asker: &Asker, names: &RangeNames, row: &RowTimes) -> Result<(), TieProbeError> {
    let (at_ms, key) = (row.created_ms, row.key);
    let lists = lab.small_lists(asker, key);
    let at_start = lists.ask(Window::new(at_ms, at_ms + 1), Range::Exactly).await?;
    note_end(lab, names.start_inclusive, &at_start, format!("a row of {at_ms} ms, asked for with start={at_ms}"));
    let at_end = lists.ask(Window::new(at_ms - 1, at_ms), Range::Exactly).await?;
    note_end(lab, names.end_inclusive, &at_end, format!("a row of {at_ms} ms, asked for with end={at_ms}"));
    Ok(())
}

fn note_end(lab: &mut Lab, name: &'static str, list: &Small, how: String) {
    lab.note(match list.end {
        // A list that was not read to its end proves only what it had.
        None if !list.has_row => Measured::unknown(name, format!("{how}: the list has no end")),
        _ => Measured::known(name, list.has_row, how),
    });
}

/// Surveys are read whole by runs; a range of them is asked for here alone.
pub(super) async fn surveys(lab: &mut Lab) -> Result<(), TieProbeError> {
    let scope = Scope::all(Stream::Surveys);
    let asker = Asker { scope, flags: FlagSet::EMPTY, ..lab.asker.clone() };
    let (window, page_rows) = (Window::new(0, i64::MAX), Stream::Surveys.page_rows_max().unwrap_or(0));
    let request = PageRequest { scope, window, flags: FlagSet::EMPTY, page_rows, token: None };
    let rows = match asker.source.ask(&request, Range::Window).await.map_err(TieProbeError::Source)? {
        Answer::Page { page, .. } => rows_of(Stream::Surveys, &asker.flatten(page.body).await?),
        Answer::Rejected { .. } | Answer::Failed(_) => Vec::new(),
    };
    let Some(row) = telling(&rows) else {
        report::fill(&mut lab.found, report::OF_SURVEY_RANGES, "no survey has a creation time that can be read");
        return Ok(());
    };
    let lists = lab.small_lists(&asker, row.key);
    let nothing = lists.ask(NOTHING, Range::Part).await?;
    let window = Window::new(row.created_ms, row.created_ms.saturating_add(1));
    let around = lists.ask(window, Range::Part).await?;
    ranges(lab, &asker, &OF_SURVEYS, row, [&nothing, &around]).await
}

/// No page size can be asked for here, so a page with another one behind it is as long as pages are.
pub(super) async fn themes(lab: &mut Lab) -> Result<(), TieProbeError> {
    let name = behaviour_names::THEMES_PAGE_ROWS;
    let window = Window::new(0, lab.now_ms.saturating_add(DAY_MS));
    let scope = Scope::all(Stream::Themes);
    let request = PageRequest { scope, window, flags: FlagSet::EMPTY, page_rows: 0, token: None };
    let answer = lab.asker.source.ask(&request, Range::Window).await.map_err(TieProbeError::Source)?;
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
async fn theme_times(
    lab: &mut Lab,
    scope: Scope,
    window: Window,
    first_page: Option<Bytes>,
) -> Result<(), TieProbeError> {
    let name = behaviour_names::THEMES_FILTERED_BY;
    let asker = Asker { scope, flags: FlagSet::EMPTY, ..lab.asker.clone() };
    let (mut found, mut rows) = (None, Vec::new());
    if let Some(body) = first_page {
        let flat = flatten_page(Stream::Themes, &body, asker.rules).map_err(PipelineError::Flatten)?;
        let moments = moments_of(Stream::Themes, &flat);
        found = measure_theme_times(&asker, window, &moments).await?;
        rows = rows_of(Stream::Themes, &flat);
    }
    lab.note(match found {
        Some(time) => Measured::known(name, time, "some themes, asked for at the moment of their own creation"),
        None => Measured::unknown(name, "no theme could be asked for at the moment of its creation"),
    });
    match telling(&rows).filter(|_| found == Some(ThemeTime::Theme)) {
        Some(row) => ends(lab, &asker, &OF_THEMES, row).await,
        None => {
            let why = "start and end are not known to mean a time that themes show";
            report::fill(&mut lab.found, [OF_THEMES.start_inclusive, OF_THEMES.end_inclusive], why);
            Ok(())
        }
    }
}
