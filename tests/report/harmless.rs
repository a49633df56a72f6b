//! The report loads nothing, runs nothing and has no external links, whatever texts the service sends. It is
//! well-formed, bounded in size, and deterministic.

use serde_json::{Value, json};
use studysync_sandbox::ListName;

use super::{KINDS, page::Page, report, rich};
use crate::harness::{DAY_MS, NOW_MS, Place, Service, days_ago, small};

/// The only elements that a page may have.
const ELEMENTS: &[&str] = &[
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "header",
    "main",
    "section",
    "article",
    "div",
    "nav",
    "figure",
    "figcaption",
    "h1",
    "h2",
    "h3",
    "h4",
    "p",
    "span",
    "bdi",
    "em",
    "code",
    "time",
    "a",
    "ul",
    "ol",
    "li",
    "dl",
    "dt",
    "dd",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "details",
    "summary",
    "svg",
    "fieldset",
    "input",
    "br",
    "desc",
    "rect",
    "path",
    "text",
    "line",
    "polyline",
    "polygon",
    "circle",
];
/// Larger than any page within the limits of `src/report/limits.rs`.
const PAGE_BYTES_MAX: usize = 3 << 20;

fn assert_is_harmless(page: &Page, what: &str) {
    assert_eq!(page.errors, Vec::<String>::new(), "{what}: a browser has to forgive");
    for element in &page.elements {
        assert!(ELEMENTS.contains(&element.name.as_str()), "{what}: <{}>", element.name);
        for (name, value) in &element.attributes {
            assert!(!name.starts_with("on") && name != "style" && name != "src", "{what}: {name}={value}");
            assert!(!name.ends_with("href") || value.starts_with('#'), "{what}: {name}={value}");
        }
    }
    let style = page.named("style").map(|element| element.text.as_str()).collect::<String>();
    assert!(!style.contains("url(") && !style.contains("@import"), "{what}: the style loads something");
    let policy = page.named("meta").find(|meta| meta.attribute("http-equiv") == Some("Content-Security-Policy"));
    assert!(policy.unwrap().attribute("content").unwrap().starts_with("default-src 'none'"));
    assert!(page.html.len() < PAGE_BYTES_MAX, "{what}: {} bytes", page.html.len());
}

/// Each drawing has a name and a description, or is next to the number that it shows. Each anchor's target exists once.
fn assert_is_accessible(page: &Page) {
    for (at, svg) in page.elements.iter().enumerate().filter(|(_, element)| element.name == "svg") {
        let named =
            || page.elements.iter().any(|element| element.name == "title" && element.ancestors.last() == Some(&at));
        let hidden = svg.attribute("aria-hidden") == Some("true");
        assert!(hidden || (svg.attribute("role") == Some("img") && named()), "{:?}", svg.attributes);
    }
    let ids: Vec<&str> = page.elements.iter().filter_map(|element| element.attribute("id")).collect();
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "an id stands twice");
    for element in &page.elements {
        let referred = element.attribute("aria-labelledby").unwrap_or("").split(' ').filter(|id| !id.is_empty());
        let followed = element.attribute("href").map(|href| &href[1..]);
        for id in referred.chain(followed) {
            assert!(unique.binary_search(&id).is_ok(), "nothing has the id {id}");
        }
    }
    for head in page.named("th") {
        assert!(matches!(head.attribute("scope"), Some("col" | "row")), "{:?}", head.text);
    }
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_a_report_is_self_contained_and_deterministic() {
    let (_service, place) = rich();
    for (kind, run) in KINDS {
        let page = report(&place, run, &[]);
        assert_is_harmless(&page, kind);
        assert_is_accessible(&page);
        for forbidden in ["http:", "https:", "src=", "<script", "javascript:", "<link", "<iframe"] {
            assert!(!page.html.contains(forbidden), "{kind}: {forbidden}");
        }
        let again = report(&place, run, &[]);
        let without_time = |page: &Page| {
            let (before, rest) = page.html.split_once("<time>").unwrap();
            format!("{before}{}", rest.split_once("</time>").unwrap().1)
        };
        assert!(without_time(&page) == without_time(&again), "{kind}: two reports differ");
        // With one more day of history, the report shows more and names what it leaves out.
        let few = report(&place, run, &["--days", "10"]);
        assert!(few.section("answers").contains("earlier days"), "{}", few.section("answers"));
        assert_eq!(few.tables("data-view", "daily_breakdown")[0].rows.len(), 10);
    }
    let out = place.path("report.html");
    let done = place.run(&["report", "--out", out.to_str().unwrap()]).expect(0);
    assert_eq!(done.stdout, "");
    assert!(std::fs::read_to_string(&out).unwrap().ends_with("</html>"));
    assert_eq!(place.files("").iter().filter(|path| path.to_string_lossy().ends_with(".part")).count(), 0);
    let surveys = place.duckdb_tables().rows_of("SELECT survey_id FROM responses GROUP BY 1 ORDER BY count(*) LIMIT 1");
    let id = surveys[0][0].clone().unwrap();
    let one = report(&place, Place::run, &["--survey", &id]);
    let shown: Vec<&str> = one
        .elements
        .iter()
        .filter(|element| element.attribute("class") == Some("survey"))
        .map(|element| element.attribute("aria-labelledby").unwrap())
        .collect();
    assert_eq!(shown, [format!("survey-{id}")]);
    let day_total = |page: &Page| -> i64 {
        let rows = &page.tables("data-view", "daily_breakdown")[0].rows;
        rows.iter().map(|row| row[3].replace(',', "").parse::<i64>().unwrap()).sum()
    };
    let answers = place
        .duckdb_tables()
        .count(&format!("SELECT sum(answers)::BIGINT FROM daily_breakdown WHERE survey_id = {id}"));
    assert_eq!(day_total(&one), answers);
    assert_is_harmless(&one, "one survey");
}

