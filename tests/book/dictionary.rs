//! The pages of tables and views match the output of `studysync schema`, one page per subject.

use std::collections::BTreeMap;

use super::assert_generated;
use crate::harness::{Done, Place, all_contracts};

/// A page: its name, its title, and its entries, in this order.
struct Subject {
    page: &'static str,
    title: &'static str,
    /// Prefixes of names; the longest match decides.
    names: &'static [&'static str],
}

const SUBJECTS: &[Subject] = &[
    Subject {
        page: "tables-answers",
        title: "Tables: answers",
        names: &["responses", "response_", "visitor_", "themes", "theme_history"],
    },
    Subject { page: "tables-surveys", title: "Tables: surveys", names: &["surveys", "survey_"] },
    Subject { page: "tables-people", title: "Tables: people", names: &["users", "user_"] },
    Subject { page: "tables-webhooks", title: "Tables: webhooks", names: &["webhook_"] },
    Subject {
        page: "tables-ledger",
        title: "Tables: ledger, rejects and receipts",
        names: &["rejects", "sync_", "erasures"],
    },
    Subject {
        page: "views-current",
        title: "Views: current rows",
        names: &[
            "current_",
            "questions",
            "question_versions",
            "question_scales",
            "survey_question_sets",
            "answer_versions",
            "response_question_versions",
            "sessions",
            "open_answers",
            "key_collisions",
            "untrusted",
            "time_zone_offsets",
            "search_answers",
        ],
    },
    Subject {
        page: "views-scores",
        title: "Views: scores and shares",
        names: &[
            "nps_",
            "likert_",
            "choice",
            "matrix_distribution",
            "rank_summary",
            "maxdiff_scores",
            "figures",
            "answer_segments",
        ],
    },
    Subject {
        page: "views-surveys",
        title: "Views: surveys over time",
        names: &[
            "theme_trend",
            "survey_funnel",
            "daily_breakdown",
            "skips",
            "survey_status_timeline",
            "session_stages",
            "response_rates",
            "webhook_mismatches",
        ],
    },
    Subject {
        page: "views-moments",
        title: "Views: as of a moment",
        names: &[
            "responses_as_of",
            "surveys_as_of",
            "questions_as_of",
            "themes_as_of",
            "response_versions",
            "theme_versions",
            "row_changes",
            "figures_as_of",
            "figure_changes",
        ],
    },
];

/// A table or view of the dictionary.
struct Entry {
    /// The name with its parameters, as in a call.
    call: String,
    text: String,
    is_view: bool,
}

impl Entry {
    fn name(&self) -> &str {
        self.call.split('(').next().unwrap()
    }

    /// The first sentence of the description.
    fn sentence(&self) -> &str {
        let text = self.text.trim();
        let end = text.find(". ").or_else(|| text.find(".\n")).map_or(text.len(), |at| at + 1);
        text[..end].lines().next().unwrap_or_default()
    }
}

fn entries() -> Vec<Entry> {
    let place = Place::at("http://127.0.0.1:1").without_config();
    let dictionary = Done::from(place.bare(&["schema", "--format", "md"]).output().unwrap()).expect(0).stdout;
    let (tables, views) = dictionary.split_once("\n# Views\n").unwrap();
    let of = |part: &str, is_view: bool| -> Vec<Entry> {
        let entry = |text: &str| {
            let (call, text) = text.split_once('\n').unwrap();
            Entry { call: call.to_owned(), text: text.to_owned(), is_view }
        };
        part.split("\n## ").skip(1).map(entry).collect()
    };
    of(tables, false).into_iter().chain(of(views, true)).collect()
}

/// Returns the page that an entry belongs to.
fn subject_of(entry: &Entry) -> &'static Subject {
    let fits = |subject: &'static Subject| {
        let is_of_kind = subject.page.starts_with("views") == entry.is_view;
        let names = subject.names.iter().filter(move |name| is_of_kind && entry.name().starts_with(**name));
        names.map(move |name| (name.len(), subject)).max_by_key(|(length, _)| *length)
    };
    let best = SUBJECTS.iter().filter_map(fits).max_by_key(|(length, _)| *length);
    best.unwrap_or_else(|| panic!("no page has {}: add it to SUBJECTS", entry.name())).1
}

#[test]
fn the_pages_have_every_table_and_view() {
    let entries = entries();
    assert!(entries.len() > 80, "{}", entries.len());
    let mut pages: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in &entries {
        pages.entry(subject_of(entry).page).or_default().push(entry);
    }
    let mut overview = String::from(
        "# Tables and views\n\nGenerated from `studysync schema`. All times are UTC. `schema --format sql`, `json` and `parquet` print the same for \
         other uses. Columns that begin with `_` are of `studysync`, and the same in each table.\n",
    );
    for Subject { page, title, .. } in SUBJECTS {
        let entries = pages.remove(page).unwrap_or_else(|| panic!("{page} is empty"));
        let mut text = format!("# {title}\n\nGenerated from `studysync schema`. All times are UTC.\n");
        overview.push_str(&format!("\n## [{title}]({page}.md)\n\n| name | what |\n|---|---|\n"));
        for entry in entries {
            let name = entry.name();
            let call = if entry.call == name { String::new() } else { format!("\n`{}`\n", entry.call) };
            text.push_str(&format!("\n## {name}\n{call}{}\n", entry.text.trim_end()));
            overview.push_str(&format!("| [`{name}`]({page}.md#{name}) | {} |\n", entry.sentence()));
        }
        assert_generated(&format!("docs/reference/{page}.md"), &text);
    }
    assert_generated("docs/reference/tables.md", &overview);
}

/// `scripts/readers` compares the file exactly at the end of CI; this test fails within a minute.
#[test]
fn the_dbt_sources_use_the_words_of_the_dictionary() {
    let place = Place::at("http://127.0.0.1:1").without_config();
    let dictionary = Done::from(place.bare(&["schema", "--format", "json"]).output().unwrap()).expect(0).json();
    let sources = include_str!("../../examples/dbt/models/sources.yml").replace("''", "'");
    let tables: Vec<&str> = sources.split("\n  - name: ").skip(1).collect();
    let hint = "run scripts/readers/dbt_sources.py write with the output of studysync schema --format json";
    for view in dictionary.as_array().unwrap().iter().filter(|entry| entry["kind"] == "view") {
        let begin = format!("{}\n", view["name"].as_str().unwrap());
        assert!(tables.iter().any(|table| table.starts_with(&begin)), "sources.yml lacks {begin}: {hint}");
    }
    for described in tables {
        let name = described.lines().next().unwrap();
        let table = dictionary.as_array().unwrap().iter().find(|table| table["name"] == name).unwrap();
        let notes = table["notes"].as_array().into_iter().flatten();
        let columns = table["column"].as_array().unwrap().iter().map(|column| &column["comment"]);
        for text in columns.chain(notes).chain([&table["comment"]]) {
            let text = text.as_str().unwrap();
            assert!(described.contains(text), "sources.yml, {name}, lacks {text:?}: {hint}");
        }
    }
}

/// A table that the script does not know would keep the rows of erased people in old snapshots.
#[test]
fn the_maintenance_of_iceberg_names_every_table() {
    let script = include_str!("../../examples/iceberg/maintain.py");
    let (_, names) = script.split_once("TABLES = {").unwrap();
    let names = names.split_once('}').unwrap().0;
    for table in all_contracts().keys() {
        assert!(names.contains(&format!("\"{table}\"")), "maintain.py lacks {table}");
    }
}
