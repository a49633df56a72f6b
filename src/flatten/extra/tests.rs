//! Fields without a column are stored in canonical form.

use super::*;

#[test]
fn names_are_sorted_and_duplicates_are_numbered() {
    let mut extra = Extra::default();
    assert_eq!(extra.write(), None);
    for (key, value) in [("z", "1"), ("a", "2"), ("z", "3"), ("z#1", "4"), ("z", "5")] {
        extra.add(key, value);
    }
    assert_eq!(extra.write(), Some(r#"{"a":2,"z":5,"z#1":4,"z#2":1,"z#3":3}"#));
    extra.clear();
    extra.add_superseded("k", "1");
    extra.add_superseded("k", "2");
    assert_eq!(extra.write(), Some(r#"{"k#1":1,"k#2":2}"#));
}

#[test]
fn a_key_is_canonical_unless_it_cannot_be_decoded() {
    assert_eq!(canonical_key(r"\u0061\/b"), "a/b");
    assert_eq!(canonical_key(r#"q\u0022"#), r#"q\""#);
    assert_eq!(canonical_key(r"\ud800"), r"\ud800");
    assert_eq!(canonical_key("plain é"), "plain é");
}
