-- How many rows of each survey changed between two moments, as scans saw it.
--
-- Call it as a table: FROM row_changes(TIMESTAMP '2026-04-01 00:00:00', TIMESTAMP '2026-04-08 00:00:00').
-- One row: one survey in which something changed; key survey_id, which is NULL for answers that name no survey.
-- Left out: people who were erased since. A change counts if a scan saw it after the earlier moment and up to the later one. The counts add
-- up: answers_before + new_answers + returned - deleted - vanished = answers_after; themes_before + new_themes + returned_themes -
-- vanished_themes = themes_after; the same for surveys. An answer or theme that moves to another survey vanishes in one and is new in the
-- other. An answer that is first found deleted is no new answer.
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
--   returned: Answers that were found again after they had vanished or had been deleted.
--   answers_before: Answers of responses_as_of the earlier moment.
--   answers_after: Answers of responses_as_of the later moment.
--   changed_themes: Number of times that a scan found a theme with other content.
--   vanished_themes: Themes that were found gone.
--   returned_themes: Themes that were found again after they had vanished.
--   themes_before: Themes of themes_as_of the earlier moment.
--   themes_after: Themes of themes_as_of the later moment.
--   new_surveys: 1 if a scan found the survey for the first time.
--   changed_surveys: Number of times that a scan found the survey with other content, questions included.
--   vanished_surveys: Number of times that the survey was found gone.
--   returned_surveys: Number of times that the survey was found again after it had vanished.
--   surveys_before: 1 if the survey was there at the earlier moment.
--   surveys_after: 1 if the survey was there at the later moment.
WITH rows_of AS (
    SELECT
        'answer' AS kind, survey_id, survey_before, valid_from, valid_to, begun_by, ended_by, deleted_at IS NULL AS is_there
    FROM response_versions
    UNION ALL
    SELECT 'theme', survey_id, survey_before, valid_from, valid_to, begun_by, ended_by, true FROM theme_versions
    UNION ALL
    SELECT
        'survey', id, id, valid_from, valid_to,
        CASE
            WHEN lag(valid_to) OVER versions IS NULL THEN 'new'
            WHEN lag(valid_to) OVER versions < valid_from THEN 'returned'
            ELSE 'edited'
        END,
        CASE WHEN valid_to < coalesce(lead(valid_from) OVER versions, TIMESTAMP 'infinity') THEN 'vanished' ELSE 'edited' END,
        true
    FROM survey_history
    WINDOW versions AS (PARTITION BY id ORDER BY valid_from)
),
timed AS (
    SELECT
        *, valid_from > earlier::TIMESTAMP AND valid_from <= later::TIMESTAMP AS begins,
        coalesce(valid_to > earlier::TIMESTAMP AND valid_to <= later::TIMESTAMP, false) AS ends,
        is_there AND valid_from <= earlier::TIMESTAMP AND coalesce(valid_to > earlier::TIMESTAMP, true) AS was_there,
        is_there AND valid_from <= later::TIMESTAMP AND coalesce(valid_to > later::TIMESTAMP, true) AS stays_there
    FROM rows_of
),
counted AS (
    SELECT
        kind, survey_id,
        count(*) FILTER (begins AND is_there AND begun_by IN ('new', 'moved')) AS new,
        count(*) FILTER (begins AND begun_by = 'edited') AS edited,
        count(*) FILTER (ends AND is_there AND ended_by = 'deleted') AS deleted,
        count(*) FILTER (ends AND is_there AND ended_by = 'vanished') AS vanished,
        count(*) FILTER (begins AND is_there AND begun_by = 'returned') AS returned,
        count(*) FILTER (was_there) AS before,
        count(*) FILTER (stays_there) AS after,
        0 AS questions, 0 AS statuses
    FROM timed
    GROUP BY kind, survey_id
    UNION ALL
    SELECT kind, survey_before, 0, 0, 0, count(*), 0, 0, 0, 0, 0
    FROM timed
    WHERE begins AND begun_by = 'moved' AND is_there
    GROUP BY kind, survey_before
    UNION ALL
    SELECT 'question', survey_id, 0, 0, 0, 0, 0, 0, 0, count(DISTINCT coalesce(question_id, -question_ordinal)), 0
    FROM survey_question_history
    WHERE (valid_from > earlier::TIMESTAMP AND valid_from <= later::TIMESTAMP)
        OR (valid_to > earlier::TIMESTAMP AND valid_to <= later::TIMESTAMP)
    GROUP BY survey_id
    UNION ALL
    SELECT 'status', survey_id, 0, 0, 0, 0, 0, 0, 0, 0, count(*)
    FROM survey_status_changes
    WHERE changed_at > earlier::TIMESTAMP AND changed_at <= later::TIMESTAMP
    GROUP BY survey_id
),
summed AS (
    SELECT
        survey_id,
        sum(new) FILTER (kind = 'answer') AS new_answers,
        sum(edited) FILTER (kind = 'answer') AS edited,
        sum(deleted) FILTER (kind = 'answer') AS deleted,
        sum(vanished) FILTER (kind = 'answer') AS vanished,
        sum(returned) FILTER (kind = 'answer') AS returned,
        sum(before) FILTER (kind = 'answer') AS answers_before,
        sum(after) FILTER (kind = 'answer') AS answers_after,
        sum(new) FILTER (kind = 'theme') AS new_themes,
        sum(edited) FILTER (kind = 'theme') AS changed_themes,
        sum(vanished) FILTER (kind = 'theme') AS vanished_themes,
        sum(returned) FILTER (kind = 'theme') AS returned_themes,
        sum(before) FILTER (kind = 'theme') AS themes_before,
        sum(after) FILTER (kind = 'theme') AS themes_after,
        sum(new) FILTER (kind = 'survey') AS new_surveys,
        sum(edited) FILTER (kind = 'survey') AS changed_surveys,
        sum(vanished) FILTER (kind = 'survey') AS vanished_surveys,
        sum(returned) FILTER (kind = 'survey') AS returned_surveys,
        sum(before) FILTER (kind = 'survey') AS surveys_before,
        sum(after) FILTER (kind = 'survey') AS surveys_after,
        sum(questions) AS changed_questions
    FROM counted
    GROUP BY survey_id
    HAVING sum(new + edited + deleted + vanished + returned + questions + statuses) > 0
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
    summed.survey_id, survey.name AS survey_name,
    coalesce(new_answers, 0)::BIGINT AS new_answers, coalesce(edited, 0)::BIGINT AS edited,
    coalesce(deleted, 0)::BIGINT AS deleted, coalesce(vanished, 0)::BIGINT AS vanished,
    coalesce(new_themes, 0)::BIGINT AS new_themes, coalesce(changed_questions, 0)::BIGINT AS changed_questions,
    statuses.status_before, statuses.status_after, coalesce(returned, 0)::BIGINT AS returned,
    coalesce(answers_before, 0)::BIGINT AS answers_before, coalesce(answers_after, 0)::BIGINT AS answers_after,
    coalesce(changed_themes, 0)::BIGINT AS changed_themes, coalesce(vanished_themes, 0)::BIGINT AS vanished_themes,
    coalesce(returned_themes, 0)::BIGINT AS returned_themes, coalesce(themes_before, 0)::BIGINT AS themes_before,
    coalesce(themes_after, 0)::BIGINT AS themes_after, coalesce(new_surveys, 0)::BIGINT AS new_surveys,
    coalesce(changed_surveys, 0)::BIGINT AS changed_surveys, coalesce(vanished_surveys, 0)::BIGINT AS vanished_surveys,
    coalesce(returned_surveys, 0)::BIGINT AS returned_surveys, coalesce(surveys_before, 0)::BIGINT AS surveys_before,
    coalesce(surveys_after, 0)::BIGINT AS surveys_after
FROM summed
LEFT JOIN statuses ON statuses.survey_id = summed.survey_id
LEFT JOIN surveys AS survey ON survey.id = summed.survey_id
