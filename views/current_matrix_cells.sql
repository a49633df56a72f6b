-- The rows of current matrix answers (MATRIX).
--
-- One row: one row of the matrix of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service. Times are UTC.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question; with response_group_uid the answer, as in current_responses.
--   survey_id: The survey; NULL when the answer names none.
--   created_at: When the answer was given.
--   row_label: Label of the row.
--   row_ordinal: Position of the row as sent, from 1.
--   column_label: Label of the chosen column; NULL when the row was skipped.
--   column_number: The integer at the start of the column label; NULL when there is none.
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at,
    part.row_label, part.row_ordinal, part.column_label, part.column_number
FROM response_matrix_cells AS part
ANTI JOIN (
    SELECT response_group_uid, question_id FROM responses WHERE deleted_at IS NOT NULL OR _vanished_at IS NOT NULL
) AS gone ON part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id
