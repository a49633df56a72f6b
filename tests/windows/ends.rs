//! Lists that end as the schema of themes says: `cursor` and `data` are never empty, and the last token gets a 404.

use serde_json::{Value, json};
use studysync_sandbox::{ListName, Settings};

use super::{Ended, Lab};
use crate::harness::small;

const THEMES: &str = "/v1/themes";

fn settings() -> Settings {
    Settings { theme_share: 1.0, ..small(1500, 30) }
}

/// Runs a backfill of a service with these behaviours, and asserts that nothing is missing.
fn filled(settings: Settings, faults: Value) -> (Lab, Ended) {
    let days = i64::from(settings.days);
    let lab = Lab::new(settings);
    lab.faults(faults);
    let ended = lab.backfill(days).expect(0);
    for (list, table) in
        [(ListName::Themes, "themes"), (ListName::Surveys, "surveys"), (ListName::Responses, "responses")]
    {
        let listed = lab.truth(list).len();
        assert_eq!(lab.count(&format!("SELECT count(*) FROM {table}")), listed as i64, "{table}");
    }
    (lab, ended)
}

#[test]
fn p3_a_theme_list_that_ends_with_404_is_proven() {
    for page_rows in [10, 100] {
        let (_, well) = filled(settings(), json!({"default_page_rows": page_rows}));
        let end = json!({"themes_end_mark": "not_found", "default_page_rows": page_rows});
        let (lab, odd) = filled(settings(), end);
        let (well, odd) = (well.requests(THEMES), odd.requests(THEMES));
        println!("themes in pages of {page_rows}: {well} {odd}");
        assert!(odd * 10 <= well * 12 + 1000, "{odd} requests, {well} with an end");
        // Each night proves the end of the list again, and finds nothing missing.
        lab.control().advance_clock(86_400_000);
        let night = lab.sync().expect(0);
        assert!(night.requests(THEMES) < 200, "{}", night.requests(THEMES));
        assert_eq!(night.count("themes", |counts| counts.vanished + counts.withheld), 0);
    }
}

#[test]
fn p3_a_list_of_one_row_is_proven() {
    for order in ["newest_first", "oldest_first"] {
        let lab = Lab::new(Settings { surveys: 1, ..small(60, 3) });
        lab.faults(json!({"end_mark": "not_found", "order": order}));
        lab.backfill(3).expect(0);
        assert_eq!(lab.count("SELECT count(*) FROM surveys"), 1);
        for _ in 0..2 {
            lab.control().advance_clock(86_400_000);
            let night = lab.sync().expect(0);
            assert!(night.requests("/v1/surveys") < 20, "{}", night.requests("/v1/surveys"));
        }
    }
    // One theme and one answer per window.
    let (_, ended) = filled(Settings { theme_share: 1.0, ..small(12, 40) }, json!({"end_mark": "not_found"}));
    assert!(ended.log.len() < 200, "{} requests", ended.log.len());
}

#[test]
fn p3_lists_that_end_with_404_cost_a_fifth_more_requests() {
    let (_, well) = filled(small(1500, 60), json!({}));
    let (_, odd) = filled(small(1500, 60), json!({"end_mark": "not_found"}));
    println!("all: {} {}", well.log.len(), odd.log.len());
    assert!(
        odd.log.len() * 10 <= well.log.len() * 12 + 1000,
        "{} requests, {} with an end",
        odd.log.len(),
        well.log.len()
    );
}

#[test]
fn p3_an_expired_token_with_404_is_not_the_end() {
    for dead in [
        json!({"after_pages": 1, "status": 404}),
        json!({"after_pages": 3, "status": 404}),
        json!({"when": {"probability": 0.1}, "status": 404}),
    ] {
        for order in ["newest_first", "shuffled"] {
            let habits = json!({"end_mark": "not_found", "default_page_rows": 20, "order": order, "dead_tokens": dead});
            filled(Settings { theme_share: 1.0, ..small(300, 10) }, habits);
        }
    }
}
