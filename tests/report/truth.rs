//! Each number in the report equals its view, in both warehouses. Coverage equals `status`.

use std::collections::BTreeSet;

use serde_json::Value;
use studysync_sandbox::ChangeRequest;

use super::{
    KINDS,
    page::{Element, Page, Table},
    report, rich,
};
use crate::harness::{DAY_MS, NOW_MS, Place, Service, Tables, days_ago, small};

/// The report's limit for options.
const OPTIONS: usize = 15;

/// Returns the rows of a query over the tables and views of the DuckDB file, every value as text. Both warehouses have
/// the same rows.
fn rows(tables: &Tables, sql: &str) -> Vec<Vec<String>> {
    let text = |cell: Option<String>| cell.unwrap_or_else(|| "null".to_owned());
    tables.rows_of(sql).into_iter().map(|row| row.into_iter().map(text).collect()).collect()
}

/// Returns an untrusted text as the report shows it.
fn shown(text: &str) -> String {
    let letter = |letter: char| match letter {
        '\n' | '\t' => ' ',
        '\0'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        letter => letter,
    };
    let cut: String = text.chars().take(160).map(letter).collect();
    let cut = if text.chars().count() > 160 { format!("{cut}…") } else { cut };
    cut.trim().to_owned()
}

/// Replaces the first column of rows, which is an untrusted text, by the text that the report shows.
fn named(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    rows.iter_mut().for_each(|row| row[0] = shown(&row[0]));
    rows
}

/// Returns the table's rows without cells that contain only drawings.
fn cells(table: &Table) -> Vec<Vec<String>> {
    let drawn: Vec<bool> = table.heads.iter().map(|head| head.is_empty() || head.starts_with("By week")).collect();
    let kept = |row: &Vec<String>| {
        row.iter().zip(&drawn).filter(|(_, is_drawn)| !**is_drawn).map(|(cell, _)| cell.clone()).collect()
    };
    table.rows.iter().map(kept).collect()
}

fn only(page: &Page, view: &str) -> Vec<Vec<String>> {
    let tables: Vec<Table> = page.tables("data-view", view);
    assert_eq!(tables.len(), 1, "tables of {view}");
    cells(&tables[0])
}

#[test]
fn every_number_in_the_report_equals_its_view() {
    let (_service, place) = rich();
    let tables = place.duckdb_tables();
    for (kind, run) in KINDS {
        let page = report(&place, run, &[]);
        let ask = |sql: &str| rows(&tables, sql);
        let days = ask("SELECT day::VARCHAR AS c1, format('{:,}', sum(answered)::BIGINT) AS c2, \
             format('{:,}', sum(skipped)::BIGINT) AS c3, format('{:,}', sum(answers)::BIGINT) AS c4 \
             FROM daily_breakdown GROUP BY day ORDER BY day DESC");
        assert!(days.len() > 40, "{kind}: {} days", days.len());
        assert_eq!(only(&page, "daily_breakdown"), days, "{kind}");
        let weeks = ask(
            "SELECT week::VARCHAR || if(week = '2026-01-26', ' unfinished', '') AS c1, format('{:,}', responses) AS c2, format('{:,}', promoters) AS c3, \
             format('{:,}', passives) AS c4, format('{:,}', detractors) AS c5, printf('%.1f', nps) AS c6, \
             coalesce(printf('%.1f', nps_low), '–') AS c7, coalesce(printf('%.1f', nps_high), '–') AS c8 \
             FROM nps_by_week ORDER BY week DESC",
        );
        assert!(weeks.len() > 5);
        assert_eq!(only(&page, "nps_by_week"), weeks, "{kind}");
        let themes = ask(
            "SELECT theme AS c1, format('{:,}', sum(answers)::BIGINT) AS c2, count(DISTINCT survey_id)::VARCHAR AS c3 \
             FROM theme_trend GROUP BY theme ORDER BY sum(answers) DESC, theme LIMIT 20",
        );
        assert!(themes.len() > 3);
        assert_eq!(only(&page, "theme_trend"), named(themes), "{kind}");
        trends_add_up(&page, &ask);
        head_is(&page, &ask);
        surveys_are(&page, &ask, kind);
        runs_are(&page, &ask);
        // A survey with the one question type that is rare.
        let rare =
            ask("SELECT survey_id AS c1 FROM maxdiff_scores GROUP BY survey_id ORDER BY sum(shown) DESC LIMIT 1");
        let one = report(&place, run, &["--survey", &rare[0][0]]);
        let mut kinds = BTreeSet::new();
        survey_is(&one, &ask, kind, &rare[0][0], &mut kinds);
        assert!(kinds.contains("MAXDIFF"), "{kinds:?}");
    }
}

