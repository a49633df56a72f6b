//! Any record of `themes` becomes a row of a table or a reject.

#![no_main]

use libfuzzer_sys::fuzz_target;
use studysync::model::Stream;
use studysync_fuzz::{hold_page, page_of};

fuzz_target!(|records: &[u8]| hold_page(Stream::Themes, &page_of(records)));
