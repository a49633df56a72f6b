//! How the warehouse differs from what the service returns now, for `verify`: rows of the window and columns of its rows. Changes
//! nothing but the engine's own tables.
//!
//! Columns are compared, not hashes alone: a hash says what was stored once, a column what is stored now.

use std::collections::BTreeMap;

use super::{
    super::VanishPolicy,
    Comparison, Engine, LoadError, Stage, Targets, base, contract,
    fill::brings_snapshots,
    logs, repeats, snapshots,
    sql::{bounds_of, column_list, equal_columns, key_of, owner_key},
};
use crate::{
    load::TimeBounds,
    model::Flag,
    schema::{Table, children_of, quote_identifier, quote_text},
};

/// How a warehouse differs from the service in one window.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Differences {
    /// Records that the service returned of the window, each key once, and those that cannot be placed.
    #[serde(skip)]
    pub service_rows: u64,
    /// Rows that are held of the window and have not vanished.
    pub rows: u64,
    /// At the service, and not here, or here as vanished.
    pub missing: Difference,
    /// Here, and not at the service.
    pub extra: Difference,
    /// In both, with other content.
    pub stale: Difference,
    /// The columns in which stale rows differ, and in how many rows; a table's name stands for its rows of an answer.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, u64>,
}

/// One kind of difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    pub rows: u64,
    /// The first of them, by key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Example>,
    /// Rows that are not among the examples.
    #[serde(skip_serializing_if = "is_none")]
    pub left_out: u64,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Difference {
    fn new(rows: u64, examples: Vec<Example>) -> Difference {
        Difference { rows, left_out: rows.saturating_sub(examples.len() as u64), examples }
    }
}

/// A row that differs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Example {
    /// The values of its key, ` / ` between them.
    pub key: String,
    /// The columns that differ; empty but for a stale row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
}

impl Differences {
    /// Whether nothing differs.
    pub fn is_equal(&self) -> bool {
        self.missing.rows + self.extra.rows + self.stale.rows == 0
    }
}

/// Compares the staged scan, which is complete, with the warehouse. To be called once a stage. At most `keys_max` rows of each kind of
/// difference are named.
pub fn differences(
    engine: &Engine,
    stage: &mut Stage,
    targets: &mut dyn Targets,
    keys_max: usize,
) -> Result<Differences, LoadError> {
    stage.complete(engine)?;
    let mut comparison = Comparison::new(engine, stage, targets);
    let scan = comparison.scan;
    let base = contract(scan.scope.stream.name())?;
    let window = base.partition.is_some().then(|| bounds_of(scan.window));
    repeats::take_out(&mut comparison, base)?;
    leave_outside(&comparison, base, window)?;
    base::collect_held(&mut comparison, base, window, false)?;
    base::collect_gone(&mut comparison, base, window, &VanishPolicy::Accept)?;
    collect_stale(&mut comparison, base, window)?;
    for child in children_of(&base.name) {
        collect_stale_children(&mut comparison, base, child, window)?;
    }
    if brings_snapshots(comparison.scan) {
        collect_stale_snapshots(&mut comparison, base)?;
    }
    logs::write_rejects(&mut comparison, base)?;
    tell(&comparison, base, window, keys_max)
}

/// Rows outside the window belong to other windows, and are compared there.
fn leave_outside(
    comparison: &Comparison<'_>,
    base: &'static Table,
    window: Option<TimeBounds>,
) -> Result<(), LoadError> {
    let Some(inside) = window.map(|bounds| bounds.condition("s.created_at")) else { return Ok(()) };
    comparison.execute(&format!(
        "CREATE TEMP TABLE work_elsewhere AS SELECT s._seq FROM stage_{} s WHERE NOT {inside}",
        base.name
    ))?;
    for table in std::iter::once(base).chain(children_of(&base.name)) {
        let name = &table.name;
        comparison.execute(&format!("DELETE FROM stage_{name} s USING work_elsewhere e WHERE s._seq = e._seq"))?;
    }
    Ok(())
}

