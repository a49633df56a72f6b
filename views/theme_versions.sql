-- Every version of every theme on an answer: what the warehouse knew, and from when until when.
--
-- One row: one version of one theme on one answer; key (id, response_group_uid, question_id, version).
-- Left out: the time in which a theme had vanished, and people who were erased. Whether the answer was deleted or had vanished
-- does not matter. Times are UTC, and are the starts of the scans that saw the changes. themes_as_of has the versions of one moment.
--
-- Columns:
--   id: Id as sent; whether it names the theme or the link is not documented.
--   response_group_uid: The session.
--   question_id: The question.
--   survey_id: The survey.
--   visitor_id: The visitor.
--   found_at: When the service found the theme.
--   theme: The theme.
--   theme_description: What the theme means.
--   response: The answer in which it was found.
--   version: Number of the version, from 1.
--   valid_from: Start of the scan that first saw the version.
--   valid_to: Start of the scan that no longer saw it; NULL for the current version.
--   begun_by: new: the theme was found for the first time; edited: with other content; moved: edited, and it names another
--     survey; returned: it had vanished, and was found again.
--   ended_by: edited or vanished; NULL for the current version.
--   survey_before: The survey of the version before; NULL for the first version.
WITH marked AS (
    -- Earlier versions of the program wrote a version for the time in which a row had vanished: it begins when the version before vanished.
    SELECT
        * REPLACE (
            CASE
                WHEN reason <> 'vanished' THEN NULL
                WHEN returned_at IS NULL AND lead(valid_from) OVER ended = valid_to THEN lead(valid_to) OVER ended
                ELSE returned_at
            END AS returned_at
        ),
        coalesce(
            lag(reason) OVER ended = 'vanished' AND lag(returned_at) OVER ended IS NULL AND lag(valid_to) OVER ended = valid_from, false
        ) AS is_gap
    FROM theme_history
    WINDOW ended AS (PARTITION BY id, response_group_uid, question_id ORDER BY valid_to, valid_from, _row_hash)
),
ended AS (
    SELECT * FROM marked WHERE NOT is_gap
),
last_ended AS (
    SELECT
        id, response_group_uid, question_id, count(*) AS versions, max(valid_to) AS valid_to,
        arg_max(reason, (valid_to, valid_from, _row_hash)) AS reason,
        arg_max({'at': returned_at}, (valid_to, valid_from, _row_hash)).at AS returned_at,
        arg_max({'id': survey_id}, (valid_to, valid_from, _row_hash)).id AS survey_id
    FROM ended
    GROUP BY id, response_group_uid, question_id
),
first_seen AS (
    SELECT today.id, today.response_group_uid, today.question_id, min(today._first_seen_at) AS seen_at
    FROM themes AS today
    SEMI JOIN last_ended AS had
        ON had.id = today.id AND had.response_group_uid = today.response_group_uid AND had.question_id = today.question_id
    GROUP BY today.id, today.response_group_uid, today.question_id
),
earlier AS (
    SELECT
        was.*, row_number() OVER ended AS version, lag(was.valid_to) OVER ended AS ended_before,
        lag(was.reason) OVER ended AS reason_before, lag(was.returned_at) OVER ended AS returned_before,
        lag(was.survey_id) OVER ended AS survey_before, found.seen_at
    FROM ended AS was
    LEFT JOIN first_seen AS found
        ON found.id = was.id AND found.response_group_uid = was.response_group_uid AND found.question_id = was.question_id
    WINDOW ended AS (
        PARTITION BY was.id, was.response_group_uid, was.question_id ORDER BY was.valid_to, was.valid_from, was._row_hash
    )
),
latest AS (
    SELECT
        today.*, coalesce(had.versions, 0) + 1 AS version, today._vanished_at AS valid_to, had.valid_to AS ended_before,
        had.reason AS reason_before, had.returned_at AS returned_before, had.survey_id AS survey_before,
        today._first_seen_at AS seen_at, today._synced_at AS valid_from,
        CASE WHEN today._vanished_at IS NOT NULL THEN 'vanished' END AS reason
    FROM themes AS today
    LEFT JOIN last_ended AS had
        ON had.id = today.id AND had.response_group_uid = today.response_group_uid AND had.question_id = today.question_id
    -- The last version of a theme that has vanished is in the history.
    WHERE today._vanished_at IS NULL OR had.valid_to IS NULL OR had.valid_to < today._vanished_at
),
versions AS (
    SELECT * EXCLUDE (is_gap, returned_at) FROM earlier
    UNION ALL BY NAME
    SELECT * EXCLUDE (_first_seen_at, _vanished_at) FROM latest
)
SELECT
    id, response_group_uid, question_id, survey_id, visitor_id, created_at AS found_at, theme, theme_description, response,
    version,
    CASE
        WHEN ended_before IS NULL THEN least(seen_at, valid_from)
        WHEN reason_before = 'vanished' THEN coalesce(returned_before, greatest(ended_before, valid_from))
        ELSE ended_before
    END AS valid_from,
    valid_to,
    CASE
        WHEN ended_before IS NULL THEN 'new'
        WHEN reason_before = 'vanished' THEN 'returned'
        WHEN survey_id IS DISTINCT FROM survey_before THEN 'moved'
        ELSE 'edited'
    END AS begun_by,
    reason AS ended_by, survey_before
FROM versions
