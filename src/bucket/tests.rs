//! Addresses, conditions and writes in parts, on objects in memory.

use std::io::{Read as _, Seek as _, SeekFrom};

use tempfile::TempDir;

use super::{
    faulty::{Fault, Objects},
    *,
};

/// More than one request writes.
const LARGE: usize = 70 << 20;

#[test]
fn a_write_has_a_condition() {
    let bucket = Objects::default().bucket();
    let put = |text: &str, expected: &Expected| bucket.put("a", Content::Bytes(text.as_bytes()), expected).unwrap();
    let first = put("one", &Expected::Missing).unwrap();
    assert_eq!(put("two", &Expected::Missing), None);
    // The same bytes: this may be the same write, whose answer was lost.
    assert_eq!(put("one", &Expected::Missing), Some(first.clone()));
    let second = put("two", &Expected::Version(first.clone())).unwrap();
    assert_eq!(put("three", &Expected::Version(first)), None);
    assert_eq!(bucket.read("a").unwrap().unwrap().version, second);
    bucket.remove(&["a".to_owned(), "never there".to_owned()]).unwrap();
    assert_eq!(put("three", &Expected::Version(second)), None);
    assert!(bucket.read("a").unwrap().is_none());
}

#[test]
fn lists_are_in_order_and_below_their_folder() {
    let bucket = Objects::default().bucket();
    for key in ["b/2", "a", "b/1", "b/3", "bc/1"] {
        bucket.put(key, Content::Bytes(b"x"), &Expected::Missing).unwrap();
    }
    let keys = |folder: &str, after| {
        bucket.list(folder, after).unwrap().into_iter().map(|object| object.key).collect::<Vec<_>>()
    };
    assert_eq!(keys("b", None), ["b/1", "b/2", "b/3"]);
    assert_eq!(keys("b", Some("b/1")), ["b/2", "b/3"]);
    assert_eq!(keys("", None), ["a", "b/1", "b/2", "b/3", "bc/1"]);
}

#[test]
fn an_object_is_read_in_parts_until_it_is_replaced() {
    let objects = Objects::default();
    let bucket = objects.bucket();
    let content: Vec<u8> = (0..=255).collect();
    let version = bucket.put("f/a", Content::Bytes(&content), &Expected::Missing).unwrap().unwrap();
    let [object] = &bucket.list("f", None).unwrap()[..] else { panic!("one object") };
    objects.take_requests();
    let mut reader = ObjectReader::open(&bucket, object, 100).unwrap();
    let mut all = Vec::new();
    reader.read_to_end(&mut all).unwrap();
    assert_eq!((all, objects.take_requests().len()), (content.clone(), 3));
    // A position outside of the part needs a request, one inside does not.
    for (position, requests) in [(10, 1), (109, 0), (110, 1), (9, 1), (300, 0)] {
        reader.seek(SeekFrom::Start(position)).unwrap();
        let mut byte = [0];
        let count = reader.read(&mut byte).unwrap();
        assert_eq!(byte[..count], content[content.len().min(position as usize)..][..count]);
        assert_eq!(objects.take_requests().len(), requests, "{position}");
    }
    bucket.put("f/a", Content::Bytes(b"other"), &Expected::Version(version)).unwrap().unwrap();
    reader.seek(SeekFrom::Start(200)).unwrap();
    let error = reader.read(&mut [0]).unwrap_err().downcast::<BucketError>().unwrap();
    assert_eq!(error.kind(), BucketErrorKind::Changed);
    assert!(ObjectReader::open(&bucket, object, 100).is_err());
}

#[test]
fn a_large_file_is_written_in_parts() {
    let objects = Objects::default();
    let bucket = objects.bucket();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("large");
    let content: Vec<u8> = (0..LARGE).map(|at| (at / 4096 % 251) as u8).collect();
    std::fs::write(&file, &content).unwrap();
    let put = |expected: &Expected| bucket.put("large", Content::File(&file), expected);
    let left = || bucket.list(UPLOADS, None).unwrap();

    let version = put(&Expected::Missing).unwrap().unwrap();
    let object = bucket.list("large", None).unwrap();
    assert!(object.is_empty(), "an object is not in a folder of its name");
    assert_eq!(bucket.read("large").unwrap().unwrap().bytes, content);
    assert_eq!(objects.take_requests().iter().filter(|request| request.starts_with("part")).count(), 5);
    assert_eq!(put(&Expected::Missing).unwrap(), None);

    // The answer to the last request is lost.
    objects.fail(|request| if request.starts_with("complete") { Fault::AnswerLost } else { Fault::None });
    let second = put(&Expected::Version(version)).unwrap().unwrap();
    assert!(left().is_empty());

    // A part fails: the write is aborted, and the object stays.
    std::fs::write(&file, vec![7; LARGE]).unwrap();
    objects.fail(|request| if request.starts_with("part") { Fault::Refused } else { Fault::None });
    let refused = put(&Expected::Version(second.clone())).unwrap_err();
    assert!(refused.to_string().starts_with("cannot write s3://test/w/large: "), "{refused}");
    assert!(left().is_empty());
    assert!(objects.take_requests().iter().any(|request| request.starts_with("abort")));

    // The writer is killed before the last request: the next writer aborts.
    objects.fail(|request| {
        let is_killed = ["complete", "abort", "delete"].iter().any(|kind| request.starts_with(kind));
        if is_killed { Fault::Refused } else { Fault::None }
    });
    put(&Expected::Version(second.clone())).unwrap_err();
    objects.fail(|_| Fault::None);
    assert_eq!(left().len(), 1);
    bucket.abort_uploads(&left()).unwrap();
    assert!(left().is_empty());
    assert_eq!(bucket.read("large").unwrap().unwrap().version, second);
}

#[test]
fn a_key_with_an_empty_part_is_named_with_its_remedy() {
    let invalid = Path::parse("w/a//b").unwrap_err();
    let error = BucketError::of("list", "s3://test/w".to_owned())(invalid.into());
    let text = error.to_string();
    assert!(text.starts_with("cannot list s3://test/w: ") && text.contains("w/a//b"), "{text}");
    assert!(text.ends_with("; move this object elsewhere, or choose another folder for the warehouse"), "{text}");
}
