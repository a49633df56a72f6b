//! `studysync report`: one HTML file that tells how a warehouse stands: answers, NPS, surveys, themes, what is proven complete
//! and where the last runs' time went.
//!
//! `gather` and `surveys` ask the warehouse through its views, `coverage` the checkpoints or the ledger; `chart` draws, `page`
//! writes. The file needs neither a network nor a script. It computes no statistic of its own: every number is one of a view,
//! or a sum that the view allows. Everything is bounded, and what is left out is said.

mod axis;
mod chart;
mod coverage;
mod gather;
mod limits;
mod page;
mod rows;
mod runs;
mod surveys;

use crate::{
    load::{LoadError, Reader},
    state::{State, StateError},
};

pub use limits::{DAYS_DEFAULT, DAYS_MAX};

/// What the report is of.
#[derive(Clone, Debug)]
pub struct ReportSettings {
    /// The warehouse's name, for the head of the page.
    pub warehouse: String,
    /// When it is made; epoch milliseconds. Nothing else depends on the time.
    pub made_ms: i64,
    /// Days that the daily chart and the maps of days show, back from the last; 1 to [`DAYS_MAX`].
    pub days: u32,
    /// Only these surveys; empty for all.
    pub surveys: Vec<i64>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("the warehouse cannot be read")]
    Load(#[from] LoadError),
    #[error("the checkpoints cannot be read")]
    State(#[from] StateError),
    #[error("a chart cannot be drawn: {0}")]
    Draw(String),
}

/// Makes the report. Coverage comes from the checkpoints if they are of the same service as the warehouse, else from the ledger.
///
/// # Errors
/// When the warehouse or the checkpoints cannot be read. Nothing in them can make a report fail.
pub fn make(reader: &mut Reader, state: Option<&State>, settings: &ReportSettings) -> Result<String, ReportError> {
    let gathered = gather::gather(reader, state, settings)?;
    page::render(&gathered, settings)
}
