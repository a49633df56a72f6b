//! Restricts the views of a query to the answers that were given in a range of time.
//!
//! A view that has the time of each answer is filtered by it. A view over such views is defined again, within the
//! query, over the filtered ones. So every figure of a range comes from the SQL of its view. Macros read the filtered
//! views, because the engine binds the names in a macro within the query that calls it.

use crate::{
    model::TimeZone,
    schema::{View, ViewKind, named_in, views, words},
};

/// A range of the times at which answers were given: from `from_ms` to before `to_ms`, epoch milliseconds. `None` is
/// no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerRange {
    pub from_ms: Option<i64>,
    pub to_ms: Option<i64>,
}

impl AnswerRange {
    /// Returns the range before this one: as many months if this one has whole months of the zone, else as many days
    /// and hours. `None` if this one has no beginning or no end, or is empty.
    pub fn before(self, zone: TimeZone) -> Option<AnswerRange> {
        let (from_ms, to_ms) = self.from_ms.zip(self.to_ms).filter(|(from_ms, to_ms)| from_ms < to_ms)?;
        Some(AnswerRange { from_ms: Some(zone.start_before(from_ms, to_ms)?), to_ms: Some(from_ms) })
    }

    /// Returns the query over the answers in the range. A query that begins with `WITH` must begin with these letters.
    pub(super) fn over(self, sql: &str) -> String {
        if self == AnswerRange::default() {
            return sql.to_owned();
        }
        let (mut queries, mut narrowed) = (Vec::new(), Vec::<&str>::new());
        let needed = named_in(sql, views(), |view| (&view.name, &view.sql));
        for view in needed.into_iter().filter(|view| view.kind == ViewKind::View) {
            let name = &view.name;
            // The days of a view in the file may be those of another time zone than this session's.
            let time = ["created_at", "answered_at"].into_iter().find(|time| !view.is_dated && has_column(view, time));
            if let Some(time) = time {
                queries.push(format!("{name} AS NOT MATERIALIZED (FROM main.{name} WHERE {})", self.holds(time)));
            } else if words(&view.sql).any(|word| narrowed.contains(&word)) {
                queries.push(format!("{name} AS NOT MATERIALIZED (\n{}\n)", view.sql));
            } else {
                continue;
            }
            narrowed.push(name);
        }
        match (queries.join(",\n"), sql.trim_start().strip_prefix("WITH ")) {
            (definitions, _) if definitions.is_empty() => sql.to_owned(),
            (definitions, Some(rest)) => format!("WITH {definitions},\n{rest}"),
            (definitions, None) => format!("WITH {definitions}\n{sql}"),
        }
    }

    /// Returns SQL that is true if the time in this column is in the range.
    fn holds(self, column: &str) -> String {
        let moment = |at_ms: i64| format!("make_timestamp({at_ms} * 1000)");
        let from = self.from_ms.map(|at_ms| format!("{column} >= {}", moment(at_ms)));
        let to = self.to_ms.map(|at_ms| format!("{column} < {}", moment(at_ms)));
        [from, to].into_iter().flatten().collect::<Vec<_>>().join(" AND ")
    }
}

fn has_column(view: &View, name: &str) -> bool {
    view.columns.iter().any(|column| column.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_narrowed_each_after_those_it_reads() {
        let range = AnswerRange { from_ms: Some(1), to_ms: Some(3) };
        let sql = range.over("WITH a AS (FROM skips) FROM a");
        let at = |text: &str| sql.find(text).unwrap_or_else(|| panic!("{text}: {sql}"));
        assert!(at("current_responses AS NOT") < at("skips AS NOT") && at("skips AS NOT") < at("a AS (FROM skips)"));
        assert!(sql.contains("created_at >= make_timestamp(1 * 1000) AND created_at < make_timestamp(3 * 1000)"));
        assert_eq!(range.over("FROM sync_runs"), "FROM sync_runs");
        assert_eq!(AnswerRange::default().over("FROM skips"), "FROM skips");
        assert!(range.over("FROM nps_by_segment('os')").contains("nps_answers AS NOT"), "macros read views");
        assert_eq!(range.before(TimeZone::default()), Some(AnswerRange { from_ms: Some(-1), to_ms: Some(1) }));
    }
}
