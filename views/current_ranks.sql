-- The ranked options of current answers (RANKORDER).
--
-- One row: one option of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service. Times are UTC.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question; with response_group_uid the answer, as in current_responses.
--   survey_id: The survey; NULL when the answer names none.
--   created_at: When the answer was given.
--   option_label: Wording of the option.
--   rank: Rank that the visitor gave, 1 is first; NULL when the option was not ranked.
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at,
    part.option_label, part.rank
FROM response_ranks AS part
ANTI JOIN (
    SELECT response_group_uid, question_id FROM responses WHERE deleted_at IS NOT NULL OR _vanished_at IS NOT NULL
) AS gone ON part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id
