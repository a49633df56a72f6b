-- How long each survey stood in each status, and how much was answered while it did.
--
-- One row: one survey in one status, from one change to the next. Order by survey_id, since.
-- Left out: the time before a survey was first seen, and the time in which it was gone at the service. Times are UTC.
-- A change is dated by who saw it first: a webhook within moments, a scan when it came by. The present status lasts until the last
-- answer that a scan could have read.
--
-- Columns:
--   survey_id: The survey.
--   survey_name: Name of the survey; NULL when it is not known.
--   status: NEW, DRAFT, IN_PROGRESS, PAUSED, COMPLETED or ARCHIVED.
--   since: When it was first seen in the status.
--   until: When it was first seen in the next one, or gone; NULL for the present status.
--   seen_by: Who saw it begin: scan, webhook or both.
--   days: How long it lasted, in days; of the present status, up to now as scans know it.
--   answers: Questions that were answered in that time, skipped ones not counted.
--   answers_per_day: answers by days; NULL if the status lasted for no time at all.
WITH ordered AS (
    SELECT
        survey_id, changed_at AS since, new_status AS status, seen_by,
        lead(changed_at) OVER (PARTITION BY survey_id ORDER BY changed_at, new_status) AS until
    FROM survey_status_changes
),
known AS (
    SELECT max(window_end) AS scanned_until FROM sync_windows WHERE stream = 'responses'
),
ended AS (
    SELECT
        ordered.*, greatest(coalesce(ordered.until, known.scanned_until, ordered.since), ordered.since) AS ends
    FROM ordered CROSS JOIN known
    WHERE ordered.status IS NOT NULL
),
timed AS (
    SELECT
        ended.survey_id, ended.status, ended.since, ended.until, ended.seen_by,
        (epoch_us(ended.ends) - epoch_us(ended.since)) / 86400e6 AS days,
        count(answer.question_id) AS answers
    FROM ended
    LEFT JOIN current_responses AS answer
        ON answer.survey_id = ended.survey_id AND NOT answer.is_skipped
        AND answer.created_at >= ended.since AND answer.created_at < ended.ends
    GROUP BY ended.survey_id, ended.status, ended.since, ended.until, ended.seen_by, ended.ends
)
SELECT
    timed.survey_id, survey.name AS survey_name, timed.status, timed.since, timed.until, timed.seen_by, timed.days,
    timed.answers, CASE WHEN timed.days > 0 THEN timed.answers / timed.days END AS answers_per_day
FROM timed
LEFT JOIN surveys AS survey ON survey.id = timed.survey_id
