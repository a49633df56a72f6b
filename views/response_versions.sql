-- Every version of every answer: what the warehouse knew, and from when until when.
--
-- One row: one version of one answer; key (response_group_uid, question_id, version).
-- Left out: the time in which an answer had vanished, records that were never current because they lost a collision, and people who were erased.
-- Times are UTC, and are the starts of the scans that saw the changes. An answer that only gained optional columns has no new version. A
-- deleted answer has a version for the time in which it is deleted. responses_as_of has the versions of one moment.
--
-- Columns:
--   response_group_uid: The session; answers that one visitor gave together share it.
--   question_id: The question.
--   survey_id: The survey; NULL when the service sent none.
--   visitor_id: The service's number of the visitor.
--   visitor_uuid: The visitor's id in webhooks and snapshots.
--   external_user_id: Your own id of the visitor; NULL when there is none.
--   partner_anonymous_id: Id given by a partner integration; NULL when there is none.
--   question_type: NPS, LIKERT, OPEN, MULTIPLECHOICE, MULTIPLESELECT, MATRIX, RANKORDER, MAXDIFF, VIDEOVOICE, CONSENTLEGAL,
--     TEXTURLPROMPT, or a type that this program does not know.
--   question_text: The wording that was shown.
--   created_at: When the answer was given.
--   updated_at: When the service last changed the answer, as it reports; not every edit changes this time.
--   answer_text: The answer as text; NULL for other answers.
--   answer_number: The answer as a number: NPS, LIKERT, and any other answer that is a bare number.
--   answer_bool: The answer as yes or no: CONSENTLEGAL.
--   answer_json: The answer exactly as sent.
--   is_skipped: Whether the question was shown and not answered.
--   selected_indexes: Indexes of the chosen options, as sent.
--   url: Page on which the survey was shown.
--   meta_browser: Browser.
--   meta_os: Operating system.
--   meta_language: Language of the browser.
--   meta_href: Address of the page.
--   meta_user_agent: User agent.
--   meta_client_width: Width of the window, pixels.
--   meta_client_height: Height of the window, pixels.
--   meta_screen_width: Width of the screen, pixels.
--   meta_screen_height: Height of the screen, pixels.
--   meta_extra: JSON of the other fields of meta.
--   custom_metadata: customMetadata of link studies, JSON as sent.
--   extra: JSON of the fields that have no column.
--   deleted_at: When the answer was deleted at the service; NULL while it is not.
--   version: Number of the version, from 1.
--   valid_from: Start of the scan that first saw the version.
--   valid_to: Start of the scan that no longer saw it; NULL for the current version.
--   begun_by: new: the answer was found for the first time; edited: with other content; moved: edited, and it names another
--     survey; deleted: it was deleted at the service; returned: it had vanished, or had been deleted, and was found again.
--   ended_by: edited, deleted or vanished; NULL for the current version.
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
    FROM response_history
    -- A record that lost a collision has a version if it was current before.
    WHERE reason <> 'collision' OR valid_from < valid_to
    WINDOW ended AS (PARTITION BY response_group_uid, question_id ORDER BY valid_to, valid_from, _row_hash)
),
ended AS (
    SELECT * FROM marked WHERE NOT is_gap
),
last_ended AS (
    SELECT
        response_group_uid, question_id, count(*) AS versions, max(valid_to) AS valid_to,
        arg_max(reason, (valid_to, valid_from, _row_hash)) AS reason,
        arg_max({'at': returned_at}, (valid_to, valid_from, _row_hash)).at AS returned_at,
        arg_max({'at': deleted_at}, (valid_to, valid_from, _row_hash)).at AS deleted_at,
        arg_max({'id': survey_id}, (valid_to, valid_from, _row_hash)).id AS survey_id
    FROM ended
    GROUP BY response_group_uid, question_id
),
first_seen AS (
    SELECT today.response_group_uid, today.question_id, min(today._first_seen_at) AS seen_at
    FROM responses AS today
    SEMI JOIN last_ended AS had
        ON had.response_group_uid = today.response_group_uid AND had.question_id = today.question_id
    GROUP BY today.response_group_uid, today.question_id
),
earlier AS (
    SELECT
        was.*, row_number() OVER ended AS version, lag(was.valid_to) OVER ended AS ended_before,
        lag(was.reason) OVER ended AS reason_before, lag(was.returned_at) OVER ended AS returned_before,
        lag(was.deleted_at) OVER ended AS deleted_before, lag(was.survey_id) OVER ended AS survey_before, found.seen_at
    FROM ended AS was
    LEFT JOIN first_seen AS found
        ON found.response_group_uid = was.response_group_uid AND found.question_id = was.question_id
    WINDOW ended AS (PARTITION BY was.response_group_uid, was.question_id ORDER BY was.valid_to, was.valid_from, was._row_hash)
),
latest AS (
    SELECT
        today.*, coalesce(had.versions, 0) + 1 AS version, today._vanished_at AS valid_to, had.valid_to AS ended_before,
        had.reason AS reason_before, had.returned_at AS returned_before, had.deleted_at AS deleted_before,
        had.survey_id AS survey_before, today._first_seen_at AS seen_at, today._synced_at AS valid_from,
        CASE WHEN today._vanished_at IS NOT NULL THEN 'vanished' END AS reason
    FROM responses AS today
    LEFT JOIN last_ended AS had
        ON had.response_group_uid = today.response_group_uid AND had.question_id = today.question_id
    -- The last version of an answer that has vanished is in the history.
    WHERE today._vanished_at IS NULL OR had.valid_to IS NULL OR had.valid_to < today._vanished_at
),
versions AS (
    SELECT * EXCLUDE (is_gap, returned_at) FROM earlier
    UNION ALL BY NAME
    SELECT * EXCLUDE (_first_seen_at, _vanished_at, _flags) FROM latest
)
SELECT
    response_group_uid, question_id, survey_id, visitor_id, visitor_uuid,
    nullif(external_user_id, '') AS external_user_id, nullif(partner_anonymous_id, '') AS partner_anonymous_id,
    question_type, question_text, created_at, updated_at, answer_text, answer_number, answer_bool, answer_json, is_skipped,
    selected_indexes, url, meta_browser, meta_os, meta_language, meta_href, meta_user_agent, meta_client_width,
    meta_client_height, meta_screen_width, meta_screen_height, meta_extra, custom_metadata, extra, deleted_at, version,
    CASE
        WHEN ended_before IS NULL THEN least(seen_at, valid_from)
        WHEN reason_before = 'vanished' THEN coalesce(returned_before, greatest(ended_before, valid_from))
        ELSE ended_before
    END AS valid_from,
    valid_to,
    CASE
        WHEN ended_before IS NULL THEN 'new'
        WHEN deleted_at IS NOT NULL AND deleted_before IS NULL THEN 'deleted'
        WHEN reason_before = 'vanished' OR (deleted_at IS NULL AND deleted_before IS NOT NULL) THEN 'returned'
        WHEN survey_id IS DISTINCT FROM survey_before THEN 'moved'
        ELSE 'edited'
    END AS begun_by,
    CASE WHEN reason = 'collision' THEN 'edited' ELSE reason END AS ended_by, survey_before
FROM versions
