//! Hints after a query whose rows lack what no run requested, or no webhook reported.

use arrow::array::AsArray as _;

use crate::{load::Reader, schema::quote_text};

/// The calls whose first argument is a segment.
const SEGMENT_CALLS: [&str; 2] = ["_segment(", "answer_segments("];
/// The tables with the names of the segments of each kind.
const NAMES_OF: [(&str, &str); 3] = [
    ("attribute", "visitor_snapshot_attributes"),
    ("user", "current_user_attributes"),
    ("metadata", "response_custom_metadata"),
];

/// Returns the hints of a statement. `rows` is the number of rows that it returned. A hint that cannot be read is left
/// out.
pub(super) fn hints(reader: &mut Reader, statement: &str, rows: usize) -> Vec<String> {
    let unknown = segment_of(statement).and_then(|segment| segment_hint(reader, segment));
    let is_empty = rows == 0 && statement.to_ascii_lowercase().contains("response_rates");
    let without_webhooks = "SELECT 'none' WHERE NOT EXISTS (SELECT 1 FROM webhook_events)";
    let no_webhook = is_empty
        .then(|| first_text(reader, without_webhooks))
        .flatten()
        .map(|_| "response_rates is empty because no webhook was received: studysync serve receives them".to_owned());
    unknown.into_iter().chain(no_webhook).collect()
}

/// Returns why all segments of the answers are unknown, and what to do; `None` if an answer has a known one.
pub(in super::super) fn segment_hint(reader: &mut Reader, segment: &str) -> Option<String> {
    let call = format!("answer_segments({})", quote_text(segment));
    match first_text(reader, &format!("SELECT not_requested FROM {call} LIMIT 1")).as_deref() {
        Some("users") => Some(
            "no user was pulled, so the segments are unknown: enable [streams.users], then run studysync users pull"
                .to_owned(),
        ),
        Some(flag) => Some(format!(
            "no run requested {flag}, so the segments are unknown: add it to flags under [streams.responses], then run \
             studysync backfill --from DATE"
        )),
        None => {
            let (kind, name) = segment.split_once(':')?;
            let names = NAMES_OF.iter().find(|(of, _)| *of == kind)?.1;
            first_text(
                reader,
                &format!(
                    "SELECT 'none' WHERE EXISTS (FROM {call}) AND NOT EXISTS (FROM {call} WHERE segment_value IS NOT NULL)"
                ),
            )?;
            Some(format!(
                "no answer has {kind} '{name}': studysync query \"SELECT DISTINCT name FROM {names}\" lists the names"
            ))
        }
    }
}

/// Returns the segment that a statement asks for, if it is a plain text.
fn segment_of(statement: &str) -> Option<&str> {
    // The copy in lower case has each letter at the same place.
    let lower = statement.to_ascii_lowercase();
    let after = SEGMENT_CALLS.iter().find_map(|call| Some(lower.find(call)? + call.len()))?;
    let after = statement.get(after..)?;
    let (segment, _) = after.trim_start().strip_prefix('\'')?.split_once('\'')?;
    Some(segment)
}

fn first_text(reader: &mut Reader, sql: &str) -> Option<String> {
    let found = reader.query(sql, 1).ok()?;
    let column = found.batches.first()?.column(0).as_string_opt::<i32>()?.iter().next()??;
    Some(column.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segment_of_a_call_is_found() {
        assert_eq!(segment_of("from nps_by_segment('browser', answers_min := 3)"), Some("browser"));
        assert_eq!(segment_of("select * from answer_segments( 'user:plan') where true"), Some("user:plan"));
        assert_eq!(segment_of("FROM NPS_by_segment('user:Plan')"), Some("user:Plan"));
        assert_eq!(segment_of("from nps_by_week_and_segment('os')"), Some("os"));
        assert_eq!(segment_of("from nps_by_segment(?)"), None);
        assert_eq!(segment_of("select 1"), None);
    }
}
