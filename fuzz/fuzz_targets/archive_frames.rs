//! Files of the archive: any bytes are read without a panic, and a damaged file returns only whole pages (promise P2).
//!
//! The first byte chooses the mode. Either the input is the file itself, or its lines are pages, which are written,
//! damaged and read back.

#![no_main]

use libfuzzer_sys::fuzz_target;
use studysync::archive::fuzzing::{FRAMES_BYTES_MIN, read_file, write_file};

fuzz_target!(|input: &[u8]| {
    let [choice, rest @ ..] = input else { return };
    if choice % 2 == 0 {
        read_file(rest);
        return;
    }
    let Some((damage, text)) = rest.split_first_chunk::<4>() else { return };
    let pages: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let whole = write_file(&pages);
    let (read, is_complete) = read_file(&whole).expect("what was written is read");
    assert!(is_complete && read == pages, "a whole file is read as it was written");

    let [low, high, flip, _] = *damage;
    let at = usize::from(u16::from_le_bytes([low, high])) % whole.len();
    let mut torn = whole;
    if flip == 0 {
        torn.truncate(at);
    } else {
        torn[at] ^= flip;
    }
    match read_file(&torn) {
        None => assert!(at < FRAMES_BYTES_MIN + 256, "the header is read although byte {at} alone is damaged"),
        Some((read, is_complete)) => {
            assert!(pages.starts_with(&read.iter().map(Vec::as_slice).collect::<Vec<_>>()), "a page that never was");
            assert!(!is_complete || read.len() == pages.len(), "complete without all of its pages");
        }
    }
});
