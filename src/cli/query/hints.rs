//! Hints after a query whose rows lack what no run requested, or no webhook reported.

use arrow::array::AsArray as _;

use crate::{load::Reader, report::unknown_segments};

/// The calls whose first argument is a segment.
const SEGMENT_CALLS: [&str; 2] = ["_segment(", "answer_segments("];

/// Returns the hints of a statement. `rows` is the number of rows that it returned. A hint that cannot be read is left
/// out.
pub(super) fn hints(reader: &mut Reader, statement: &str, rows: usize) -> Vec<String> {
    let unknown = segment_of(statement).and_then(|segment| unknown_segments(reader, segment));
    let is_empty = rows == 0 && statement.to_ascii_lowercase().contains("response_rates");
    let without_webhooks = "SELECT 'none' WHERE NOT EXISTS (SELECT 1 FROM webhook_events)";
    let no_webhook = is_empty
        .then(|| first_text(reader, without_webhooks))
        .flatten()
        .map(|_| "response_rates is empty because no webhook was received: studysync serve receives them".to_owned());
    unknown.into_iter().chain(no_webhook).collect()
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
