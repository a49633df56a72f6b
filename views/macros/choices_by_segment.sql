-- Which options were chosen by segment, as a share of those who answered (MULTIPLECHOICE, MULTIPLESELECT).
--
-- Call it as a table: FROM choices_by_segment('language'), or FROM choices_by_segment('url_path', answers_min := 30).
-- One row: one option of one question in one segment. Options that nobody in the segment chose have no row.
-- Left out: skipped answers, answers that are deleted or have vanished.
-- An option that one answer names twice counts once. Segments with fewer answers than answers_min are left out.
--
-- Parameters:
--   segment: How to divide the answers into segments; see answer_segments.
--   answers_min := 5: Minimum answers of a segment; smaller segments have no row.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   segment_value: The segment; NULL when it is not known.
--   label: Wording of the option, as in choice_share.
--   selected_index: Index of the option as sent; only if its label is not known.
--   chosen: Answers that chose it.
--   answered: Answers to the question in the segment.
--   share: chosen as a share of answered, 0 to 1.
--   standard_error: Standard error of share.
WITH cut AS (
    FROM answer_segments(segment)
),
answered AS (
    SELECT answer.survey_id, answer.question_id, cut.segment_value, count(*) AS answered
    FROM current_responses AS answer
    JOIN cut ON cut.response_group_uid = answer.response_group_uid AND cut.question_id = answer.question_id
    WHERE answer.question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND NOT answer.is_skipped
    GROUP BY ALL
    HAVING count(*) >= answers_min
),
chosen AS (
    SELECT
        choice.survey_id, choice.question_id, cut.segment_value, choice.label,
        CASE WHEN choice.label IS NULL THEN choice.selected_index END AS selected_index,
        count(DISTINCT choice.response_group_uid) AS chosen
    FROM current_choices AS choice
    JOIN cut ON cut.response_group_uid = choice.response_group_uid AND cut.question_id = choice.question_id
    GROUP BY ALL
)
SELECT
    chosen.survey_id, chosen.question_id, survey.name AS survey_name, chosen.segment_value, chosen.label,
    chosen.selected_index, chosen.chosen, answered.answered,
    chosen.chosen / answered.answered AS share,
    sqrt((chosen.chosen / answered.answered) * (1 - chosen.chosen / answered.answered) / answered.answered) AS standard_error
FROM chosen
JOIN answered
    ON answered.survey_id IS NOT DISTINCT FROM chosen.survey_id AND answered.question_id = chosen.question_id
    AND answered.segment_value IS NOT DISTINCT FROM chosen.segment_value
LEFT JOIN surveys AS survey ON survey.id = chosen.survey_id
