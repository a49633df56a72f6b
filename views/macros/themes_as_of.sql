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
SELECT id, response_group_uid, question_id, survey_id, visitor_id, found_at, theme, theme_description, response
FROM theme_versions
WHERE valid_from <= moment::TIMESTAMP AND (valid_to IS NULL OR valid_to > moment::TIMESTAMP)
