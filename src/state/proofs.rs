//! Since when each interval of creation time is proven complete.
//! The first scan lays a proof down, later ones leave it alone.

use rusqlite::{Connection, Transaction};

use crate::model::{DAY_MS, IntervalSet, Scan, Scope, Window};

use super::{State, StateError, stored_survey};

/// An interval that was first proven complete at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proven {
    pub window: Window,
    /// When the scan that completed the interval began, by the service's clock; epoch milliseconds.
    pub proven_ms: i64,
}

impl State {
    /// The proofs of a scope, in order.
    pub fn proofs(&self, scope: Scope) -> Result<Vec<Proven>, StateError> {
        load(&self.connection, scope, Window::new(i64::MIN, i64::MAX)).map_err(self.failed("read"))
    }
}

/// Lays down what the scan is the first to prove.
pub(super) fn prove(transaction: &Transaction<'_>, scan: &Scan) -> rusqlite::Result<()> {
    let Window { start_ms, end_ms } = scan.window;
    let touched = Window::new(start_ms.saturating_sub(1), end_ms.saturating_add(1));
    let held = load(transaction, scan.scope, touched)?;
    let proofs = with_proof(&held, scan.window, scan.started_ms, scan.scope.stream.is_windowed());
    if proofs == held {
        return Ok(());
    }
    let (stream, survey) = (scan.scope.stream.name(), stored_survey(scan.scope.survey_id));
    for proof in &held {
        let sql = "DELETE FROM proofs WHERE stream = ?1 AND survey_id = ?2 AND start_ms = ?3";
        transaction.execute(sql, (stream, survey, proof.window.start_ms))?;
    }
    for Proven { window, proven_ms } in proofs {
        let sql = "INSERT INTO proofs (stream, survey_id, start_ms, end_ms, proven_ms) VALUES (?1, ?2, ?3, ?4, ?5)";
        transaction.execute(sql, (stream, survey, window.start_ms, window.end_ms, proven_ms))?;
    }
    Ok(())
}

/// The proofs with those gaps filled that the window leaves no more;
/// neighbours of one day are merged, and count from the later moment. Pure.
fn with_proof(held: &[Proven], window: Window, proven_ms: i64, is_windowed: bool) -> Vec<Proven> {
    let covered: IntervalSet = held.iter().map(|proof| proof.window).collect();
    let gaps = covered.gaps_in(window);
    if let ([first], false) = (held, is_windowed) {
        // A stream that is read whole each time is complete since its first scan,
        // however far its window reaches by now.
        let window = gaps.iter().fold(first.window, |whole, gap| {
            Window::new(whole.start_ms.min(gap.start_ms), whole.end_ms.max(gap.end_ms))
        });
        return vec![Proven { window, ..*first }];
    }
    let mut proofs: Vec<Proven> = held.to_vec();
    proofs.extend(gaps.into_iter().map(|window| Proven { window, proven_ms }));
    proofs.sort_by_key(|proof| proof.window.start_ms);
    let mut merged: Vec<Proven> = Vec::with_capacity(proofs.len());
    for proof in proofs {
        match merged.last_mut() {
            Some(last)
                if last.window.end_ms == proof.window.start_ms && is_one_day(last.proven_ms, proof.proven_ms) =>
            {
                last.window.end_ms = proof.window.end_ms;
                last.proven_ms = last.proven_ms.max(proof.proven_ms);
            }
            _ => merged.push(proof),
        }
    }
    merged
}

fn is_one_day(left_ms: i64, right_ms: i64) -> bool {
    left_ms.div_euclid(DAY_MS) == right_ms.div_euclid(DAY_MS)
}

fn load(connection: &Connection, scope: Scope, touching: Window) -> rusqlite::Result<Vec<Proven>> {
    let sql = "SELECT start_ms, end_ms, proven_ms FROM proofs \
               WHERE stream = ?1 AND survey_id = ?2 AND end_ms > ?3 AND start_ms < ?4 ORDER BY start_ms";
    let mut statement = connection.prepare_cached(sql)?;
    let (stream, survey) = (scope.stream.name(), stored_survey(scope.survey_id));
    let rows = statement.query_map((stream, survey, touching.start_ms, touching.end_ms), |row| {
        Ok(Proven { window: Window::new(row.get(0)?, row.get(1)?), proven_ms: row.get(2)? })
    })?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(start_ms: i64, end_ms: i64, night: i64) -> Proven {
        Proven { window: Window::new(start_ms, end_ms), proven_ms: night * DAY_MS + 5 }
    }

    #[test]
    fn p3_a_later_scan_does_not_move_the_first_proof() {
        let held = [proof(0, 10, 1), proof(20, 30, 2)];
        assert_eq!(
            with_proof(&held, Window::new(0, 30), 9 * DAY_MS + 5, true),
            [proof(0, 10, 1), proof(10, 20, 9), proof(20, 30, 2)]
        );
        assert_eq!(with_proof(&held, Window::new(5, 10), 9 * DAY_MS, true), held);
        // Windows of one night are one interval, complete since the last of them.
        let merged = with_proof(&held, Window::new(10, 20), 2 * DAY_MS + 9, true);
        assert_eq!(merged, [proof(0, 10, 1), Proven { window: Window::new(10, 30), proven_ms: 2 * DAY_MS + 9 }]);
    }

    #[test]
    fn a_stream_that_is_read_whole_is_complete_since_its_first_scan() {
        assert_eq!(with_proof(&[proof(0, 10, 1)], Window::new(0, 40), 9 * DAY_MS, false), [proof(0, 40, 1)]);
    }
}
