//! Children: they are replaced as a set with the row that they belong to.
//!
//! Rows that merely vanished, came back unchanged or were enriched keep the children that they have.

use super::{
    Comparison, LoadError, TimeBounds,
    base::Fates,
    delete_relation,
    doubles::DOUBLES,
    sql::{column_list, hull, owner_key, select_list},
    upsert_relation,
};
use crate::schema::{Table, children_of, quote_identifier};

/// Whose children change.
pub(super) enum Sets {
    /// Nobody's.
    None,
    /// Every staged row is new.
    AllAdded,
    /// As relations.
    Replaced {
        /// Has `_seq` of the staged rows whose children are added.
        added: &'static str,
        taken_out: TakenOut,
    },
}

/// The stored rows whose children are taken out.
pub(super) struct TakenOut {
    /// Relation with their key.
    pub rows: &'static str,
    /// Whether their children are those of the same `created_at` alone: a key can have rows of several moments.
    pub same_moment: bool,
    /// Range of the partition column in which those children are.
    pub bounds: Option<TimeBounds>,
}

/// Puts the changes of the children of a base table into the delta.
pub(super) fn write(comparison: &mut Comparison<'_>, base: &'static Table, fates: Fates) -> Result<(), LoadError> {
    let sets = match fates {
        Fates::Unchanged => Sets::None,
        Fates::AllNew => Sets::AllAdded,
        Fates::Compared => Sets::Replaced {
            added: "(SELECT _seq FROM work_fate WHERE verdict IN ('new', 'edited') OR is_doubled)",
            taken_out: TakenOut {
                rows: "(FROM work_fate WHERE verdict = 'edited' OR is_doubled)",
                same_moment: false,
                bounds: hull(comparison, base, &old_rows(comparison, base))?,
            },
        },
    };
    replace(comparison, base, &sets)
}

/// The rows of the warehouse that change, with their moments.
fn old_rows(comparison: &Comparison<'_>, base: &Table) -> String {
    match base.partition.as_deref().map(quote_identifier).filter(|_| comparison.has_doubles) {
        Some(at) => format!("(SELECT {at} FROM work_old UNION ALL SELECT {at} FROM {DOUBLES})"),
        None => "work_old".to_owned(),
    }
}

/// Puts the changes of the children of `parent` into the delta.
pub(super) fn replace(comparison: &mut Comparison<'_>, parent: &'static Table, sets: &Sets) -> Result<(), LoadError> {
    for child in children_of(&parent.name) {
        let has_staged = comparison.stage.rows(&child.name) > 0;
        match sets {
            Sets::AllAdded if has_staged => {
                let relation = add(comparison, child, "VIEW", "")?;
                comparison.record(child, None, Some(&relation))?;
            }
            Sets::None | Sets::AllAdded => {}
            Sets::Replaced { added, taken_out } => {
                let only_added = format!("SEMI JOIN {added} a ON s._seq = a._seq");
                let upserts = if has_staged { Some(add(comparison, child, "TABLE", &only_added)?) } else { None };
                let deletes = take_out(comparison, parent, child, taken_out)?;
                comparison.record(child, Some(&deletes), upserts.as_deref())?;
            }
        }
    }
    Ok(())
}

fn add(comparison: &Comparison<'_>, child: &Table, kind: &str, only: &str) -> Result<String, LoadError> {
    let relation = upsert_relation(child);
    let row = select_list(child, |column| {
        comparison.stamp(column).unwrap_or_else(|| format!("s.{}", quote_identifier(&column.name)))
    });
    comparison.execute(&format!("CREATE TEMP {kind} {relation} AS SELECT {row} FROM stage_{} s {only}", child.name))?;
    Ok(relation)
}

/// Only parents that have children are named, so that tables (and their files) without any are left alone.
fn take_out(
    comparison: &mut Comparison<'_>,
    parent: &'static Table,
    child: &'static Table,
    taken: &TakenOut,
) -> Result<String, LoadError> {
    let relation = delete_relation(child);
    let columns = column_list("t", super::delta::delete_columns(child));
    let pairs = owner_key(child).into_iter().zip(&parent.key);
    let mut same_parent: Vec<String> =
        pairs.map(|(own, key)| format!("t.{} = p.{}", quote_identifier(own), quote_identifier(key))).collect();
    if taken.same_moment {
        same_parent.push("t.created_at = p.created_at".to_owned());
    }
    let stored = comparison.targets.relation(child, taken.bounds)?;
    let inside = taken.bounds.map_or("true".to_owned(), |bounds| bounds.condition("t.created_at"));
    comparison.execute(&format!(
        "CREATE TEMP TABLE {relation} AS SELECT DISTINCT {columns} FROM {stored} t
         SEMI JOIN {} p ON {} WHERE {inside}",
        taken.rows,
        same_parent.join(" AND ")
    ))?;
    Ok(relation)
}
