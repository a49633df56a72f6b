//! The parsed envelope of a page agrees with `flatten` for each stream, and with serde_json for the same text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use studysync::{
    model::{EndStyle, PageToken, Stream},
    source::envelope,
};
use studysync_fuzz::hold_page;

fuzz_target!(|body: &[u8]| {
    Stream::ALL.into_iter().for_each(|stream| hold_page(stream, body));
    let Ok(envelope) = envelope::parse(body) else { return };
    // serde_json limits the nesting depth, the envelope parser does not. Only texts that both can read are compared.
    let Ok(Value::Object(tree)) = serde_json::from_slice(body) else { return };
    assert_eq!(tree["data"].as_array().map(Vec::len), Some(envelope.rows));
    match tree.get("cursor") {
        None => assert_eq!(envelope.end, Some(EndStyle::Missing)),
        Some(Value::Null) => assert_eq!(envelope.end, Some(EndStyle::Null)),
        Some(Value::String(text)) if text.is_empty() => assert_eq!(envelope.end, Some(EndStyle::EmptyText)),
        Some(Value::String(text)) => assert_eq!(envelope.next, Some(PageToken(text.clone()))),
        Some(Value::Number(_)) => assert!(envelope.next.is_some()),
        Some(other) => panic!("{other} is no page token, and was taken for one"),
    }
});
