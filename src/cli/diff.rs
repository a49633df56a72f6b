//! `studysync diff`: what changed between two moments.

use clap::Args;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::{
    load::{Reader, ReaderLimits},
    pipeline::unknown_surveys,
    report::{
        Changes, FigureChange, RowChange, changes, shown_value,
        words::{clean, whole},
    },
};

use super::{
    CommandError, Context,
    flags::{PlaceFlags, SurveyFlags, between, parse_moment},
};

/// Figures that the text lists; `--json` has all.
const FIGURES_SHOWN: usize = 60;
/// Columns of a name, a title and a label on a line of 80.
const NAME_COLUMNS: usize = 24;
const TITLE_COLUMNS: usize = 70;
const LABEL_COLUMNS: usize = 26;

/// Shows what changed in the warehouse between two moments.
///
/// Rows by survey, and NPS, top-two box and choice shares with their errors.
///
/// A change is dated by the scan that saw it: an edit of Monday that a scan found on Tuesday counts on Tuesday. The
/// command reads the DuckDB file if one is named, else the Parquet files, and changes nothing. The SQL macros
/// row_changes and figure_changes return the same.
///
/// Exit codes: 0 shown, whether or not something changed; 1 the warehouse cannot be read; 2 usage or configuration;
/// 5 a run has the warehouse open.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  studysync diff --since 2026-01-26\n  studysync diff --since 2026-01-01 --until 2026-02-01 --survey 4100 --json"
)]
pub(super) struct DiffArgs {
    /// The earlier moment: 2026-01-31, 2026-01, 7d, yesterday, RFC 3339 or epoch milliseconds
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    since: i64,

    /// The later moment [default: now]
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    until: Option<i64>,

    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: PlaceFlags,

    #[command(flatten)]
    surveys: SurveyFlags,
}

pub(super) fn run(args: &DiffArgs, context: Context) -> Result<u8, CommandError> {
    let between = between(args.since, args.until)?;
    let settings = args.place.given(&context).surveys(&args.surveys).settings()?;
    settings.require_warehouse().map_err(CommandError::Config)?;
    let (duckdb, parquet) = (settings.warehouse.duckdb.as_deref(), settings.warehouse.parquet.as_deref());
    let limits = ReaderLimits { memory_bytes: settings.warehouse.query_memory_bytes(), ..ReaderLimits::default() };
    let mut reader = Reader::open_limited(duckdb, parquet, limits).map_err(CommandError::Load)?;
    if !settings.surveys.is_empty()
        && let Some(unknown) = unknown_surveys(&mut reader, &settings.surveys).map_err(CommandError::Load)?
    {
        return Err(CommandError::Usage(format!("there is nothing to compare: {unknown}")));
    }
    let changes = changes(&mut reader, &settings.surveys, between).map_err(CommandError::Load)?;
    drop(reader);
    match args.json {
        true => context.printer.print_json(&changes)?,
        false => context.printer.print(&shown(&changes))?,
    }
    Ok(0)
}

fn shown(changes: &Changes) -> String {
    let mut text = format!("what changed from {} to {}, as scans saw it\n", changes.since, changes.until);
    text.push_str(&rows(changes));
    text.push_str(&figures(changes));
    text
}

fn rows(changes: &Changes) -> String {
    if changes.rows.is_empty() {
        return "\nno row changed\n".to_owned();
    }
    let mut text = format!(
        "\n{:<24} {:>9} {:>7} {:>7} {:>8} {:>6} {:>9}\n",
        "rows", "new", "edited", "deleted", "vanished", "themes", "questions"
    );
    for row in &changes.rows {
        text.push_str(&line(&name_of(row), row));
        if row.status_before != row.status_after {
            let status = |status: &Option<String>| status.as_deref().map_or_else(|| "none".to_owned(), clean);
            text.push_str(&format!("  status: {} to {}\n", status(&row.status_before), status(&row.status_after)));
        }
    }
    if changes.rows.len() > 1 {
        text.push_str(&line("all", &changes.total()));
    }
    text
}

