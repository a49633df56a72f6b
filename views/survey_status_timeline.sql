-- How long each survey was in each status, and how many questions were answered in that time.
--
-- One row: one survey in one status, from one change to the next. Order by survey_id, since.
-- Left out: the time before a survey was first seen, and the time in which it had vanished at the service. Times are UTC.
-- The earlier of webhook and scan gives the time of a change. The current status lasts until the time of the last
-- answer that a scan could have read.
--
-- Columns:
--   survey_id: The survey.
--   survey_name: Name of the survey; NULL when it is not known.
--   status: NEW, DRAFT, IN_PROGRESS, PAUSED, COMPLETED or ARCHIVED.
--   since: When it was first seen in the status.
--   until: When it was first seen in the next status, or vanished; NULL for the current status.
--   seen_by: What reported the begin of the status: scan, webhook or both.
--   days: How long it lasted, in days; for the current status, up to the last answer that a scan could have read.
--   answers: Questions that were answered in that time, without skipped ones.
--   answers_per_day: answers divided by days; NULL if the status lasted no time.
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
