//! One row for each key: what to do where the warehouse holds more than one in the window.
//!
//! Records of the service that share a key and lie in different windows do not meet: each has its row, for a key is looked up
//! where its creation time says that it is. A scan of both meets both, and then the warehouse keeps what the stage kept of them
//! (see [`super::repeats`]): the row at the staged record's moment stays to be compared, the others are taken out with their
//! children, and the history has them.

use super::{
    Comparison, LoadError,
    sql::{column_list, equal_columns, hull, key_of},
};
use crate::schema::{Table, quote_identifier};

/// Rows of the warehouse whose key has another row that stays, whole.
pub(super) const DOUBLES: &str = "work_doubles";

/// Moves the doubles of the keys that the scan found from `work_held` to [`DOUBLES`].
pub(super) fn set_aside(comparison: &mut Comparison<'_>, base: &'static Table) -> Result<(), LoadError> {
    // Tables without a creation time are held and compared whole, so no key gets a second row there.
    let Some(at) = base.partition.as_deref().map(quote_identifier) else { return Ok(()) };
    let keys = column_list("h", key_of(base));
    let same_key = equal_columns("h", "s", &key_of(base));
    comparison.execute(&format!(
        "CREATE TEMP TABLE work_aside AS
            SELECT h.rowid AS held_row, {keys}, h.{at} FROM work_held h JOIN stage_{} s ON {same_key}
            QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY h.{at} = s.{at} DESC, h._vanished_at DESC NULLS FIRST, h.{at} DESC) > 1;
         DELETE FROM work_held h USING work_aside a WHERE h.rowid = a.held_row",
        base.name
    ))?;
    comparison.has_doubles = comparison.count("SELECT count(*) FROM work_aside")? > 0;
    if !comparison.has_doubles {
        return Ok(());
    }
    let bounds = hull(comparison, base, "work_aside")?;
    let relation = comparison.targets.relation(base, bounds)?;
    let inside = bounds.map_or("true".to_owned(), |bounds| bounds.condition(&format!("t.{at}")));
    let columns = column_list("t", base.columns.iter().map(|column| column.name.as_str()));
    let same_row = equal_columns("t", "a", &super::delta::delete_columns(base));
    comparison.execute(&format!(
        "CREATE TEMP TABLE {DOUBLES} AS SELECT {columns} FROM {relation} t SEMI JOIN work_aside a ON {same_row} WHERE {inside}"
    ))
}

impl Comparison<'_> {
    /// Whether the key of the row `alias` has doubles, as SQL.
    pub(super) fn is_doubled(&self, alias: &str, base: &'static Table) -> String {
        match self.has_doubles {
            true => format!("EXISTS (SELECT 1 FROM {DOUBLES} d WHERE {})", equal_columns(alias, "d", &key_of(base))),
            false => "false".to_owned(),
        }
    }
}
