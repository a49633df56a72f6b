//! An archive in a bucket, on objects in memory: commits, kills, lost answers, other writers, rewrites and retention.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::{
    tests::{pages, scan},
    *,
};
use crate::{
    bucket::{
        Bucket, Content, Expected,
        faulty::{Fault, Objects},
    },
    model::{Failpoints, Location, Scan, ScanId, Stream},
};

const DAY_MS: i64 = 86_400_000;

fn settings(folder: &Path, bucket: Option<&Bucket>) -> ArchiveSettings {
    ArchiveSettings {
        location: Location { bucket: bucket.map(|bucket| bucket.address().clone()), ..Location::from(folder) },
        keeps_pages: true,
        keep_days: Some(30),
        base_url: "http://127.0.0.1:1".to_owned(),
        environment: "test".to_owned(),
        state_file_name: "test.sqlite".to_owned(),
    }
}

fn open_with(settings: ArchiveSettings, objects: &Objects) -> Result<Archive, ArchiveError> {
    let archive = Archive::over(settings, Some(objects.bucket()))?;
    archive.claim()?;
    Ok(archive)
}

fn open(folder: &TempDir, objects: &Objects) -> Archive {
    open_with(settings(folder.path(), Some(&objects.bucket())), objects).unwrap()
}

/// Writes the spool of a complete scan.
fn spool(archive: &Archive, scan: &Scan) {
    let mut spool = archive.begin(scan).unwrap();
    for page in pages() {
        spool.append(&page).unwrap();
    }
    spool.complete().unwrap();
    archive.note(&scan.id, b"note").unwrap();
}

fn bodies(file: &PageFile) -> Vec<Vec<u8>> {
    file.read_pages().unwrap().map(Result::unwrap).collect()
}

