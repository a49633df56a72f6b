-- Mean and top-two box of every LIKERT question by segment.
--
-- Call it as a table: FROM likert_by_segment('os'), or FROM likert_by_segment('metadata:campaign', answers_min := 30).
-- One row: one segment of one question of one survey. Order by survey_id, question_id, answers DESC.
-- Left out: skipped answers, values that are not whole or lie outside the scale (see likert_distribution), answers that are deleted or have
-- vanished. A segment with fewer answers than answers_min has its count and no figure.
--
-- Parameters:
--   segment: How to divide the answers into segments; see answer_segments.
--   answers_min := 5: Minimum answers of a segment; smaller segments have no figures.
--
-- Columns:
--   survey_id: The survey.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   segment_value: The segment; NULL when it is not known.
--   answers: Answers within the scale.
--   mean: Their mean; NULL in a small segment.
--   mean_standard_error: Standard error of the mean; NULL for a single answer and in a small segment.
--   top_two_share: Answers with one of the two highest values, as a share of answers, 0 to 1; NULL for a scale of fewer than three values
--     and in a small segment.
--   top_two_standard_error: Standard error of that share.
--   scale_min: Lowest value of the scale.
--   scale_max: Highest value of the scale.
WITH scaled AS (
    SELECT answer.survey_id, answer.question_id, cut.segment_value, answer.answer_number AS value, scale.scale_min, scale.scale_max
    FROM current_responses AS answer
    JOIN likert_top_two AS scale
        ON scale.survey_id = answer.survey_id AND scale.question_id = answer.question_id
    JOIN answer_segments(segment) AS cut
        ON cut.response_group_uid = answer.response_group_uid AND cut.question_id = answer.question_id
    WHERE answer.question_type = 'LIKERT' AND answer.answer_number = floor(answer.answer_number)
        AND answer.answer_number BETWEEN scale.scale_min AND scale.scale_max
),
counted AS (
    SELECT
        survey_id, question_id, segment_value, scale_min, scale_max, count(*) AS answers,
        sum(value) AS total, sum(value * value) AS squares,
        CASE WHEN scale_max - scale_min >= 2 THEN count(*) FILTER (value >= scale_max - 1) END AS top
    FROM scaled
    GROUP BY survey_id, question_id, segment_value, scale_min, scale_max
),
shown AS (
    SELECT *, CASE WHEN answers >= answers_min THEN answers END AS enough FROM counted
)
SELECT
    shown.survey_id, shown.question_id, survey.name AS survey_name, shown.segment_value, shown.answers,
    total / enough AS mean,
    sqrt(greatest(squares - total ** 2 / enough, 0) / nullif(enough - 1, 0) / enough) AS mean_standard_error,
    top / enough AS top_two_share,
    sqrt((top / enough) * (1 - top / enough) / enough) AS top_two_standard_error,
    shown.scale_min, shown.scale_max
FROM shown
LEFT JOIN surveys AS survey ON survey.id = shown.survey_id
