-- The themes of current answers.
--
-- One row: one theme on one answer; key (id, response_group_uid, question_id).
-- Left out: themes that have vanished, and those of answers that are deleted or have vanished. Times are UTC.
--
-- Columns:
--   id: Id as sent; whether it names the theme or the link is not documented.
--   response_group_uid: The session.
--   question_id: The question.
--   survey_id: The survey; NULL when the theme names none.
--   visitor_id: The visitor.
--   found_at: When the service found the theme.
--   answered_at: When the answer was given; found_at if the answer is not in the warehouse.
--   theme: The theme.
--   theme_description: What the theme means.
--   response: The answer in which it was found.
SELECT
    found.id, found.response_group_uid, found.question_id, found.survey_id, found.visitor_id,
    found.created_at AS found_at,
    coalesce(answer.created_at, found.created_at) AS answered_at,
    found.theme, found.theme_description, found.response
FROM themes AS found
LEFT JOIN responses AS answer
    ON answer.response_group_uid = found.response_group_uid AND answer.question_id = found.question_id
WHERE found._vanished_at IS NULL AND answer.deleted_at IS NULL AND answer._vanished_at IS NULL