/// Returns the number of requests of each kind since the last call.
fn counted(objects: &Objects) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in objects.take_requests() {
        *counts.entry(request.split(' ').next().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

fn requests(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

#[test]
fn committed_scans_become_objects_with_one_request_each() {
    let (folder, objects) = (TempDir::new().unwrap(), Objects::default());
    let archive = open(&folder, &objects);
    let scans = [scan(), scan(), scan()];
    scans.iter().for_each(|scan| spool(&archive, scan));
    objects.take_requests();
    archive.archive_spools(&scans).unwrap();
    assert_eq!(counted(&objects), requests(&[("put", 3)]));
    assert!(scans.iter().all(|scan| !archive.under_way(&scan.id).exists()));
    let files = archive.committed().unwrap();
    assert_eq!(counted(&objects), requests(&[("list", 1)]));
    let mut keys: Vec<_> = scans.iter().map(|scan| format!("responses/2026-01/{}.pages", scan.id)).collect();
    keys.sort();
    assert_eq!(files.iter().map(|file| file.key().unwrap()).collect::<Vec<_>>(), keys);
    assert_eq!(files[0].path(), Path::new(&format!("s3://test/w/{}", keys[0])));
    for file in &files {
        assert_eq!(bodies(file), pages());
        let summary = file.summarize().unwrap();
        assert_eq!((summary.pages, summary.note.as_deref()), (5, Some(b"note".as_slice())));
        assert!(summary.is_complete && !file.is_spool());
    }
    assert_eq!(counted(&objects), requests(&[("get", 6)]), "one request for each of two reads of a small file");
    drop(open(&folder, &objects));
    assert_eq!(counted(&objects), requests(&[("get", 1)]), "an archive that has its owner needs one request to open");
}

#[test]
fn p2_a_kill_before_the_spool_is_removed_loses_nothing() {
    let (folder, objects) = (TempDir::new().unwrap(), Objects::default());
    let (archive, scan) = (open(&folder, &objects), scan());
    spool(&archive, &scan);
    let before = fs::read(archive.under_way(&scan.id)).unwrap();
    archive.archive_spools([&scan]).unwrap();
    // The same spool again, as if the run was killed before it removed the spool.
    fs::write(archive.under_way(&scan.id), &before).unwrap();
    archive.archive_spools([&scan]).unwrap();
    assert!(!archive.under_way(&scan.id).exists());
    assert_eq!(bodies(&archive.committed().unwrap()[0]), pages());
    // The scan was committed again before its spool was removed: the last note counts.
    fs::write(archive.under_way(&scan.id), &before).unwrap();
    archive.note(&scan.id, b"second note").unwrap();
    archive.archive_spools([&scan]).unwrap();
    let files = archive.committed().unwrap();
    assert_eq!((files.len(), files[0].summarize().unwrap().note.as_deref()), (1, Some(b"second note".as_slice())));
    // Killed after the removal.
    archive.archive_spools([&scan]).unwrap();
    assert_eq!(archive.committed().unwrap().len(), 1);
}

#[test]
fn p2_lost_answers_and_failures_lose_no_pages() {
    let (folder, objects) = (TempDir::new().unwrap(), Objects::default());
    let (archive, scan) = (open(&folder, &objects), scan());
    spool(&archive, &scan);
    let fails =
        |kind: &'static str, fault| move |request: &str| if request.starts_with(kind) { fault } else { Fault::None };
    objects.fail(fails("put", Fault::Refused));
    let error = archive.archive_spools([&scan]).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot write s3://test/w/responses/2026-01/{}.pages: ", scan.id)), "{error}");
    assert!(archive.under_way(&scan.id).exists());
    // Each write takes effect, and its answer is lost.
    objects.fail(fails("put", Fault::AnswerLost));
    archive.archive_spools([&scan]).unwrap();
    assert!(!archive.under_way(&scan.id).exists());
    let files = archive.committed().unwrap();
    assert_eq!(bodies(&files[0]), pages());
    let removed = |_: Stream, _: &[u8]| Ok::<_, ArchiveError>(Some(PageChange { body: b"{}".to_vec(), removed: 1 }));
    assert_eq!(files[0].rewrite(&Failpoints::default(), false, removed).unwrap().removed, 5);
    objects.fail(fails("get", Fault::Refused));
    let error = archive.committed().unwrap()[0].read_pages().unwrap_err().to_string();
    assert!(error.starts_with("cannot read s3://test/w/responses/2026-01/"), "a failed read is no torn file: {error}");
    objects.fail(|_| Fault::None);
    assert_eq!(bodies(&archive.committed().unwrap()[0]), vec![b"{}".to_vec(); 5]);
}

#[test]
fn a_rewrite_replaces_the_version_that_was_read() {
    let (folder, objects) = (TempDir::new().unwrap(), Objects::default());
    let (archive, scan) = (open(&folder, &objects), scan());
    spool(&archive, &scan);
    archive.archive_spools([&scan]).unwrap();
    let [file] = &archive.committed().unwrap()[..] else { panic!("one file") };
    let first = |_: Stream, body: &[u8]| {
        let changed = (body == pages()[0]).then(|| PageChange { body: b"{}".to_vec(), removed: 2 });
        Ok::<_, ArchiveError>(changed)
    };
    objects.take_requests();
    let trial = file.rewrite(&Failpoints::default(), true, first).unwrap();
    assert_eq!((trial.pages, trial.changed, trial.removed), (5, 1, 2));
    assert_eq!(counted(&objects), requests(&[("get", 1)]));
    assert_eq!(file.rewrite(&Failpoints::default(), false, first).unwrap(), trial);
    assert_eq!(counted(&objects), requests(&[("get", 2), ("put", 1)]));
    assert_eq!(fs::read_dir(archive.under_way_folder()).unwrap().count(), 0, "no copy stays on this machine");
    let rewritten = &archive.committed().unwrap()[0];
    let expected = [vec![b"{}".to_vec()], pages()[1..].to_vec()].concat();
    assert_eq!(bodies(rewritten), expected);
    let summary = rewritten.summarize().unwrap();
    assert_eq!((summary.is_complete, summary.note.as_deref()), (true, Some(b"note".as_slice())));
    // `file` is the version before: another process has replaced it.
    for refused in [file.rewrite(&Failpoints::default(), false, first).map(drop), file.read_pages().map(drop)] {
        assert!(matches!(refused, Err(ArchiveError::Changed { .. })), "{refused:?}");
    }
    assert_eq!(bodies(rewritten), expected);
}

#[test]
fn another_writer_between_read_and_write_is_noticed() {
    let (folder, objects) = (TempDir::new().unwrap(), Objects::default());
    let (archive, scan) = (open(&folder, &objects), scan());
    spool(&archive, &scan);
    archive.archive_spools([&scan]).unwrap();
    let [file] = &archive.committed().unwrap()[..] else { panic!("one file") };
    let (bucket, key) = (objects.bucket(), file.key().unwrap());
    let mut calls = 0;
    let error = file.rewrite(&Failpoints::default(), false, |_, _| {
        calls += 1;
        if calls == 10 {
            // The last page of the second pass.
            let version = bucket.read(key).unwrap().unwrap().version;
            bucket.put(key, Content::Bytes(b"other"), &Expected::Version(version)).unwrap().unwrap();
        }
        Ok::<_, ArchiveError>(Some(PageChange { body: b"{}".to_vec(), removed: 0 }))
    });
    let error = error.unwrap_err();
    assert!(matches!(error, ArchiveError::Changed { .. }), "{error}");
    assert_eq!(error.to_string(), format!("another process has changed s3://test/w/{key}"));
    assert_eq!(&bucket.read(key).unwrap().unwrap().bytes[..], b"other");
    assert_eq!(fs::read_dir(archive.under_way_folder()).unwrap().count(), 0);
}

#[test]
fn retention_reads_only_the_headers_of_old_scans() {
    let (folder, objects) = (TempDir::new().unwrap(), Objects::default());
    let archive = open(&folder, &objects);
    let now_ms = scan().started_ms + 100 * DAY_MS;
    let began = |days: i64| {
        let ms = now_ms - days * DAY_MS;
        Scan { id: ScanId::new(ms), started_ms: ms, ..scan() }
    };
    // The last one was made by a machine whose clock was behind: the service's clock counts.
    let scans = [began(29), began(31), began(50), Scan { started_ms: now_ms - DAY_MS, ..began(60) }];
    scans.iter().for_each(|scan| spool(&archive, scan));
    archive.archive_spools(&scans).unwrap();
    objects.take_requests();
    assert_eq!(archive.expire(now_ms).unwrap(), 2);
    assert_eq!(counted(&objects), requests(&[("list", 1), ("get", 3), ("delete", 2)]));
    let mut left: Vec<_> = archive.committed().unwrap().iter().map(|file| file.header().unwrap().scan).collect();
    left.sort_by_key(|scan| scan.started_ms);
    assert_eq!(left, [scans[0].clone(), scans[3].clone()]);
}

#[test]
fn p10_a_bucket_of_another_service_or_state_is_refused() {
    let (folder, objects) = (TempDir::new().unwrap(), Objects::default());
    let (archive, scan) = (open(&folder, &objects), scan());
    let bucket = objects.bucket();
    let ours = settings(folder.path(), Some(&bucket));
    let other_state = ArchiveSettings { state_file_name: "other.sqlite".to_owned(), ..ours.clone() };
    let other_service = ArchiveSettings { environment: "other".to_owned(), ..ours.clone() };
    // An archive without pages is bound to its next user.
    drop(open_with(other_state.clone(), &objects).unwrap());
    drop(open_with(other_service.clone(), &objects).unwrap());
    drop(open_with(ours.clone(), &objects).unwrap());
    spool(&archive, &scan);
    let mut open_scan = archive.recover(&scan).unwrap().unwrap();
    open_scan.spool.restart().unwrap();
    open_scan.spool.append(b"{\"data\":[{\"id\":1}]}").unwrap();
    open_scan.spool.complete().unwrap();
    archive.archive_spools([&scan]).unwrap();
    let error = open_with(other_state, &objects).unwrap_err();
    assert!(matches!(error, ArchiveError::OtherOwner { .. }), "{error}");
    assert!(error.to_string().starts_with("s3://test/w holds the pages of the state file test.sqlite"), "{error}");
    let error = open_with(other_service.clone(), &objects).unwrap_err();
    assert!(matches!(error, ArchiveError::OtherService { .. }), "{error}");
    // Bound to the other environment, with its pages and its owner.
    let rebound = Archive::over(other_service.clone(), Some(objects.bucket())).unwrap();
    assert_eq!(rebound.rebind_from(&ours.base_url, &ours.environment).unwrap(), 1);
    assert_eq!(rebound.rebind_from(&ours.base_url, &ours.environment).unwrap(), 0);
    objects.take_requests();
    drop(open_with(other_service, &objects).unwrap());
    assert_eq!(counted(&objects), requests(&[("get", 1)]));
    assert_eq!(rebound.committed().unwrap()[0].header().unwrap().environment, "other");
    assert!(matches!(open_with(ours, &objects), Err(ArchiveError::OtherService { .. })));
}

#[test]
fn a_killed_write_in_parts_is_aborted_with_its_spool() {
    let (folder, objects) = (TempDir::new().unwrap(), Objects::default());
    let (archive, scan) = (open(&folder, &objects), scan());
    let mut spool = archive.begin(&scan).unwrap();
    let mut random = 1_u64;
    for _ in 0..5 {
        // Bytes that compression does not shorten.
        let words = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((random >> 32) as u32).to_le_bytes()
        });
        let page: Vec<u8> = words.take(2 << 20).flatten().collect();
        spool.append(&page).unwrap();
    }
    spool.complete().unwrap();
    drop(spool);
    objects.fail(|request| match request.split(' ').next() {
        Some("complete" | "abort" | "delete") => Fault::Refused,
        _ => Fault::None,
    });
    archive.archive_spools([&scan]).unwrap_err();
    objects.fail(|_| Fault::None);
    assert_eq!(objects.bucket().list(".studysync/uploads", None).unwrap().len(), 1);
    objects.take_requests();
    archive.discard_orphans(std::slice::from_ref(&scan.id)).unwrap();
    assert!(objects.take_requests().iter().any(|request| request.starts_with("abort")));
    assert!(objects.bucket().list(".studysync/uploads", None).unwrap().is_empty());
    archive.archive_spools([&scan]).unwrap();
    let [file] = &archive.committed().unwrap()[..] else { panic!("one file") };
    objects.take_requests();
    assert_eq!(file.read_pages().unwrap().map(|page| page.unwrap().len()).sum::<usize>(), 40 << 20);
    let gets = counted(&objects)["get"];
    assert!((5..=6).contains(&gets), "{gets} reads of 8 MiB");
    // Nothing was left: no request.
    archive.discard_orphans(&[]).unwrap();
    assert_eq!(counted(&objects), requests(&[]));
}

/// A step of an archive's life, for a scan with this number.
#[derive(Clone, Debug)]
enum Step {
    Commit(BTreeSet<usize>),
    Discard(usize),
    Erase(usize),
    Expire(i64),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop::collection::btree_set(0..8_usize, 1..4).prop_map(Step::Commit),
        1 => (0..8_usize).prop_map(Step::Discard),
        2 => (0..5_usize).prop_map(Step::Erase),
        1 => (0..60_i64).prop_map(Step::Expire),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..12)
}

