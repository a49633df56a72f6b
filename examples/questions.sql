-- The questions that survey analysts ask first, over the views (`studysync schema` lists them; no JSON functions needed).
-- Each statement stands alone: give it to `studysync query`, or open warehouse.duckdb, or Parquet with parquet_views.sql.
-- Views count what stands today: what is deleted or has vanished at the service is out. All times are UTC.

-- 1. How do people like us, week by week, and how sure is that?
SELECT week, responses, round(nps, 1) AS nps, round(nps_low, 1) AS at_least, round(nps_high, 1) AS at_most
FROM nps_by_week
ORDER BY week;

-- 2. The same by survey and month, when people who answer often must not count more: each visitor once, by the latest answer.
SELECT month, survey_name, question_text, responses AS visitors, round(nps, 1) AS nps, round(standard_error, 1) AS standard_error
FROM nps_by_month_per_question_latest
ORDER BY survey_id, question_id, month;

-- 3. Which statements do people agree with? Top-two box, each against its own scale.
SELECT survey_name, question_text, answers, round(mean, 2) AS mean, round(100 * top_two_share, 1) AS top_two_percent,
       scale_min, scale_max, scale_source
FROM likert_top_two
ORDER BY top_two_share DESC, survey_id, question_id;

-- 4. Which options do they choose, as a share of those who answered?
SELECT survey_name, question_text, label, chosen, answered, round(100 * share, 1) AS percent
FROM choice_share
ORDER BY survey_id, question_id, chosen DESC, label, selected_index;

-- 5. How do they rate the parts of the product?
SELECT survey_name, row_label, sum(answers)::BIGINT AS answers, round(sum(column_number * answers) / sum(answers), 2) AS mean
FROM matrix_distribution
WHERE column_number IS NOT NULL
GROUP BY survey_id, survey_name, question_id, row_label
ORDER BY survey_id, question_id, mean DESC, row_label;

-- 6. What matters most to them? Ranked, and chosen as most and least.
SELECT 'ranked' AS asked, survey_name, question_id, option_label AS item, answers, round(borda_score, 3) AS score
FROM rank_summary
UNION ALL
SELECT 'best and worst', survey_name, question_id, item, shown, round(score, 3)
FROM maxdiff_scores
ORDER BY asked, question_id, score DESC, item;

-- 7. What do they talk about, and is it growing? The themes of each month of weeks.
SELECT theme, date_trunc('month', week)::DATE AS month, sum(answers)::BIGINT AS answers
FROM theme_trend
GROUP BY theme, month
ORDER BY theme, month;

-- 8. What do those say who would not recommend us? Their own words in the same session.
SELECT said.created_at, score.survey_id, score.score, said.question_text, said.answer_text
FROM nps_answers AS score
JOIN current_responses AS said ON said.response_group_uid = score.response_group_uid
WHERE score.score <= 6 AND said.question_type = 'OPEN' AND NOT said.is_skipped
ORDER BY said.created_at DESC, said.response_group_uid, said.question_id, score.question_id
LIMIT 50;

-- 9. Where do they leave, and what do they skip?
SELECT funnel.survey_name, funnel.question_ordinal, funnel.question_text, funnel.sessions,
       round(100 * funnel.shown_share, 1) AS shown_percent, round(100 * skips.skipped_share, 1) AS skipped_percent
FROM survey_funnel AS funnel
LEFT JOIN skips ON skips.survey_id = funnel.survey_id AND skips.question_id = funnel.question_id
ORDER BY funnel.survey_id, funnel.question_ordinal, funnel.question_id;

-- 10. Is the data whole and fresh? What came in on each of the last days, and what the last scans did.
SELECT day, sum(sessions)::BIGINT AS sessions, sum(answers)::BIGINT AS answers, sum(skipped)::BIGINT AS skipped
FROM daily_breakdown
GROUP BY day
ORDER BY day DESC
LIMIT 14;
SELECT stream, window_start, window_end, scanned_at, rows_read, inserted, updated, vanished, withheld, rejected
FROM sync_windows
ORDER BY scan_id DESC
LIMIT 20;

-- 11. Who is content, and who is not? NPS by an attribute of the visitor, for groups of ten answers and more.
SELECT survey_name, question_id, segment_value AS plan, responses, round(nps, 1) AS nps, round(standard_error, 1) AS standard_error
FROM nps_by_segment('attribute:plan', answers_min := 10)
ORDER BY survey_id, question_id, responses DESC, plan;

-- 12. Of those who were sent a study, how many answered it? Counts add up, shares do not: make them anew from the sums.
SELECT survey_name, date_trunc('month', day)::DATE AS month, sum(sent)::BIGINT AS sent, sum(answered)::BIGINT AS answered,
       round(100 * sum(sent_and_answered) / nullif(sum(sent), 0), 1) AS response_percent
FROM response_rates
GROUP BY survey_id, survey_name, month
ORDER BY survey_id, month;

-- 13. How many answers a day does each survey bring while it is live?
SELECT survey_name, status, since, round(days, 1) AS days, answers, round(answers_per_day, 1) AS answers_per_day
FROM survey_status_timeline
WHERE status = 'IN_PROGRESS'
ORDER BY survey_id, since;

-- 14. Was the wording changed, and did that change the answers?
SELECT version.survey_id, version.question_id, version.version, version.question_text, count(*) AS answers,
       round(avg(answer.answer_number), 2) AS mean
FROM question_versions AS version
JOIN response_question_versions AS shown
    ON shown.survey_id = version.survey_id AND shown.question_id = version.question_id AND shown.version = version.version
JOIN current_responses AS answer
    ON answer.response_group_uid = shown.response_group_uid AND answer.question_id = shown.question_id
WHERE answer.question_type IN ('NPS', 'LIKERT')
GROUP BY ALL
ORDER BY version.survey_id, version.question_id, version.version;

-- 15. What do they say of one thing?
SELECT created_at, survey_id, question_text, answer
FROM search_answers('export')
ORDER BY created_at DESC, response_group_uid, question_id
LIMIT 50;

-- 16. Which weeks of the NPS should be read with care, and why? A reason without a range concerns every week.
SELECT nps.week, nps.responses, round(nps.nps, 1) AS nps, string_agg(DISTINCT doubt.reason, ', ' ORDER BY doubt.reason) AS reasons
FROM nps_by_week AS nps
LEFT JOIN untrusted AS doubt
    ON coalesce(doubt.stream = 'responses', true)
    AND coalesce(doubt.range_start < nps.week + INTERVAL 7 DAY, true) AND coalesce(doubt.range_end > nps.week, true)
GROUP BY nps.week, nps.responses, nps.nps
ORDER BY nps.week;

-- 17. Does it get better for everybody? NPS by week for each plan, only weeks with three answers and more.
SELECT segment_value AS plan, week, survey_name, question_id, responses, round(nps, 1) AS nps, round(standard_error, 1) AS standard_error
FROM nps_by_week_and_segment('attribute:plan', answers_min := 3)
WHERE nps IS NOT NULL
ORDER BY survey_id, question_id, plan, week;
