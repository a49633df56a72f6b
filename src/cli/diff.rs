//! `studysync diff`: shows the changes between two moments.

use clap::Args;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::report::{
    Changes, FigureChange, RowChange, changes,
    format::{grouped, sanitized},
    shown_value,
};

use super::{
    CommandError, Context,
    flags::{LocalMoment, LocationArgs, SurveyArgs, TimeZoneArgs, between, parse_local_moment},
    terminal::FixedTable,
    warehouse::open_for_surveys,
};

/// Maximum figures in the text; `--json` prints all figures.
const FIGURES_SHOWN: usize = 60;
/// Width of a survey's name, in columns of the terminal.
const NAME_COLUMNS: usize = 22;
// Width of the title of a question, in columns of the terminal.
const TITLE_COLUMNS: usize = 70;
// Width of the name of a figure, in columns of the terminal.
const LABEL_COLUMNS: usize = 26;

const ROWS: FixedTable<'_> = FixedTable {
    name_width: NAME_COLUMNS,
    columns: &[("before", 9), ("new", 8), ("returned", 8), ("deleted", 7), ("vanished", 8), ("after", 9)],
    heads_are_nouns: false,
};
const FIGURES: FixedTable<'_> =
    FixedTable { name_width: 30, columns: &[("before", 18), ("after", 18), ("change", 9)], heads_are_nouns: false };

/// Shows the changes in the warehouse between two moments.
///
/// The changes: rows by survey, and NPS, top-two box and choice shares with their errors.
///
/// The date of a change is that of the scan that found the change: an edit of Monday that a scan found on Tuesday
/// counts on Tuesday. The command reads the DuckDB file if one is configured, else the Parquet files, and changes
/// nothing. While a run writes the DuckDB file, it reads the copy of `publish` under `[warehouse]`, or waits up to
/// `lock_wait_secs`. The SQL macros row_changes and figure_changes return the same.
///
/// before + new + returned - deleted - vanished = after. If the warehouse had its first load after --since, the
/// command says so, and shows the changes since then.
///
/// Exit codes: 0 shown, with or without changes; 1 the warehouse cannot be read; 2 usage or configuration;
/// 5 a run has locked the warehouse.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync diff --since yesterday
  studysync diff --since 2026-03 --until 2026-04 --json")]
pub(super) struct DiffArgs {
    /// The earlier moment: 2026-01-31, 2026-01, 2026, 7d, 6mo, 3y, yesterday or RFC 3339
    #[arg(long, alias = "from", value_name = "DATE", value_parser = parse_local_moment)]
    since: LocalMoment,

    /// The later moment [default: now]
    #[arg(long, alias = "to", value_name = "DATE", value_parser = parse_local_moment)]
    until: Option<LocalMoment>,

    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    surveys: SurveyArgs,

    #[command(flatten)]
    time_zone: TimeZoneArgs,
}

pub(super) fn run(args: &DiffArgs, context: Context) -> Result<u8, CommandError> {
    let settings =
        args.locations.settings(&context).only_reads().surveys(&args.surveys).time_zone(&args.time_zone).build()?;
    let until_ms = args.until.as_ref().map(|until| until.ms(&settings)).transpose()?;
    let between = between(args.since.ms(&settings)?, until_ms)?;
    let mut reader = open_for_surveys(&settings, "compare")?;
    let changes = changes(&mut reader, &settings.surveys, between)?;
    drop(reader);
    context.printer.print_value(args.json, &changes, describe)?;
    Ok(0)
}

fn describe(changes: &Changes) -> String {
    let (since, until) = (&changes.since, &changes.until);
    let began = changes.warehouse_began.as_ref();
    let began = began.map(|began| format!("the first load of this warehouse ended at {began}: changes since then\n"));
    let began = began.unwrap_or_default();
    format!("changes that scans found from {since} to {until}\n{began}{}{}", rows(changes), figures(changes))
}

