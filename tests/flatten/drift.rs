//! The drift rules page by page: the effect of each mode on the same records, and the report.

use super::*;

const SURVEY: &str = r#""id":1,"createdAt":"2026-01-31T08:15:30Z""#;

fn rules(unknown_fields: DriftMode, type_clashes: DriftMode) -> DriftRules {
    DriftRules { unknown_fields, type_clashes }
}

fn by(stream: Stream, records: &[String], rules: DriftRules) -> FlatPage {
    flatten_page(stream, page_of(records).as_bytes(), rules).unwrap()
}

fn everywhere(mode: DriftMode) -> DriftRules {
    rules(mode, mode)
}

/// Renders everything except the drift.
fn rows_of(flat: &FlatPage) -> String {
    let text = render(&FlatPage { drift: Default::default(), ..flat.clone() });
    assert!(!text.contains("drift:"));
    text
}

fn told(flat: &FlatPage) -> Vec<String> {
    let entries = flat.drift.entries();
    entries
        .map(|entry| format!("{} {} {}: {}", entry.kind.title(), entry.place, entry.records, entry.example))
        .collect()
}

fn answer(question: u32, members: &str) -> String {
    format!(
        r#"{{"responseGroupUid":"u","questionId":{question},"surveyId":7,"createdAt":"2026-01-31T08:15:30Z",{members}}}"#
    )
}

#[test]
fn p1_each_drift_mode_handles_an_unknown_field() {
    for (what, odd, plain, place) in [
        (
            "field",
            r#""questionType":"NPS","response":9,"battery":0.5"#,
            r#""questionType":"NPS","response":9"#,
            "battery",
        ),
        (
            "meta",
            r#""questionType":"NPS","response":9,"meta":{"os":"L","dpi":2}"#,
            r#""questionType":"NPS","response":9,"meta":{"os":"L"}"#,
            "meta.dpi",
        ),
        (
            "screen",
            r#""response":1,"questionType":"NPS","meta":{"screen":{"width":1,"height":2,"depth":24}}"#,
            r#""response":1,"questionType":"NPS","meta":{"screen":{"width":1,"height":2}}"#,
            "meta.screen.depth",
        ),
        (
            "snapshot",
            r#""response":1,"questionType":"NPS","visitorSnapshot":{"visitorId":"v","mood":"good"}"#,
            r#""response":1,"questionType":"NPS","visitorSnapshot":{"visitorId":"v"}"#,
            "visitorSnapshot.mood",
        ),
    ] {
        let (odd, plain) = ([answer(1, plain), answer(2, odd)], [answer(1, plain), answer(2, plain)]);
        let flat = |mode| by(Stream::Responses, &odd, rules(mode, DriftMode::Evolve));
        let without = rows_of(&by(Stream::Responses, &plain, DriftRules::default()));
        assert_eq!(rows_of(&flat(DriftMode::DiscardValue)), without, "{what}: the hash is that of a record without it");
        assert_eq!(rows_of(&flat(DriftMode::Freeze)), rows_of(&flat(DriftMode::Evolve)), "{what}");
        assert_ne!(rows_of(&flat(DriftMode::Evolve)), without, "{what}");

        let discarded = flat(DriftMode::DiscardRow);
        assert_eq!(rows_of(&discarded).matches("responses row").count(), 1, "{what}");
        let reject = &discarded.rejects[0];
        assert_eq!((reject.reason, reject.field.as_ref()), (RejectReason::UnknownField, place), "{what}");
        assert_eq!(reject.raw, odd[1], "{what}");
        assert_eq!(bigint(&discarded.discarded.as_ref().unwrap().rows, "question_id", 0), Some(2), "{what}");
        // The remaining record gives the same rows as it gives alone.
        assert_eq!(
            rows_of(&FlatPage { rejects: Vec::new(), records: 1, ..discarded }),
            rows_of(&by(Stream::Responses, &odd[..1], DriftRules::default())),
            "{what}"
        );
        for mode in DriftMode::ALL {
            let flat = flat(mode);
            assert_eq!(flat.drift.entries().count(), 1, "{what}: {:?}", told(&flat));
            assert!(told(&flat)[0].starts_with(&format!("new field responses.{place} 1: ")), "{:?}", told(&flat));
        }
    }
}

