-- What analysts ask first. Each statement stands alone: `studysync query "$(sed -n ... questions.sql)"`, or open warehouse.duckdb.
-- What counts today are rows that are neither deleted nor vanished at the service.

-- 1. NPS by week, with its standard error.
SELECT date_trunc('week', created_at) AS week, count(*) AS answers,
       round(100 * avg(score), 1) AS nps, round(100 * stddev_samp(score) / sqrt(count(*)), 1) AS standard_error
FROM (SELECT created_at, CASE WHEN answer_number >= 9 THEN 1 WHEN answer_number <= 6 THEN -1 ELSE 0 END AS score
      FROM responses
      WHERE question_type = 'NPS' AND answer_number IS NOT NULL AND deleted_at IS NULL AND _vanished_at IS NULL)
GROUP BY week ORDER BY week;

-- 2. How a scale was answered: the distribution of every LIKERT question.
SELECT survey_id, question_id, any_value(question_text) AS question, answer_number AS value, count(*) AS answers
FROM responses
WHERE question_type = 'LIKERT' AND answer_number IS NOT NULL AND deleted_at IS NULL AND _vanished_at IS NULL
GROUP BY survey_id, question_id, value ORDER BY survey_id, question_id, value;

-- 3. Which options were chosen, as a share of those who answered.
SELECT c.survey_id, c.question_id, c.label, count(*) AS chosen,
       round(100.0 * count(*) / any_value(a.answered), 1) AS percent
FROM response_choices c
JOIN responses r USING (response_group_uid, question_id)
JOIN (SELECT survey_id, question_id, count(*) AS answered FROM responses
      WHERE NOT is_skipped AND deleted_at IS NULL AND _vanished_at IS NULL GROUP BY ALL) a
  ON a.survey_id = c.survey_id AND a.question_id = c.question_id
WHERE r.deleted_at IS NULL AND r._vanished_at IS NULL
GROUP BY c.survey_id, c.question_id, c.label ORDER BY c.survey_id, c.question_id, chosen DESC;

-- 4. What people talk about, by month.
SELECT strftime(created_at, '%Y-%m') AS month, theme, count(*) AS answers
FROM themes WHERE _vanished_at IS NULL GROUP BY month, theme ORDER BY month, answers DESC;

-- 5. Answers a day, and how many were skipped.
SELECT created_at::DATE AS day, count(*) AS answers, count(*) FILTER (is_skipped) AS skipped
FROM responses WHERE deleted_at IS NULL AND _vanished_at IS NULL GROUP BY day ORDER BY day;

-- 6. What changed after the fact, and how.
SELECT reason, count(*) AS versions, min(valid_to) AS first_seen, max(valid_to) AS last_seen
FROM response_history GROUP BY reason ORDER BY reason;

-- 7. Is it complete? What each of the last scans did.
SELECT stream, window_start, window_end, rows_read, inserted, updated, vanished, withheld, rejected, scanned_at
FROM sync_windows ORDER BY scan_id DESC LIMIT 20;
