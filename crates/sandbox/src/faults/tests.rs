//! Faults are merged and checked.

use serde_json::json;

use super::*;

#[test]
fn a_patch_changes_only_what_it_names() {
    let before = Faults { gzip: true, ..Faults::default() };
    let after = before.merged(json!({"html": {"when": {"count": 2}}, "order": "oldest_first"})).unwrap();
    assert_eq!((after.html.when.count, after.order), (2, Order::OldestFirst));
    assert_eq!(Faults { html: Plain::default(), order: Order::NewestFirst, ..after.clone() }, before);
    assert!(!after.merged(json!({"gzip": null})).unwrap().gzip, "null is the default");
    assert!(before.merged(json!({"gizp": true})).unwrap_err().to_string().contains("gizp"));
}

#[test]
fn a_status_that_is_none_is_refused() {
    let faults = Faults::default().merged(json!({"server_error": {"status": 200}})).unwrap();
    assert!(faults.validate().unwrap_err().contains("server_error"));
    assert_eq!(Faults::default().validate(), Ok(()));
}
