-- The distribution of the answers to every LIKERT question.
--
-- One row: one value of one question of one survey. Values that nobody chose have no row.
-- Left out: skipped answers, values that are not whole, outside the scale or not rated (see likert_values), answers
-- that are deleted or have vanished.
-- Each answer is held against the scale of the version that it was given to (see answer_versions). If versions have
-- different scales, their answers are in one distribution, and the columns show the scale of the last version: see
-- likert_values for each version.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   value: The answer.
--   answers: Answers with this value.
--   share: answers as a share of all answers within the scale, 0 to 1.
--   scale_min: Lowest value of the scale.
--   scale_max: Highest value of the scale.
--   scale_source: Source of the scale: options or properties of the question; observed, if its answers reach from one
--     end of a usual scale to the other; else usual: see likert_values.
--   not_rated: Answers to the question that chose an option that is no point, such as N/A, or are no number; they are
--     not in any share.
WITH counted AS (
    SELECT
        survey_id, question_id, CASE WHEN kind = 'point' THEN value END AS value,
        (sum(answers) FILTER (kind = 'point'))::BIGINT AS answers,
        (sum(answers) FILTER (kind = 'not rated'))::BIGINT AS not_rated,
        max({'version': coalesce(version, 0), 'min': scale_min, 'max': scale_max, 'source': scale_source})
            FILTER (kind = 'point') AS scale,
        max(last_question_text) AS last_text
    FROM likert_values
    GROUP BY ALL
),
shared AS (
    SELECT
        survey_id, question_id, value, answers, answers / sum(answers) OVER question AS share,
        (coalesce(sum(not_rated) OVER question, 0))::BIGINT AS not_rated,
        max(scale) OVER question AS last_scale, max(last_text) OVER question AS last_text
    FROM counted
    WINDOW question AS (PARTITION BY survey_id, question_id)
    QUALIFY value IS NOT NULL
)
SELECT
    shared.survey_id, shared.question_id, survey.name AS survey_name,
    coalesce(question.question_text, last_text) AS question_text,
    value, answers, share, last_scale.min AS scale_min, last_scale.max AS scale_max, last_scale.source AS scale_source, not_rated
FROM shared
LEFT JOIN surveys AS survey ON survey.id = shared.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = shared.survey_id AND question.question_id = shared.question_id