/// `work_stale`: keys of rows that are in both, each with the name of what differs; a key can come several times.
fn collect_stale(
    comparison: &mut Comparison<'_>,
    base: &'static Table,
    window: Option<TimeBounds>,
) -> Result<(), LoadError> {
    let relation = comparison.targets.relation(base, window)?;
    let inside = window.map_or("true".to_owned(), |bounds| bounds.condition("o.created_at"));
    let keys = column_list("s", key_of(base));
    let same_key = equal_columns("s", "o", &key_of(base));
    let names: Vec<String> = (base.content_columns())
        .filter(|column| comparison.was_asked_for(column))
        .map(|column| {
            let name = quote_identifier(&column.name);
            format!("CASE WHEN s.{name} IS DISTINCT FROM o.{name} THEN {} END", quote_text(&column.name))
        })
        .collect();
    let same_flags = match base.column("_flags") {
        Some(_) => format!("o._flags = {}", comparison.scan.flags.bits()),
        None => "true".to_owned(),
    };
    // A hash that differs although no column does: content that an earlier version hashed otherwise.
    comparison.execute(&format!(
        "CREATE TEMP TABLE work_stale AS
            SELECT {keys}, nullif(concat_ws(',', {}), '') AS columns FROM stage_{} s
            JOIN (SELECT * FROM {relation} o WHERE {inside}) o ON {same_key}
            WHERE o._vanished_at IS NULL AND columns IS NOT NULL
            UNION ALL SELECT {keys}, '_row_hash' FROM stage_{} s
            JOIN (SELECT * FROM {relation} o WHERE {inside}) o ON {same_key}
            WHERE o._vanished_at IS NULL AND {same_flags} AND s._row_hash <> o._row_hash",
        names.join(", "),
        base.name,
        base.name
    ))
}

/// Answers whose rows of a child table are others, or more, or fewer.
fn collect_stale_children(
    comparison: &mut Comparison<'_>,
    base: &'static Table,
    child: &'static Table,
    window: Option<TimeBounds>,
) -> Result<(), LoadError> {
    let bounds = window.filter(|_| child.partition.is_some());
    let relation = comparison.targets.relation(child, bounds)?;
    let inside = bounds.map_or("true".to_owned(), |bounds| bounds.condition("c.created_at"));
    let owner = owner_key(child);
    let content = column_list("c", child.flat_columns().map(|column| column.name.as_str()));
    let grouped = |from: &str, condition: &str| {
        let owners = column_list("c", owner.iter().copied());
        format!(
            "(SELECT {owners}, count(*) AS n, bit_xor(hash({content})) AS x FROM {from} c WHERE {condition} GROUP BY {owners})"
        )
    };
    let here = grouped(&relation, &inside);
    let there = grouped(&format!("stage_{}", child.name), "true");
    let of = |alias: &str| -> String {
        let pairs = owner.iter().zip(&base.key);
        let same = pairs.map(|(own, key)| format!("{alias}.{} = s.{}", quote_identifier(own), quote_identifier(key)));
        same.collect::<Vec<_>>().join(" AND ")
    };
    let keys = column_list("s", key_of(base));
    let same_key = equal_columns("s", "h", &key_of(base));
    comparison.execute(&format!(
        "INSERT INTO work_stale SELECT {keys}, {} FROM stage_{} s JOIN work_held h ON {same_key}
         LEFT JOIN {here} here ON {} LEFT JOIN {there} there ON {}
         WHERE h._vanished_at IS NULL AND (here.n IS DISTINCT FROM there.n OR here.x IS DISTINCT FROM there.x)",
        quote_text(&child.name),
        base.name,
        of("here"),
        of("there")
    ))
}

/// Answers whose session has no snapshot here, or another one.
fn collect_stale_snapshots(comparison: &mut Comparison<'_>, base: &'static Table) -> Result<(), LoadError> {
    if !snapshots::find(comparison)? {
        return Ok(());
    }
    let keys = column_list("s", key_of(base));
    let same_key = equal_columns("s", "h", &key_of(base));
    comparison.execute(&format!(
        "INSERT INTO work_stale SELECT {keys}, 'visitor_snapshots' FROM work_snapshot_fate f
         JOIN stage_{} s ON s._seq = f._seq JOIN work_held h ON {same_key} WHERE h._vanished_at IS NULL",
        base.name
    ))
}

