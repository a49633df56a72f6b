//! Pieces of SQL that the parts of the comparison share: key columns, lists of columns, constants.

use chrono::DateTime;

use super::{Comparison, LoadError, TimeBounds};
use crate::{
    model::Window,
    schema::{Column, Table, TableKind, quote_identifier, table},
};

/// First microsecond of the year 1: earlier times are kept out of the warehouse's own columns, since readers choke on them.
const EARLIEST_US: i64 = -62_135_596_800_000_000;
/// Last microsecond of the year 9999.
const LATEST_US: i64 = 253_402_300_799_999_999;

/// The columns by which rows of the table are taken out: its own key, or those that name the parent's row in a child.
pub(super) fn owner_key(child: &'static Table) -> Vec<&'static str> {
    if child.kind != TableKind::Child {
        return key_of(child);
    }
    // The key of a child begins with that of its parent (a test of the contracts says so), whatever the columns are called:
    // `surveys.id` is `survey_id` in the children.
    let parent_key_columns = child.parent.as_deref().and_then(table).map_or(0, |parent| parent.key.len());
    child.key.iter().take(parent_key_columns).map(String::as_str).collect()
}

/// The key of a table.
pub(super) fn key_of(table: &'static Table) -> Vec<&'static str> {
    table.key.iter().map(String::as_str).collect()
}

/// One expression for each column of the contract, in its order and under its name.
pub(super) fn select_list(table: &Table, value: impl Fn(&Column) -> String) -> String {
    let list: Vec<String> =
        table.columns.iter().map(|column| format!("{} AS {}", value(column), quote_identifier(&column.name))).collect();
    list.join(", ")
}

/// `a.x = b.x AND a.y = b.y`; the columns are never NULL.
pub(in super::super) fn equal_columns(left: &str, right: &str, columns: &[&str]) -> String {
    let equal = |name: &&str| format!("{left}.{0} = {right}.{0}", quote_identifier(name));
    columns.iter().map(equal).collect::<Vec<_>>().join(" AND ")
}

/// `a.x, a.y`.
pub(super) fn column_list<'a>(alias: &str, columns: impl IntoIterator<Item = &'a str>) -> String {
    let list: Vec<String> = columns.into_iter().map(|name| format!("{alias}.{}", quote_identifier(name))).collect();
    list.join(", ")
}

/// A moment as it is written, in the years 1 to 9999.
pub(super) fn written_us(at_us: i64) -> i64 {
    at_us.clamp(EARLIEST_US, LATEST_US)
}

/// A constant moment. It is written out, not bound, so that the engine can prune by it.
pub(super) fn timestamp_us(at_us: i64) -> String {
    let at_us = written_us(at_us);
    match DateTime::from_timestamp_micros(at_us) {
        Some(moment) => format!("TIMESTAMP '{}'", moment.format("%Y-%m-%d %H:%M:%S%.6f")),
        // Every moment of the years 1 to 9999 can be written; this arm keeps the function total.
        None => format!("make_timestamp({at_us})"),
    }
}

/// A constant moment, from milliseconds.
pub(in super::super) fn timestamp_ms(at_ms: i64) -> String {
    timestamp_us(at_ms.saturating_mul(1000))
}

/// The bounds of a window.
pub(in super::super) fn bounds_of(window: Window) -> TimeBounds {
    TimeBounds { start_us: window.start_ms.saturating_mul(1000), end_us: window.end_ms.saturating_mul(1000) }
}

/// The range of the partition column over a relation of the engine; `None` for a table without one.
pub(super) fn hull(
    comparison: &Comparison<'_>,
    table: &Table,
    relation: &str,
) -> Result<Option<TimeBounds>, LoadError> {
    let Some(at) = table.partition.as_deref().map(quote_identifier) else { return Ok(None) };
    let sql = format!("SELECT coalesce(min(epoch_us({at})), 0), coalesce(max(epoch_us({at})), 0) FROM {relation}");
    let [first_us, last_us] = comparison.integers(&sql)?;
    Ok(Some(TimeBounds { start_us: first_us, end_us: last_us.saturating_add(1) }))
}

impl TimeBounds {
    /// The smallest range with both in it.
    pub fn hull(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let both = one.zip(other).map(|(one, other)| TimeBounds {
            start_us: one.start_us.min(other.start_us),
            end_us: one.end_us.max(other.end_us),
        });
        both.or(one).or(other)
    }

    /// `column >= start AND column < end`, with constants.
    pub fn condition(self, column: &str) -> String {
        format!("({column} >= {} AND {column} < {})", timestamp_us(self.start_us), timestamp_us(self.end_us))
    }
}
