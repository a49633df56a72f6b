//! Files of recordings: named, found again, gone on with, and removed.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::model::RunId;

const SESSION: &str = "AAAAAAAA-0000-4000-8000-00000000000A";

fn key(session: &str, question_id: i64, upload_id: &str) -> UploadKey {
    UploadKey::of(session, question_id, Some(upload_id), "https://m/x").unwrap()
}

fn session(text: &str) -> Identifier {
    Identifier::read(IdentifierKind::Session, text).unwrap()
}

fn version(text: &str) -> Option<FileVersion> {
    Some(FileVersion { validator: text.to_owned() })
}

fn stored(recordings: &Recordings, key: &UploadKey, content: &[u8]) -> Recording {
    let mut partial = recordings.begin(key).unwrap();
    partial.restart(version("\"1\"")).unwrap();
    partial.write(content).unwrap();
    recordings.store(key, partial, Some("video/mp4".to_owned()), 17, |_| Ok(None)).unwrap()
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

#[test]
fn a_recording_is_named_by_content_and_found_by_upload() {
    let folder = TempDir::new().unwrap();
    let recordings = Recordings::at(folder.path(), Failpoints::default());
    let (one, other) = (key(SESSION, 7, "u"), key(SESSION, 8, "u"));
    assert_eq!(recordings.find(&one).unwrap(), None);
    let recording = stored(&recordings, &one, b"abc");
    // The SHA-256 of "abc", from the standard.
    assert_eq!(recording.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!((recording.bytes, recording.fetched_ms), (3, 17));
    let path = folder.path().join(recordings.relative_path(&one, &recording));
    assert_eq!((fs::read(&path).unwrap(), path.file_name().unwrap()), (b"abc".to_vec(), recording.sha256.as_ref()));
    assert_eq!(recordings.find(&one).unwrap(), Some(UploadOutcome::Stored(recording.clone())));
    // Sessions that an erasure takes for one share a folder and no recording; and texts are no paths.
    assert_eq!(recordings.find(&key(&SESSION.to_lowercase(), 7, "u")).unwrap(), None);
    assert_eq!(recordings.count(&[session(&SESSION.to_lowercase())]).unwrap().files, 1);
    assert_eq!(recordings.find(&other).unwrap(), None);
    assert_eq!(recordings.find(&key(SESSION, 7, "v")).unwrap(), None);
    let hostile = key("../../etc", 7, "../../../passwd\0");
    stored(&recordings, &hostile, b"x");
    assert!(
        files_below(folder.path())
            .iter()
            .all(|path| path.components().count() == 3 + folder.path().components().count())
    );
    assert!(UploadKey::of("null", 7, None, "").is_none(), "no erasure finds what belongs to nobody");
    // Without an id of the upload, the link tells one recording from the next; what is signed in it does not.
    let by_link = |link: &str| UploadKey::of(SESSION, 7, None, link).unwrap();
    assert!(
        by_link("https://m/a?sig=1") == by_link("https://m/a?sig=2")
            && by_link("https://m/a") != by_link("https://m/b")
    );
    // A file that somebody cut is not the one that was stored.
    fs::write(&path, b"ab").unwrap();
    assert_eq!(recordings.find(&one).unwrap(), None);
    stored(&recordings, &one, b"abc");
    assert!(recordings.find(&one).unwrap().is_some());
    fs::write(folder.path().join(folder_of(&one.session)).join(one.name() + ".json"), b"{").unwrap();
    assert_eq!(recordings.find(&one).unwrap(), None, "a note that is no note");
}

#[test]
fn p2_a_download_goes_on_with_the_version_that_it_has() {
    let folder = TempDir::new().unwrap();
    let recordings = Recordings::at(folder.path(), Failpoints::default());
    let key = key(SESSION, 7, "u");
    let mut partial = recordings.begin(&key).unwrap();
    assert_eq!((partial.bytes(), partial.version()), (0, None));
    partial.restart(version("\"1\"")).unwrap();
    partial.write(b"ab").unwrap();
    drop(partial);
    let mut partial = recordings.begin(&key).unwrap();
    assert_eq!((partial.bytes(), partial.version()), (2, version("\"1\"").as_ref()));
    partial.write(b"c").unwrap();
    let recording = recordings.store(&key, partial, None, 1, |_| Ok(None)).unwrap();
    assert!(recording.sha256.starts_with("ba7816bf") && recording.bytes == 3);
    assert_eq!(files_below(folder.path()).len(), 2, "the recording and its note");
    // Of a host that tells no version, a part is worth nothing.
    let mut partial = recordings.begin(&key).unwrap();
    partial.restart(None).unwrap();
    partial.write(b"ab").unwrap();
    drop(partial);
    assert_eq!(recordings.begin(&key).unwrap().bytes(), 0);
    // Nor is that of another version.
    let mut partial = recordings.begin(&key).unwrap();
    partial.restart(version("\"2\"")).unwrap();
    partial.write(b"xyz").unwrap();
    partial.restart(version("\"3\"")).unwrap();
    partial.write(b"abc").unwrap();
    assert!(recordings.store(&key, partial, None, 1, |_| Ok(None)).unwrap().sha256.starts_with("ba7816bf"));
    recordings.begin(&key).unwrap();
    recordings.discard(&key).unwrap();
    assert_eq!(files_below(folder.path()).len(), 2);
}

#[test]
fn p2_a_stop_before_any_step_leaves_what_can_be_gone_on_with() {
    for stop_before in [DurableStep::RecordingKept, DurableStep::RecordingNoted] {
        let folder = TempDir::new().unwrap();
        let stopped = Recordings::at(folder.path(), Failpoints::with_hook(move |step| step == stop_before));
        let key = key(SESSION, 7, "u");
        let mut partial = stopped.begin(&key).unwrap();
        partial.restart(version("\"1\"")).unwrap();
        partial.write(b"abc").unwrap();
        assert!(stopped.store(&key, partial, None, 1, |_| Ok(None)).is_err());
        let recordings = Recordings::at(folder.path(), Failpoints::default());
        assert_eq!(recordings.find(&key).unwrap(), None, "{stop_before:?}");
        stored(&recordings, &key, b"abc");
        assert!(matches!(recordings.find(&key).unwrap(), Some(UploadOutcome::Stored(_))));
        assert_eq!(files_below(folder.path()).len(), 2, "{stop_before:?}");
    }
}

#[test]
fn p9_all_of_a_session_goes_and_nothing_of_others() {
    let folder = TempDir::new().unwrap();
    let recordings = Recordings::at(folder.path(), Failpoints::default());
    let other = "bbbbbbbb-0000-4000-8000-00000000000b";
    stored(&recordings, &key(SESSION, 7, "u"), b"abc");
    // An earlier upload of the same answer, which no row names any more, and one that was cut short.
    stored(&recordings, &key(SESSION, 7, "before"), b"earlier");
    let mut partial = recordings.begin(&key(SESSION, 8, "u")).unwrap();
    partial.restart(version("\"1\"")).unwrap();
    partial.write(b"part").unwrap();
    drop(partial);
    let written = Some(RowStamp { run_id: RunId("run".to_owned()), at_ms: 6 });
    let missing =
        MissingRecording { reason: MissingReason::Refused, attempts: 1, asked_ms: 5, limit_bytes: None, written };
    let missing = UploadOutcome::Missing(missing);
    recordings.note(&key(SESSION, 9, "u"), &missing).unwrap();
    assert_eq!(recordings.find(&key(SESSION, 9, "u")).unwrap(), Some(missing));
    stored(&recordings, &key(other, 7, "u"), b"abc");
    let people = [session(SESSION), Identifier::read(IdentifierKind::UserId, SESSION).unwrap()];
    assert_eq!(recordings.count(&people).unwrap(), StoredRecordings { sessions: 1, files: 3, bytes: 3 + 7 + 4 });
    assert_eq!(recordings.remove(&people).unwrap(), 3);
    assert_eq!(recordings.count(&people).unwrap(), StoredRecordings::default());
    assert_eq!(recordings.remove(&people).unwrap(), 0, "once more, as after a kill");
    assert!(matches!(recordings.find(&key(other, 7, "u")).unwrap(), Some(UploadOutcome::Stored(_))));
    assert_eq!(files_below(folder.path()).len(), 2);
    assert_eq!(Recordings::at(&folder.path().join("none"), Failpoints::default()).remove(&people).unwrap(), 0);
}
