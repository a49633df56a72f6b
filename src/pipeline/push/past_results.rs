//! Searches and cleans the results files of earlier pushes. Results files name users, so an erasure removes erased
//! people from them.
//!
//! A push stores the absolute path of its results file before it writes the file. All paths are in one file next to the
//! checkpoints, each ended by a NUL. A stored path may by now be that of another file, which is searched and never
//! changed.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::pipeline::error::PipelineError;

use super::results::{HEADER, TEMPORARY};
use crate::{
    config::Settings,
    files::{self, Access, Output},
    load::ExportedRows,
};

/// Name of the file with the paths of results files, in the folder of erasures.
const PATHS_FILE: &str = "push-results";
/// Suffix of the temporary name of a file that is being rewritten.
const CLEANED: &str = ".cleaned";
/// Index of the column with the user id.
const USER_ID: usize = 1;

/// What the results files contain about erased people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultsFound {
    /// Number of files that were searched.
    pub files: u64,
    /// Size of the searched files.
    pub bytes: u64,
    /// Rows of erased people.
    pub rows: u64,
    /// Rows of other users that mention an erased person.
    pub mentions: u64,
    /// Files that name an erased person and are no results files; they are never changed.
    pub foreign_files: u64,
}

/// Recognizes erased people in texts.
pub trait ErasedPeople {
    /// Returns true if the user id belongs to an erased person.
    fn is_user(&self, user_id: &str) -> bool;
    /// Returns the text without erased people. Returns `None` if the text does not mention any.
    fn redacted(&self, text: &str) -> Option<String>;
}

/// Stores the path of a results file that is about to be written. Does nothing for a stored path, or for a device or
/// pipe.
pub(super) fn remember_path(settings: &Settings, results: &Path) -> Result<(), PipelineError> {
    let folder = settings.erasures_folder();
    let paths_file = folder.join(PATHS_FILE);
    let failed = PipelineError::results(&paths_file);
    let path = std::path::absolute(results).map_err(failed)?;
    // A device or a pipe keeps no rows.
    let is_device = fs::metadata(&path).is_ok_and(|found| !found.is_file());
    if is_device || stored_paths(&folder).map_err(failed)?.contains(&path) {
        return Ok(());
    }
    files::create_folders(&folder).map_err(failed)?;
    let mut line = path.as_os_str().as_bytes().to_vec();
    line.push(0);
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&paths_file).map_err(failed)?;
    file.write_all(&line).and_then(|()| file.sync_all()).map_err(failed)
}

/// Returns the stored paths of results files. Returns none if no push has stored a path.
fn stored_paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let bytes = match fs::read(folder.join(PATHS_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes?,
    };
    let lines = bytes.split(|byte| *byte == 0).filter(|line| !line.is_empty());
    Ok(lines.map(|line| PathBuf::from(OsStr::from_bytes(line))).collect())
}

