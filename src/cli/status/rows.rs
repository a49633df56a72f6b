//! Counts the rows in the tables of the warehouse. Scans read more records than there are rows, because some records
//! are duplicates.

use arrow::{array::AsArray as _, datatypes::Int64Type};

use crate::{
    config::WarehouseSettings,
    load::{LoadError, Reader},
    model::{Scope, Stream},
};

use super::super::warehouse::reader_limits;

/// Counts rows in a warehouse. `reader` is `None` if no warehouse can be read.
pub(super) struct RowCounter {
    reader: Option<Reader>,
}

impl RowCounter {
    /// Opens the first warehouse that can be read.
    pub fn open(warehouse: &WarehouseSettings) -> RowCounter {
        let limits = reader_limits(warehouse);
        let reader = warehouse.paths.iter().find_map(|(kind, path)| {
            let opened = Reader::open_limited(&kind.at(path), limits);
            opened.inspect_err(|error| tracing::info!(%error, "cannot count rows")).ok()
        });
        RowCounter { reader }
    }

    /// Returns the number of rows in a stream's table, or of one survey in the table; `None` if the warehouse cannot be
    /// read now.
    pub fn count(&mut self, scope: Scope) -> Option<u64> {
        let reader = self.reader.as_mut()?;
        let counted = count(reader, scope);
        counted.inspect_err(|error| tracing::info!(%error, "cannot count rows")).ok()
    }
}

/// Counts the rows of the stream's table, or only those of the scope's survey.
fn count(reader: &mut Reader, scope: Scope) -> Result<u64, LoadError> {
    let table = match scope.stream {
        Stream::Responses => "responses",
        Stream::Surveys => "surveys",
        Stream::Themes => "themes",
        Stream::Users => "users",
    };
    let survey = scope.survey_id.map(|id| format!(" WHERE survey_id = {id}")).unwrap_or_default();
    let result = reader.query(&format!("SELECT count(*) FROM {table}{survey}"), 1)?;
    let column = result.batches.first().and_then(|batch| batch.column(0).as_primitive_opt::<Int64Type>());
    let rows = column.and_then(|column| column.iter().next().flatten());
    Ok(rows.map_or(0, i64::unsigned_abs))
}
