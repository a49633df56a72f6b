//! What an analyst asks of the report: a range with the period before, segments, open answers, all surveys, months, and
//! values by keyboard.

use studysync_sandbox::Settings;

use super::{
    KINDS,
    page::{Element, Page},
    report, rich,
};
use crate::harness::{DAY_MS, NOW_MS, Place, Service, days_ago, small};

const FROM_DAYS: i64 = 20;
const TO_DAYS: i64 = 6;

/// SQL that is true for answers from so many days ago to before so many days ago.
fn between(from_days: i64, to_days: i64) -> String {
    let moment = |days: i64| format!("make_timestamp({} * 1000)", NOW_MS - days * DAY_MS);
    format!("created_at >= {} AND created_at < {}", moment(from_days), moment(to_days))
}

fn cards(page: &Page) -> Vec<&Element> {
    page.elements.iter().filter(|element| element.attribute("class") == Some("card")).collect()
}

/// The survey and the question of a card.
fn ids(card: &Element) -> (i64, i64) {
    let id = card.attribute("aria-labelledby").unwrap().strip_prefix("question-").unwrap();
    let (survey, question) = id.split_once('-').unwrap();
    (survey.parse().unwrap(), question.parse().unwrap())
}

fn kind(card: &Element) -> &str {
    card.text.split(" question ").next().unwrap()
}

/// The cards of this type with at least so many answers, as pairs of SQL for their answers and the card.
fn cards_of<'a>(page: &'a Page, wanted: &'a str) -> impl Iterator<Item = (String, &'a Element)> {
    let is_wanted = move |card: &&&Element| kind(card).ends_with(wanted);
    let cards: Vec<&Element> = cards(page).iter().filter(is_wanted).copied().collect();
    cards.into_iter().map(|card| {
        let (survey, question) = ids(card);
        (format!("survey_id = {survey} AND question_id = {question}"), card)
    })
}

#[test]
fn a_range_and_the_period_before_equal_their_answers() {
    let (_service, place) = rich();
    let tables = place.duckdb_tables();
    let text = |sql: &str| tables.rows_of(sql).pop().and_then(|mut row| row.remove(0)).unwrap_or_default();
    let (inside, before) = (between(FROM_DAYS, TO_DAYS), between(2 * FROM_DAYS - TO_DAYS, FROM_DAYS));
    for (name, run) in KINDS {
        let page = report(&place, run, &["--from", &days_ago(FROM_DAYS), "--to", &days_ago(TO_DAYS)]);
        let days = &page.tables("data-view", "daily_breakdown")[0].rows;
        let total: i64 = days.iter().map(|row| row[3].replace(',', "").parse::<i64>().unwrap()).sum();
        assert_eq!(total, tables.count(&format!("SELECT count(*) FROM current_responses WHERE {inside}")), "{name}");
        let head = page.by_id("totals").expect("the totals").text.clone();
        for (what, count) in [("answers", "count(*)"), ("sessions", "count(DISTINCT (survey_id, response_group_uid))")]
        {
            let sql = format!("SELECT format('{{:,}}', {count}) FROM current_responses WHERE {before}");
            let wanted = format!("period before: {}", text(&sql));
            assert!(head.contains(&wanted), "{name}, {what}: {wanted} in {head}");
        }
        let mut checked = 0;
        for (of, card) in cards_of(&page, "NPS") {
            let figure = |range: &str| {
                text(&format!(
                    "SELECT printf('%.1f', 100.0 * (count(*) FILTER (score >= 9) - count(*) FILTER (score <= 6)) / count(*)) \
                     || format(' {{:,}}', count(*)) FROM nps_answers WHERE {of} AND {range} HAVING count(*) > 0"
                ))
            };
            for (words, range) in [("", &inside), ("Period before: ", &before)] {
                let Some((nps, answers)) = figure(range).split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()))
                else {
                    continue;
                };
                let start = format!("{words}{nps}");
                assert!(card.text.contains(&start), "{name}, {of}: {start} in {}", card.text);
                assert!(
                    card.text.contains(&format!("from {answers} answer")),
                    "{name}, {of}: {answers} in {}",
                    card.text
                );
                checked += 1;
            }
        }
        assert!(checked > 3, "{name}");
        let mut options = 0;
        for (of, card) in cards_of(&page, "MULTIPLECHOICE") {
            let id = card.attribute("aria-labelledby").unwrap();
            for row in page.table_in(id, "choice_share").unwrap().rows {
                let label = row[0].replace('\'', "''");
                let wanted = text(&format!(
                    "SELECT format('{{:,}}', count(DISTINCT response_group_uid)) FROM current_choices \
                     WHERE {of} AND label = '{label}' AND {inside}"
                ));
                options += usize::from(wanted == row[1]);
            }
        }
        assert!(options > 3, "{name}: options of the range");
        let themes = &page.tables("data-view", "theme_trend")[0].rows;
        let answered = inside.replace("created_at", "answered_at");
        let most = text(&format!(
            "SELECT theme || format(' {{:,}}', count(DISTINCT (response_group_uid, question_id))) AS c1 FROM current_themes \
             WHERE {answered} GROUP BY theme ORDER BY count(DISTINCT (response_group_uid, question_id)) DESC, theme LIMIT 1"
        ));
        assert_eq!(format!("{} {}", themes[0][0], themes[0][1]), most, "{name}");
    }
    let done = place.run(&["report", "--from", &days_ago(2), "--to", &days_ago(3)]).expect(2);
    assert!(done.stderr.contains("--to must be later than --from"), "{}", done.stderr);
}

