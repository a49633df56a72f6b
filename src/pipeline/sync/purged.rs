//! Confirms purges: after the service's delay, checks whether it has purged the people of an erasure.
//!
//! The check of an erasure is due when two conditions hold: the delay is over, and complete scans that began after the
//! delay cover all times at which the people had rows, and found none of their records. A due check requests each user
//! id of the erasure. If the service knows none of the users, the run confirms the purge, and ends the suppression of
//! the people. The confirmation is written to the receipt file and to the table `erasures`.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Map, Value, json};

use crate::{
    files,
    load::{LoadError, Warehouse},
    model::format_ms,
    person::ExpirableErasure,
    pipeline::error::chain,
    source::UserAnswer,
    wording::counted,
};

use super::run::Run;

/// The result of checking a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PurgeCheck {
    /// The service knows none of the users.
    Purged,
    /// The service still knows this many of the users.
    StillKnown(usize),
    /// A request had no clear answer, or no request may be sent. The next run checks again.
    Unknown,
}

impl Run {
    /// Ends the suppression of people whom the service has purged, and adds notes about people whom it should have
    /// purged. If `can_request` is false, the run must not send further requests, and all people stay suppressed.
    /// Errors only lead to notes.
    pub(super) async fn confirm_purges(&mut self, can_request: bool) {
        let late = self.context.suppression.late_records();
        if late.records > 0 {
            let ids: Vec<String> = late.erasure_ids.into_iter().collect();
            self.findings.add_attention_note(format!(
                "the service still sends {} of people whom it should have purged by now (erasure {}); they were left \
                 out. If these people signed up again, run `studysync erase --end {}`. If the service was never asked to purge \
                 them, run `studysync erase` for them without --local-only",
                counted(late.records, "record"),
                ids.join(", "),
                ids.join(" ")
            ));
        }
        let now_ms = self.context.source.service_now_ms().unwrap_or_else(|| self.session.now_ms());
        let mut still_suppressed = BTreeSet::new();
        for over in self.context.suppression.expirable(now_ms) {
            let purged = if can_request { self.check_purge(&over).await } else { PurgeCheck::Unknown };
            match purged {
                PurgeCheck::Purged => {
                    if let Err(why) = self.confirm(&over).await {
                        self.note(format!(
                            "the receipt of the erasure {} could not be completed: {why}",
                            over.erasure_id
                        ));
                        still_suppressed.insert(over.erasure_id);
                    }
                }
                PurgeCheck::StillKnown(users) => {
                    self.findings.add_attention_note(format!(
                        "the service still knows {} of the erasure {}, whom it should have purged by now; they are \
                         kept out. If they signed up again, run `studysync erase --end {}`. If not, run `studysync erase` for \
                         them again, or ask whoever runs the service",
                        counted(users as u64, "user"),
                        over.erasure_id,
                        over.erasure_id
                    ));
                    still_suppressed.insert(over.erasure_id);
                }
                PurgeCheck::Unknown => drop(still_suppressed.insert(over.erasure_id)),
            }
        }
        match self.context.suppression.expire(now_ms, &still_suppressed) {
            Ok(expired) => {
                for erasure_id in expired {
                    tracing::info!(
                        erasure_id,
                        "the service has purged the people of the erasure: their suppression ends"
                    );
                }
            }
            Err(error) => self.note(format!("the suppression list could not be written: {}", chain(&error))),
        }
    }

    /// Logs a note as a warning, and adds it to the report.
    fn note(&mut self, note: String) {
        tracing::warn!("{note}");
        self.findings.notes.push(note);
    }

    /// Requests the users of an erasure. Returns `Unknown` at the first request without a clear answer, and `Purged`
    /// for an erasure without user ids.
    async fn check_purge(&self, over: &ExpirableErasure) -> PurgeCheck {
        let mut known = 0;
        for user_id in &over.user_ids {
            match self.context.source.user(user_id).await {
                Ok(UserAnswer::Absent) => {}
                Ok(UserAnswer::Found { .. }) => known += 1,
                Ok(UserAnswer::Refused { .. }) | Err(_) => {
                    tracing::info!(
                        erasure_id = over.erasure_id,
                        "the service did not say whether it has purged the people of the erasure"
                    );
                    return PurgeCheck::Unknown;
                }
            }
        }
        if known == 0 { PurgeCheck::Purged } else { PurgeCheck::StillKnown(known) }
    }

    /// Writes the confirmation of a purge into the receipt file and into each warehouse. Returns an error as text.
    async fn confirm(&mut self, over: &ExpirableErasure) -> Result<(), String> {
        let (at_ms, users) = (self.session.now_ms(), over.user_ids.len());
        let path = self.session.settings.erasures_folder().join(format!("{}.json", over.erasure_id));
        let check = json!({"checked_at": format_ms(at_ms), "users_not_known": users, "scans_met_nobody": true});
        let completed = edit_receipt_file(&path, |receipt| {
            receipt.insert("service_has_purged".to_owned(), check);
        });
        completed.map_err(|error| format!("{}: {error}", path.display()))?;
        for destination in &self.destinations {
            let erasure_id = over.erasure_id.clone();
            let completed =
                self.with(destination, move |warehouse| complete_row(warehouse, &erasure_id, at_ms, users)).await;
            completed.map_err(|error| chain(&error))?;
        }
        self.findings.wrote = true;
        Ok(())
    }
}

/// Edits the file of a receipt, durably. Does nothing if the file does not exist.
pub fn edit_receipt_file(path: &Path, edit: impl FnOnce(&mut Map<String, Value>)) -> std::io::Result<()> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        read => read?,
    };
    let mut receipt: Value = serde_json::from_slice(&text)?;
    if let Some(members) = receipt.as_object_mut() {
        edit(members);
    }
    files::write_private(path, &serde_json::to_vec_pretty(&receipt)?)
}

/// Adds the confirmation to the row of the erasure in the table `erasures` of a warehouse.
fn complete_row(warehouse: &mut Warehouse, erasure_id: &str, at_ms: i64, users: usize) -> Result<(), LoadError> {
    let mut records = warehouse.erasures()?;
    records.retain(|record| record.erasure_id == erasure_id);
    for record in &mut records {
        record.service_checked_ms = Some(at_ms);
        record.service_users_checked = i64::try_from(users).ok();
    }
    warehouse.record_erasures(&records)
}
