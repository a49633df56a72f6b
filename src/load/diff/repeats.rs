//! One record for each key: takes repeated records out of the stage.
//!
//! A record that comes again with equal content is a repeat at a page's edge, and of no interest. One with other content is a
//! *collision*: the key does not name a record as it should. The one that was updated last wins, then the one that came last;
//! the losers are kept aside for the history, and counted.

use super::{
    Comparison, LoadError,
    sql::{column_list, equal_columns, key_of},
};
use crate::schema::{Table, children_of};

/// Records that lost a collision, one for each content: the columns of the stage.
pub(super) const LOSERS: &str = "work_losers";

/// Leaves one record of each key in the stage of `base` and of its children.
pub(super) fn take_out(comparison: &mut Comparison<'_>, base: &'static Table) -> Result<(), LoadError> {
    if !comparison.stage.may_repeat() {
        return Ok(());
    }
    let name = &base.name;
    let keys = column_list("s", key_of(base));
    let same_key = equal_columns("s", "r", &key_of(base));
    let newest_first = match base.column("updated_at") {
        Some(_) => "s.updated_at DESC NULLS LAST, s._seq DESC",
        None => "s._seq DESC",
    };
    // The ranking works on the few repeated keys, and on narrow rows.
    comparison.execute(&format!(
        "CREATE TEMP TABLE work_repeated AS SELECT {keys} FROM stage_{name} s GROUP BY ALL HAVING count(*) > 1;
         CREATE TEMP TABLE work_ranked AS
            SELECT s._seq, {keys}, s._row_hash,
                row_number() OVER (PARTITION BY {keys} ORDER BY {newest_first}) AS place,
                row_number() OVER (PARTITION BY {keys}, s._row_hash ORDER BY {newest_first}) AS place_of_content
            FROM stage_{name} s SEMI JOIN work_repeated r ON {same_key};
         CREATE TEMP TABLE {LOSERS} AS
            SELECT s.* FROM stage_{name} s SEMI JOIN (
                SELECT s._seq FROM work_ranked s JOIN work_ranked r ON {same_key} AND r.place = 1
                WHERE s.place_of_content = 1 AND s._row_hash <> r._row_hash
            ) l ON s._seq = l._seq;
         CREATE TEMP TABLE work_beaten AS SELECT _seq FROM work_ranked WHERE place > 1;"
    ))?;
    for table in std::iter::once(base).chain(children_of(name)) {
        comparison
            .execute(&format!("DELETE FROM stage_{0} s USING work_beaten b WHERE s._seq = b._seq", table.name))?;
    }
    comparison.delta.counts.collisions = comparison.count(&format!("SELECT count(*) FROM {LOSERS}"))?;
    Ok(())
}
