//! Pages come back as they were put in, whatever was cut off and wherever.

use std::fs;

use super::*;
use crate::model::{Failpoints, FlagSet, RunId, Scan, ScanId, Scope, Stream, Window};

pub(super) fn scan() -> Scan {
    Scan {
        id: ScanId::new(1_769_817_600_000),
        run_id: RunId::new(1_769_817_600_000),
        scope: Scope::all(Stream::Responses),
        window: Window::new(1_769_817_600_000, 1_769_904_000_000),
        flags: FlagSet::ALL,
        started_ms: 1_770_000_000_000,
    }
}

fn archive(root: &std::path::Path, keeps_pages: bool) -> Archive {
    Archive::open(ArchiveSettings {
        location: root.into(),
        keeps_pages,
        keep_days: Some(30),
        base_url: "http://127.0.0.1:1".to_owned(),
        environment: "test".to_owned(),
        state_file_name: "test.sqlite".to_owned(),
    })
    .unwrap()
}

pub(super) fn pages() -> Vec<Vec<u8>> {
    (0..5_usize).map(|page| format!("{{\"data\":[{}],\"cursor\":null}}", "1,".repeat(page * 40)).into_bytes()).collect()
}

#[test]
fn p2_a_spool_torn_at_any_byte_keeps_its_complete_pages() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, scan) = (archive(folder.path(), true), scan());
    let mut spool = archive.begin(&scan).unwrap();
    let mut ends = vec![fs::metadata(spool.path()).unwrap().len()];
    for page in pages() {
        spool.append(&page).unwrap();
        ends.push(fs::metadata(spool.path()).unwrap().len());
    }
    spool.complete().unwrap();
    let path = spool.path().to_owned();
    drop(spool);
    let bytes = fs::read(&path).unwrap();
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let whole = ends.iter().filter(|end| **end as usize <= cut).count();
        let recovered = archive.recover(&scan).unwrap();
        if whole == 0 {
            assert!(recovered.is_none(), "a torn header was used, cut at {cut}");
            continue;
        }
        let mut recovered = recovered.unwrap();
        assert_eq!(recovered.spool.pages(), whole - 1, "cut at {cut}");
        assert_eq!(recovered.content.last_page, pages()[..whole - 1].last().cloned());
        assert!(!recovered.content.is_complete);
        recovered.spool.append(b"next").unwrap();
        recovered.spool.complete().unwrap();
        let mut read = read_pages(&path).unwrap();
        let mut expected = pages()[..whole - 1].to_vec();
        expected.push(b"next".to_vec());
        assert_eq!(read.by_ref().map(Result::unwrap).collect::<Vec<_>>(), expected);
        assert!(read.is_complete());
    }
}

#[test]
fn p3_a_scan_never_resumes_from_a_probe_page() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, scan) = (archive(folder.path(), true), scan());
    let mut spool = archive.begin(&scan).unwrap();
    for (kind, body) in [('P', "first"), ('T', "side one"), ('P', "second"), ('P', "third"), ('T', "side two")] {
        let _ = if kind == 'P' { spool.append(body.as_bytes()) } else { spool.append_probe(body.as_bytes()) }.unwrap();
    }
    assert_eq!(spool.pages(), 3);
    let path = spool.path().to_owned();
    drop(spool);
    let whole = fs::read(&path).unwrap();
    let recovered = archive.recover(&scan).unwrap().unwrap();
    assert_eq!((recovered.spool.pages(), recovered.content.without_probe), (3, 1), "the second page has none");
    assert_eq!(recovered.content.last_page.as_deref(), Some(b"third".as_slice()));
    assert_eq!(recovered.content.last_probes, [b"side two".to_vec()]);
    let read: Vec<_> = read_pages(&path).unwrap().map(|page| String::from_utf8(page.unwrap()).unwrap()).collect();
    assert_eq!(read, ["first", "side one", "second", "third", "side two"]);
    // Torn inside the last frame: its page has no probe page any more, and the scan still goes on from it.
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let recovered = archive.recover(&scan).unwrap().unwrap();
    assert_eq!(recovered.content.last_page.as_deref(), Some(b"third".as_slice()));
    assert!(recovered.content.last_probes.is_empty());
}

#[test]
fn a_flipped_byte_is_found_wherever_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, scan) = (archive(folder.path(), true), scan());
    let mut spool = archive.begin(&scan).unwrap();
    spool.append(b"one page").unwrap();
    spool.complete().unwrap();
    let bytes = fs::read(spool.path()).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        fs::write(spool.path(), &damaged).unwrap();
        let pages: Vec<_> = match read_pages(spool.path()) {
            Err(ArchiveError::NotOurs { .. }) => continue,
            Err(other) => panic!("byte {at}: {other}"),
            Ok(pages) => pages.take(3).collect(),
        };
        let all_whole =
            pages.len() == 1 && pages.iter().all(|page| page.as_ref().is_ok_and(|page| page == b"one page"));
        let end_is_lost = pages.iter().any(Result::is_err);
        assert!(end_is_lost || all_whole, "byte {at}: {pages:?}");
        assert!(!pages.iter().any(|page| page.as_ref().is_ok_and(|page| page != b"one page")), "byte {at}");
    }
}

