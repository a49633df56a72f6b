//! The list of the places with texts, and what an erasure does in each place but the archive.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use super::{
    EraseError,
    archive::ArchivedPages,
    error::in_each,
    export::ExportFolder,
    journal::OpenJournal,
    place::{FileGroups, LocationResults, People, Plan, RawResult, TextPlace},
};
use crate::{
    archive::Archive,
    config::Settings,
    files::files_below,
    load::{ExportedRows, LocationResult, Warehouse},
    model::IdentifierKind,
    person::{identifying_fields_of_events, text_of_bytes},
    pipeline::{self, Session},
    recordings::{Recordings, StoredRecordings},
    state::{self, Inbox},
};

/// The location of the stored reports of runs in a receipt.
const STATE_REPORTS: &str = "state reports";
const PUSH_RESULTS: &str = "push results";
const RECORDINGS: &str = "recordings";

/// Number of [`places`], at the start of the list, with rows of tables. An erasure removes from them after all others.
pub(super) const REMOVED_LAST: usize = 2;

/// Returns all places with texts.
pub(super) fn places<'a>(
    session: &'a Session,
    archive: &'a Archive,
    warehouses: &'a mut [Warehouse],
) -> [Box<dyn TextPlace + 'a>; 7] {
    let state = |part| Box::new(StatePlace { part, session, archive });
    [
        Box::new(Warehouses { settings: &session.settings, all: warehouses, mentions: BTreeMap::new() }),
        state(StatePart::Checkpoints),
        Box::new(ArchivedPages { session, archive, mentioned_in: Vec::new() }),
        state(StatePart::Deliveries),
        Box::new(PushResults(session)),
        Box::new(RecordedAnswers(session)),
        state(StatePart::Files),
    ]
}

/// The rows of all warehouses, and their files.
struct Warehouses<'a> {
    settings: &'a Settings,
    all: &'a mut [Warehouse],
    /// The columns of each warehouse that mention the people, by the last search.
    mentions: BTreeMap<&'static str, BTreeMap<String, u64>>,
}

impl TextPlace for Warehouses<'_> {
    fn find(&mut self, people: &People, plan: &mut Plan) -> Result<(), EraseError> {
        in_each(self.all, |warehouse| {
            let (name, found) = (warehouse.name(), warehouse.find_people(&people.identifiers)?);
            plan.counts.extend(found.rows.iter().map(|(table, rows)| (format!("{name} {table}"), *rows)));
            plan.warehouses.insert(name, found);
            Ok(())
        })
        .map(drop)
    }

    /// Exports the rows of one warehouse, because the others have the same rows.
    fn export(&mut self, people: &People, plan: &Plan, out: &mut ExportFolder) -> Result<(), EraseError> {
        let Some((name, _)) = plan.fullest_warehouse() else { return Ok(()) };
        for warehouse in self.all.iter_mut().filter(|warehouse| warehouse.name() == name) {
            let mut add = |rows: ExportedRows| Ok(out.add_rows("tables/", &rows)?);
            warehouse.export_people(&people.identifiers, &mut add).map_err(EraseError::load(name))?;
        }
        Ok(())
    }

    fn remove(&mut self, people: &People, _: &Plan, journal: &mut OpenJournal) -> Result<(), EraseError> {
        for place in pipeline::places(&self.settings.warehouse) {
            place.remove_fetched().map_err(EraseError::load(place.name()))?;
        }
        for warehouse in self.all.iter_mut() {
            let name = warehouse.name();
            let found = warehouse.erase_people(&people.identifiers).map_err(EraseError::load(name))?;
            for (table, rows) in found.rows {
                journal.removed(&format!("{name} {table}"), rows)?;
            }
        }
        Ok(())
    }

    fn search(&mut self, people: &People, found: &mut LocationResults) -> Result<(), EraseError> {
        in_each(self.all, |warehouse| {
            let result = warehouse.search(&people.identifiers, &people.matcher)?;
            self.mentions.insert(warehouse.name(), result.mentions.clone());
            found.insert(warehouse.name().to_owned(), result);
            // Publishing writes everything and releases the lock, so that the raw files can be read.
            warehouse.publish()
        })
        .map(drop)
    }

    fn redact(&mut self, people: &People, only_own: bool, journal: &mut OpenJournal) -> Result<(), EraseError> {
        for warehouse in self.all.iter_mut() {
            let name = warehouse.name();
            let mentions = self.mentions.remove(name).unwrap_or_default();
            let rows = warehouse.redact(&people.matcher, &mentions, only_own).map_err(EraseError::load(name))?;
            if rows > 0 {
                // The rewrite of a large file takes long, so the count is durable before.
                journal.redacted(rows)?;
                warehouse.remove_old_bytes().map_err(EraseError::load(name))?;
            }
        }
        Ok(())
    }

    fn files(&self) -> Result<FileGroups, EraseError> {
        warehouse_files(self.settings)
    }

    fn search_objects(&self, people: &People) -> Result<Option<RawResult>, EraseError> {
        let (mut all, mut has_bucket) = (LocationResult::default(), false);
        for place in pipeline::places(&self.settings.warehouse) {
            let mut count = |url: &str, content: &mut dyn Read| {
                let (hits, bytes) = people.matcher.count_in_raw(content)?;
                all.searched += 1;
                all.bytes += bytes;
                all.unexplained += hits;
                if hits > 0 {
                    tracing::warn!(hits, "{url} holds bytes of an identifier");
                }
                Ok(())
            };
            has_bucket |= place.read_objects(&mut count).map_err(EraseError::load(place.name()))?;
        }
        Ok(has_bucket.then_some(("warehouse objects", all)))
    }
}

