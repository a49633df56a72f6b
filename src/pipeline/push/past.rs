//! The files of results that pushes wrote, wherever they are: they name people, so an erasure cleans them like
//! everything else that the program keeps.
//!
//! Where they are is noted before they are written, in a file beside the checkpoints: absolute paths, each ended by a
//! NUL. Files that were moved or changed by hand are not ours any more:
//! those are searched if they are in their place, and never changed.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{
    super::PipelineError,
    results::{HEADER, UNFINISHED},
};
use crate::{
    config::Settings,
    files::{self, Access, Output},
};

const NOTES: &str = "push-results";
/// Ends the name of a file that is being cleaned.
const CLEANED: &str = ".cleaned";
/// Where in a line the user's id stands.
const USER_ID: usize = 1;

/// What such files hold of people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultsFound {
    pub files: u64,
    pub bytes: u64,
    /// Rows of theirs.
    pub rows: u64,
    /// Rows of others that mention them.
    pub mentions: u64,
    /// Files in such a place that are not ours and name them.
    pub of_others: u64,
}

/// Knows the people who are looked for.
pub trait Erased {
    /// Whether the user id is theirs.
    fn is_user(&self, user_id: &str) -> bool;
    /// The text without them; `None` if it does not mention them.
    fn redacted(&self, text: &str) -> Option<String>;
}

/// Notes where results are going to be written.
pub(super) fn note(settings: &Settings, results: &Path) -> Result<(), PipelineError> {
    let folder = settings.erasures_folder();
    let notes = folder.join(NOTES);
    let failed = |source| PipelineError::Results { path: notes.clone(), source };
    let place = std::path::absolute(results).map_err(failed)?;
    if fs::metadata(&place).is_ok_and(|found| !found.is_file()) {
        // A device or a pipe keeps nothing.
        return Ok(());
    }
    if noted(&folder).map_err(failed)?.contains(&place) {
        return Ok(());
    }
    files::create_folders(&folder).map_err(failed)?;
    let mut line = place.as_os_str().as_bytes().to_vec();
    line.push(0);
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&notes).map_err(failed)?;
    file.write_all(&line).and_then(|()| file.sync_all()).map_err(failed)
}

fn noted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let bytes = match fs::read(folder.join(NOTES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        bytes => bytes?,
    };
    let lines = bytes.split(|byte| *byte == 0).filter(|line| !line.is_empty());
    Ok(lines.map(|line| PathBuf::from(OsStr::from_bytes(line))).collect())
}

/// Every file of results that is there: that of the last push to each place, unfinished ones,
/// and those that were moved aside.
fn results_files(settings: &Settings) -> Result<Vec<PathBuf>, PipelineError> {
    let folder = settings.erasures_folder();
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PipelineError::Results { path, source }
    };
    let mut files = Vec::new();
    for place in noted(&folder).map_err(failed(&folder))? {
        let place = files::real_path(&place).map_err(failed(&place))?;
        let (Some(folder), Some(name)) = (place.parent(), place.file_name()) else { continue };
        let entries = match fs::read_dir(folder) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            entries => entries.map_err(failed(folder))?,
        };
        for entry in entries {
            let path = entry.map_err(failed(folder))?.path();
            let is_of_place = path.file_name().is_some_and(|found| is_of(name, found));
            if is_of_place && fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                files.push(path);
            }
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Whether a file of this name belongs to the place: the place itself, `.part`, or `.1` and so on.
fn is_of(place: &OsStr, found: &OsStr) -> bool {
    let Some(rest) = found.as_bytes().strip_prefix(place.as_bytes()) else { return false };
    let is_number = |rest: &[u8]| matches!(rest, [b'.', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit));
    rest.is_empty() || rest == UNFINISHED.as_bytes() || is_number(rest)
}

/// Looks through the files. Changes nothing.
pub fn search_results(settings: &Settings, erased: &dyn Erased) -> Result<ResultsFound, PipelineError> {
    let mut found = ResultsFound::default();
    for path in results_files(settings)? {
        let failed = |source| PipelineError::Results { path: path.clone(), source };
        found.files += 1;
        found.bytes += fs::metadata(&path).map_err(failed)?.len();
        clean_into(&path, erased, &mut found, None).map_err(failed)?;
    }
    Ok(found)
}