fn tell(
    comparison: &Comparison<'_>,
    base: &'static Table,
    window: Option<TimeBounds>,
    keys_max: usize,
) -> Result<Differences, LoadError> {
    let keys: Vec<String> = key_of(base).into_iter().map(quote_identifier).collect();
    let key_text = format!("concat_ws(' / ', {})", keys.join(", "));
    let same_key = equal_columns("s", "h", &key_of(base));
    comparison.execute(&format!(
        "CREATE TEMP TABLE work_missing AS SELECT s.* FROM stage_{} s
            ANTI JOIN (FROM work_held WHERE _vanished_at IS NULL) h ON {same_key};
         CREATE TEMP TABLE work_differing AS SELECT {key_text} AS key, string_agg(columns, ',') AS columns FROM work_stale GROUP BY key",
        base.name
    ))?;
    let held = held_rows(comparison, base, window);
    let [staged, rows, missing, extra, stale] = comparison.integers(&format!(
        "SELECT (SELECT count(*) FROM stage_{}), ({held}), (SELECT count(*) FROM work_missing),
            (SELECT count(*) FROM work_gone), (SELECT count(*) FROM work_differing)",
        base.name
    ))?;
    let count = i64::unsigned_abs;
    let list = |from: &str| examples(comparison.engine, from, keys_max);
    let rejected = comparison.delta.counts.rejected;
    let mut missing_rows = list(&format!("SELECT {key_text} AS key, '' AS columns FROM work_missing"))?;
    let rejected_rows = (rejected > 0)
        .then(|| Example { key: format!("{rejected} records that cannot be placed"), columns: Vec::new() });
    let missing_left_out = count(missing).saturating_sub(missing_rows.len() as u64);
    let has_room = missing_rows.len() < keys_max;
    missing_rows.extend(rejected_rows.filter(|_| has_room));
    let mut differences = Differences {
        service_rows: count(staged) + comparison.stage.rows("rejects"),
        rows: count(rows),
        missing: Difference { rows: count(missing) + rejected, examples: missing_rows, left_out: missing_left_out },
        extra: Difference::new(count(extra), list(&format!("SELECT {key_text} AS key, '' AS columns FROM work_gone"))?),
        stale: Difference::new(count(stale), list("SELECT key, columns FROM work_differing")?),
        columns: BTreeMap::new(),
    };
    if stale > 0 {
        let sql = format!(
            "SELECT name, count(DISTINCT {key_text})::BIGINT FROM
                (SELECT {}, unnest(string_split(columns, ',')) AS name FROM work_stale) GROUP BY name",
            keys.join(", ")
        );
        differences.columns = counted(comparison.engine, &sql)?;
    }
    Ok(differences)
}

/// The rows of the window and scope that count as there.
fn held_rows(comparison: &Comparison<'_>, base: &'static Table, window: Option<TimeBounds>) -> String {
    let mut condition = window.map_or("true".to_owned(), |bounds| bounds.condition("h.created_at"));
    if let Some(survey_id) = comparison.scan.scope.survey_id.filter(|_| base.column("survey_id").is_some()) {
        condition.push_str(&format!(" AND h.survey_id = {survey_id}"));
    }
    if base.column("deleted_at").is_some() && !comparison.scan.flags.contains(Flag::WithDeletedResponses) {
        condition.push_str(" AND h.deleted_at IS NULL");
    }
    format!("SELECT count(*) FROM work_held h WHERE {condition} AND h._vanished_at IS NULL")
}

fn examples(engine: &Engine, from: &str, keys_max: usize) -> Result<Vec<Example>, LoadError> {
    let failed = |source| LoadError::engine("list differences", source);
    let sql = format!("SELECT key, columns FROM ({from}) ORDER BY key LIMIT {keys_max}");
    let mut statement = engine.connection().prepare(&sql).map_err(failed)?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)));
    let rows = rows.map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let split = |columns: String| -> Vec<String> {
        let mut names: Vec<String> = columns.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    };
    Ok(rows.into_iter().map(|(key, columns)| Example { key, columns: split(columns) }).collect())
}

fn counted(engine: &Engine, sql: &str) -> Result<BTreeMap<String, u64>, LoadError> {
    let failed = |source| LoadError::engine("list differences", source);
    let mut statement = engine.connection().prepare(sql).map_err(failed)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())));
    rows.map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
}
