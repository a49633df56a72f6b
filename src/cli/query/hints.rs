//! Hints after a query whose rows lack what no run requested, or no webhook reported.

use arrow::array::AsArray as _;

use crate::{load::Reader, schema::quote_text};

/// The calls whose first argument is a segment.
const SEGMENT_CALLS: [&str; 2] = ["_segment(", "answer_segments("];

/// Returns the hints of a statement. `rows` is the number of rows that it returned. A hint that cannot be read is left
/// out.
pub(super) fn hints(reader: &mut Reader, statement: &str, rows: usize) -> Vec<String> {
    let statement = statement.to_ascii_lowercase();
    let missing = segment_of(&statement).and_then(|segment| {
        let sql = format!("SELECT not_requested FROM answer_segments({}) LIMIT 1", quote_text(segment));
        first_text(reader, &sql)
    });
    let unknown = missing.map(|missing| match missing.as_str() {
        "users" => {
            "no user was pulled, so the segments are unknown: enable [streams.users], then run studysync users pull"
                .to_owned()
        }
        flag => format!(
            "no run requested {flag}, so the segments are unknown: add it to flags under [streams.responses], then run \
             studysync backfill --from DATE"
        ),
    });
    let is_empty = rows == 0 && statement.contains("response_rates");
    let without_webhooks = "SELECT 'none' WHERE NOT EXISTS (SELECT 1 FROM webhook_events)";
    let no_webhook = is_empty
        .then(|| first_text(reader, without_webhooks))
        .flatten()
        .map(|_| "response_rates is empty because no webhook was received: studysync serve receives them".to_owned());
    unknown.into_iter().chain(no_webhook).collect()
}

/// Returns the segment that a statement in lower case asks for, if it is a plain text.
fn segment_of(statement: &str) -> Option<&str> {
    let after = SEGMENT_CALLS.iter().find_map(|call| statement.split_once(call))?.1;
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
        assert_eq!(segment_of("from nps_by_week_and_segment('os')"), Some("os"));
        assert_eq!(segment_of("from nps_by_segment(?)"), None);
        assert_eq!(segment_of("select 1"), None);
    }
}