type Ask<'a> = &'a dyn Fn(&str) -> Vec<Vec<String>>;

/// Compares the weeks of each theme. This warehouse covers all of them.
fn trends_add_up(page: &Page, ask: Ask<'_>) {
    let weekly = ask(
        "SELECT theme AS c1, sum(answers)::BIGINT AS c2, week::VARCHAR AS c3 FROM theme_trend GROUP BY theme, week ORDER BY week",
    );
    let table = &page.tables("data-view", "theme_trend")[0];
    let titles = page.elements.iter().filter(|element| {
        element.name == "title" && element.ancestors.contains(&table.at) && element.text.starts_with("Answers by week")
    });
    let told: Vec<Vec<i64>> = titles
        .map(|title| title.text.split_once(": ").unwrap().1.split(", ").map(|part| part.parse().unwrap()).collect())
        .collect();
    assert_eq!(told.len(), table.rows.len());
    for (row, told) in table.rows.iter().zip(&told) {
        let wanted: Vec<i64> =
            weekly.iter().filter(|held| shown(&held[0]) == row[0]).map(|held| held[1].parse().unwrap()).collect();
        let told: Vec<i64> = told.iter().copied().filter(|answers| *answers > 0).collect();
        assert_eq!(told, wanted, "{}", row[0]);
    }
}

fn head_is(page: &Page, ask: Ask<'_>) {
    let first = ask("SELECT format('{:,}', sum(answers)::BIGINT) AS c1 FROM daily_breakdown")[0][0].clone();
    let sessions = ask("SELECT format('{:,}', count(*)) AS c1 FROM sessions")[0][0].clone();
    let values: Vec<&str> = page
        .elements
        .iter()
        .filter(|element| element.attribute("class") == Some("value"))
        .map(|element| element.text.as_str())
        .collect();
    assert_eq!(values[..2], [first.as_str(), sessions.as_str()]);
}

fn surveys_are(page: &Page, ask: Ask<'_>, kind: &str) {
    let wanted = ask("SELECT survey_id AS c1, format('{:,}', sum(answers)::BIGINT) AS c2 FROM daily_breakdown \
         WHERE survey_id IS NOT NULL GROUP BY survey_id ORDER BY sum(answers) DESC, survey_id");
    let ids: Vec<&str> = page
        .elements
        .iter()
        .filter(|element| element.attribute("class") == Some("survey"))
        .map(|element| element.attribute("aria-labelledby").unwrap().strip_prefix("survey-").unwrap())
        .collect();
    assert_eq!(ids, wanted.iter().take(8).map(|row| row[0].as_str()).collect::<Vec<_>>());
    let left_out = format!("Not shown: {} surveys", wanted.len() - 8);
    assert!(page.section("surveys").contains(&left_out), "{left_out}");
    let mut kinds = BTreeSet::new();
    ids.into_iter().for_each(|survey| survey_is(page, ask, kind, survey, &mut kinds));
    for known in ["NPS", "LIKERT", "MULTIPLECHOICE", "MULTIPLESELECT", "MATRIX", "RANKORDER"] {
        assert!(kinds.contains(known), "no {known} among the surveys that are shown: {kinds:?}");
    }
}

