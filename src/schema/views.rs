//! The views of the warehouse, which the files in `views/` define. A file is SQL with a header of comments. The header
//! describes a row, what is left out, and each column.
//!
//! The header becomes the comments in the catalog and the data dictionary. The SQL is only searched for names of other
//! views. Tests compare the headers with the columns that DuckDB finds.

use std::{collections::HashSet, sync::LazyLock};

use serde::Serialize;

use super::{
    ddl::{quote_identifier, quote_text},
    zones,
};

/// A view that analysts read, or a table macro that they call.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// The name in snake_case; also the stem of the view's file.
    pub name: String,
    /// How the view is read: as a view or as a macro.
    pub kind: ViewKind,
    /// The purpose of the view.
    pub comment: String,
    /// What one row represents, what is left out, and other facts for readers; one sentence each.
    pub notes: Vec<String>,
    /// For a macro: name, default and meaning of each parameter, in order.
    #[serde(rename = "parameter", skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<ViewColumn>,
    /// Name and meaning of each column, in order.
    #[serde(rename = "column")]
    pub columns: Vec<ViewColumn>,
    /// The SELECT statement.
    pub sql: String,
    /// True if the rows depend on the report time zone.
    #[serde(skip)]
    pub is_dated: bool,
}

/// A column of a view, or a parameter of a macro: `name`, or `name := default`.
#[derive(Clone, Debug, Serialize)]
pub struct ViewColumn {
    pub name: String,
    /// The meaning and the unit.
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

/// The views, each after the views that it reads.
const VIEWS: &[(&str, &str)] = files!("views":
    "time_zone_offsets",
    "current_responses",
    "question_versions",
    "question_scales",
    "survey_question_sets",
    "answer_versions",
    "response_question_versions",
    "current_choices",
    "current_matrix_cells",
    "current_ranks",
    "current_maxdiff_items",
    "current_themes",
    "current_user_attributes",
    "response_versions",
    "theme_versions",
    "current_questions",
    "questions",
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
    "nps_per_question",
    "likert_values",
    "likert_distribution",
    "likert_top_two",
    "choice_share",
    "figures",
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
    "key_collisions",
    "untrusted",
);
const MACROS: &[(&str, &str)] = files!("views/macros":
    "responses_as_of",
    "surveys_as_of",
    "questions_as_of",
    "themes_as_of",
    "answer_segments",
    "nps_by_week_and_segment",
    "nps_by_segment",
    "likert_by_segment",
    "choices_by_segment",
    "search_answers",
    "row_changes",
    "figures_as_of",
    "figure_changes",
);

/// The macro for full-text search with an index. This macro replaces the plain macro in a DuckDB file that has the
/// index.
const INDEXED: &[(&str, &str)] = files!("views/indexed": "search_answers");

static INDEXED_SEARCH: LazyLock<View> = LazyLock::new(|| {
    let (name, text) = INDEXED[0];
    parse(name, ViewKind::Macro, text)
});

static PARSED: LazyLock<Vec<View>> = LazyLock::new(|| {
    let parse = |kind| move |(name, text): &(&str, &str)| parse(name, kind, text);
    let mut views: Vec<View> = VIEWS.iter().map(parse(ViewKind::View)).collect();
    for at in 0..views.len() {
        let (earlier, later) = views.split_at_mut(at);
        if let Some(view) = later.first_mut() {
            let words = view.words();
            let reads_dated = earlier.iter().any(|earlier| earlier.is_dated && words.contains(earlier.name.as_str()));
            view.is_dated |= reads_dated;
        }
    }
    let mut macros: Vec<View> = MACROS.iter().map(parse(ViewKind::Macro)).collect();
    macros.iter_mut().for_each(|view| view.sql = with_views_as_of(&view.sql, &views));
    [views, macros].concat()
});

/// What a macro writes in place of `WITH`, followed by the name of a view and `}`: the view as it was at the parameter
/// `moment`.
const AS_OF: &str = "{as_of ";

/// The view of current answers, and its rows at a moment: only the columns that other views judge answers by.
const ANSWERS: (&str, &str) = (
    "current_responses",
    "SELECT response_group_uid, question_id, survey_id, visitor_id, visitor_uuid, question_type, question_text,
        created_at, answer_text, answer_number, is_skipped, selected_indexes
    FROM responses_as_of(moment)",
);

/// The tables with the definitions of surveys, and the names of their rows at a moment.
const DEFINITIONS: [(&str, &str); 2] =
    [("survey_question_history", "known_questions"), ("survey_question_option_history", "known_options")];

/// Replaces the mark [`AS_OF`] in the SQL of a macro by a `WITH` that defines the named view and the views that it
/// reads, over the answers and definitions that were known at the moment. Within the macro their names stand for these
/// definitions. So a view and its macro cannot differ, and a figure of a moment depends on nothing that came later.
fn with_views_as_of(sql: &str, views: &[View]) -> String {
    let marked = sql.split_once(AS_OF).and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    let Some((before, (name, after))) = marked else { return sql.to_owned() };
    let mut queries: Vec<String> = (DEFINITIONS.iter())
        .map(|(table, known)| {
            format!(
                "{known} AS (
    SELECT * REPLACE (valid_to IS NULL AS is_current)
    FROM (
        SELECT * REPLACE (CASE WHEN valid_to <= moment::TIMESTAMP THEN valid_to END AS valid_to)
        FROM {table} WHERE valid_from <= moment::TIMESTAMP
    )
)"
            )
        })
        .collect();
    queries.push(format!("{} AS MATERIALIZED (\n    {}\n)", ANSWERS.0, ANSWERS.1));
    // A view comes after the views that it reads, so the views that are read are found from the last to the first.
    let mut needed = vec![name.trim()];
    for view in views.iter().rev().filter(|view| view.name != ANSWERS.0) {
        if needed.contains(&view.name.as_str()) {
            let words = view.words();
            needed.extend(views.iter().map(|other| other.name.as_str()).filter(|other| words.contains(other)));
        }
    }
    // The texts and names of today, in views over other tables, stay what they are.
    let mut dated = vec![ANSWERS.0];
    dated.extend(DEFINITIONS.iter().map(|(table, _)| *table));
    for view in views.iter().filter(|view| view.name != ANSWERS.0 && needed.contains(&view.name.as_str())) {
        let words = view.words();
        if dated.iter().any(|word| words.contains(word)) {
            let sql = DEFINITIONS.iter().fold(view.sql.clone(), |sql, (table, known)| sql.replace(table, known));
            queries.push(format!("{} AS (\n{sql}\n)", view.name));
            dated.push(&view.name);
        }
    }
    format!("{before}WITH {}{after}", queries.join(",\n"))
}

