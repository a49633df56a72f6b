//! Checks of a page that several targets share. Each function panics if a promise is broken, and has no other effect.

use studysync::{
    flatten::{FlattenError, flatten_page},
    model::{DriftMode, DriftRules, FlatPage, Stream},
    page::PageError,
    source::envelope,
};

/// Parses a body as `source` and `flatten` do, one after the other. `flatten` must accept every page that `source`
/// accepts, with as many records, and each record becomes a row or a reject (promise P1). The length of the body
/// chooses the drift mode.
pub fn hold_page(stream: Stream, body: &[u8]) {
    let modes = [DriftMode::Evolve, DriftMode::DiscardRow, DriftMode::DiscardValue];
    let mode = modes[body.len() % modes.len()];
    hold_page_by(stream, body, DriftRules { unknown_fields: mode, type_clashes: mode });
}

fn hold_page_by(stream: Stream, body: &[u8], rules: DriftRules) {
    let envelope = envelope::parse(body);
    let flat = flatten_page(stream, body, rules);
    match (envelope, flat) {
        (Ok(envelope), Ok(flat)) => {
            assert_eq!(envelope.rows, flat.records, "records were lost between the envelope and the tables");
            assert_eq!(envelope.next.is_none(), envelope.end.is_some());
            hold_records(stream, &flat);
        }
        (Ok(envelope), Err(error)) => panic!("{envelope:?} cannot be flattened: {error}"),
        // The program never flattens a page without an envelope. `flatten` must not panic on it either.
        (Err(problem), Ok(flat)) => {
            assert!(!matches!(problem, PageError::NotJson { .. }), "{problem}, and yet flattened");
            hold_records(stream, &flat);
        }
        (Err(_), Err(error)) => assert!(!matches!(error, FlattenError::Contract(_)), "{error}"),
    }
}

/// Asserts that every record is in the base table or in the rejects.
fn hold_records(stream: Stream, flat: &FlatPage) {
    let base_rows = flat.table(stream.name()).map_or(0, |rows| rows.num_rows());
    assert_eq!(base_rows + flat.rejects.len(), flat.records, "a record did not land");
    assert_eq!(base_rows, flat.key_hashes.len());
    for batch in &flat.batches {
        assert!(batch.rows.num_rows() > 0, "an empty batch of {}", batch.table);
    }
}

/// Builds a page: an envelope around records, which commas separate.
pub fn page_of(records: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(records.len() + 32);
    body.extend_from_slice(b"{\"data\":[");
    body.extend_from_slice(records);
    body.extend_from_slice(b"],\"cursor\":null}");
    body
}