fn survey_is(page: &Page, ask: Ask<'_>, kind: &str, survey: &str, kinds: &mut BTreeSet<String>) {
    let funnel = page.table_in(&format!("survey-{survey}"), "survey_funnel").expect("a funnel");
    let steps = ask(&format!(
        "SELECT coalesce(question_ordinal || '. ', '') || coalesce(question_text, 'question ' || question_id) AS c1, format('{{:,}}', answered) AS c2, \
             printf('%.1f %%', answered_share * 100) AS c3, format('{{:,}}', shown) AS c4, \
             printf('%.1f %%', shown_share * 100) AS c5, format('{{:,}}', skipped) AS c6 \
             FROM survey_funnel WHERE survey_id = {survey} ORDER BY question_ordinal NULLS LAST, question_id LIMIT 30"
    ));
    assert_eq!(cells(&funnel), named(steps), "{kind}, survey {survey}");
    let questions = ask(&format!(
        "SELECT question_id AS c1, question_type AS c2, format('shown {{:,}}, answered {{:,}}, skipped {{:,}}', shown, answered, skipped) \
             || printf(' (%.1f %%)', skipped_share * 100) AS c3 FROM skips WHERE survey_id = {survey}"
    ));
    assert!(!questions.is_empty());
    for question in questions {
        let id = format!("question-{survey}-{}", question[0]);
        let Some(heading) = page.elements.iter().find(|element| element.attribute("aria-labelledby") == Some(&*id))
        else {
            // The question is beyond the limit of questions in the report.
            continue;
        };
        assert!(heading.text.contains(&question[2]), "{}: {}", question[2], heading.text);
        kinds.insert(question[1].clone());
        question_is(page, ask, &id, survey, &question[0], &question[1]);
    }
}

fn question_is(page: &Page, ask: Ask<'_>, id: &str, survey: &str, question: &str, kind: &str) {
    let of = format!("survey_id = {survey} AND question_id = {question}");
    let table = |view: &str| page.table_in(id, view).map(|table| cells(&table)).unwrap_or_default();
    let is_chosen = |row: &Vec<String>| row[1] != "0";
    match kind {
        "NPS" => {
            let found: Vec<_> = table("nps_answers").into_iter().filter(is_chosen).collect();
            let wanted = ask(&format!(
                "SELECT score::BIGINT || CASE WHEN score >= 9 THEN ' promoter' WHEN score >= 7 THEN ' passive' ELSE ' detractor' END AS c1, \
                 format('{{:,}}', count(*)) AS c2 FROM nps_answers WHERE {of} GROUP BY score ORDER BY score DESC"
            ));
            assert_eq!(found, wanted, "{id}");
            nps_is(page, ask, id, &of);
        }
        "LIKERT" => {
            let found: Vec<_> = table("likert_distribution").into_iter().filter(is_chosen).collect();
            let wanted = ask(&format!(
                "SELECT value::VARCHAR AS c1, format('{{:,}}', answers) AS c2, printf('%.1f %%', share * 100) AS c3 \
                 FROM likert_distribution WHERE {of} ORDER BY value DESC"
            ));
            assert_eq!(found, wanted, "{id}");
        }
        "MULTIPLECHOICE" | "MULTIPLESELECT" => {
            let wanted = ask(&format!(
                "SELECT coalesce(label, 'option with index ' || selected_index) AS c1, format('{{:,}}', chosen) AS c2, \
                 printf('%.1f %%', share * 100) AS c3 FROM choice_share WHERE {of} ORDER BY chosen DESC, label, selected_index"
            ));
            let left_out = wanted.len().saturating_sub(OPTIONS);
            assert_eq!(table("choice_share"), named(wanted.into_iter().take(OPTIONS).collect()), "{id}");
            let card = page.elements.iter().find(|element| element.attribute("aria-labelledby") == Some(id)).unwrap();
            assert_eq!(card.text.contains("Not shown"), left_out > 0, "{id}: {}", card.text);
        }
        "MATRIX" => matrix_is(page, ask, id, &of),
        "RANKORDER" => {
            let wanted = ask(&format!(
                "SELECT option_label AS c1, printf('%.2f', mean_rank) AS c2, format('{{:,}}', answers) AS c3, \
                 printf('%.1f %%', first_place_share * 100) AS c4 FROM rank_summary WHERE {of} ORDER BY mean_rank, option_label LIMIT {OPTIONS}"
            ));
            assert_eq!(table("rank_summary"), named(wanted), "{id}");
        }
        "MAXDIFF" => {
            let wanted = ask(&format!(
                "SELECT item AS c1, coalesce(printf('%.2f', score), '–') AS c2, format('{{:,}}', shown) AS c3, \
                 format('{{:,}}', chosen_left) AS c4, format('{{:,}}', chosen_right) AS c5 FROM maxdiff_scores WHERE {of} \
                 ORDER BY score DESC NULLS LAST, chosen_left - chosen_right DESC, item LIMIT {OPTIONS}"
            ));
            assert_eq!(table("maxdiff_scores"), named(wanted), "{id}");
        }
        _ => {}
    }
}