/// Returns the files of the warehouses and of the reader copy. Recordings in the folder of a warehouse are left out.
fn warehouse_files(settings: &Settings) -> Result<FileGroups, EraseError> {
    let mut all = Vec::new();
    let recordings = &settings.recordings.path;
    for place in pipeline::places(&settings.warehouse) {
        let mut groups = place.files()?;
        // Recordings contain no searchable text. They are searched by the folders of the sessions.
        if recordings.starts_with(&place.location.path) {
            groups.iter_mut().for_each(|(_, files)| files.retain(|path| !path.starts_with(recordings)));
        }
        all.extend(groups);
    }
    Ok(all)
}

/// The results files of `users push`. Their removal redacts mentions, too.
struct PushResults<'a>(&'a Session);

impl TextPlace for PushResults<'_> {
    fn find(&mut self, people: &People, plan: &mut Plan) -> Result<(), EraseError> {
        plan.results = pipeline::search_results(&self.0.settings, people)?;
        plan.counts.insert(PUSH_RESULTS.to_owned(), plan.results.rows);
        Ok(())
    }

    fn export(&mut self, people: &People, _: &Plan, out: &mut ExportFolder) -> Result<(), EraseError> {
        Ok(out.add_rows("", &pipeline::export_results(&self.0.settings, people)?)?)
    }

    fn remove(&mut self, people: &People, _: &Plan, journal: &mut OpenJournal) -> Result<(), EraseError> {
        journal.removed(PUSH_RESULTS, pipeline::clean_results(&self.0.settings, people)?.rows)
    }

    fn search(&mut self, people: &People, found: &mut LocationResults) -> Result<(), EraseError> {
        let results = pipeline::search_results(&self.0.settings, people)?;
        if results.files > 0 {
            let result = LocationResult {
                searched: results.files,
                bytes: results.bytes,
                left: results.rows + results.mentions,
                // At the path of an earlier results file there may be another program's file now. Such a file is never
                // changed; it counts here if it names an erased person.
                unexplained: results.foreign_files,
                ..LocationResult::default()
            };
            found.insert(PUSH_RESULTS.to_owned(), result);
        }
        Ok(())
    }

    fn redact(&mut self, _: &People, _: bool, _: &mut OpenJournal) -> Result<(), EraseError> {
        Ok(())
    }

    fn files(&self) -> Result<FileGroups, EraseError> {
        Ok(Vec::new())
    }
}

/// The recordings of the people's sessions, which are files without searchable text in a folder per session.
struct RecordedAnswers<'a>(&'a Session);

impl RecordedAnswers<'_> {
    /// Returns all folders that may contain recordings: the folders of earlier runs and the configured folder.
    ///
    /// # Errors
    /// If a folder of an earlier run is missing, because recordings on an unmounted disk would survive the erasure.
    fn folders(&self) -> Result<Vec<Recordings>, EraseError> {
        let mut paths = pipeline::recordings_folders(&self.0.state())?;
        if let Some(path) = paths.iter().find(|path| !path.is_dir()) {
            return Err(EraseError::Names(format!(
                "recordings were put into {}, which is not there: mount it, or make an empty folder there if they are gone for good",
                path.display()
            )));
        }
        let configured = &self.0.settings.recordings.path;
        if !paths.iter().any(|path| path.canonicalize().ok() == configured.canonicalize().ok()) {
            paths.push(configured.clone());
        }
        Ok(paths.iter().map(|path| Recordings::at(path, self.0.system.failpoints.clone())).collect())
    }
}

