//! Addresses, conditions and writes in parts, on objects in memory.

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
    assert_eq!(objects.take_requests().iter().filter(|request| request.starts_with("part")).count(), 3);
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