#[test]
fn open_questions_show_counts_themes_and_verbatims() {
    let (_service, place) = rich();
    let tables = place.duckdb_tables();
    for (name, run) in KINDS {
        let page = report(&place, run, &["--verbatims", "4"]);
        let mut checked = 0;
        for (of, card) in cards_of(&page, "OPEN") {
            let texts = tables.count(&format!("SELECT count(*) FROM open_answers WHERE {of} AND NOT is_empty"));
            assert!(card.text.contains(&format!("{texts} text")), "{name}, {of}: {texts} in {}", card.text);
            let themes = page.table_in(card.attribute("aria-labelledby").unwrap(), "current_themes");
            let sql = format!(
                "SELECT count(DISTINCT response_group_uid) AS c1 FROM current_themes WHERE {of} GROUP BY theme ORDER BY c1 DESC LIMIT 1"
            );
            let wanted = tables.rows_of(&sql).first().and_then(|row| row[0].clone());
            assert_eq!(themes.map(|table| table.rows[0][1].clone()), wanted, "{name}, {of}");
            let newest = tables.rows_of(&format!(
                "SELECT created_at::DATE::VARCHAR AS c1 FROM open_answers WHERE {of} AND NOT is_empty ORDER BY created_at DESC LIMIT 4"
            ));
            let at = page.elements.iter().position(|element| std::ptr::eq(element, card)).unwrap();
            let items = page.named("li").filter(|item| item.ancestors.contains(&at));
            let days: Vec<String> = items.map(|item| item.text.split(' ').next().unwrap().to_owned()).collect();
            assert_eq!(days, newest.iter().map(|row| row[0].clone().unwrap()).collect::<Vec<_>>(), "{name}, {of}");
            checked += 1;
        }
        assert!(checked > 2, "{name}");
        let without = report(&place, run, &[]);
        assert!(without.named("ul").all(|list| list.attribute("class") != Some("verbatims")), "only if asked");
    }
}

#[test]
fn a_segment_shows_questions_by_segment() {
    let (_service, place) = rich();
    let tables = place.duckdb_tables();
    for (name, run) in KINDS {
        let page = report(&place, run, &["--by", "browser"]);
        for (kind, sql) in [
            ("NPS", "SELECT responses, printf('%.1f ± %.1f', nps, standard_error) FROM nps_by_segment('browser')"),
            ("LIKERT", "SELECT answers, printf('mean %.2f', mean) FROM likert_by_segment('browser')"),
            ("MULTIPLECHOICE", "SELECT answered, printf('%.1f %%', 100 * share) FROM choices_by_segment('browser')"),
        ] {
            let mut checked = 0;
            for (of, card) in cards_of(&page, kind) {
                let Some(table) = page.table_in(card.attribute("aria-labelledby").unwrap(), "answer_segments") else {
                    continue;
                };
                let row = table.rows.iter().find(|row| row.last().unwrap() != "too few answers");
                let Some(row) = row else { continue };
                let known = tables.rows_of(&format!("{sql} WHERE {of}"));
                let figure = row[row.len() - 1].split(", top two").next().unwrap();
                let wanted = [Some(row[row.len() - 2].replace(',', "")), Some(figure.to_owned())];
                assert!(known.iter().any(|found| found[..] == wanted), "{name}, {of}: {wanted:?} in {known:?}");
                checked += 1;
            }
            assert!(checked > 0, "{name}: no {kind} by segment");
        }
    }
    let done = place.run(&["report", "--by", "shoe_size"]).expect(2);
    assert!(done.stderr.contains("attribute:NAME, user:NAME"), "{}", done.stderr);
    for (segment, hint) in [
        ("user:plan", "hint: no user was pulled, so the segments are unknown: enable [streams.users]"),
        (
            "attribute:shoe_size",
            "hint: no answer has the attribute 'shoe_size': studysync query \"SELECT DISTINCT name FROM",
        ),
    ] {
        let done = place.run(&["report", "--by", segment, "--out", "by.html"]).expect(0);
        assert!(done.stderr.contains(hint), "{segment}: {}", done.stderr);
    }
}

#[test]
fn an_attribute_of_pulled_users_is_a_segment_of_the_report() {
    let service = Service::start(small(1500, 28));
    let place = Place::new(&service).with_config(&crate::users::with_people());
    place.report(&["backfill", "--from", &days_ago(28)], 0);
    let name = "SELECT name FROM current_user_attributes GROUP BY name ORDER BY count(*) DESC, name";
    let name = place.duckdb_tables().value(name).unwrap();
    let done = place.run(&["report", "--by", &format!("user:{name}"), "--out", "by.html"]).expect(0);
    assert!(!done.stderr.contains("hint"), "{}", done.stderr);
    let page = std::fs::read_to_string(place.path("by.html")).unwrap();
    assert!(page.contains(&format!("user:{name}")), "{name}");
    let done = place.run(&["report", "--by", "user:shoe_size", "--out", "by.html"]).expect(0);
    assert!(done.stderr.contains("hint: no answer has a user with the attribute 'shoe_size'"), "{}", done.stderr);
}