#[test]
fn p3_a_damaged_kind_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, scan) = (archive(folder.path(), true), scan());
    let mut spool = archive.begin(&scan).unwrap();
    let first = fs::metadata(spool.path()).unwrap().len() as usize;
    for page in pages() {
        spool.append(&page).unwrap();
    }
    spool.complete().unwrap();
    let mut bytes = fs::read(spool.path()).unwrap();
    assert_eq!(bytes[first], b'P');
    for kind in [b'E', b'C', b'T'] {
        bytes[first] = kind;
        fs::write(spool.path(), &bytes).unwrap();
        let mut read = read_pages(spool.path()).unwrap();
        let is_damaged = matches!(read.next(), Some(Err(ArchiveError::Damaged { page: 0, .. })));
        assert!(is_damaged && !read.is_complete(), "{}", char::from(kind));
    }
    let recovered = archive.recover(&scan).unwrap().unwrap();
    assert!(!recovered.content.is_complete && recovered.spool.pages() == 0);
}

#[test]
fn p9_a_damaged_frame_of_a_committed_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, scan) = (archive(folder.path(), true), scan());
    let mut spool = archive.begin(&scan).unwrap();
    let first = fs::metadata(spool.path()).unwrap().len() as usize;
    spool.append(b"{\"data\":[1]}").unwrap();
    spool.append(b"{\"data\":[2]}").unwrap();
    let under_way = spool.path().to_owned();
    let count = |file: &PageFile| file.rewrite::<ArchiveError>(&Failpoints::default(), true, |_, _| Ok(None));
    let spool_file = PageFile::from(under_way.clone());
    spool.complete().unwrap();
    let whole = fs::read(&under_way).unwrap();
    // A scan under way may end in the middle of a frame.
    fs::write(&under_way, &whole[..first + 20]).unwrap();
    assert_eq!(count(&spool_file).unwrap().pages, 0);
    fs::write(&under_way, "").unwrap();
    assert_eq!(count(&spool_file).unwrap().pages, 0, "an empty spool has no pages");
    fs::write(&under_way, &whole).unwrap();
    archive.archive_spools([&scan]).unwrap();
    let [committed] = &archive.committed().unwrap()[..] else { panic!("one file") };
    assert_eq!(count(committed).unwrap().pages, 2);
    let mut bytes = fs::read(committed.path()).unwrap();
    bytes[first + 20] ^= 1;
    fs::write(committed.path(), bytes).unwrap();
    assert!(matches!(count(committed), Err(ArchiveError::Damaged { page: 0, .. })));
}

#[test]
fn a_restart_drops_the_pages_and_keeps_the_scan() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, scan) = (archive(folder.path(), true), scan());
    let mut spool = archive.begin(&scan).unwrap();
    spool.append(b"dead").unwrap();
    spool.restart().unwrap();
    spool.append(b"alive").unwrap();
    let recovered = archive.recover(&scan).unwrap().unwrap();
    assert_eq!(recovered.content.last_page.as_deref(), Some(b"alive".as_slice()));
    assert_eq!(recovered.spool.pages(), 1);
}

#[test]
fn committed_pages_move_to_their_month_and_expire() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, scan) = (archive(folder.path(), true), scan());
    archive.begin(&scan).unwrap().complete().unwrap();
    archive.archive_spools([&scan]).unwrap();
    archive.archive_spools([&scan]).unwrap();
    let files: Vec<_> = archive.committed().unwrap().iter().map(|file| file.path().to_owned()).collect();
    assert_eq!(files, [folder.path().join(format!("responses/2026-01/{}.pages", scan.id))]);
    // The scan began two days after its id was made: the header counts.
    assert_eq!(archive.expire(scan.started_ms + 29 * 86_400_000).unwrap(), 0);
    assert_eq!(archive.expire(scan.started_ms + 31 * 86_400_000).unwrap(), 1);
    assert!(archive.committed().unwrap().is_empty());
}

#[test]
fn pages_are_removed_after_the_commit_without_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, scan) = (archive(folder.path(), false), scan());
    archive.begin(&scan).unwrap().complete().unwrap();
    archive.archive_spools([&scan]).unwrap();
    assert!(!archive.under_way(&scan.id).exists());
    assert!(archive.committed().unwrap().is_empty());
}

#[test]
fn orphaned_spools_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), true);
    let (mine, lost) = (scan(), scan());
    archive.begin(&mine).unwrap();
    archive.begin(&lost).unwrap();
    assert_eq!(archive.discard_orphans(std::slice::from_ref(&mine.id)).unwrap(), 1);
    assert!(archive.under_way(&mine.id).exists());
    assert!(!archive.under_way(&lost.id).exists());
}

#[test]
fn the_last_note_counts_and_a_torn_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, scan) = (archive(folder.path(), true), scan());
    let mut spool = archive.begin(&scan).unwrap();
    for page in pages() {
        spool.append(&page).unwrap();
    }
    spool.complete().unwrap();
    let path = spool.path().to_owned();
    assert_eq!(summarize(&path).unwrap().note, None);
    archive.note(&scan.id, b"first").unwrap();
    let one_note = fs::metadata(&path).unwrap().len();
    archive.note(&scan.id, b"second").unwrap();
    let bytes = fs::read(&path).unwrap();
    for cut in one_note as usize..=bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let is_whole = cut == bytes.len();
        assert_eq!(summarize(&path).is_err(), !is_whole && cut > one_note as usize, "cut at {cut}");
        let recovered = archive.recover(&scan).unwrap().unwrap();
        let expected: &[u8] = if is_whole { b"second" } else { b"first" };
        assert_eq!(recovered.content.note.as_deref(), Some(expected), "cut at {cut}");
        assert!(recovered.content.is_complete);
        // The torn tail is gone, so a third note can be read.
        archive.note(&scan.id, b"third").unwrap();
        let summary = summarize(&path).unwrap();
        assert_eq!((summary.pages, summary.is_complete), (5, true));
        assert_eq!(summary.note.as_deref(), Some(b"third".as_slice()), "cut at {cut}");
        assert_eq!(read_pages(&path).unwrap().map(Result::unwrap).collect::<Vec<_>>(), pages());
    }
}