/// Carries out a step. Returns what `expire` and `rewrite` return.
fn carry_out(archive: &Archive, step: &Step, scans: &[Scan]) -> u64 {
    match step {
        Step::Commit(numbers) => {
            let of_step: Vec<&Scan> = numbers.iter().map(|number| &scans[*number]).collect();
            of_step.iter().for_each(|scan| spool(archive, scan));
            archive.archive_spools(of_step).unwrap();
            0
        }
        Step::Discard(number) => {
            spool(archive, &scans[*number]);
            archive.discard(&scans[*number].id).unwrap();
            0
        }
        Step::Erase(page) => {
            let changed = archive.each_file(|file| {
                file.rewrite(&Failpoints::default(), false, |_, body| {
                    let is_wanted = body == pages()[*page];
                    Ok::<_, ArchiveError>(is_wanted.then(|| PageChange { body: b"{}".to_vec(), removed: 1 }))
                })
            });
            changed.unwrap().iter().map(|(_, counts)| counts.changed).sum()
        }
        Step::Expire(days) => archive.expire(scan().started_ms + days * DAY_MS).unwrap() as u64,
        Step::Reopen => {
            archive.discard_orphans(&[]).unwrap();
            archive.claim().unwrap();
            0
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn p1_a_bucket_has_the_same_files_as_a_folder(steps in steps()) {
        let (folder, scratch, objects) = (TempDir::new().unwrap(), TempDir::new().unwrap(), Objects::default());
        let here = Archive::open(settings(folder.path(), None)).unwrap();
        let there = open(&scratch, &objects);
        let made = |number: i64| {
            let ms = scan().started_ms - number * 7 * DAY_MS;
            let scope = crate::model::Scope::all(if number % 2 == 0 { Stream::Responses } else { Stream::Themes });
            Scan { id: ScanId::new(ms), started_ms: ms, scope, ..scan() }
        };
        let scans: Vec<Scan> = (0..8).map(made).collect();
        for step in &steps {
            prop_assert_eq!(carry_out(&here, step, &scans), carry_out(&there, step, &scans), "{:?}", step);
            let local: BTreeMap<String, Vec<u8>> = here.committed().unwrap().iter().map(|file| {
                let key = file.path().strip_prefix(folder.path()).unwrap().to_string_lossy().into_owned();
                (key, fs::read(file.path()).unwrap())
            }).collect();
            let bucket = objects.bucket();
            let remote: BTreeMap<String, Vec<u8>> = there.committed().unwrap().iter().map(|file| {
                let key = file.key().unwrap().to_owned();
                let bytes = bucket.read(&key).unwrap().unwrap().bytes.to_vec();
                (key, bytes)
            }).collect();
            prop_assert_eq!(&local, &remote);
        }
        prop_assert_eq!(fs::read_dir(there.under_way_folder()).unwrap().count(), 0);
    }
}
