//! The second receipt of an erasure: once the service's delay is over, whether it has done what it was asked.
//!
//! An erasure waits here until its time is over and complete scans of all times at which its people were met have found
//! nothing. Then the service is asked for each user id that it was to purge. Does it know none of them, the receipt
//! says so, in its file and in the table `erasures`, and nobody is kept out for it any more.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};

use crate::{
    files,
    load::{LoadError, Warehouse},
    model::format_ms,
    person::ExpirableErasure,
    source::UserAnswer,
};

use super::{Run, error::chain};

/// The answer of the service about the people of an erasure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purged {
    /// The service knows none of them.
    All,
    /// The service still knows this many of them.
    Not(usize),
    /// The service did not answer; the next run asks again.
    Unknown,
}

impl Run {
    /// People whom the service has purged are no longer kept out, and the receipts say so; what is still sent of others
    /// is told. `is_whole`: nothing keeps the run from asking the service.
    pub(super) async fn settle_suppression(&mut self, is_whole: bool) {
        let late = self.context.suppression.late_records();
        if late > 0 {
            self.findings.look_at(format!(
                "the service still sends {late} records of people whom it should have purged by now; they were left out. If it \
                 was never asked to purge them, run `studysync erase` for them without --local-only"
            ));
        }
        let now_ms = self.context.source.service_now_ms().unwrap_or_else(|| self.session.now_ms());
        let mut kept = BTreeSet::new();
        for over in self.context.suppression.expirable(now_ms) {
            let purged = if is_whole { self.ask_for(&over).await } else { Purged::Unknown };
            match purged {
                Purged::All => {
                    if let Err(why) = self.confirm(&over).await {
                        self.note(format!(
                            "the receipt of the erasure {} could not be completed: {why}",
                            over.erasure_id
                        ));
                        kept.insert(over.erasure_id);
                    }
                }
                Purged::Not(users) => {
                    self.findings.look_at(format!(
                        "the service still knows {users} users of the erasure {}, whom it should have purged by now; they are \
                         kept out. Run `studysync erase` for them again, or ask whoever runs the service",
                        over.erasure_id
                    ));
                    kept.insert(over.erasure_id);
                }
                Purged::Unknown => drop(kept.insert(over.erasure_id)),
            }
        }
        match self.context.suppression.expire(now_ms, &kept) {
            Ok(expired) => {
                for erasure_id in expired {
                    tracing::info!(erasure_id, "the service has purged them: nobody is kept out for it any more");
                }
            }
            Err(error) => self.note(format!("who is kept out could not be written: {}", chain(&error))),
        }
    }

    fn note(&mut self, note: String) {
        tracing::warn!("{note}");
        self.findings.notes.push(note);
    }

    async fn ask_for(&self, over: &ExpirableErasure) -> Purged {
        let mut known = 0;
        for user_id in &over.user_ids {
            match self.context.source.user(user_id).await {
                Ok(UserAnswer::Absent) => {}
                Ok(UserAnswer::Found { .. }) => known += 1,
                Ok(UserAnswer::Refused { .. }) | Err(_) => {
                    tracing::info!(erasure_id = over.erasure_id, "the service did not say whether it has purged them");
                    return Purged::Unknown;
                }
            }
        }
        if known == 0 { Purged::All } else { Purged::Not(known) }
    }

    /// Writes into the receipt, here and in each warehouse, that the service has purged them.
    async fn confirm(&mut self, over: &ExpirableErasure) -> Result<(), String> {
        let (at_ms, users) = (self.session.now_ms(), over.user_ids.len());
        let path = self.session.settings.erasures_folder().join(format!("{}.json", over.erasure_id));
        complete_file(&path, at_ms, users).map_err(|error| format!("{}: {error}", path.display()))?;
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

/// Completes the receipt file. A receipt that somebody removed needs no second part.
fn complete_file(path: &Path, at_ms: i64, users: usize) -> std::io::Result<()> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        read => read?,
    };
    let mut receipt: Value = serde_json::from_slice(&text)?;
    if let Some(members) = receipt.as_object_mut() {
        let check = json!({"checked_at": format_ms(at_ms), "users_not_known": users, "scans_met_nobody": true});
        members.insert("service_has_purged".to_owned(), check);
    }
    files::write_private(path, &serde_json::to_vec_pretty(&receipt)?)
}

fn complete_row(warehouse: &mut Warehouse, erasure_id: &str, at_ms: i64, users: usize) -> Result<(), LoadError> {
    let mut records = warehouse.erasures()?;
    records.retain(|record| record.erasure_id == erasure_id);
    for record in &mut records {
        record.service_checked_ms = Some(at_ms);
        record.service_users_checked = i64::try_from(users).ok();
    }
    warehouse.record_erasures(&records)
}
