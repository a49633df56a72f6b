-- How many rows of each survey changed between two moments, as scans saw it.
--
-- Call it as a table: FROM row_changes(TIMESTAMP '2026-04-01 00:00:00', TIMESTAMP '2026-04-08 00:00:00').
-- One row: one survey in which something changed; key survey_id, which is NULL for answers that name no survey.
-- Left out: people who were erased since. A change counts if a scan saw it after the earlier moment and up to the later one.
--
-- Parameters:
--   earlier: The earlier moment, UTC.
--   later: The later moment, UTC.
--
-- Columns:
--   survey_id: The survey.
--   survey_name: Name of the survey; NULL when it is not known.
--   new_answers: Answers that a scan found for the first time.
--   edited: Number of times that a scan found an answer with other content.
--   deleted: Answers that were found deleted.
--   vanished: Answers that were found gone.
--   new_themes: Themes on answers that a scan found for the first time.
--   changed_questions: Questions of which a version began or ended; of a survey that was found for the first time, all questions.
--   status_before: Status of the survey at the earlier moment; NULL when it was not known or had vanished.
--   status_after: Status of the survey at the later moment; NULL when it was not known or had vanished.
WITH counted AS (
    SELECT
        survey_id, count(*) AS new_answers, 0 AS edited, 0 AS deleted, 0 AS vanished, 0 AS new_themes, 0 AS changed_questions
    FROM responses
    WHERE _first_seen_at > earlier::TIMESTAMP AND _first_seen_at <= later::TIMESTAMP
    GROUP BY survey_id
    UNION ALL
    SELECT
        survey_id, 0, count(*) FILTER (reason = 'edited'), count(*) FILTER (reason = 'deleted'),
        count(*) FILTER (reason = 'vanished'), 0, 0
    FROM response_history
    WHERE valid_to > earlier::TIMESTAMP AND valid_to <= later::TIMESTAMP AND reason <> 'collision'
    GROUP BY survey_id
    UNION ALL
    SELECT survey_id, 0, 0, 0, 0, count(*), 0
    FROM themes
    WHERE _first_seen_at > earlier::TIMESTAMP AND _first_seen_at <= later::TIMESTAMP
    GROUP BY survey_id
    UNION ALL
    SELECT survey_id, 0, 0, 0, 0, 0, count(DISTINCT coalesce(question_id, -question_ordinal))
    FROM survey_question_history
    WHERE (valid_from > earlier::TIMESTAMP AND valid_from <= later::TIMESTAMP)
        OR (valid_to > earlier::TIMESTAMP AND valid_to <= later::TIMESTAMP)
    GROUP BY survey_id
    UNION ALL
    SELECT survey_id, 0, 0, 0, 0, 0, 0
    FROM survey_status_changes
    WHERE changed_at > earlier::TIMESTAMP AND changed_at <= later::TIMESTAMP
),
summed AS (
    SELECT
        survey_id, sum(new_answers)::BIGINT AS new_answers, sum(edited)::BIGINT AS edited, sum(deleted)::BIGINT AS deleted,
        sum(vanished)::BIGINT AS vanished, sum(new_themes)::BIGINT AS new_themes,
        sum(changed_questions)::BIGINT AS changed_questions
    FROM counted
    GROUP BY survey_id
),
statuses AS (
    SELECT
        survey_id,
        arg_max({'status': new_status}, changed_at) FILTER (changed_at <= earlier::TIMESTAMP).status AS status_before,
        arg_max({'status': new_status}, changed_at) FILTER (changed_at <= later::TIMESTAMP).status AS status_after
    FROM survey_status_changes
    GROUP BY survey_id
)
SELECT
    summed.survey_id, survey.name AS survey_name, summed.new_answers, summed.edited, summed.deleted, summed.vanished,
    summed.new_themes, summed.changed_questions, statuses.status_before, statuses.status_after
FROM summed
LEFT JOIN statuses ON statuses.survey_id = summed.survey_id
LEFT JOIN surveys AS survey ON survey.id = summed.survey_id
