//! Decides whether a 404 for a page token marks the end of a list. The contract of themes suggests so, but the service
//! may answer an expired token with 404, too.
//!
//! The window is cut into parts, and each part is listed separately. If tokens expire, a part shows rows that the list
//! of the window lacks. If the parts together have exactly the rows of the window, and no part has all of them, the
//! list of the window has ended (promise P3). A part without rows counts only if its own list did not end with a 404
//! for a page token: an empty page with a token that expires looks like an empty list.

use std::{collections::HashSet, path::Path};

use bytes::Bytes;

use crate::{
    archive::read_pages,
    flatten::reject_hash,
    model::{FlatPage, PageRequest, Scan, Window},
    pipeline::{error::PipelineError, service_profile::tie_probe::moments_of, threads::blocking},
    source::{Answer, Range},
};

use super::context::SyncContext;

/// The maximum number of rounds of requests. Each further round cuts the part that has all rows.
const CUTS_MAX: usize = 16;
/// Rows this close together count as one time: the requested range of a part is one millisecond wider on both sides.
const SAME_TIME_MS: i64 = 4;
/// The maximum number of pages that are read of one part of the window. A longer list counts as a failed request.
const PAGES_MAX: usize = 10_000;

/// The rows of a list, and their creation times.
#[derive(Debug, Default)]
struct Rows {
    /// Hashes of the rows' keys, discarded records included. A reject has no key: its value is hashed.
    keys: HashSet<u128>,
    /// Creation times in epoch milliseconds, unsorted. Rows without a time are left out.
    times: Vec<i64>,
    /// True if the list ended with a 404 for a page token.
    has_unproven_end: bool,
}

impl Rows {
    fn add(&mut self, scan: &Scan, flat: &FlatPage) {
        self.keys.extend(&flat.key_hashes);
        self.keys.extend(flat.discarded.iter().flat_map(|discarded| &discarded.key_hashes));
        self.keys.extend(flat.rejects.iter().map(reject_hash));
        self.times.extend(moments_of(scan.scope.stream, flat).rows.iter().filter_map(|(at_ms, _)| *at_ms));
    }
}

/// Decides whether a 404 for a page token was the end of the list, or an expired token. Returns true if the pages in
/// the spool are proven to be the whole list of the scan's window. Returns false if a request fails or the requests
/// prove nothing.
///
/// Requests the window again in two or three parts. While one part has all rows, that part is cut in two, because a
/// service that ignores `start` and `end` would also return all rows for it.
pub(super) async fn is_end(
    context: &SyncContext,
    scan: &Scan,
    page_rows: u32,
    spool: &Path,
) -> Result<bool, PipelineError> {
    let window_rows = {
        let (context, scan, spool) = (context.clone(), scan.clone(), spool.to_owned());
        blocking(move || read_spool(&context, &scan, &spool)).await??
    };
    let mut window = scan.window;
    let mut parts = first_parts(window, window_rows.times);
    for _ in 0..CUTS_MAX {
        let (mut keys, mut parts_with_all) = (HashSet::new(), Vec::new());
        for part in parts.iter().copied().filter(|part| !part.is_empty()) {
            let Some(rows) = list(context, scan, page_rows, part).await? else { return Ok(false) };
            let shows_nothing = rows.keys.is_empty() && rows.has_unproven_end;
            if shows_nothing || !rows.keys.is_subset(&window_rows.keys) {
                return Ok(false);
            }
            if !rows.keys.is_empty() && rows.keys.len() == window_rows.keys.len() {
                parts_with_all.push(part);
            }
            keys.extend(rows.keys);
        }
        if keys.len() < window_rows.keys.len() {
            return Ok(false);
        }
        match parts_with_all.as_slice() {
            [] => return Ok(true),
            // All rows are so close together that no cut can separate them.
            [part] if part.len_ms() <= 2 * SAME_TIME_MS + 1 => return Ok(true),
            [part] => window = *part,
            // Several parts have all rows: the service ignores `start` and `end`.
            _ => return Ok(false),
        }
        let middle_ms = window.start_ms + window.len_ms() / 2;
        parts = vec![Window::new(window.start_ms, middle_ms), Window::new(middle_ms, window.end_ms)];
    }
    Ok(false)
}

