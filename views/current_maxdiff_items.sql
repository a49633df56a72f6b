-- The items shown in current answers (MAXDIFF).
--
-- One row: one item in one round of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service. Times are UTC.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question; with response_group_uid the answer, as in current_responses.
--   survey_id: The survey; NULL when the answer names none.
--   created_at: When the answer was given.
--   round: Round, from 1.
--   item_ordinal: Position of the item in the round, from 1.
--   item_id: Id of the item.
--   option: Wording of the item.
--   selected: left, right, or NULL when it was not chosen.
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at,
    part.round, part.item_ordinal, part.item_id, part.option, part.selected
FROM response_maxdiff_items AS part
ANTI JOIN (
    SELECT response_group_uid, question_id FROM responses WHERE deleted_at IS NOT NULL OR _vanished_at IS NOT NULL
) AS gone ON part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id
