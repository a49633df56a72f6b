-- What was known at a moment. A report of last spring shows other numbers today: answers were edited, deleted, purged, or came late.
-- responses_as_of(moment) and surveys_as_of(moment) are what the warehouse held then; the moment is UTC.

-- What did NPS of January look like at noon of 31 January, and what does it look like now?
WITH known AS (
    SELECT count(*) AS responses,
           100.0 * (count(*) FILTER (answer_number >= 9) - count(*) FILTER (answer_number <= 6)) / count(*) AS nps
    FROM responses_as_of(TIMESTAMP '2026-01-31 12:00:00')
    WHERE question_type = 'NPS' AND answer_number BETWEEN 0 AND 10
      AND created_at >= TIMESTAMP '2026-01-01' AND created_at < TIMESTAMP '2026-02-01'
)
SELECT known.responses AS responses_then, round(known.nps, 2) AS nps_then, today.responses, round(today.nps, 2) AS nps
FROM known, nps_by_month AS today
WHERE today.month = DATE '2026-01-01';

-- Which answers make the difference, and why?
SELECT change.reason, count(*) AS answers
FROM responses_as_of(TIMESTAMP '2026-01-31 12:00:00') AS was
JOIN response_history AS change
    ON change.response_group_uid = was.response_group_uid AND change.question_id = was.question_id
WHERE was.question_type = 'NPS' AND change.reason <> 'collision' AND change.valid_to > TIMESTAMP '2026-01-31 12:00:00'
GROUP BY change.reason
ORDER BY change.reason;

-- Which surveys had another status then?
SELECT was.id, was.name, was.status AS status_then, surveys.status
FROM surveys_as_of(TIMESTAMP '2026-01-31 12:00:00') AS was
JOIN surveys ON surveys.id = was.id
WHERE was.status IS DISTINCT FROM surveys.status
ORDER BY was.id;