#[test]
fn a_report_of_an_empty_warehouse_works() {
    let service = Service::start(small(0, 20));
    let place = Place::new(&service);
    // Before the first run there is no DuckDB file, and the error says so. A folder without files is an empty
    // warehouse.
    assert_eq!(place.run(&["report"]).code, 2);
    std::fs::create_dir_all(place.parquet()).unwrap();
    let page = report(&place, Place::run_on_parquet, &[]);
    assert!(page.section("answers").contains("no answers yet") && page.section("runs").contains("No run"));
    assert_is_harmless(&page, "an empty folder");
    place.report(&["sync"], 0);
    for (kind, run) in KINDS {
        let page = report(&place, run, &[]);
        assert_is_harmless(&page, kind);
        assert_is_accessible(&page);
        assert!(
            page.section("nps").contains("No NPS question") && page.section("themes").contains("no themes"),
            "{kind}"
        );
        assert_eq!(page.tables("data-coverage", "responses")[0].rows.len(), 1, "{kind}: an empty scan is a proof");
    }
}

const ATTACK: &str = "</bdi></title></style><script>alert(1)</script><img src=x onerror=alert(2)><svg/onload=alert(3)>\
    \" onmouseover=\"alert(4)' & &lt;b&gt; {{7*7}} \u{202e}txet\u{2066} \u{1b}[31mred http://evil.example/";