#[test]
fn all_surveys_or_named_ones_are_shown_under_a_title() {
    let (_service, place) = rich();
    let surveys = |page: &Page| {
        page.elements.iter().filter(|element| element.attribute("class") == Some("survey")).count() as i64
    };
    let sql = "SELECT DISTINCT survey_id::VARCHAR AS id FROM daily_breakdown WHERE survey_id IS NOT NULL ORDER BY id";
    let known = place.duckdb_tables().rows_of(sql);
    let all = report(&place, Place::run, &["--survey", "all", "--title", "Monday & <numbers>"]);
    assert_eq!(surveys(&all), known.len() as i64);
    assert!(known.len() > 9, "more than are shown without --survey");
    assert_eq!(all.named("h1").next().unwrap().text, "Monday & <numbers>");
    assert_eq!(all.named("title").next().unwrap().text, "Monday & <numbers>");
    let named: Vec<String> = known.iter().take(9).map(|row| row[0].clone().unwrap()).collect();
    let flags: Vec<&str> = named.iter().flat_map(|id| ["--survey", id.as_str()]).collect();
    assert_eq!(surveys(&report(&place, Place::run, &flags)), 9);
    let done = place.run(&["report", "--survey", "abc"]).expect(2);
    assert!(done.stderr.contains("number of a survey, or 'all'"), "{}", done.stderr);
}

#[test]
fn a_written_report_says_where_it_is_and_what_it_covers() {
    let (_service, place) = rich();
    let totals = "SELECT format('{:,}', sum(answers)::BIGINT) || ' answers to ' || count(DISTINCT survey_id) || ' surveys, ' \
                  || min(day) || ' to ' || max(day) || ' (UTC)' AS covers FROM daily_breakdown";
    let covers = place.duckdb_tables().value(totals).unwrap();
    let done = place.run(&["report", "--out", "week.html"]).expect(0);
    assert_eq!((done.stdout.as_str(), done.stderr), ("", format!("wrote week.html: {covers}\n")));
    let quiet = place.run(&["report", "--out", "week.html", "--quiet"]).expect(0);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    assert_eq!(place.run(&["report"]).expect(0).stderr, "");
    let none = place.run(&["report", "--out", "none.html", "--to", "2001"]).expect(0);
    assert_eq!(none.stderr, "wrote none.html: 0 answers to 0 surveys\n");
}

#[test]
fn weeks_with_few_answers_are_joined_into_months() {
    let service = Service::start(Settings { hostile_share: 0.0, ..small(400, 90) });
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(95)], 0);
    let tables = place.duckdb_tables();
    let page = report(&place, Place::run, &[]);
    let months = &page.tables("data-view", "nps_by_month")[0].rows;
    assert!(page.tables("data-view", "nps_by_week").is_empty());
    assert_eq!(months[0][0], "2026-01-01 unfinished");
    assert_eq!(months.len() as i64, tables.count("SELECT count(*) FROM nps_by_month"));
    let december = tables.rows_of("SELECT printf('%.1f', nps) AS c1 FROM nps_by_month WHERE month = '2025-12-01'");
    let head = &page.by_id("totals").unwrap().text;
    let wanted = format!("NPS, last full month{}", december[0][0].as_ref().unwrap());
    assert!(head.contains(&wanted), "{wanted} in {head}");
}

#[test]
fn values_of_charts_are_reached_by_keyboard() {
    let (_service, place) = rich();
    let page = report(&place, Place::run, &[]);
    let values = |name: &str| -> Vec<&str> {
        let inputs = page.named("input").filter(|input| input.attribute("name") == Some(name));
        inputs.map(|input| input.attribute("aria-label").unwrap()).collect()
    };
    let mut days = page.tables("data-view", "daily_breakdown")[0].rows.clone();
    days.reverse();
    let wanted: Vec<String> =
        days.iter().map(|row| format!("{}: {} answered, {} skipped", row[0], row[1], row[2])).collect();
    assert_eq!(values("answers-values"), wanted);
    let weeks = page.tables("data-view", "nps_by_week")[0].rows.clone();
    let nps = values("nps-all-values");
    assert_eq!(nps.len(), weeks.len());
    assert!(nps.last().unwrap().ends_with("answers, unfinished"), "{nps:?}");
    let last_section = page.named("section").last().unwrap();
    assert_eq!(last_section.attribute("id"), Some("runs"));
    let runs = page.tables("data-view", "sync_runs")[0].at;
    let is_folded = page.elements[runs].ancestors.iter().any(|at| page.elements[*at].name == "details");
    assert!(is_folded, "operators' tables are folded");
}