/// Returns every file that has a stored path, or a stored path with the suffix of a killed push or of a renamed results
/// file. Sorted, without duplicates.
fn results_files(settings: &Settings) -> Result<Vec<PathBuf>, PipelineError> {
    let folder = settings.erasures_folder();
    let mut files = Vec::new();
    for stored in stored_paths(&folder).map_err(PipelineError::results(&folder))? {
        let results = files::real_path(&stored).map_err(PipelineError::results(&stored))?;
        let (Some(folder), Some(name)) = (results.parent(), results.file_name()) else { continue };
        let entries = match fs::read_dir(folder) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            entries => entries.map_err(PipelineError::results(folder))?,
        };
        for entry in entries {
            let path = entry.map_err(PipelineError::results(folder))?.path();
            let is_results = path.file_name().is_some_and(|found| is_results_name(name, found));
            if is_results && fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                files.push(path);
            }
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Returns true if the file name `found` is `results`, or `results` with one of the suffixes `.part`, `.1`, `.2` and so
/// on.
fn is_results_name(results: &OsStr, found: &OsStr) -> bool {
    let Some(rest) = found.as_bytes().strip_prefix(results.as_bytes()) else { return false };
    let is_number = |rest: &[u8]| matches!(rest, [b'.', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit));
    rest.is_empty() || rest == TEMPORARY.as_bytes() || is_number(rest)
}

/// Searches the results files for erased people. Changes nothing.
pub fn search_results(settings: &Settings, erased: &dyn ErasedPeople) -> Result<ResultsFound, PipelineError> {
    let mut found = ResultsFound::default();
    for path in results_files(settings)? {
        let failed = PipelineError::results(&path);
        found.files += 1;
        found.bytes += fs::metadata(&path).map_err(failed)?.len();
        clean_into(&path, erased, &mut found, None).map_err(failed)?;
    }
    Ok(found)
}

/// Returns the rows of people in all results files. `table` of the result is `push_results`.
pub fn export_results(settings: &Settings, people: &dyn ErasedPeople) -> Result<ExportedRows, PipelineError> {
    let mut exported = ExportedRows { table: "push_results".to_owned(), ..ExportedRows::default() };
    for path in results_files(settings)? {
        export_file(&path, people, &mut exported).map_err(PipelineError::results(&path))?;
    }
    Ok(exported)
}

/// Adds the rows of people in one file. A file without the header of results files has no rows.
fn export_file(path: &Path, people: &dyn ErasedPeople, exported: &mut ExportedRows) -> io::Result<()> {
    let file = BufReader::new(File::open(path)?);
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(file);
    let mut record = csv::ByteRecord::new();
    if !reader.read_byte_record(&mut record)? || !record.iter().eq(HEADER.map(str::as_bytes)) {
        return Ok(());
    }
    let mut out = csv::Writer::from_writer(std::mem::take(&mut exported.csv));
    if exported.count == 0 {
        out.write_byte_record(&record)?;
    }
    while reader.read_byte_record(&mut record)? {
        let cells: Vec<String> = record.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect();
        if !cells.get(USER_ID).is_some_and(|id| people.is_user(id)) {
            continue;
        }
        out.write_byte_record(&record)?;
        let object: BTreeMap<&str, &String> = HEADER.into_iter().zip(&cells).collect();
        serde_json::to_writer(&mut exported.json_lines, &object)?;
        exported.json_lines.push(b'\n');
        exported.count += 1;
    }
    exported.csv = out.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
    if exported.count == 0 {
        exported.csv.clear();
    }
    Ok(())
}

/// Removes the rows of erased people from the results files, and redacts the rows that mention them. Returns what was
/// removed and redacted; `bytes` and `foreign_files` stay 0.
pub fn clean_results(settings: &Settings, erased: &dyn ErasedPeople) -> Result<ResultsFound, PipelineError> {
    let mut all = ResultsFound::default();
    for path in results_files(settings)? {
        let failed = PipelineError::results(&path);
        let mut found = ResultsFound { files: 1, ..ResultsFound::default() };
        clean_into(&path, erased, &mut found, None).map_err(failed)?;
        if found.rows + found.mentions > 0 {
            rewrite(&path, erased).map_err(failed)?;
        }
        all = ResultsFound {
            files: all.files + 1,
            rows: all.rows + found.rows,
            mentions: all.mentions + found.mentions,
            ..all
        };
    }
    Ok(all)
}

/// Replaces a results file by a file without erased people.
fn rewrite(path: &Path, erased: &dyn ErasedPeople) -> io::Result<()> {
    let mut out = csv::Writer::from_writer(Output::begin(path, CLEANED, Access::Private)?);
    clean_into(path, erased, &mut ResultsFound::default(), Some(&mut out))?;
    out.into_inner().map_err(|error| io::Error::other(error.to_string()))?.finish()
}

/// Adds to `found` what a file contains about erased people. Writes the file without erased people to `out`, if `out`
/// is given. A file without the header of results files is only searched.
fn clean_into(
    path: &Path,
    erased: &dyn ErasedPeople,
    found: &mut ResultsFound,
    mut out: Option<&mut csv::Writer<Output>>,
) -> io::Result<()> {
    let file = BufReader::new(File::open(path)?);
    // A killed push may leave an incomplete last line.
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(file);
    let mut record = csv::ByteRecord::new();
    let mut is_first = true;
    while reader.read_byte_record(&mut record)? {
        if std::mem::replace(&mut is_first, false) {
            if !record.iter().eq(HEADER.map(str::as_bytes)) {
                return search_foreign_file(path, erased, found);
            }
        } else if record.get(USER_ID).is_some_and(|id| erased.is_user(&String::from_utf8_lossy(id))) {
            found.rows += 1;
            continue;
        } else {
            let redact = |cell: &[u8]| erased.redacted(&String::from_utf8_lossy(cell));
            let redacted: Vec<Option<String>> = record.iter().map(redact).collect();
            if redacted.iter().any(Option::is_some) {
                found.mentions += 1;
                let cells = redacted.into_iter().zip(record.iter());
                record = cells.map(|(new, old)| new.map_or_else(|| old.to_vec(), String::into_bytes)).collect();
            }
        }
        if let Some(out) = &mut out {
            out.write_byte_record(&record)?;
        }
    }
    Ok(())
}

fn search_foreign_file(path: &Path, erased: &dyn ErasedPeople, found: &mut ResultsFound) -> io::Result<()> {
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        if erased.redacted(&String::from_utf8_lossy(&line?)).is_some() {
            found.foreign_files += 1;
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WarehouseKind;
    use std::os::unix::fs::PermissionsExt;

    struct Anna;

    impl ErasedPeople for Anna {
        fn is_user(&self, user_id: &str) -> bool {
            user_id == "anna"
        }
        fn redacted(&self, text: &str) -> Option<String> {
            text.contains("anna@x.de").then(|| text.replace("anna@x.de", "[erased]"))
        }
    }

    fn settings(root: &Path) -> Settings {
        let overrides = crate::config::Overrides {
            warehouses: [(WarehouseKind::DuckDb, root.join("w.duckdb"))].into(),
            state: Some(root.join("state.sqlite")),
            ..Default::default()
        };
        crate::config::resolve(overrides).unwrap()
    }

    #[test]
    fn p9_results_of_every_push_lose_the_rows_of_erased_people() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let header = HEADER.join(",");
        let results = folder.path().join("out.csv");
        for _ in 0..2 {
            remember_path(&settings, &results).unwrap();
        }
        remember_path(&settings, &folder.path().join("gone/elsewhere.csv")).unwrap();
        let lines = "1,anna,accepted,sent,200,0,,\n2,bert,refused,sent,400,0,,\"no: \"\"anna@x.de\"\"\"\n3,\"a,\nb\",accepted,sent,200,0,,\n";
        let text = format!("{header}\n{lines}");
        for name in ["out.csv", "out.csv.1", "out.csv.12"] {
            fs::write(folder.path().join(name), &text).unwrap();
        }
        // A killed push left an incomplete line.
        fs::write(folder.path().join("out.csv.part"), format!("{header}\n1,bert,accepted,sent,200,0,,\n2,anna,acc"))
            .unwrap();
        fs::set_permissions(&results, fs::Permissions::from_mode(0o640)).unwrap();
        for other in ["out.csv.bak", "out.csvx", "other.csv"] {
            fs::write(folder.path().join(other), &text).unwrap();
        }
        let found = search_results(&settings, &Anna).unwrap();
        assert_eq!((found.files, found.rows, found.mentions, found.foreign_files), (4, 4, 3, 0));
        assert_eq!(clean_results(&settings, &Anna).unwrap().rows, 4);
        let left = search_results(&settings, &Anna).unwrap();
        assert_eq!((left.files, left.rows, left.mentions, left.foreign_files), (4, 0, 0, 0));
        let cleaned = fs::read_to_string(&results).unwrap();
        let rest = "2,bert,refused,sent,400,0,,\"no: \"\"[erased]\"\"\"\n3,\"a,\nb\",accepted,sent,200,0,,\n";
        assert_eq!(cleaned, format!("{header}\n{rest}"));
        assert_eq!(fs::metadata(&results).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_to_string(folder.path().join("out.csv.bak")).unwrap(), text);
        // A file that is no results file any more is counted and not changed.
        fs::write(&results, "mine: anna@x.de").unwrap();
        assert_eq!(clean_results(&settings, &Anna).unwrap().rows, 0);
        assert_eq!(search_results(&settings, &Anna).unwrap().foreign_files, 1);
    }
}
