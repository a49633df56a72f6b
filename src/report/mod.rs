//! `studysync report`: one HTML file about a warehouse: answers, NPS, surveys, themes, coverage, and the time of the
//! last runs.
//!
//! `report_data`, `surveys`, `nps`, `open_answers`, `segments`, `before` and `changes` query the views of the
//! warehouse, `coverage` reads the checkpoints or the ledger; `chart` draws, and `page` renders the HTML.
//! `studysync diff` shows only `changes`. The HTML file needs neither a network nor a script. The report computes no
//! statistics: every number comes from a view, or is a sum of numbers that the view allows to add.

mod axis;
mod before;
mod changes;
mod chart;
mod coverage;
mod error;
pub mod format;
mod limits;
mod nps;
mod open_answers;
mod page;
mod question_answers;
mod report_data;
mod rows;
mod segments;
mod settings;
mod surveys;
mod untrusted;

use crate::{load::Reader, state::State};

pub use changes::{Changes, ComparedTimes, Figure, FigureChange, RowChange, changes, shown_value};
pub use coverage::{CoverageState, ScopeCoverage};
pub use error::ReportError;
pub use limits::{DAYS_DEFAULT, DAYS_MAX, VERBATIMS_MAX};
pub use page::{BASE_STYLE, squares, time_split, whole_options};
pub use segments::unknown_segments;
pub use settings::ReportSettings;
pub use untrusted::untrusted;

/// A report.
pub struct Report {
    pub html: String,
    /// The answers that the report is about: `2,400 answers to 5 surveys, 2026-05-15 to 2026-11-30 (UTC)`.
    pub answers: String,
    /// Why all segments of the answers are unknown, and what to do; `None` if they are known or not asked for.
    pub unknown_segments: Option<String>,
}

/// Makes a report. The coverage comes from the checkpoints if they belong to the same service as the
/// warehouse, else from the ledger.
///
/// # Errors
/// The warehouse or the checkpoints cannot be read. No content of a warehouse makes a report fail.
pub fn make(reader: &mut Reader, state: Option<&State>, settings: &ReportSettings) -> Result<Report, ReportError> {
    let data = report_data::read(reader, state, settings)?;
    Ok(Report {
        html: page::render(&data, settings)?,
        answers: data.answers(),
        unknown_segments: data.unknown_segments,
    })
}