/// Takes the rows of people out of the files, and replaces what mentions them in others.
pub fn clean_results(settings: &Settings, erased: &dyn Erased) -> Result<ResultsFound, PipelineError> {
    let mut all = ResultsFound::default();
    for path in results_files(settings)? {
        let failed = |source| PipelineError::Results { path: path.clone(), source };
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

fn rewrite(path: &Path, erased: &dyn Erased) -> io::Result<()> {
    let mut out = csv::Writer::from_writer(Output::begin(path, CLEANED, Access::Private)?);
    clean_into(path, erased, &mut ResultsFound::default(), Some(&mut out))?;
    out.into_inner().map_err(|error| io::Error::other(error.to_string()))?.finish()
}

/// Counts what a file holds of people, and writes the rest of it.
fn clean_into(
    path: &Path,
    erased: &dyn Erased,
    found: &mut ResultsFound,
    mut out: Option<&mut csv::Writer<Output>>,
) -> io::Result<()> {
    let file = BufReader::new(File::open(path)?);
    // The last line of a push that was killed may be cut.
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(file);
    let mut record = csv::ByteRecord::new();
    let mut is_first = true;
    while reader.read_byte_record(&mut record)? {
        if std::mem::replace(&mut is_first, false) {
            if !record.iter().eq(HEADER.map(str::as_bytes)) {
                return search_text(path, erased, found);
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

/// A file that is not ours: whether it names somebody.
fn search_text(path: &Path, erased: &dyn Erased, found: &mut ResultsFound) -> io::Result<()> {
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        if erased.redacted(&String::from_utf8_lossy(&line?)).is_some() {
            found.of_others += 1;
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Anna;

    impl Erased for Anna {
        fn is_user(&self, user_id: &str) -> bool {
            user_id == "anna"
        }
        fn redacted(&self, text: &str) -> Option<String> {
            text.contains("anna@x.de").then(|| text.replace("anna@x.de", "[erased]"))
        }
    }

    fn settings(root: &Path) -> Settings {
        let overrides = crate::config::Overrides {
            duckdb: Some(root.join("w.duckdb")),
            state: Some(root.join("state.sqlite")),
            ..Default::default()
        };
        crate::config::resolve(overrides).unwrap()
    }

    #[test]
    fn p9_results_of_every_push_are_found_and_lose_the_rows_of_people() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let header = HEADER.join(",");
        let place = folder.path().join("out.csv");
        for _ in 0..2 {
            note(&settings, &place).unwrap();
        }
        note(&settings, &folder.path().join("gone/elsewhere.csv")).unwrap();
        let lines = "1,anna,accepted,sent,200,0,,\n2,bert,refused,sent,400,0,,\"no: \"\"anna@x.de\"\"\"\n3,\"a,\nb\",accepted,sent,200,0,,\n";
        let text = format!("{header}\n{lines}");
        for name in ["out.csv", "out.csv.1", "out.csv.12"] {
            fs::write(folder.path().join(name), &text).unwrap();
        }
        // Of a push that was killed, in the middle of her line.
        fs::write(folder.path().join("out.csv.part"), format!("{header}\n1,bert,accepted,sent,200,0,,\n2,anna,acc"))
            .unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o640)).unwrap();
        for other in ["out.csv.bak", "out.csvx", "other.csv"] {
            fs::write(folder.path().join(other), &text).unwrap();
        }
        let found = search_results(&settings, &Anna).unwrap();
        assert_eq!((found.files, found.rows, found.mentions, found.of_others), (4, 4, 3, 0));
        assert_eq!(clean_results(&settings, &Anna).unwrap().rows, 4);
        let left = search_results(&settings, &Anna).unwrap();
        assert_eq!((left.files, left.rows, left.mentions, left.of_others), (4, 0, 0, 0));
        let cleaned = fs::read_to_string(&place).unwrap();
        let rest = "2,bert,refused,sent,400,0,,\"no: \"\"[erased]\"\"\"\n3,\"a,\nb\",accepted,sent,200,0,,\n";
        assert_eq!(cleaned, format!("{header}\n{rest}"));
        assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_to_string(folder.path().join("out.csv.bak")).unwrap(), text);
        // What is no file of results any more is told, and stays.
        fs::write(&place, "mine: anna@x.de").unwrap();
        assert_eq!(clean_results(&settings, &Anna).unwrap().rows, 0);
        assert_eq!(search_results(&settings, &Anna).unwrap().of_others, 1);
    }
}