/// Returns every view and macro, each after the views that it reads.
pub fn views() -> &'static [View] {
    &PARSED
}

/// Returns the macro `search_answers` for a DuckDB file with a full-text index. This macro has the same parameters and
/// columns as the plain macro.
pub fn indexed_search() -> &'static View {
    &INDEXED_SEARCH
}

/// Parses the file of a view. The header of the file has one paragraph each for the comment, the notes, the parameters
/// of a macro, and the columns. Each parameter or column has one line, which indented lines continue.
fn parse(name: &str, kind: ViewKind, text: &str) -> View {
    let is_header = |line: &&str| line.starts_with("--");
    let header: Vec<&str> = text.lines().take_while(is_header).map(|line| line.trim_start_matches("--")).collect();
    let sql = text.lines().skip_while(is_header).collect::<Vec<_>>().join("\n");
    let is_dated = zones::is_dated(&sql);
    let sql = zones::in_report_zone(&sql);
    let mut paragraphs = header.split(|line| line.trim().is_empty());
    let mut paragraph = || paragraphs.next().unwrap_or_default();
    let (comment, notes) = (paragraph(), paragraph());
    let parameters = if kind == ViewKind::Macro { parse_columns(paragraph()) } else { Vec::new() };
    let columns = parse_columns(paragraph());
    let joined = |lines: &[&str]| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    let (name, comment, notes) = (name.into(), joined(comment), sentences(&joined(notes)));
    View { name, kind, comment, notes, parameters, columns, sql, is_dated }
}

