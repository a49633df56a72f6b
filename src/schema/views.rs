//! The views of the warehouse, as the files in `views/` define them: plain SQL under a header of comments that says
//! what a row is, what is left out and what each column means.
//!
//! The header is read here and becomes the comments of the catalog and the data dictionary. The SQL is not looked into,
//! but for the names of other views: no engine is at hand. Tests hold the headers to the columns that the engine finds.

use std::sync::LazyLock;

use serde::Serialize;

use super::quote::{quote_identifier, quote_text};

/// A view that analysts read, or a table macro that they call.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// snake_case; also the stem of the view's file.
    pub name: String,
    /// How it is read.
    pub kind: ViewKind,
    /// What it is for.
    pub comment: String,
    /// What one row is, what is left out, and whatever else a reader must know; a sentence each.
    pub notes: Vec<String>,
    /// Of a macro: name, default and meaning of what it is called with, in order.
    #[serde(rename = "parameter", skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<ViewColumn>,
    /// Name and meaning of each column, in order.
    #[serde(rename = "column")]
    pub columns: Vec<ViewColumn>,
    /// The SELECT.
    pub sql: String,
}

/// A column of a view, or a parameter of a macro: `name`, or `name := default`.
#[derive(Clone, Debug, Serialize)]
pub struct ViewColumn {
    pub name: String,
    /// Meaning and unit.
    pub comment: String,
}

/// How a view is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewKind {
    /// `FROM name`.
    View,
    /// `FROM name(parameter, ...)`.
    Macro,
}

macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../", $folder, "/", $name, ".sql")))),+]
    };
}

/// The views, each after those that it reads.
const VIEWS: &[(&str, &str)] = files!("views":
    "current_responses",
    "current_choices",
    "current_matrix_cells",
    "current_ranks",
    "current_maxdiff_items",
    "current_themes",
    "current_user_attributes",
    "questions",
    "question_versions",
    "response_question_versions",
    "sessions",
    "nps_answers",
    "nps_by_day",
    "nps_by_day_latest",
    "nps_by_day_per_question",
    "nps_by_day_per_question_latest",
    "nps_by_week",
    "nps_by_week_latest",
    "nps_by_week_per_question",
    "nps_by_week_per_question_latest",
    "nps_by_month",
    "nps_by_month_latest",
    "nps_by_month_per_question",
    "nps_by_month_per_question_latest",
    "likert_distribution",
    "likert_top_two",
    "choice_share",
    "matrix_distribution",
    "rank_summary",
    "maxdiff_scores",
    "theme_trend",
    "survey_funnel",
    "daily_breakdown",
    "skips",
    "open_answers",
    "survey_status_timeline",
    "session_stages",
    "response_rates",
    "webhook_mismatches",
);
const MACROS: &[(&str, &str)] = files!("views/macros":
    "responses_as_of",
    "surveys_as_of",
    "questions_as_of",
    "themes_as_of",
    "answer_segments",
    "nps_by_segment",
    "likert_by_segment",
    "choices_by_segment",
    "search_answers",
    "row_changes",
    "figure_changes",
);

/// The search with an index of words: it takes the place of the plain one in a file that has the index.
const INDEXED: &[(&str, &str)] = files!("views/indexed": "search_answers");

static INDEXED_SEARCH: LazyLock<View> = LazyLock::new(|| {
    let (name, text) = INDEXED[0];
    read(name, ViewKind::Macro, text)
});

static READ: LazyLock<Vec<View>> = LazyLock::new(|| {
    let read = |kind| move |(name, text): &(&str, &str)| read(name, kind, text);
    VIEWS.iter().map(read(ViewKind::View)).chain(MACROS.iter().map(read(ViewKind::Macro))).collect()
});

/// Every view and macro, each after those that it reads.
pub fn views() -> &'static [View] {
    &READ
}

/// The macro `search_answers` for a DuckDB file with an index of words. It has the parameters and the columns of the
/// plain one.
pub fn indexed_search() -> &'static View {
    &INDEXED_SEARCH
}

/// Takes a file apart: a paragraph for the comment, one for the notes, one line (or more, indented) for each parameter
/// of a macro, and likewise for each column.
fn read(name: &str, kind: ViewKind, text: &str) -> View {
    let is_header = |line: &&str| line.starts_with("--");
    let header: Vec<&str> = text.lines().take_while(is_header).map(|line| line.trim_start_matches("--")).collect();
    let sql = text.lines().skip_while(is_header).collect::<Vec<_>>().join("\n");
    let mut paragraphs = header.split(|line| line.trim().is_empty());
    let mut paragraph = || paragraphs.next().unwrap_or_default();
    let (comment, notes) = (paragraph(), paragraph());
    let parameters = if kind == ViewKind::Macro { named(paragraph()) } else { Vec::new() };
    let columns = named(paragraph());
    let joined = |lines: &[&str]| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    let (name, comment, notes) = (name.into(), joined(comment), sentences(&joined(notes)));
    View { name, kind, comment, notes, parameters, columns, sql }
}

/// The names and meanings in a paragraph, below its title.
fn named(paragraph: &[&str]) -> Vec<ViewColumn> {
    let mut read = Vec::<ViewColumn>::new();
    for line in paragraph.iter().skip(1) {
        match (line.trim().split_once(": "), line.starts_with("     "), read.last_mut()) {
            (_, true, Some(column)) => column.comment = format!("{} {}", column.comment, line.trim()),
            (Some((name, comment)), ..) => read.push(ViewColumn { name: name.into(), comment: comment.into() }),
            // A header that cannot be read shows up as a missing column in the tests of every view.
            _ => {}
        }
    }
    read
}

/// One note a sentence: the header breaks its lines where they are full.
fn sentences(text: &str) -> Vec<String> {
    text.split_inclusive(". ").map(|sentence| sentence.trim().to_owned()).collect()
}

impl View {
    /// `CREATE OR REPLACE` in the catalog and schema that are in use.
    pub fn create_sql(&self) -> String {
        let name = quote_identifier(&self.name);
        match self.kind {
            ViewKind::View => format!("CREATE OR REPLACE VIEW {name} AS\n{}", self.sql),
            ViewKind::Macro => format!("CREATE OR REPLACE MACRO {name}{} AS TABLE\n{}", self.call(), self.sql),
        }
    }

    /// What follows the name where it is read: `(moment)`, or nothing for a view.
    pub fn call(&self) -> String {
        let names: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        if self.kind == ViewKind::Macro { format!("({})", names.join(", ")) } else { String::new() }
    }

    /// `COMMENT ON` for the view and each of its columns; a macro has no columns to comment on.
    pub fn comment_sql(&self) -> Vec<String> {
        let name = quote_identifier(&self.name);
        let about = quote_text(&format!("{} {}", self.comment, self.notes.join(" ")));
        match self.kind {
            ViewKind::Macro => vec![format!("COMMENT ON MACRO TABLE {name} IS {about}")],
            ViewKind::View => {
                let mut statements = vec![format!("COMMENT ON VIEW {name} IS {about}")];
                statements.extend(self.columns.iter().map(|column| {
                    let comment = quote_text(&column.comment);
                    format!("COMMENT ON COLUMN {name}.{} IS {comment}", quote_identifier(&column.name))
                }));
                statements
            }
        }
    }

    /// The views that this one reads.
    pub fn reads(&self) -> impl Iterator<Item = &'static View> {
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words: Vec<&str> = self.sql.split(move |letter| !is_of_name(letter)).collect();
        views().iter().filter(move |other| other.name != self.name && words.contains(&other.name.as_str()))
    }
}
