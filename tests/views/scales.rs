//! The scale of a LIKERT question by the labels of its options, and answers that are not points of it.

use serde_json::{Value, json};
use studysync_sandbox::ListName;

use super::warehouse::{Warehouse, assert_same};
use crate::harness::{Cell, Place, Service, days_ago, small};

/// The survey with the planted questions.
const SURVEY: i64 = 901;
/// Labels; lowest and highest value; values of options that are not points.
type Case = (&'static [&'static str], i64, i64, &'static str);

const SCALES: &[Case] = &[
    // Numbers, some with words.
    (&["1", "2", "3", "4", "5"], 1, 5, "[]"),
    (&["-2", "-1", "0", "1", "2"], -2, 2, "[]"),
    (&["1 star", "2 stars", "3 stars"], 1, 3, "[]"),
    (&["1) bad", "2) ok", "3) good"], 1, 3, "[]"),
    (&["5 very good", "4", "3", "2", "1 very bad"], 1, 5, "[]"),
    // Words.
    (&["never", "rarely", "sometimes", "often", "always"], 1, 5, "[]"),
    (&["Very unlikely", "Unlikely", "Neither likely nor unlikely", "Likely", "Very likely"], 1, 5, "[]"),
    (&["Not sure at all", "Somewhat sure", "Very sure"], 1, 3, "[]"),
    // Ranges and counts: the value is the position.
    (&["18-24", "25-34", "35-44", "45-54", "55+"], 1, 5, "[]"),
    (&["Under 18", "18-24", "25+"], 1, 3, "[]"),
    (&["1-2 times", "3-5 times", "6-10 times", "more often"], 1, 4, "[]"),
    (&["1 to 2 times", "3 to 4 times", "5 times or more"], 1, 3, "[]"),
    (&["Never", "Once", "2-3 times", "4+ times"], 1, 4, "[]"),
    (&["Less than 1 year", "1-2 years", "3-5 years", "More than 5 years"], 1, 4, "[]"),
    (&["0-6", "7-8", "9-10"], 1, 3, "[]"),
    (&["$0-10", "$10-20", "$20+"], 1, 3, "[]"),
    // Options that are not points, at either end.
    (&["1", "2", "3", "4", "5", "N/A"], 1, 5, "[6]"),
    (&["N/A", "1", "2", "3", "4", "5"], 1, 5, "[0]"),
    (&["0", "1", "2", "3", "4", "Not applicable"], 0, 4, "[5, 6]"),
    (&["5 very good", "4", "3", "2", "1 very bad", "Keine Angabe"], 1, 5, "[0, 6]"),
    (&["1 = poor", "2", "3", "4", "5 = great", "6 = N/A"], 1, 5, "[6]"),
    (&["1", "2", "3", "4", "5", "0 - N/A"], 1, 5, "[0, 6]"),
    (&["1 (bad)", "2", "3", "4", "5 (good)", "Can't say"], 1, 5, "[6]"),
    (&["bad", "poor", "fair", "good", "excellent", "N/A"], 1, 5, "[6]"),
    (&["Disagree", "Neutral", "Agree", "Not Applicable (N/A)"], 1, 3, "[4]"),
    (&["Don't know", "no", "rather no", "rather yes", "yes"], 2, 5, "[1]"),
    (&["Yes", "No", "Don\u{2019}t know"], 1, 2, "[3]"),
    (&["not applicable", "rarely", "often", "don't know"], 2, 3, "[1, 4]"),
    (&["1", "2", "3", "4", "5", "Does not apply to me"], 1, 5, "[6]"),
    (&["1", "2", "3", "4", "5", "Prefer not to say"], 1, 5, "[6]"),
    (&["1", "2", "3", "4", "5", "-"], 1, 5, "[6]"),
    (&["mauvais", "moyen", "bon", "Sans opinion"], 1, 3, "[4]"),
];

