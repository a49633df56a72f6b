-- Mean and top-two box of every LIKERT question by segment.
--
-- Call it as a table: FROM likert_by_segment('os'), or FROM likert_by_segment('metadata:campaign', answers_min := 30).
-- One row: one segment of one question of one survey. Order by survey_id, question_id, answers DESC. Left out: skipped
-- answers, values that are not whole, outside the scale or not rated (see likert_values), answers that are deleted or
-- have vanished.
-- Each answer is held against the scale of the version that it was given to, as in likert_top_two. A segment with fewer
-- answers than answers_min has its count and no figure.
--
-- Parameters:
--   segment: How to divide the answers into segments; see answer_segments.
--   answers_min := 5: Minimum answers of a segment; smaller segments have no figures.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   segment_value: The segment; NULL when it is not known.
--   answers: Answers within the scale.
--   mean: Their mean; NULL in a small segment.
--   mean_standard_error: Standard error of the mean; NULL for a single answer and in a small segment.
--   top_two_share: Answers with one of the two highest values, as a share of those within a scale of three values or
--     more, 0 to 1; NULL for a scale of fewer values and in a small segment.
--   top_two_standard_error: Standard error of that share.
--   scale_min: Lowest value of the scale.
--   scale_max: Highest value of the scale.
--   not_rated: Answers that chose an option that is no point, such as N/A, or are no number; they are not in answers,
--     mean or share.
WITH valued AS (
    SELECT
        answer.survey_id, answer.question_id, cut.segment_value, answer.answer_number AS value, held.kind, held.version,
        held.scale_min, held.scale_max, held.scale_max - held.scale_min >= 2 AS has_box
    FROM answer_versions AS answer
    JOIN likert_values AS held
        ON held.survey_id IS NOT DISTINCT FROM answer.survey_id AND held.question_id = answer.question_id
        AND held.version IS NOT DISTINCT FROM answer.version AND held.value IS NOT DISTINCT FROM answer.answer_number
    JOIN answer_segments(segment) AS cut
        ON cut.response_group_uid = answer.response_group_uid AND cut.question_id = answer.question_id
    WHERE answer.question_type = 'LIKERT' AND NOT answer.is_skipped AND held.kind <> 'outside'
),
counted AS (
    SELECT
        survey_id, question_id, segment_value, count(*) FILTER (kind = 'point') AS answers,
        sum(value) FILTER (kind = 'point') AS total, sum(value * value) FILTER (kind = 'point') AS squares,
        count(*) FILTER (kind = 'point' AND has_box) AS boxed,
        count(*) FILTER (kind = 'point' AND has_box AND value >= scale_max - 1) AS top,
        count(*) FILTER (kind = 'not rated') AS not_rated
    FROM valued
    GROUP BY survey_id, question_id, segment_value
),
scales AS (
    SELECT
        survey_id, question_id,
        max({'version': coalesce(version, 0), 'min': scale_min, 'max': scale_max}) FILTER (kind = 'point') AS scale
    FROM likert_values
    GROUP BY survey_id, question_id
),
shown AS (
    SELECT
        *, CASE WHEN answers >= answers_min THEN answers END AS enough,
        CASE WHEN answers >= answers_min THEN nullif(boxed, 0) END AS enough_boxed
    FROM counted
)
SELECT
    shown.survey_id, shown.question_id, survey.name AS survey_name, shown.segment_value, shown.answers,
    total / enough AS mean,
    sqrt(greatest(squares - total ** 2 / enough, 0) / nullif(enough - 1, 0) / enough) AS mean_standard_error,
    top / enough_boxed AS top_two_share,
    sqrt((top / enough_boxed) * (1 - top / enough_boxed) / enough_boxed) AS top_two_standard_error,
    scales.scale.min AS scale_min, scales.scale.max AS scale_max, shown.not_rated
FROM shown
JOIN scales ON scales.survey_id IS NOT DISTINCT FROM shown.survey_id AND scales.question_id = shown.question_id
LEFT JOIN surveys AS survey ON survey.id = shown.survey_id
WHERE shown.answers > 0 OR shown.not_rated > 0