/// Cuts a window into two parts with rows, at the gap nearest to the middle row. If no gap is long enough, returns
/// three parts: before, around and after the rows. Without rows, cuts the window in the middle. `times` are the
/// creation times of the rows.
fn first_parts(window: Window, mut times: Vec<i64>) -> Vec<Window> {
    times.retain(|at_ms| window.contains(*at_ms));
    times.sort_unstable();
    let Window { start_ms, end_ms } = window;
    let middle = times.len() / 2;
    let gaps = times.windows(2).enumerate().filter(|(_, pair)| pair[1] - pair[0] >= SAME_TIME_MS);
    let cut_ms = gaps.min_by_key(|(at, _)| middle.abs_diff(at + 1)).map(|(_, pair)| pair[0] + (pair[1] - pair[0]) / 2);
    let (first, last) = (times.first().copied(), times.last().copied());
    match (cut_ms, first, last) {
        (Some(cut_ms), ..) => vec![Window::new(start_ms, cut_ms), Window::new(cut_ms, end_ms)],
        (None, Some(first_ms), Some(last_ms)) => {
            let (from_ms, to_ms) = ((first_ms - SAME_TIME_MS).max(start_ms), (last_ms + SAME_TIME_MS + 1).min(end_ms));
            [(start_ms, from_ms), (from_ms, to_ms), (to_ms, end_ms)].map(|(start, end)| Window::new(start, end)).into()
        }
        (None, ..) => {
            let middle_ms = start_ms + window.len_ms() / 2;
            vec![Window::new(start_ms, middle_ms), Window::new(middle_ms, end_ms)]
        }
    }
}

fn read_spool(context: &SyncContext, scan: &Scan, spool: &Path) -> Result<Rows, PipelineError> {
    let mut rows = Rows::default();
    for body in read_pages(spool)? {
        rows.add(scan, &context.flatten(scan.scope.stream, &body?)?);
    }
    Ok(rows)
}

/// Reads the list of a part of the window up to the end. A 404 counts as the end. Returns `None` if a request fails, a
/// page token repeats, or the list has more than [`PAGES_MAX`] pages.
async fn list(context: &SyncContext, scan: &Scan, page_rows: u32, part: Window) -> Result<Option<Rows>, PipelineError> {
    let (scope, flags) = (scan.scope, scan.flags);
    let mut request = PageRequest { scope, window: part, flags, page_rows, token: None };
    let (mut rows, mut tokens) = (Rows::default(), HashSet::new());
    for _ in 0..PAGES_MAX {
        let page = match context.source.ask(&request, Range::Part).await? {
            Answer::Page(page) => page,
            Answer::Rejected { status: 404, is_web_page: false } => {
                rows.has_unproven_end = request.token.is_some();
                return Ok(Some(rows));
            }
            Answer::Rejected { .. } | Answer::Failed(_) => return Ok(None),
        };
        rows.add(scan, &flatten_redacted(context, scan, page.body).await?);
        match page.next {
            None => return Ok(Some(rows)),
            Some(token) if !tokens.insert(token.clone()) => return Ok(None),
            token => request.token = token,
        }
    }
    Ok(None)
}

/// Flattens a page without the records of erased people. The spool lacks these records, too, so both can be compared.
async fn flatten_redacted(context: &SyncContext, scan: &Scan, body: Bytes) -> Result<FlatPage, PipelineError> {
    let (context, scan) = (context.clone(), scan.clone());
    blocking(move || {
        let redacted = context.suppression.filtered(&scan, &body);
        context.flatten(scan.scope.stream, redacted.as_ref().map_or(&body, |redacted| &redacted.body))
    })
    .await?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(times: &[i64]) -> Vec<(i64, i64)> {
        let parts = first_parts(Window::new(0, 1000), times.to_vec());
        parts.into_iter().map(|part| (part.start_ms, part.end_ms)).collect()
    }

    #[test]
    fn p3_parts_are_cut_so_that_none_has_all_rows() {
        assert_eq!(parts(&[100, 200, 300, 310]), [(0, 250), (250, 1000)], "the same number of rows in each");
        assert_eq!(parts(&[310, 100, 101, 102]), [(0, 206), (206, 1000)], "the cut is in a gap");
        assert_eq!(parts(&[500]), [(0, 496), (496, 505), (505, 1000)]);
        assert_eq!(parts(&[2, 2, 3]), [(0, 0), (0, 8), (8, 1000)]);
        assert_eq!(parts(&[]), [(0, 500), (500, 1000)]);
        assert_eq!(parts(&[5000]), [(0, 500), (500, 1000)], "rows of another time");
    }
}
