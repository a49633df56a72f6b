//! What is known against the data: the rows of the view `untrusted`, read from the warehouse once after each run.

use std::{sync::Arc, time::Duration};

use maud::{Markup, html};

use crate::{
    config::Settings,
    load::Reader,
    model::Untrusted,
    pipeline::Memory,
    report::{
        format::{grouped, sanitized},
        untrusted,
    },
    sync_status::Status,
};

use super::super::timely_read::TimelyRead;

/// Maximum rows on the page.
const ROWS_MAX: usize = 50;
/// After this time, a warehouse that could not be read is read again.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The rows after a run; `None` while the warehouse cannot be read.
#[derive(Debug, Default)]
pub(super) struct KnownReasons {
    after_run: Option<String>,
    pub rows: Option<Vec<Untrusted>>,
}

/// Reads the rows again after each run, and never while one is under way: a run waits for readers of its warehouse.
#[derive(Debug, Default)]
pub(super) struct TrustReader(TimelyRead<KnownReasons>);

impl TrustReader {
    /// Returns the rows after the last run that ended.
    pub async fn get(&self, settings: &Settings, status: &Status, is_running: bool) -> Arc<KnownReasons> {
        let after_run = status.last_ended.as_ref().map(|run| run.run_id.clone());
        let is_fresh = |known: &KnownReasons, age: Duration| {
            is_running || (known.after_run == after_run && (known.rows.is_some() || age < RETRY_AFTER))
        };
        let (settings, run) = (settings.clone(), after_run.clone());
        let read = move || KnownReasons { after_run: run, rows: if is_running { None } else { read(&settings) } };
        self.0.get(is_fresh, read, KnownReasons::default).await
    }
}

/// Reads the rows from the first warehouse that can be read.
fn read(settings: &Settings) -> Option<Vec<Untrusted>> {
    let limits = Memory::of(&settings.warehouse).reader_limits();
    settings.warehouse.locations.iter().find_map(|(kind, location)| {
        let rows =
            Reader::open_limited(&kind.at(location.clone()), limits).and_then(|mut reader| untrusted(&mut reader));
        rows.inspect_err(|error| tracing::debug!(%error, "cannot read the view untrusted")).ok()
    })
}

/// Renders the rows, at most [`ROWS_MAX`].
pub(super) fn trust(rows: Option<&[Untrusted]>) -> Markup {
    let Some(rows) = rows else { return html! { p.nothing { "The warehouse cannot be read now." } } };
    if rows.is_empty() {
        return html! { p.nothing { "Nothing." } };
    }
    html! {
        p.meta { "Figures of these ranges may be wrong or incomplete: view " code { "untrusted" } "." }
        div.scroll tabindex="0" role="region" aria-label="Table of what is known against the data" {
            table {
                caption { "Reasons and their ranges of creation time (UTC)" }
                thead { tr { @for head in ["Reason", "Of", "From", "To", "What was found"] { th.word scope="col" { (head) } } th scope="col" { "Records" } } }
                tbody { @for one in rows.iter().take(ROWS_MAX) { (row(one)) } }
            }
        }
        @if rows.len() > ROWS_MAX { p.meta { "And " (rows.len() - ROWS_MAX) " more." } }
    }
}

fn row(one: &Untrusted) -> Markup {
    let [start, end] = one.minutes();
    html! {
        tr {
            th scope="row" { (sanitized(&one.reason.replace('_', " "))) } td.word { (sanitized(&one.concerns())) }
            td.word { (start) } td.word { (end) } td.word { (sanitized(&one.detail)) }
            td { @if let Some(records) = one.records { (grouped(records)) } }
        }
    }
}
