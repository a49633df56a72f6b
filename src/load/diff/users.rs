//! `user_attributes`: a value that changed is closed, the one in its place is opened, and what stayed is left alone.
//!
//! A person whom the service no longer knows has no attributes any more; one who is back has those that were found.

use super::{
    Comparison, LoadError,
    base::Fates,
    contract, delete_relation,
    sql::{select_list, timestamp_ms},
    upsert_relation,
};
use crate::{
    model::Stream,
    schema::{Table, quote_identifier},
};

/// What makes two values of an attribute the same.
const SAME_VALUE: &str =
    "s.external_user_id = h.external_user_id AND s.name = h.name AND s.json_type IS NOT DISTINCT FROM h.json_type
    AND s.value_text IS NOT DISTINCT FROM h.value_text AND s.value_number IS NOT DISTINCT FROM h.value_number
    AND s.value_bool IS NOT DISTINCT FROM h.value_bool";

impl Comparison<'_> {
    /// A join that leaves only the rows `t` of people who were asked for; nothing for other streams.
    pub(super) fn only_asked(&self) -> &'static str {
        match self.scan.scope.stream {
            Stream::Users => {
                " SEMI JOIN (SELECT external_user_id FROM stage_users UNION ALL SELECT external_user_id FROM stage_absent) asked
                  ON t.external_user_id = asked.external_user_id"
            }
            Stream::Responses | Stream::Surveys | Stream::Themes => "",
        }
    }
}

/// Puts the changes of attributes into the delta.
pub(super) fn write(comparison: &mut Comparison<'_>, fates: Fates) -> Result<(), LoadError> {
    let attributes = contract("user_attributes")?;
    let (upserts, deletes) = (upsert_relation(attributes), delete_relation(attributes));
    let opened = opened(comparison, attributes);
    match fates {
        Fates::Unchanged => Ok(()),
        Fates::AllNew => {
            comparison
                .execute(&format!("CREATE TEMP VIEW {upserts} AS SELECT {opened} FROM stage_user_attributes s"))?;
            comparison.record(attributes, None, Some(&upserts))
        }
        Fates::Compared => {
            let stored = comparison.targets.relation(attributes, None)?;
            let started = timestamp_ms(comparison.scan.started_ms);
            let closed = closed(comparison, attributes);
            // A value that was opened in the same instant stood for no time at all.
            comparison.execute(&format!(
                "CREATE TEMP TABLE work_held_attributes AS SELECT t.* FROM {stored} t SEMI JOIN (
                    SELECT external_user_id FROM work_fate UNION ALL SELECT external_user_id FROM work_gone) c
                    ON t.external_user_id = c.external_user_id WHERE t.is_current;
                 CREATE TEMP TABLE work_ended AS SELECT h.* FROM work_held_attributes h
                    ANTI JOIN (SELECT s.* FROM stage_user_attributes s SEMI JOIN work_fate f ON s._seq = f._seq) s ON {SAME_VALUE};
                 CREATE TEMP TABLE {upserts} AS
                    SELECT {closed} FROM work_ended t WHERE t.valid_from < {started}
                    UNION ALL SELECT {opened} FROM stage_user_attributes s SEMI JOIN work_fate f ON s._seq = f._seq
                    ANTI JOIN work_held_attributes h ON {SAME_VALUE};
                 CREATE TEMP TABLE {deletes} AS SELECT external_user_id, name, valid_from FROM work_ended"
            ))?;
            comparison.record(attributes, Some(&deletes), Some(&upserts))
        }
    }
}

/// The staged row `s` as the present value.
fn opened(comparison: &Comparison<'_>, attributes: &Table) -> String {
    let started = timestamp_ms(comparison.scan.started_ms);
    select_list(attributes, |column| match column.name.as_str() {
        "valid_from" => started.clone(),
        "valid_to" => "NULL::TIMESTAMP".to_owned(),
        "is_current" => "true".to_owned(),
        name => comparison.stamp(column).unwrap_or_else(|| format!("s.{}", quote_identifier(name))),
    })
}

/// The stored row `t` as a value of the past.
fn closed(comparison: &Comparison<'_>, attributes: &Table) -> String {
    let started = timestamp_ms(comparison.scan.started_ms);
    select_list(attributes, |column| match column.name.as_str() {
        "valid_to" => started.clone(),
        "is_current" => "false".to_owned(),
        name => comparison.stamp(column).unwrap_or_else(|| format!("t.{}", quote_identifier(name))),
    })
}