#[test]
fn drift_in_a_repeated_snapshot_counts_for_each_answer() {
    let snapshot = r#""questionType":"NPS","response":1,"visitorSnapshot":{"visitorId":"v","mood":1}"#;
    let plain = r#""questionType":"NPS","response":1,"visitorSnapshot":{"visitorId":"v"}"#;
    let records = [answer(1, snapshot), answer(2, plain), answer(3, snapshot), answer(4, snapshot)];
    let flat = by(Stream::Responses, &records, DriftRules::default());
    assert_eq!(told(&flat), ["new field responses.visitorSnapshot.mood 3: mood: number"]);
    let discarded = by(Stream::Responses, &records, everywhere(DriftMode::DiscardRow));
    assert_eq!((discarded.rejects.len(), discarded.key_hashes.len()), (3, 1));
    assert_eq!(text(discarded.table("visitor_snapshots").unwrap(), "extra", 0), None);
}

#[test]
fn a_misfit_value_is_reported_by_type_and_length() {
    let records = [
        answer(1, r#""questionType":"NPS","response":"Jane said nine","visitorId":"none of yours""#),
        answer(2, r#""questionType":"OPEN","response":{"text":"Jane"}"#),
        answer(3, r#""questionType":"LIKERT","response":null"#),
        answer(4, r#""questionType":"RANKORDER","response":{"Jane":1,"Joe":"first"}"#),
        answer(5, r#""questionType":"MAXDIFF","response":[[{"id":"x","option":"a","selected":null,"Jane D":1}]]"#),
        answer(6, r#""questionType":"VIDEOVOICE","response":{"duration":"long","caption":"Jane"}"#),
        answer(7, r#""questionType":"Jane Doe","response":1"#),
        answer(8, r#""questionType":"SLIDER","response":1"#),
        answer(9, r#""questionType":"TEXTURLPROMPT","response":"Jane clicked""#),
    ];
    let flat = by(Stream::Responses, &records, DriftRules::default());
    assert_eq!(
        told(&flat),
        [
            "new field responses.response.caption 1: caption: string of length 4",
            "new field responses.response[][].? 1: a name of length 6: number",
            "new question type responses.questionType 1: SLIDER",
            "new question type responses.questionType 1: string of length 8",
            "type clash responses.response 3: string of length 14",
            "type clash responses.response.duration 1: string of length 4",
            "type clash responses.response[] 1: string of length 5",
            "type clash responses.response[][].id 1: string of length 1",
            "type clash responses.visitorId 1: string of length 13",
        ]
    );
    // The content of an answer is stored unchanged: `answer_json` is not drift.
    let discarded = by(Stream::Responses, &records, everywhere(DriftMode::DiscardValue));
    let (kept, discarded) = (flat.table("responses").unwrap(), discarded.table("responses").unwrap());
    for row in 0..records.len() {
        assert_eq!(text(kept, "answer_json", row), text(discarded, "answer_json", row));
    }
    assert!(text(kept, "extra", 0).is_some() && text(discarded, "extra", 0).is_none());
}

#[test]
fn a_discarded_survey_value_changes_no_hash() {
    let survey = |members: &str| format!("{{{SURVEY},{members}}}");
    let hash = |members: &str, mode| {
        let flat = by(Stream::Surveys, &[survey(members)], everywhere(mode));
        row_hash(flat.table("surveys").unwrap(), 0)
    };
    let (keep, drop) = (DriftMode::Evolve, DriftMode::DiscardValue);
    for (one, other) in [
        (r#""questions":[{"id":1,"views":10}]"#, r#""questions":[{"id":1,"views":11}]"#),
        (r#""constraints":[{"type":"SESSION_COUNT","x":1}]"#, r#""constraints":[{"type":"SESSION_COUNT","x":2}]"#),
        (r#""constraints":[{"value":"a"}]"#, r#""constraints":[{"value":"b"}]"#),
        (r#""questions":[{"id":1},"a"]"#, r#""questions":[{"id":1},"b"]"#),
        (r#""owner":"a""#, r#""owner":"b""#),
    ] {
        assert_eq!(hash(one, drop), hash(other, drop), "{one}: looks edited every night");
        assert_ne!(hash(one, keep), hash(other, keep), "{one}");
        assert_ne!(hash(one, keep), hash(one, drop), "{one}: another mode would change nothing");
    }
    let plain = r#""questions":[{"id":1,"type":"NPS"}],"constraints":[{"value":3}]"#;
    assert_eq!(hash(plain, keep), hash(plain, drop));
}

#[test]
fn a_record_without_a_key_is_rejected_and_reported_once() {
    let records =
        [r#"{"id":"Jane","new":1}"#.to_owned(), "17".to_owned(), format!("{{{SURVEY},\"new\":1,\"status\":\"LOST\"}}")];
    let flat = by(Stream::Surveys, &records, everywhere(DriftMode::DiscardRow));
    let reasons: Vec<_> = flat.rejects.iter().map(|reject| (reject.reason, reject.field.as_ref())).collect();
    assert_eq!(
        reasons,
        [(RejectReason::BadKey, "id"), (RejectReason::NotAnObject, "data"), (RejectReason::UnknownField, "new")]
    );
    assert_eq!(
        told(&flat),
        [
            "new field surveys.new 2: new: number",
            "new value surveys.status 1: LOST",
            "type clash surveys 1: number",
            "type clash surveys.id 1: string of length 4",
        ]
    );
}

#[test]
fn p8_ten_thousand_unknown_names_are_counted() {
    let members: Vec<String> = (0..10_000).map(|at| format!(r#""field{at}":{at}"#)).collect();
    let record = format!("{{{SURVEY},{}}}", members.join(","));
    let flat = by(Stream::Surveys, &[record.clone(), record], DriftRules::default());
    assert_eq!(flat.drift.entries().count(), studysync::model::DRIFT_PLACES_MAX);
    assert!(flat.drift.entries().all(|entry| entry.records == 2));
    assert_eq!(flat.drift.unlisted_count(), 2 * (10_000 - studysync::model::DRIFT_PLACES_MAX as u64));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// In every mode, each record is one row or one reject. The rules change nothing for a page without drift.
    #[test]
    fn p1_no_mode_loses_a_record(records in any_page::records()) {
        let plain = by(Stream::Responses, &records, DriftRules::default());
        for mode in DriftMode::ALL {
            let flat = by(Stream::Responses, &records, everywhere(mode));
            let rows = flat.table("responses").map_or(0, RecordBatch::num_rows);
            prop_assert_eq!(rows + flat.rejects.len(), records.len());
            prop_assert_eq!(rows, flat.key_hashes.len());
            let discarded = flat.discarded.as_ref().map_or(0, |discarded| discarded.rows.num_rows());
            prop_assert_eq!(rows + discarded, plain.key_hashes.len());
            if plain.drift.is_empty() {
                prop_assert_eq!(render(&flat), render(&plain));
            }
            if mode == DriftMode::DiscardRow {
                let again = by(Stream::Responses, &kept_records(&records, &flat), DriftRules::default());
                prop_assert!(again.drift.entries().all(|entry| entry.kind.title().contains("question type")));
            }
        }
    }
}

/// Returns the records that became rows.
fn kept_records(records: &[String], flat: &FlatPage) -> Vec<String> {
    let Some(table) = flat.table("responses") else { return Vec::new() };
    (0..table.num_rows()).map(|row| records[bigint(table, "_record", row).unwrap() as usize].clone()).collect()
}