/// Parses the names and meanings in a paragraph of a header. Skips the first line, which is a title. A line with at
/// least five leading blanks continues the meaning on the line before.
fn parse_columns(paragraph: &[&str]) -> Vec<ViewColumn> {
    let mut columns = Vec::<ViewColumn>::new();
    for line in paragraph.iter().skip(1) {
        match (line.trim().split_once(": "), line.starts_with("     "), columns.last_mut()) {
            (_, true, Some(column)) => column.comment = format!("{} {}", column.comment, line.trim()),
            (Some((name, comment)), ..) => columns.push(ViewColumn { name: name.into(), comment: comment.into() }),
            // Any other line is an error in the header. It is skipped, and the tests of all views find the missing
            // column.
            _ => {}
        }
    }
    columns
}

fn sentences(text: &str) -> Vec<String> {
    text.split_inclusive(". ").map(|sentence| sentence.trim().to_owned()).collect()
}

impl View {
    /// Returns `CREATE OR REPLACE` for the current catalog and schema.
    pub fn create_sql(&self) -> String {
        let name = quote_identifier(&self.name);
        match self.kind {
            ViewKind::View => format!("CREATE OR REPLACE VIEW {name} AS\n{}", self.sql),
            ViewKind::Macro => format!("CREATE OR REPLACE MACRO {name}{} AS TABLE\n{}", self.call(), self.sql),
        }
    }

    /// Returns the statement that creates the view in the session only, where it stands in place of a stored one.
    pub fn create_temporary_sql(&self) -> String {
        format!("CREATE OR REPLACE TEMPORARY VIEW {} AS\n{}", quote_identifier(&self.name), self.sql)
    }

    /// Returns the parameter list of a macro, such as `(moment)`; empty for a view.
    pub fn call(&self) -> String {
        let names: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        if self.kind == ViewKind::Macro { format!("({})", names.join(", ")) } else { String::new() }
    }

    /// Returns `COMMENT ON` for the view and each column. DuckDB has no comments for the columns of macros.
    pub fn comment_sql(&self) -> Vec<String> {
        let name = quote_identifier(&self.name);
        let about = quote_text(&format!("{} {}", self.comment, self.notes.join(" ")));
        if self.kind == ViewKind::Macro {
            return vec![format!("COMMENT ON MACRO TABLE {name} IS {about}")];
        }
        let mut statements = vec![format!("COMMENT ON VIEW {name} IS {about}")];
        statements.extend(self.columns.iter().map(|column| {
            format!("COMMENT ON COLUMN {name}.{} IS {}", quote_identifier(&column.name), quote_text(&column.comment))
        }));
        statements
    }

    /// Returns the views and macros whose names occur in the SQL of this view.
    pub fn reads(&self) -> impl Iterator<Item = &'static View> {
        let words = self.words();
        views().iter().filter(move |other| other.name != self.name && words.contains(other.name.as_str()))
    }

    /// Returns every word of the SQL of this view. Whoever looks for several names splits the SQL once.
    fn words(&self) -> HashSet<&str> {
        words(&self.sql).collect()
    }
}

/// Returns the words of a text in SQL: names, keywords and numbers.
pub fn words(sql: &str) -> impl Iterator<Item = &str> {
    sql.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
}

/// Returns the items whose names occur in a statement, and those whose names occur in their SQL, in the order of
/// `items`. Each item must follow those that its SQL reads. `definition` returns the name and the SQL of an item.
pub fn named_in<'a, T>(
    statement: &'a str,
    items: &'a [T],
    definition: impl Fn(&'a T) -> (&'a str, &'a str),
) -> Vec<&'a T> {
    let (mut texts, mut named) = (vec![statement], Vec::new());
    for item in items.iter().rev() {
        let (name, sql) = definition(item);
        if texts.iter().any(|text| words(text).any(|word| word == name)) {
            texts.push(sql);
            named.push(item);
        }
    }
    named.reverse();
    named
}