/// Compares the NPS, its groups, and its weeks; months if weeks have fewer than 30 answers on average.
fn nps_is(page: &Page, ask: Ask<'_>, id: &str, of: &str) {
    let card = page.elements.iter().find(|element| element.attribute("aria-labelledby") == Some(id)).unwrap();
    let headline = ask(&format!(
        "SELECT printf('%.1f NPS, %.1f to %.1f (95 %%)', nps, nps_low, nps_high) || format(' from {{:,}} answer', responses) AS c1 \
         FROM nps_per_question WHERE {of}"
    ));
    assert!(
        headline[0][0] == "null" || card.text.contains(&headline[0][0]),
        "{id}: {} in {}",
        headline[0][0],
        card.text
    );
    let groups = ask(&format!(
        "SELECT format('{{:,}}', unnest([promoters, passives, detractors])) AS c1, \
         printf('%.1f %%', 100 * unnest([promoter_share, passive_share, detractor_share])) AS c2 FROM nps_per_question WHERE {of}"
    ));
    let found = page.table_in(id, "nps_per_question").expect("the groups");
    let found: Vec<Vec<String>> = found.rows.iter().map(|row| row[1..3].to_vec()).collect();
    assert_eq!(found, groups, "{id}");
    let weeks = page.table_in(id, "nps_by_week_per_question");
    let months = page.table_in(id, "nps_by_month_per_question");
    let (name, table) = match (weeks, months) {
        (Some(table), None) => ("week", table),
        (None, Some(table)) => ("month", table),
        _ => panic!("{id}: one table of weeks or months"),
    };
    let last = &table.rows[0][0];
    let mean = ask(&format!(
        "SELECT avg(responses) AS c1 FROM nps_by_week_per_question WHERE {of} AND week < DATE '2026-01-26'"
    ));
    assert_eq!(name == "month", mean[0][0].parse::<f64>().unwrap() < 30.0, "{id}: {mean:?}");
    assert!(last.ends_with(" unfinished"), "{id}: {last}");
    assert!(table.rows[1..].iter().all(|row| !row[0].contains("unfinished")), "{id}");
    let wanted = ask(&format!(
        "SELECT {name}::VARCHAR AS c1, format('{{:,}}', responses) AS c2, printf('%.1f', nps) AS c3 \
         FROM nps_by_{name}_per_question WHERE {of} ORDER BY {name} DESC"
    ));
    let first = |text: &str| text.split(' ').next().unwrap().to_owned();
    let found = table.rows.iter().map(|row| vec![first(&row[0]), row[1].clone(), row[5].clone()]);
    assert_eq!(found.collect::<Vec<_>>(), wanted, "{id}");
}

fn matrix_is(page: &Page, ask: Ask<'_>, id: &str, of: &str) {
    let table = page.table_in(id, "matrix_distribution").expect("a matrix");
    let mut found = Vec::new();
    for row in &table.rows {
        for (head, cell) in table.heads.iter().zip(row).skip(1).take(table.heads.len() - 2) {
            if cell != "0" {
                found.push(vec![row[0].clone(), head.clone(), cell.clone()]);
            }
        }
    }
    let wanted = ask(&format!(
        "SELECT row_label AS c1, column_label AS c2, format('{{:,}}', answers) || printf(' %.1f %%', share * 100) AS c3 \
         FROM matrix_distribution WHERE {of}"
    ));
    let mut wanted: Vec<Vec<String>> =
        wanted.into_iter().map(|row| vec![shown(&row[0]), shown(&row[1]), row[2].clone()]).collect();
    found.sort();
    wanted.sort();
    assert!(wanted.len() < 150, "{id} is cut: choose another seed");
    assert_eq!(found, wanted, "{id}");
}

