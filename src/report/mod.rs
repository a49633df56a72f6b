//! `studysync report`: one HTML file that tells how a warehouse stands: answers, NPS, surveys, themes, what is proven
//! complete and where the last runs' time went.
//!
//! `gather`, `surveys` and `changes` ask the warehouse through its views, `coverage` the checkpoints or the ledger;
//! `chart` draws, `page` writes. `studysync diff` shows `changes` alone. The file needs neither a network nor a script.
//! It computes no statistic of its own: every number is one of a view, or a sum that the view allows. Everything is
//! bounded, and what is left out is said.

mod axis;
mod changes;
mod chart;
mod coverage;
mod error;
mod gather;
mod limits;
mod nps;
mod page;
mod rows;
mod runs;
mod settings;
mod surveys;
pub mod words;

use crate::{load::Reader, state::State};

pub use changes::{Between, Changes, Figure, FigureChange, RowChange, changes, shown_value};
pub use coverage::{CoverageState, ScopeCoverage};
pub use error::ReportError;
pub use limits::{DAYS_DEFAULT, DAYS_MAX};
pub use page::{BASE_STYLE, squares, time_split};
pub use settings::ReportSettings;

/// Makes the report. Coverage comes from the checkpoints if they are of the same service as the warehouse,
/// else from the ledger.
///
/// # Errors
/// When the warehouse or the checkpoints cannot be read. Nothing in them can make a report fail.
pub fn make(reader: &mut Reader, state: Option<&State>, settings: &ReportSettings) -> Result<String, ReportError> {
    let gathered = gather::gather(reader, state, settings)?;
    page::render(&gathered, settings)
}
