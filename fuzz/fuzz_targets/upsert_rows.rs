//! Rows of users for upsert requests, as CSV and as JSON lines: each row is parsed or rejected, and a parsed row is
//! sent unchanged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use studysync::upsert::{Row, read_csv, read_ndjson};

fuzz_target!(|bytes: &[u8]| {
    let mut hold = |row: Row| {
        if let Ok(upsert) = row.read {
            let body = upsert.body(true);
            let mut again = Vec::new();
            read_ndjson(body.as_slice(), &mut |row| {
                again.push(row.read);
                true
            })
            .expect("a slice can be read");
            assert_eq!(again, [Ok(upsert)], "what is sent is another row");
        }
        true
    };
    let _ = read_csv(bytes, &mut hold);
    read_ndjson(bytes, &mut hold).expect("a slice can be read");
});
