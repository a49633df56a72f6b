//! `studysync erase --end`: ends the suppression of erased people.

use crate::{
    config::Settings,
    erase::{EndReport, EndedErasure, end_suppression},
};

use super::super::{CommandError, Context, signals::SignalHandler};

/// What the end of a suppression means.
const MEANING: &str = "  From now on, scans, replays and webhooks store records of these people again: new ones, and old ones that the service\n  \
                       still sends. The next sync reads the times again at which their records were left out. Deleted data stays deleted.\n";

/// Ends the suppression of the people with these ids. With --dry-run only prints what would end.
pub(super) async fn run(
    settings: Settings,
    ids: Vec<String>,
    dry_run: bool,
    is_json: bool,
    context: Context,
) -> Result<u8, CommandError> {
    let signals = SignalHandler::start();
    let stop = signals.token();
    let ended = tokio::task::spawn_blocking(move || end_suppression(&settings, &ids, dry_run, &stop)).await;
    drop(signals);
    let report = ended.map_err(CommandError::panicked)?.map_err(CommandError::NotEnded)?;
    context.printer.print_value(is_json, &report, describe)?;
    Ok(0)
}

fn describe(report: &EndReport) -> String {
    let verb = if report.dry_run { "would end" } else { "ended" };
    let mut text = String::new();
    for EndedErasure { erasure_id, identifiers, identifiers_left } in &report.ended {
        text.push_str(&format!("erasure {erasure_id}: the suppression of {identifiers} identifiers {verb}\n"));
        if *identifiers_left > 0 {
            text.push_str(&format!(
                "  {identifiers_left} identifiers stay suppressed, because this erasure is of several people or identifiers. To end all: \
                 studysync erase --end {erasure_id}\n"
            ));
        }
    }
    text.push_str(MEANING);
    text
}
