-- The themes of answers as the warehouse knew them at a moment.
--
-- Call it as a table: FROM themes_as_of(TIMESTAMP '2026-04-01 00:00:00').
-- One row: one theme on one answer; key (id, response_group_uid, question_id).
-- Left out: themes that no scan had found by then, or that had vanished; people who were erased since have no rows. What had
-- become of the answers is not looked at: join responses_as_of for that.
--
-- Parameters:
--   moment: A moment, UTC.
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
WITH ended_later AS (
    -- The version that stood is the first that ended after the moment; of a theme without one, today's.
    SELECT * FROM theme_history
    WHERE valid_to > moment::TIMESTAMP
    QUALIFY row_number() OVER (PARTITION BY id, response_group_uid, question_id ORDER BY valid_to, _row_hash) = 1
),
gone_before AS (
    SELECT id, response_group_uid, question_id FROM theme_history
    WHERE valid_to <= moment::TIMESTAMP
    GROUP BY id, response_group_uid, question_id
    HAVING arg_max(reason, valid_to) = 'vanished'
),
versions AS (
    SELECT later.* EXCLUDE (valid_to, reason), today._first_seen_at, NULL::TIMESTAMP AS _vanished_at
    FROM ended_later AS later
    LEFT JOIN themes AS today
        ON today.id = later.id AND today.response_group_uid = later.response_group_uid
        AND today.question_id = later.question_id
    UNION ALL BY NAME
    SELECT today.*, today._synced_at AS valid_from
    FROM themes AS today
    ANTI JOIN ended_later AS later
        ON later.id = today.id AND later.response_group_uid = today.response_group_uid
        AND later.question_id = today.question_id
)
SELECT
    version.id, version.response_group_uid, version.question_id, survey_id, visitor_id, created_at AS found_at, theme,
    theme_description, response
FROM versions AS version
LEFT JOIN gone_before AS gone
    ON gone.id = version.id AND gone.response_group_uid = version.response_group_uid
    AND gone.question_id = version.question_id
WHERE (_vanished_at IS NULL OR _vanished_at > moment::TIMESTAMP)
    -- A version that was written later and has no other before it stood already, unless it is one that came back.
    AND (valid_from <= moment::TIMESTAMP OR (_first_seen_at <= moment::TIMESTAMP AND gone.id IS NULL))
