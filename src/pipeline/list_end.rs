//! Decides whether a 404 for a page token marks the end of a list.
//! The contract of themes suggests so, but an expired token gets the same answer.
//!
//! The window is cut in parts, and each is listed by itself. Tokens that die do so in the parts as in the whole: then a
//! part shows rows that the whole did not. Where the parts together show the rows of the whole and no others, and none
//! of them shows all, the whole came to its end (promise P3).

use std::{collections::HashSet, path::Path};

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    archive::read_pages,
    model::{FlatPage, PageRequest, Scan, Window},
    source::{Answer, Range},
};

use super::{
    PipelineError,
    sync_context::SyncContext,
    threads::blocking,
    ties::{TieProbeError, moments_of},
};

/// How often a part that lists all rows is cut again.
const CUTS_MAX: usize = 16;
/// Rows so close together are taken for one moment.
/// The wire range of a part is wider than the part by a millisecond on either side.
const MOMENT_MS: i64 = 4;
/// The maximum number of pages of a part.
const PAGES_MAX: usize = 10_000;

/// Rows, and when they were created.
#[derive(Debug, Default)]
struct Rows {
    keys: HashSet<u128>,
    times: Vec<i64>,
}

impl Rows {
    fn add(&mut self, scan: &Scan, flat: &FlatPage) {
        self.keys.extend(&flat.key_hashes);
        self.keys.extend(flat.discarded.iter().flat_map(|discarded| &discarded.key_hashes));
        self.keys.extend(flat.rejects.iter().map(|reject| xxh3_128(reject.raw.as_bytes())));
        self.times.extend(moments_of(scan.scope.stream, flat).rows.iter().filter_map(|(at_ms, _)| *at_ms));
    }
}

/// Whether the pages in the spool are all of the scan's list.
pub(super) async fn is_end(
    context: &SyncContext,
    scan: &Scan,
    page_rows: u32,
    spool: &Path,
) -> Result<bool, TieProbeError> {
    let whole = {
        let (context, scan, spool) = (context.clone(), scan.clone(), spool.to_owned());
        blocking(move || read_spool(&context, &scan, &spool)).await??
    };
    let mut window = scan.window;
    let mut parts = first_parts(window, whole.times);
    for _ in 0..CUTS_MAX {
        let (mut shown, mut showing_all) = (HashSet::new(), Vec::new());
        for part in parts.iter().copied().filter(|part| !part.is_empty()) {
            let Some(rows) = list(context, scan, page_rows, part).await? else { return Ok(false) };
            if !rows.keys.is_subset(&whole.keys) {
                return Ok(false);
            }
            if !rows.keys.is_empty() && rows.keys.len() == whole.keys.len() {
                showing_all.push(part);
            }
            shown.extend(rows.keys);
        }
        if shown.len() < whole.keys.len() {
            return Ok(false);
        }
        match showing_all.as_slice() {
            [] => return Ok(true),
            // Around the moment of these rows there are no others.
            [part] if part.len_ms() <= 2 * MOMENT_MS + 1 => return Ok(true),
            [part] => window = *part,
            // A service that does not mind the start and the end proves nothing.
            _ => return Ok(false),
        }
        let middle_ms = window.start_ms + window.len_ms() / 2;
        parts = vec![Window::new(window.start_ms, middle_ms), Window::new(middle_ms, window.end_ms)];
    }
    Ok(false)
}

/// Two parts with rows in each, cut where no row is near;
/// or the moment of all rows, and what lies before and behind it.
fn first_parts(window: Window, mut times: Vec<i64>) -> Vec<Window> {
    times.retain(|at_ms| window.contains(*at_ms));
    times.sort_unstable();
    let Window { start_ms, end_ms } = window;
    let middle = times.len() / 2;
    let gaps = times.windows(2).enumerate().filter(|(_, pair)| pair[1] - pair[0] >= MOMENT_MS);
    let cut_ms = gaps.min_by_key(|(at, _)| middle.abs_diff(at + 1)).map(|(_, pair)| pair[0] + (pair[1] - pair[0]) / 2);
    let (first, last) = (times.first().copied(), times.last().copied());
    match (cut_ms, first, last) {
        (Some(cut_ms), ..) => vec![Window::new(start_ms, cut_ms), Window::new(cut_ms, end_ms)],
        (None, Some(first_ms), Some(last_ms)) => {
            let (from_ms, to_ms) = ((first_ms - MOMENT_MS).max(start_ms), (last_ms + MOMENT_MS + 1).min(end_ms));
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

/// The rows of a part as its own list shows them; `None` if that does not come.
async fn list(context: &SyncContext, scan: &Scan, page_rows: u32, part: Window) -> Result<Option<Rows>, TieProbeError> {
    let (scope, flags) = (scan.scope, scan.flags);
    let mut request = PageRequest { scope, window: part, flags, page_rows, token: None };
    let (mut rows, mut tokens) = (Rows::default(), HashSet::new());
    for _ in 0..PAGES_MAX {
        let page = match context.source.ask(&request, Range::Part).await.map_err(TieProbeError::Source)? {
            Answer::Page { page, .. } => page,
            Answer::Rejected { status: 404, is_web_page: false } => return Ok(Some(rows)),
            Answer::Rejected { .. } | Answer::Failed(_) => return Ok(None),
        };
        rows.add(scan, &kept_of(context, scan, page.body).await?);
        match page.next {
            None => return Ok(Some(rows)),
            Some(token) if !tokens.insert(token.clone()) => return Ok(None),
            token => request.token = token,
        }
    }
    Ok(None)
}

/// Flattens a page without the records of erased people, as the spool has it.
async fn kept_of(context: &SyncContext, scan: &Scan, body: Bytes) -> Result<FlatPage, PipelineError> {
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
    fn p3_no_part_shows_all_rows_where_it_can_be() {
        assert_eq!(parts(&[100, 200, 300, 310]), [(0, 250), (250, 1000)], "as many rows in each");
        assert_eq!(parts(&[310, 100, 101, 102]), [(0, 206), (206, 1000)], "where no row is near");
        assert_eq!(parts(&[500]), [(0, 496), (496, 505), (505, 1000)]);
        assert_eq!(parts(&[2, 2, 3]), [(0, 0), (0, 8), (8, 1000)]);
        assert_eq!(parts(&[]), [(0, 500), (500, 1000)]);
        assert_eq!(parts(&[5000]), [(0, 500), (500, 1000)], "rows of another time");
    }
}
