//! Records of `users`, whatever they hold, land in a table or in the rejects.

#![no_main]

use libfuzzer_sys::fuzz_target;
use studysync::model::Stream;
use studysync_fuzz::{hold_page, page_of};

fuzz_target!(|records: &[u8]| hold_page(Stream::Users, &page_of(records)));