/// Plants answers of every type that the report draws, in a survey with hostile texts.
fn plant_attacks(service: &Service) {
    let long = "x".repeat(1 << 20);
    let at = "2026-01-20T10:00:00.000Z";
    let question = |id: i64, kind: &str| {
        json!({"id": id, "type": kind, "questionText": format!("{ATTACK}{id}"), "options": [], "optionsProperties":
            {"introText": ATTACK, "labels": {"left": ATTACK, "right": ATTACK}}, "routingOptions": null})
    };
    let kinds = ["NPS", "LIKERT", "OPEN", "MULTIPLECHOICE", "MULTIPLESELECT", "MATRIX", "RANKORDER", "MAXDIFF", ATTACK];
    let questions: Vec<Value> = kinds.iter().zip(1..).map(|(kind, id)| question(id, kind)).collect();
    let control = service.control();
    for survey in 1..=500 {
        let record = json!({
            "id": survey, "name": format!("{ATTACK} {survey}"), "platform": "web", "type": "CONTINUOUS", "status": ATTACK,
            "createdAt": at, "updatedAt": at, "launchedAt": null, "completedAt": null, "totalResponseLimit": null,
            "constraints": [], "questions": if survey == 1 { questions.clone() } else { Vec::new() },
        });
        control.plant(ListName::Surveys, &record.to_string(), None).unwrap();
    }
    let answer = |session: String, survey: i64, question: i64, kind: &str, response: Value, indexes: Value| {
        let record = json!({
            "createdAt": at, "updatedAt": at, "deletedAt": null, "externalUserId": "", "questionId": question,
            "questionText": ATTACK, "questionType": kind, "response": response, "responseGroupUid": session, "surveyId": survey,
            "visitorId": 1, "visitorUuid": "v", "selectedIndexes": indexes,
        });
        control.plant(ListName::Responses, &record.to_string(), None).unwrap();
    };
    for (session, survey) in (2..=500).enumerate() {
        answer(format!("s{session}"), survey, 1, "OPEN", json!(ATTACK), json!(null));
    }
    for session in 0..30 {
        let group = || format!("attack-{session}");
        let text = format!("{session} {ATTACK}");
        answer(group(), 1, 1, "NPS", json!(session % 11), json!(null));
        answer(group(), 1, 2, "LIKERT", json!(session % 5 + 1), json!(null));
        answer(group(), 1, 3, "OPEN", json!(if session == 0 { &long } else { &text }), json!(null));
        answer(group(), 1, 4, "MULTIPLECHOICE", json!(if session == 1 { &long } else { &text }), json!(session));
        answer(group(), 1, 5, "MULTIPLESELECT", json!([text, "b"]), json!([session, 99]));
        answer(group(), 1, 6, "MATRIX", json!({text.clone(): text, "row": long.get(..200_000)}), json!(null));
        answer(group(), 1, 7, "RANKORDER", json!({text.clone(): 1, "other": 2}), json!(null));
        let item = |id: i64, selected: Value| json!({"id": id, "option": format!("{id} {text}"), "selected": selected});
        answer(group(), 1, 8, "MAXDIFF", json!([[item(1, json!("left")), item(2, json!("right"))]]), json!(null));
        answer(group(), 1, 9, ATTACK, json!(ATTACK), json!(null));
    }
    for id in 0..40 {
        let record = json!({
            "id": id, "createdAt": at, "updatedAt": at, "questionId": 3, "questionText": ATTACK, "questionType": "OPEN",
            "response": "fine", "responseGroupUid": format!("attack-{}", id % 30), "surveyId": 1, "theme": format!("{ATTACK}{id}"),
            "themeDescription": ATTACK, "visitorId": 1,
        });
        control.plant(ListName::Themes, &record.to_string(), None).unwrap();
    }
}

#[test]
fn p8_hostile_texts_are_escaped_and_omissions_are_stated() {
    let service = Service::start(small(200, 20));
    plant_attacks(&service);
    let place = Place::new(&service);
    let done = place.run(&["backfill", "--from", &days_ago(30), "--to", &NOW_MS.to_string()]);
    assert!(done.code == 0 || done.code == 3, "{}", done.stderr);
    for (kind, run) in KINDS {
        let from = (NOW_MS - 30 * DAY_MS).to_string();
        let all =
            ["--survey", "1", "--verbatims", "5", "--by", "attribute:'; DROP", "--title", ATTACK, "--from", &from];
        let done = run(&place, &[&["report"], &all[..]].concat()).expect(0);
        assert!(done.stderr.starts_with("hint: no answer has the attribute ''; DROP': "), "{kind}: {}", done.stderr);
        let page = Page::parse(&done.stdout);
        assert_is_harmless(&page, kind);
        assert_is_accessible(&page);
        assert!(page.section("surveys").contains("The newest 5 answers"), "{kind}");
        let page = report(&place, run, &[]);
        assert_is_harmless(&page, kind);
        assert_is_accessible(&page);
        let surveys = page.section("surveys");
        assert!(surveys.contains("<script>alert(1)</script>"), "{kind}: the text itself is shown");
        for steering in ['\u{202e}', '\u{2066}', '\u{1b}'] {
            assert!(!page.html.contains(steering), "{kind}: {steering:?}");
        }
        let count = place.duckdb_tables().count("SELECT count(DISTINCT survey_id) FROM current_responses") - 8;
        assert!(count > 490 && surveys.contains(&format!("Not shown: {count} surveys")), "{kind}");
        // 30 options, one of them a megabyte long; 30 rows and 31 columns; 40 themes.
        for told in ["Not shown: 15 options", "Not shown: 16 rows", "Not shown: 20 columns", "Not shown: 45 items"] {
            assert!(surveys.contains(told), "{kind}: {told}");
        }
        assert!(page.section("themes").contains("Not shown: "), "{kind}");
        for text in page.named("bdi") {
            assert!(text.text.chars().count() <= 161, "{kind}: {} letters", text.text.chars().count());
        }
    }
}