fn runs_are(page: &Page, ask: Ask<'_>) {
    let runs = ask(
        "SELECT strftime(started_at, '%Y-%m-%d %H:%M:%S') AS c1, command AS c2, report AS c3 FROM sync_runs ORDER BY started_at DESC",
    );
    let found = only(page, "sync_runs");
    assert_eq!(found.len(), runs.len());
    for (found, run) in found.iter().zip(&runs) {
        let report: Value = serde_json::from_str(&run[2]).unwrap();
        let seconds = |part: &str| format!("{:.1}", report["time_ms"][part].as_f64().unwrap() / 1000.0);
        let parts = ["wall", "network", "told_to_wait", "chose_to_wait", "parse", "write", "idle"].map(seconds);
        let mut wanted = vec![run[0].clone(), run[1].clone(), report["outcome"].as_str().unwrap().replace('_', " ")];
        wanted.push(report["requests"]["total"].to_string());
        wanted.extend(parts);
        assert_eq!(found, &wanted);
    }
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p3_slow_report_coverage_equals_status_and_the_ledger() {
    let service = Service::start(small(3000, 20));
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(20), "--to", &days_ago(15)], 0);
    place.report(&["backfill", "--from", &days_ago(10), "--to", &days_ago(2)], 0);
    let wanted = coverage_is(&place, "From the checkpoints", "not read");
    // Without the checkpoints, the ledger proves the same coverage.
    let aside = place.path("aside");
    std::fs::rename(place.path("state"), &aside).unwrap();
    for (kind, run) in KINDS {
        let page = report(&place, run, &[]);
        assert!(page.section("coverage").contains("ledger alone"), "{kind}");
        assert_eq!(stretches(&page), wanted, "{kind}");
    }
    std::fs::rename(&aside, place.path("state")).unwrap();
    // All answers of some days vanish at once: the run withholds them, and the windows need a recheck.
    let window = (NOW_MS - 9 * DAY_MS, NOW_MS - 4 * DAY_MS);
    service.change(&ChangeRequest { vanish_window_ms: Some(window), ..ChangeRequest::default() });
    service.advance_days(1);
    place.report(&["sync", "--stream", "responses"], 3);
    coverage_is(&place, "From the checkpoints", "needs a recheck");
}

/// Asserts that the reports of both warehouses have the same coverage as `status`, and that an interval has this state.
fn coverage_is(place: &Place, source: &str, standing: &str) -> Vec<Vec<String>> {
    let status = place.run(&["status", "--json"]).expect(0).json();
    let wanted = coverage_of(&status, "responses");
    assert!(wanted.iter().any(|row| row[2] == standing), "{wanted:?}");
    for (kind, run) in KINDS {
        let page = report(place, run, &[]);
        assert_eq!(stretches(&page), wanted, "{kind}");
        assert!(page.section("coverage").contains(source), "{kind}");
        let is_told = |element: &&Element| element.attribute("data-days") == Some("map-responses-all");
        let told = &page.elements.iter().find(is_told).unwrap().text;
        assert!(told.contains(standing), "{told}");
    }
    wanted
}

fn stretches(page: &Page) -> Vec<Vec<String>> {
    let mut rows = page.tables("data-coverage", "responses")[0].rows.clone();
    rows.sort();
    rows
}

/// Start, end and state of each interval, in order.
fn coverage_of(status: &Value, stream: &str) -> Vec<Vec<String>> {
    let streams = status["streams"].as_array().unwrap();
    let of = streams.iter().find(|held| held["stream"] == stream).unwrap();
    let text = |value: &Value| value.as_str().unwrap().replace('T', " ").replace('Z', "");
    let rows = |part: &str, word: &str| -> Vec<Vec<String>> {
        let stretches = of[part].as_array().unwrap();
        stretches.iter().map(|held| vec![text(&held["start"]), text(&held["end"]), word.to_owned()]).collect()
    };
    let doubts = rows("in_doubt", "needs a recheck");
    let mut all = rows("missing", "not read");
    // `status` lists windows that need a recheck next to complete ranges; the report cuts them out of the complete
    // ranges.
    for whole in rows("complete", "complete") {
        let mut from = whole[0].clone();
        for doubt in doubts.iter().filter(|doubt| whole[0] <= doubt[0] && doubt[1] <= whole[1]) {
            if from < doubt[0] {
                all.push(vec![from, doubt[0].clone(), "complete".to_owned()]);
            }
            from = doubt[1].clone();
        }
        if from < whole[1] {
            all.push(vec![from, whole[1].clone(), "complete".to_owned()]);
        }
    }
    all.extend(doubts);
    all.sort();
    all
}