/// Returns the changed rows as text, with a line for each survey and a total.
fn rows(changes: &Changes) -> String {
    if changes.rows.is_empty() {
        return "\nno row changed\n".to_owned();
    }
    let mut text = format!("\n{}", ROWS.head("answers"));
    for row in &changes.rows {
        text.push_str(&lines(&survey_title(row.survey_id, row.survey_name.as_deref()), row));
        if row.status_before != row.status_after {
            let status = |status: &Option<String>| status.as_deref().map_or_else(|| "none".to_owned(), sanitized);
            text.push_str(&format!("  status: {} to {}\n", status(&row.status_before), status(&row.status_after)));
        }
    }
    if changes.rows.len() > 1 {
        text.push_str(&lines("these surveys", &changes.total()));
    }
    text
}

/// Returns the lines of a survey, or of the total: its answers, and what else changed.
fn lines(name: &str, row: &RowChange) -> String {
    let answers =
        [row.answers_before, row.new_answers, row.returned, row.deleted, row.vanished, row.answers_after].map(grouped);
    let mut text = ROWS.row(&shortened(name, NAME_COLUMNS), &answers);
    for (what, counts) in row.other_changes() {
        let counts: Vec<String> = counts.iter().map(|(count, how)| format!("{} {how}", grouped(*count))).collect();
        text.push_str(&format!("  {what}: {}\n", counts.join(", ")));
    }
    text
}

fn survey_title(survey_id: Option<i64>, name: Option<&str>) -> String {
    match (survey_id, name) {
        (Some(id), Some(name)) => format!("{id} {}", sanitized(name)),
        (Some(id), None) => format!("survey {id}"),
        (None, _) => "no survey".to_owned(),
    }
}

/// Returns the changed figures as text, grouped by question, at most [`FIGURES_SHOWN`].
fn figures(changes: &Changes) -> String {
    let changed: Vec<&FigureChange> = changes.figures.iter().filter(|figure| figure.is_change()).collect();
    if changed.is_empty() {
        return "\nno NPS, top-two box or choice share changed\n".to_owned();
    }
    let mut text = format!("\n{}", FIGURES.head("figures"));
    let mut question = None;
    for figure in changed.iter().take(FIGURES_SHOWN) {
        if question != Some((figure.survey_id, figure.question_id)) {
            question = Some((figure.survey_id, figure.question_id));
            let survey = survey_title(figure.survey_id, figure.survey_name.as_deref());
            let wording = figure.question_text.as_deref().map(sanitized).unwrap_or_default();
            let title = format!("{survey}, {} {wording}", figure.question_id);
            text.push_str(&format!("{}\n", shortened(&title, TITLE_COLUMNS)));
        }
        let name = match (figure.figure.as_str(), &figure.label, figure.selected_index) {
            ("nps", ..) => "NPS".to_owned(),
            ("top_two_share", ..) => "top-two box".to_owned(),
            (_, None, Some(index)) => format!("option with index {index}"),
            (_, label, _) => format!("\"{}\"", sanitized(label.as_deref().unwrap_or_default())),
        };
        let change = figure.change.map(|change| signed(&figure.figure, change)).unwrap_or_default();
        let [before, after] = [figure.before, figure.after].map(|at| at.shown(&figure.figure));
        text.push_str(&FIGURES.row(&format!("    {}", shortened(&name, LABEL_COLUMNS)), &[before, after, change]));
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

/// Returns a text of at most this width on a terminal. A text that is cut ends with an ellipsis.
fn shortened(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |letter: &char| {
        used += letter.width().unwrap_or(0);
        used <= columns
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_the_given_width() {
        for (text, columns, shown) in [
            ("abc", 5, "abc"),
            ("abcdef", 5, "abcd…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("e\u{301}e\u{301}e\u{301}", 3, "e\u{301}e\u{301}e\u{301}"),
            ("", 2, ""),
        ] {
            assert_eq!(shortened(text, columns), shown);
        }
    }
}