fn count_recordings(folders: &[Recordings], people: &People) -> Result<StoredRecordings, EraseError> {
    let mut all = StoredRecordings::default();
    for recordings in folders {
        let stored = recordings.count(&people.identifiers)?;
        all.sessions += stored.sessions;
        all.files += stored.files;
        all.bytes += stored.bytes;
    }
    Ok(all)
}

impl TextPlace for RecordedAnswers<'_> {
    fn find(&mut self, people: &People, plan: &mut Plan) -> Result<(), EraseError> {
        plan.recordings = count_recordings(&self.folders()?, people)?;
        plan.counts.insert(RECORDINGS.to_owned(), plan.recordings.files);
        Ok(())
    }

    fn export(&mut self, people: &People, _: &Plan, out: &mut ExportFolder) -> Result<(), EraseError> {
        for recordings in self.folders()? {
            for path in recordings.paths_of(&people.identifiers)? {
                out.add_file(&Path::new(RECORDINGS).join(&path), &recordings.root().join(&path))?;
            }
        }
        Ok(())
    }

    fn remove(&mut self, people: &People, _: &Plan, journal: &mut OpenJournal) -> Result<(), EraseError> {
        let mut removed = 0;
        for recordings in self.folders()? {
            removed += recordings.remove(&people.identifiers)?;
        }
        journal.removed(RECORDINGS, removed)
    }

    fn search(&mut self, people: &People, found: &mut LocationResults) -> Result<(), EraseError> {
        let folders = self.folders()?;
        if !folders.iter().any(Recordings::is_there) {
            return Ok(());
        }
        let remaining = count_recordings(&folders, people)?;
        let sessions = people.identifiers.iter().filter(|one| one.kind == IdentifierKind::Session);
        let result = LocationResult {
            searched: sessions.count() as u64,
            bytes: remaining.bytes,
            left: remaining.sessions.max(remaining.files),
            ..LocationResult::default()
        };
        found.insert(RECORDINGS.to_owned(), result);
        Ok(())
    }

    fn redact(&mut self, _: &People, _: bool, _: &mut OpenJournal) -> Result<(), EraseError> {
        Ok(())
    }

    fn files(&self) -> Result<FileGroups, EraseError> {
        Ok(Vec::new())
    }
}

/// A part of what stands in the state file and in the files next to it. Their bytes are searched, and no text is
/// searched apart. An erasure cleans the parts at different times.
struct StatePlace<'a> {
    part: StatePart,
    session: &'a Session,
    archive: &'a Archive,
}

enum StatePart {
    /// The rows of the state file.
    Checkpoints,
    /// The waiting webhook deliveries in the inbox.
    Deliveries,
    /// All files of the state and of erasures, and what killed runs left.
    Files,
}

