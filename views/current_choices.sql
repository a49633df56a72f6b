-- The options that were chosen, in answers that stand today (MULTIPLECHOICE, MULTIPLESELECT).
--
-- One row: one chosen option of one answer.
-- Left out: those of answers that are deleted or have vanished at the service. Times are UTC.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question; with response_group_uid the answer, as in current_responses.
--   survey_id: The survey.
--   created_at: When the answer was given.
--   choice_ordinal: Place among the chosen options, from 1.
--   selected_index: Index of the option as sent; NULL when none was.
--   label: Wording of the option; NULL when only indexes could be read.
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at,
    part.choice_ordinal, part.selected_index, part.label
FROM response_choices AS part
ANTI JOIN (
    SELECT response_group_uid, question_id FROM responses WHERE deleted_at IS NOT NULL OR _vanished_at IS NOT NULL
) AS gone ON part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id
