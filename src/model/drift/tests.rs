//! Entries are bounded, and the counts are complete.

use super::*;

fn entry(kind: DriftKind, place: &str, example: &str) -> DriftEntry {
    DriftEntry { kind, place: place.into(), records: 2, example: example.into(), fate: DriftFate::Kept }
}

#[test]
fn p8_drift_above_the_entry_limit_is_only_counted() {
    let mut drift = Drift::default();
    let places = DRIFT_PLACES_MAX + 7;
    (0..places).for_each(|at| drift.add(entry(DriftKind::NewField, &format!("themes.f{at}"), "number")));
    drift.add(entry(DriftKind::NewField, "themes.f0", "string"));
    assert_eq!(drift.entries().count(), DRIFT_PLACES_MAX);
    assert_eq!(drift.unlisted_count(), 14);
    // A type clash without an entry still freezes the window.
    drift.add(entry(DriftKind::TypeClash, "themes.id", "string"));
    let rules = DriftRules { type_clashes: DriftMode::Freeze, ..DriftRules::default() };
    assert!(drift.has(rules, DriftMode::Freeze));

    let mut twice = Drift::default();
    twice.merge(&drift);
    twice.merge(&drift);
    assert_eq!(twice.unlisted_count(), 2 * drift.unlisted_count());
    let records: u64 = twice.entries().map(|entry| entry.records).sum();
    assert_eq!(records, 4 * (DRIFT_PLACES_MAX as u64 + 1));
}

#[test]
fn each_new_value_has_an_entry_and_each_new_field_has_one() {
    let mut drift = Drift::default();
    drift.add(entry(DriftKind::NewEnumValue, "surveys.status", "LOST"));
    drift.add(entry(DriftKind::NewEnumValue, "surveys.status", "FOUND"));
    drift.add(entry(DriftKind::NewField, "surveys.owner", "string"));
    drift.add(entry(DriftKind::NewField, "surveys.owner", "null"));
    let listed: Vec<_> = drift.entries().map(|entry| (entry.example.as_str(), entry.records)).collect();
    assert_eq!(listed, [("string", 4), ("FOUND", 2), ("LOST", 2)]);
}