impl StatePlace<'_> {
    fn clean_checkpoints(&self, people: &People, plan: &Plan, journal: &mut OpenJournal) -> Result<(), EraseError> {
        let user_ids = people.identifiers.iter().filter(|identifier| identifier.kind == IdentifierKind::UserId);
        let forms: Vec<String> =
            user_ids.flat_map(|identifier| identifier.all_forms(&plan.identifiers.spellings)).collect();
        let forgotten = self.session.state().forget_people(forms.iter().map(String::as_str))?;
        journal.removed("state people", forgotten)?;
        let reports = self.session.state().edit_reports(|report| people.matcher.redacted(report))?;
        journal.removed(STATE_REPORTS, reports)?;
        Ok(self.session.state().rewrite_without_deleted()?)
    }

    /// Deletes the bodies of deliveries about the people, and redacts the drift that the next run reports. The hashes
    /// of the bodies stay, so that repeated deliveries are recognized.
    fn clean_inbox(&self, people: &People, journal: &mut OpenJournal) -> Result<(), EraseError> {
        let Session { settings, identity, .. } = self.session;
        if !Inbox::exists(&settings.state_path)? {
            return Ok(());
        }
        let inbox = Inbox::open(&settings.state_path, &identity.base_url, &identity.environment)?;
        let fields = identifying_fields_of_events();
        let discarded = inbox.discard(|body| people.has_record(fields, &text_of_bytes(body)))?;
        let is_edited = inbox.edit_drift(|drift| people.matcher.redacted(drift))?;
        inbox.empty_log()?;
        journal.removed("waiting deliveries", discarded)?;
        journal.removed(STATE_REPORTS, u64::from(is_edited))
    }

    /// Deletes files that killed runs left unfinished, and damaged state files that contain an identifier.
    fn remove_leftovers(&self, people: &People, journal: &mut OpenJournal) -> Result<(), EraseError> {
        self.archive.remove_unfinished()?;
        let owners: Vec<_> =
            self.session.state().unfinished_scans()?.into_iter().map(|unfinished| unfinished.scan.id).collect();
        self.archive.discard_orphans(&owners)?;
        let under_way = self.archive.under_way_folder();
        for entry in fs::read_dir(&under_way).map_err(EraseError::io("list", &under_way))? {
            let path = entry.map_err(EraseError::io("list", &under_way))?.path();
            if path.is_dir() {
                // The folder has spill files of a killed read of the warehouses.
                fs::remove_dir_all(&path).map_err(EraseError::io("remove", &path))?;
            }
        }
        for path in self.state_files()? {
            if pipeline::is_carried_events(&path) {
                // The file has webhook events that a killed replay exported.
                fs::remove_file(&path).map_err(EraseError::io("remove", &path))?;
            }
            if !state::is_damaged_copy(&path) {
                continue;
            }
            let file = fs::File::open(&path).map_err(EraseError::io("open", &path))?;
            let (hits, _) = people.matcher.count_in_raw(file).map_err(EraseError::io("read", &path))?;
            if hits > 0 {
                fs::remove_file(&path).map_err(EraseError::io("remove", &path))?;
                journal.removed("damaged state files", 1)?;
            }
        }
        Ok(())
    }

    fn state_files(&self) -> Result<Vec<PathBuf>, EraseError> {
        let path = &self.session.settings.state_path;
        state::state_files(path).map_err(EraseError::io("list the files of", path))
    }
}

impl TextPlace for StatePlace<'_> {
    fn find(&mut self, _: &People, _: &mut Plan) -> Result<(), EraseError> {
        Ok(())
    }

    /// Does nothing: the state has hashes of identifiers, and deliveries are written to the warehouses before.
    fn export(&mut self, _: &People, _: &Plan, _: &mut ExportFolder) -> Result<(), EraseError> {
        Ok(())
    }

    fn remove(&mut self, people: &People, plan: &Plan, journal: &mut OpenJournal) -> Result<(), EraseError> {
        match self.part {
            StatePart::Checkpoints => self.clean_checkpoints(people, plan, journal),
            StatePart::Deliveries => self.clean_inbox(people, journal),
            StatePart::Files => self.remove_leftovers(people, journal),
        }
    }

    fn search(&mut self, _: &People, _: &mut LocationResults) -> Result<(), EraseError> {
        Ok(())
    }

    fn redact(&mut self, _: &People, _: bool, _: &mut OpenJournal) -> Result<(), EraseError> {
        Ok(())
    }

    fn files(&self) -> Result<FileGroups, EraseError> {
        Ok(match self.part {
            StatePart::Checkpoints | StatePart::Deliveries => Vec::new(),
            StatePart::Files => {
                let erasures = files_below(&self.session.settings.erasures_folder())?;
                vec![("state", self.state_files()?), ("erasures", erasures)]
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Overrides, resolve},
        model::WarehouseKind,
    };

    #[test]
    fn p9_recordings_hide_no_file_of_a_warehouse() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for file in ["data/w.duckdb", "data/3f/recording", "p/responses/data.parquet", "p/recordings/3f/recording"] {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), "x").unwrap();
        }
        for (recordings, expected) in [
            ("data", ["data/w.duckdb", "p/recordings/3f/recording", "p/responses/data.parquet"].as_slice()),
            ("p/recordings", ["data/w.duckdb", "p/responses/data.parquet"].as_slice()),
        ] {
            let text = format!("[recordings]\npath = '{recordings}'\n[state]\npath = 's/state.sqlite'\n");
            fs::write(at("studysync.toml"), text).unwrap();
            let overrides = Overrides {
                config: Some(at("studysync.toml")),
                warehouses: [(WarehouseKind::DuckDb, at("data/w.duckdb")), (WarehouseKind::Parquet, at("p"))].into(),
                ..Overrides::default()
            };
            let settings = resolve(overrides).unwrap();
            let groups = warehouse_files(&settings).unwrap();
            let found: Vec<PathBuf> = groups.into_iter().flat_map(|(_, paths)| paths).collect();
            assert_eq!(found, expected.iter().map(|file| at(file)).collect::<Vec<_>>(), "{recordings}");
        }
    }
}
