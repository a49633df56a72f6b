//! Every contract can be parsed, and follows the rules that the other stages rely on.

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_contract_file_is_compiled_in_under_its_own_name() {
    let files: BTreeSet<String> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/schemas"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
        .collect();
    let tables: BTreeSet<String> = tables().iter().map(|table| table.name.clone()).collect();
    assert_eq!(files, tables);
}

#[test]
fn every_table_has_the_columns_of_the_writing_run() {
    for table in tables() {
        for name in ["_run_id", "_synced_at"] {
            let column = table.column(name).unwrap_or_else(|| panic!("{} has no {name}", table.name));
            assert_eq!(column.origin, Origin::Load, "{}.{name}", table.name);
        }
        if table.kind == TableKind::Base {
            for name in ["_row_hash", "_first_seen_at", "_vanished_at"] {
                assert!(table.column(name).is_some(), "{} has no {name}", table.name);
            }
        }
    }
}

#[test]
fn every_text_column_says_whether_it_is_personal() {
    for table in tables() {
        let path = format!("{}/schemas/{}.toml", env!("CARGO_MANIFEST_DIR"), table.name);
        let contract: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        for column in contract["column"].as_array().unwrap() {
            let is_text = matches!(column["type"].as_str(), Some("text" | "json"));
            assert!(!is_text || column.get("personal").is_some(), "{}: {column}", table.name);
        }
    }
}

#[test]
fn p11_a_copy_for_analysts_keeps_no_identifier() {
    let names = |value: AnalystValue| {
        let of_table = |table: &'static Table| table.columns.iter().map(move |column| (table, column));
        let found = tables().iter().flat_map(of_table).filter(move |(_, column)| column.analyst_value() == value);
        found.map(|(_, column)| column.name.as_str()).collect::<BTreeSet<_>>()
    };
    for table in tables() {
        for column in table.columns.iter().filter(|column| column.identifies.is_some()) {
            let value = column.analyst_value();
            assert!(matches!(value, AnalystValue::Pseudonym | AnalystValue::Drop), "{}.{}", table.name, column.name);
        }
    }
    assert_eq!(
        names(AnalystValue::OpenText),
        ["answer_text", "label", "response", "response_text", "transcription"].into()
    );
    for dropped in ["raw", "raw_base64", "url", "href", "meta_href", "attributes", "events", "report", "recording_path"]
    {
        assert!(names(AnalystValue::Drop).contains(dropped), "{dropped}");
    }
}

#[test]
fn keys_are_not_null_and_children_have_their_parents_key() {
    for table in tables() {
        if table.kind == TableKind::Log || table.kind == TableKind::History {
            continue;
        }
        for key in &table.key {
            assert!(!table.column(key).unwrap().nullable, "{}.{key} can be null", table.name);
        }
        if let (TableKind::Child, Some(parent)) = (table.kind, &table.parent) {
            let parent = super::table(parent).unwrap();
            assert_eq!(parent.partition, table.partition, "{} has other partitions than its parent", table.name);
            if parent.name != "surveys" {
                assert!(table.key.starts_with(&parent.key), "{}", table.name);
            }
        }
    }
}

#[test]
fn a_history_has_every_content_column_of_its_parent() {
    for table in tables().iter().filter(|table| table.kind == TableKind::History) {
        let parent = super::table(table.parent.as_deref().unwrap()).unwrap();
        for column in parent.flat_columns() {
            let kept = table.column(&column.name).unwrap_or_else(|| panic!("{} lacks {}", table.name, column.name));
            assert_eq!(kept.column_type, column.column_type);
        }
    }
}

#[test]
fn the_dictionary_names_every_column() {
    let all = Dictionary::all();
    let (markdown, sql) = (all.markdown(), all.sql());
    for column in tables().iter().flat_map(|table| &table.columns) {
        assert!(markdown.contains(&format!("| `{}` |", column.name)));
        assert!(sql.contains(&format!("\"{}\" {}", column.name, column.column_type.duckdb())));
    }
    let json: serde_json::Value = serde_json::from_str(&all.json().unwrap()).unwrap();
    assert_eq!(json.as_array().unwrap().len(), tables().len() + views().len());
}

#[test]
fn every_file_of_views_is_compiled_in() {
    for (folder, kind) in [("views", ViewKind::View), ("views/macros", ViewKind::Macro)] {
        let files: BTreeSet<String> = std::fs::read_dir(format!("{}/{folder}", env!("CARGO_MANIFEST_DIR")))
            .unwrap()
            .filter_map(|entry| {
                entry.unwrap().file_name().into_string().unwrap().strip_suffix(".sql").map(str::to_owned)
            })
            .collect();
        let known = views().iter().filter(|view| view.kind == kind).map(|view| view.name.clone());
        assert_eq!(files, known.collect(), "{folder}");
    }
}

#[test]
fn a_view_comes_after_the_views_that_it_reads() {
    for (at, view) in views().iter().enumerate() {
        for read in view.reads() {
            assert!(
                views()[..at].iter().any(|earlier| earlier.name == read.name),
                "{} before {}",
                view.name,
                read.name
            );
        }
    }
}

#[test]
fn the_views_of_the_three_periods_have_the_same_sql() {
    for suffix in ["", "_latest", "_per_question", "_per_question_latest"] {
        let of = |period: &str| {
            let sql = &views().iter().find(|view| view.name == format!("nps_by_{period}{suffix}")).unwrap().sql;
            sql.replace(period, "PERIOD")
        };
        assert_eq!(of("day"), of("week"), "{suffix}");
        assert_eq!(of("month"), of("week"), "{suffix}");
    }
}

#[test]
fn the_script_for_parquet_in_the_examples_is_current() {
    let shipped = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/parquet_views.sql")).unwrap();
    assert!(
        shipped == parquet_views_sql(),
        "regenerate it: studysync schema --format parquet > examples/parquet_views.sql"
    );
}

#[test]
fn the_search_with_an_index_has_the_columns_of_the_plain_one() {
    let indexed = indexed_search();
    let plain = views().iter().find(|view| view.name == indexed.name).unwrap();
    let names = |named: &[ViewColumn]| named.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&plain.columns), names(&indexed.columns));
    assert_eq!(names(&plain.parameters), names(&indexed.parameters));
}

#[test]
fn a_dictionary_of_named_tables_has_only_them() {
    let named = |names: &[&str]| Dictionary::of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let two = named(&["themes", "nps_by_week"]).unwrap().markdown();
    assert_eq!(two.lines().filter(|line| line.starts_with("## ")).count(), 2, "{two}");
    assert_eq!(named(&[]).unwrap().markdown(), Dictionary::all().markdown());
    let unknown = named(&["respones"]).unwrap_err();
    assert!(unknown.contains("'respones'") && unknown.contains("did you mean 'responses'?"), "{unknown}");
}
