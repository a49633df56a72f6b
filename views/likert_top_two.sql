-- Top-two box and mean of every LIKERT question, against its own scale.
--
-- One row: one question of one survey that has an answer within its scale.
-- Left out: skipped answers, values that are not whole, outside the scale or not rated (see likert_values), answers
-- that are deleted or have vanished.
-- Each answer is held against the scale of the version that it was given to (see answer_versions). If versions have
-- different scales, the boxes are those of each answer's own scale, and the columns show the scale of the last version:
-- see likert_values for each version.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   answers: Answers within the scale.
--   mean: Their mean.
--   top_two: Answers with one of the two highest values of the scale; NULL for a scale of fewer than three values.
--   top_two_share: top_two as a share of boxed, 0 to 1.
--   bottom_two: Answers with one of the two lowest values of the scale; NULL for a scale of fewer than three values.
--   bottom_two_share: bottom_two as a share of boxed, 0 to 1.
--   scale_min: Lowest value of the scale.
--   scale_max: Highest value of the scale.
--   scale_source: Source of the scale: options or properties of the question, its answers (observed), or the shortest
--     usual scale that includes them (usual): see likert_values.
--   boxed: Answers within a scale of three values or more: all answers, unless versions have different scales.
--   not_rated: Answers that chose an option that is no point, such as N/A, or are no number; they are not in answers,
--     mean or any share.
WITH counted AS (
    SELECT
        survey_id, question_id,
        coalesce(sum(answers) FILTER (kind = 'point'), 0)::BIGINT AS answers,
        coalesce(sum(answers) FILTER (kind = 'not rated'), 0)::BIGINT AS not_rated,
        sum(value * answers) FILTER (kind = 'point')::DOUBLE AS total,
        (sum(answers) FILTER (kind = 'point' AND scale_max - scale_min >= 2))::BIGINT AS boxed,
        coalesce(sum(answers) FILTER (kind = 'point' AND scale_max - scale_min >= 2 AND value >= scale_max - 1), 0)::BIGINT AS top,
        coalesce(sum(answers) FILTER (kind = 'point' AND scale_max - scale_min >= 2 AND value <= scale_min + 1), 0)::BIGINT AS bottom,
        max({'version': coalesce(version, 0), 'min': scale_min, 'max': scale_max, 'source': scale_source})
            FILTER (kind = 'point') AS scale,
        max(last_question_text) AS last_text
    FROM likert_values
    GROUP BY survey_id, question_id
    HAVING count(*) FILTER (kind = 'point') > 0
)
SELECT
    counted.survey_id, counted.question_id, survey.name AS survey_name,
    coalesce(question.question_text, last_text) AS question_text,
    answers, total / answers AS mean,
    CASE WHEN boxed > 0 THEN top END AS top_two, top / boxed AS top_two_share,
    CASE WHEN boxed > 0 THEN bottom END AS bottom_two, bottom / boxed AS bottom_two_share,
    scale.min AS scale_min, scale.max AS scale_max, scale.source AS scale_source, boxed, not_rated
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = counted.survey_id AND question.question_id = counted.question_id
