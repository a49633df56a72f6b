-- How scales were answered: the distribution of every LIKERT question.
--
-- One row: one value of one question of one survey. Values that nobody chose have no row.
-- Left out: skipped answers, values that are not whole or lie outside the scale, answers that are deleted or have vanished.
--
-- Columns:
--   survey_id: The survey.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The wording of today; of a question that no survey defines, the latest that was shown.
--   value: The answer.
--   answers: Answers with this value.
--   share: answers as a share of all answers within the scale, 0 to 1.
--   scale_min: Lowest value of the scale.
--   scale_max: Highest value of the scale.
--   scale_source: Where the scale is known from: options or properties of the question, or observed: from the least to the
--     greatest whole number of 0 to 10 among the answers.
WITH counted AS (
    SELECT
        survey_id, question_id, try_cast(answer_number AS BIGINT) AS value, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown
    FROM current_responses
    WHERE question_type = 'LIKERT' AND answer_number = floor(answer_number)
    GROUP BY survey_id, question_id, value
),
scaled AS (
    SELECT
        counted.survey_id, counted.question_id, question.survey_name, counted.value, counted.answers,
        coalesce(question.question_text, (max(shown) OVER every).text) AS question_text,
        coalesce(question.scale_min, min(value) FILTER (value BETWEEN 0 AND 10) OVER every) AS scale_min,
        coalesce(question.scale_max, max(value) FILTER (value BETWEEN 0 AND 10) OVER every) AS scale_max,
        coalesce(question.scale_source, 'observed') AS scale_source
    FROM counted
    LEFT JOIN questions AS question
        ON question.survey_id = counted.survey_id AND question.question_id = counted.question_id
    WINDOW every AS (PARTITION BY counted.survey_id, counted.question_id)
)
SELECT
    survey_id, question_id, survey_name, question_text, value, answers,
    answers / sum(answers) OVER (PARTITION BY survey_id, question_id) AS share,
    scale_min, scale_max, scale_source
FROM scaled
WHERE value BETWEEN scale_min AND scale_max
