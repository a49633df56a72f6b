//! Labels of MATRIX and RANKORDER answers.

use super::*;

#[test]
fn a_column_number_is_the_leading_integer_of_a_label() {
    for (label, number) in [
        ("4 - Agree", Some(4)),
        ("10", Some(10)),
        (" 7", Some(7)),
        ("-2 (worse)", Some(-2)),
        ("+5 much better", Some(5)),
        ("1. Poor", Some(1)),
        ("2, fair", Some(2)),
        ("3rd", Some(3)),
        ("4.5", None),
        ("1,000", None),
        ("Agree 4", None),
        ("- 4", None),
        ("", None),
        ("99999999999999999999", None),
    ] {
        assert_eq!(leading_integer(label), number, "{label}");
    }
}

#[test]
fn a_repeated_label_keeps_its_last_value() {
    for labels in [4, 40] {
        let names: Vec<String> = (0..labels).map(|index| format!("l{}", index % (labels - 1))).collect();
        let entries: Vec<Entry> = names.iter().map(|name| Entry { key: name, value: "1" }).collect();
        let indexes: Vec<usize> = labelled_values(&entries).into_iter().map(|value| value.index).collect();
        assert_eq!(indexes, (1..labels).collect::<Vec<_>>());
    }
}