/// The options of the question whose answers are counted: five points, and an option that is not a point.
const RATED: &[&str] = &["bad", "poor", "fair", "good", "excellent", "N/A"];
const RATED_QUESTION: i64 = 1000;

fn plant(service: &Service) {
    let question = |(labels, id): (&[&str], i64)| {
        json!({"id": id, "type": "LIKERT", "questionText": format!("Scale {id}"), "options": labels,
               "optionsProperties": null, "routingOptions": null})
    };
    let mut questions: Vec<Value> = SCALES.iter().map(|case| case.0).zip(1..).map(question).collect();
    questions.push(question((RATED, RATED_QUESTION)));
    let survey = json!({
        "id": SURVEY, "name": "Scales", "platform": "web", "type": "CONTINUOUS", "status": "IN_PROGRESS",
        "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z", "launchedAt": null,
        "completedAt": null, "totalResponseLimit": null, "constraints": [], "questions": questions,
    });
    service.control().plant(ListName::Surveys, &survey.to_string(), None).unwrap();
    // Two 5, three 4, five lower; three "N/A", one of them as text; one outside the scale.
    let given = [5, 5, 4, 4, 4, 3, 3, 2, 1, 1, 6, 6, 9].map(|value| json!(value));
    for (at, response) in given.into_iter().chain([json!("N/A"), json!(null)]).enumerate() {
        let record = json!({
            "createdAt": "2026-01-19T00:00:00.000Z", "updatedAt": "2026-01-19T00:00:00.000Z", "deletedAt": null,
            "questionId": RATED_QUESTION, "questionText": "Scale 1000", "questionType": "LIKERT", "response": response,
            "responseGroupUid": format!("rated-{at}"), "surveyId": SURVEY, "visitorId": at + 1,
        });
        service.control().plant(ListName::Responses, &record.to_string(), None).unwrap();
    }
}

fn row(cells: &[&str]) -> Vec<Cell> {
    cells.iter().map(|text| Some((*text).to_owned())).collect()
}

#[test]
fn scales_have_the_points_that_a_reader_sees() {
    let service = Service::start(small(20, 6));
    plant(&service);
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(40)], 0);
    let wanted: Vec<Vec<Cell>> = (SCALES.iter().zip(1_i64..))
        .map(|((_, low, high, others), id)| row(&[&id.to_string(), &low.to_string(), &high.to_string(), others]))
        .collect();
    for warehouse in &Warehouse::in_utc(&place) {
        let of_survey = format!("survey_id = {SURVEY} AND question_id");
        let sql = format!(
            "SELECT question_id, scale_min, scale_max, not_rated_values FROM question_scales
             WHERE {of_survey} < {RATED_QUESTION}"
        );
        assert_same(&warehouse.name, &wanted, &warehouse.query(&sql));
        let sql = format!(
            "SELECT answers, mean, top_two, top_two_share, bottom_two, scale_min, scale_max, boxed, not_rated
             FROM likert_top_two WHERE {of_survey} = {RATED_QUESTION}"
        );
        let wanted = vec![row(&["10", "3.2", "5", "0.5", "3", "1", "5", "10", "3"])];
        assert_same(&warehouse.name, &wanted, &warehouse.query(&sql));
        let sql = format!(
            "SELECT value, answers, share, not_rated FROM likert_distribution WHERE {of_survey} = {RATED_QUESTION}"
        );
        let values = [("1", "2"), ("2", "1"), ("3", "2"), ("4", "3"), ("5", "2")];
        let wanted = values.map(|(value, answers)| row(&[value, answers, &format!("0.{answers}"), "3"])).to_vec();
        assert_same(&warehouse.name, &wanted, &warehouse.query(&sql));
        let sql =
            format!("SELECT kind, sum(answers) FROM likert_values WHERE {of_survey} = {RATED_QUESTION} GROUP BY kind");
        let wanted = vec![row(&["point", "10"]), row(&["not rated", "3"]), row(&["outside", "1"])];
        assert_same(&warehouse.name, &wanted, &warehouse.query(&sql));
    }
}
