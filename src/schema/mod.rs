//! Parses the contracts in `schemas/` and the views in `views/`. Derives from them Arrow schemas, DuckDB DDL and the
//! data dictionary.
//!
//! Only the contracts define columns of tables. The contracts are compiled in, so this module does no I/O.

mod contract;
mod ddl;
mod dictionary;
mod parquet_views;
mod views;
mod zones;

pub use contract::{AnalystValue, Column, ColumnType, Identifies, Origin, Personal, Table, TableKind, partition_stem};
pub use ddl::{ANSWER_COMPRESSION, RECORD_COLUMN, ROW_HASH_COLUMN, quote_identifier, quote_text};
pub use dictionary::Dictionary;
pub use parquet_views::parquet_views_sql;
pub use views::{View, ViewColumn, ViewKind, indexed_search, named_in, views, words};
pub use zones::{report_time_zone, set_report_time_zone};

use std::sync::LazyLock;

/// The texts of the contracts in the order of the dictionary, each parent before its children.
const CONTRACTS: [&str; 31] = [
    include_str!("../../schemas/responses.toml"),
    include_str!("../../schemas/response_choices.toml"),
    include_str!("../../schemas/response_matrix_cells.toml"),
    include_str!("../../schemas/response_ranks.toml"),
    include_str!("../../schemas/response_maxdiff_items.toml"),
    include_str!("../../schemas/response_media.toml"),
    include_str!("../../schemas/response_custom_metadata.toml"),
    include_str!("../../schemas/response_history.toml"),
    include_str!("../../schemas/visitor_snapshots.toml"),
    include_str!("../../schemas/visitor_snapshot_attributes.toml"),
    include_str!("../../schemas/visitor_snapshot_history.toml"),
    include_str!("../../schemas/surveys.toml"),
    include_str!("../../schemas/survey_history.toml"),
    include_str!("../../schemas/survey_questions.toml"),
    include_str!("../../schemas/survey_question_options.toml"),
    include_str!("../../schemas/survey_constraints.toml"),
    include_str!("../../schemas/survey_question_history.toml"),
    include_str!("../../schemas/survey_question_option_history.toml"),
    include_str!("../../schemas/survey_constraint_history.toml"),
    include_str!("../../schemas/survey_status_changes.toml"),
    include_str!("../../schemas/themes.toml"),
    include_str!("../../schemas/theme_history.toml"),
    include_str!("../../schemas/users.toml"),
    include_str!("../../schemas/user_attributes.toml"),
    include_str!("../../schemas/user_events.toml"),
    include_str!("../../schemas/webhook_events.toml"),
    include_str!("../../schemas/webhook_questions.toml"),
    include_str!("../../schemas/rejects.toml"),
    include_str!("../../schemas/sync_windows.toml"),
    include_str!("../../schemas/sync_runs.toml"),
    include_str!("../../schemas/erasures.toml"),
];

static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let read = |text: &&str| {
        // The contracts are compiled in, and a test parses each one. So a tested binary cannot fail here.
        contract::parse(text).unwrap_or_else(|error| panic!("a contract in schemas/ is broken: {error}"))
    };
    CONTRACTS.iter().map(read).collect()
});

/// Returns the texts of the contracts.
pub fn contracts() -> &'static [&'static str] {
    &CONTRACTS
}

/// Returns every table, each parent before its children.
pub fn tables() -> &'static [Table] {
    &TABLES
}

/// Returns the table with this name; `None` if there is none.
pub fn table(name: &str) -> Option<&'static Table> {
    tables().iter().find(|table| table.name == name)
}

/// Returns the tables that store versions of child rows of `base`.
pub fn version_tables_of(base: &str) -> impl Iterator<Item = &'static Table> {
    tables().iter().filter(move |table| table.kind == TableKind::Versioned && table.parent.as_deref() == Some(base))
}

/// Returns the table with the earlier versions of the rows of `base`; `None` if there is none. A table with all
/// versions, such as `survey_history`, does not count: it has no column `reason`.
pub fn history_of(base: &str) -> Option<&'static Table> {
    let is_history = |table: &&Table| {
        table.kind == TableKind::History && table.parent.as_deref() == Some(base) && table.column("reason").is_some()
    };
    tables().iter().find(is_history)
}

/// Returns the child tables of `parent`, whose rows are replaced together when their parent row changes.
pub fn children_of(parent: &str) -> impl Iterator<Item = &'static Table> {
    tables().iter().filter(move |table| table.kind == TableKind::Child && table.parent.as_deref() == Some(parent))
}

#[cfg(test)]
mod tests;