fn line(name: &str, row: &RowChange) -> String {
    let RowChange { new_answers, edited, deleted, vanished, new_themes, changed_questions, .. } = row;
    let [new, edited, deleted, vanished, themes, questions] =
        [new_answers, edited, deleted, vanished, new_themes, changed_questions].map(|count| whole(*count));
    format!(
        "{} {new:>9} {edited:>7} {deleted:>7} {vanished:>8} {themes:>6} {questions:>9}\n",
        fitted(name, NAME_COLUMNS)
    )
}

fn name_of(row: &RowChange) -> String {
    match (row.survey_id, &row.survey_name) {
        (Some(id), Some(name)) => format!("{id} {}", clean(name)),
        (Some(id), None) => format!("survey {id}"),
        (None, _) => "no survey".to_owned(),
    }
}

fn figures(changes: &Changes) -> String {
    let changed: Vec<&FigureChange> = changes.figures.iter().filter(|figure| figure.is_change()).collect();
    if changed.is_empty() {
        return "\nno NPS, top-two box or choice share changed\n".to_owned();
    }
    let mut text = format!("\n{:<30} {:>18} {:>18} {:>9}\n", "figures", "before", "after", "change");
    let mut question = None;
    for figure in changed.iter().take(FIGURES_SHOWN) {
        if question != Some((figure.survey_id, figure.question_id)) {
            question = Some((figure.survey_id, figure.question_id));
            let survey = figure.survey_name.as_deref().map(clean).unwrap_or_default();
            let wording = figure.question_text.as_deref().map(clean).unwrap_or_default();
            let title = format!("{} {survey}, {} {wording}", figure.survey_id, figure.question_id);
            text.push_str(&format!("{}\n", fitted(&title, TITLE_COLUMNS).trim_end()));
        }
        let name = match (figure.figure.as_str(), figure.label.as_deref()) {
            ("nps", _) => "NPS".to_owned(),
            ("top_two_share", _) => "top-two box".to_owned(),
            (_, label) => format!("\"{}\"", clean(label.unwrap_or_default())),
        };
        let change = figure.change.map(|change| signed(&figure.figure, change)).unwrap_or_default();
        let [before, after] = [figure.before, figure.after].map(|at| at.shown(&figure.figure));
        let line = format!("    {} {before:>18} {after:>18} {change:>9}", fitted(&name, LABEL_COLUMNS));
        text.push_str(&format!("{}\n", line.trim_end()));
    }
    if changed.len() > FIGURES_SHOWN {
        text.push_str(&format!("and {} more figures: --json has all\n", changed.len() - FIGURES_SHOWN));
    }
    text
}

fn signed(figure: &str, change: f64) -> String {
    let text = shown_value(figure, change);
    if text.starts_with('-') { text } else { format!("+{text}") }
}

/// A text as wide as so many columns of a terminal: cut, or filled up with blanks.
fn fitted(text: &str, columns: usize) -> String {
    let (mut fitted, mut taken) = (String::new(), 0);
    let is_cut = text.width() > columns;
    // A cut text ends with a mark, which takes one column.
    let room = columns - usize::from(is_cut);
    for letter in text.chars() {
        taken += letter.width().unwrap_or(0);
        if taken > room {
            taken -= letter.width().unwrap_or(0);
            break;
        }
        fitted.push(letter);
    }
    if is_cut {
        fitted.push('…');
        taken += 1;
    }
    fitted.extend(std::iter::repeat_n(' ', columns.saturating_sub(taken)));
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_takes_as_many_columns_as_it_is_given() {
        for (text, columns, shown) in [
            ("abc", 5, "abc  "),
            ("abcdef", 5, "abcd…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日… "),
            ("e\u{301}e\u{301}e\u{301}", 3, "e\u{301}e\u{301}e\u{301}"),
            ("", 2, "  "),
        ] {
            assert_eq!(fitted(text, columns), shown);
            assert_eq!(fitted(text, columns).width(), columns);
        }
    }
}
