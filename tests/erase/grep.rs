//! Searches all data of a place for texts: each cell of each table, each archived page, the bytes of each file.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use memchr::memmem;
use studysync::archive::read_pages;

use crate::harness::{Place, all_contracts};

/// A text that must not be anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needle {
    /// The text in every encoding in which it could be stored, in lower case.
    forms: Vec<Vec<u8>>,
}

impl Needle {
    pub fn new(text: &str) -> Needle {
        let lower = text.to_lowercase();
        let escaped: String = (lower.chars())
            .map(|letter| match letter.is_ascii() {
                true => letter.to_string(),
                false => format!("\\u{:04x}", letter as u32),
            })
            .collect();
        let percent: String = (lower.bytes())
            .map(|byte| match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                true => (byte as char).to_string(),
                false => format!("%{byte:02x}"),
            })
            .collect();
        let forms = [text.to_owned(), lower, escaped, percent].map(|form| form.into_bytes().to_ascii_lowercase());
        let mut forms = Vec::from(forms);
        forms.sort();
        forms.dedup();
        Needle { forms }
    }

    pub fn is_in(&self, bytes: &[u8]) -> bool {
        let lower = bytes.to_ascii_lowercase();
        self.forms.iter().any(|form| memmem::find(&lower, form).is_some())
    }
}

/// Returns the places that contain any of the texts.
pub fn found(place: &Place, needles: &[Needle]) -> Vec<String> {
    let mut places = Vec::new();
    // The finders are built once, because there are a hundred thousand cells to search.
    let finders: Vec<memmem::Finder> =
        needles.iter().flat_map(|needle| &needle.forms).map(memmem::Finder::new).collect();
    let is_in = |bytes: &[u8]| {
        let lower = bytes.to_ascii_lowercase();
        finders.iter().any(|finder| finder.find(&lower).is_some())
    };
    for (name, tables) in place.warehouses() {
        for table in all_contracts().keys() {
            for row in tables.rows(table) {
                for (column, cell) in row {
                    let is_in_base64 = |cell: &str| STANDARD.decode(cell).is_ok_and(|bytes| is_in(&bytes));
                    if cell.is_some_and(|cell| is_in(cell.as_bytes()) || is_in_base64(&cell)) {
                        places.push(format!("{name} {table}.{column}"));
                    }
                }
            }
        }
    }
    for path in place.files("archive") {
        if path.extension().is_some_and(|extension| extension == "pages") {
            for body in read_pages(&path).unwrap() {
                if is_in(&body.unwrap()) {
                    places.push(format!("archive page of {}", path.display()));
                }
            }
        }
    }
    for path in place.files("") {
        if is_in(&std::fs::read(&path).unwrap()) {
            places.push(format!("bytes of {}", shown(&path, place)));
        }
    }
    places.sort();
    places.dedup();
    places
}

fn shown(path: &Path, place: &Place) -> String {
    path.strip_prefix(place.root()).unwrap_or(path).display().to_string()
}
