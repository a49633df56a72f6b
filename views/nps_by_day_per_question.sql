-- NPS by day, for each question.
--
-- One row: one day of one question of one survey. A day without answers has no row; the current day has the answers so
-- far. Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have
-- vanished. Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s
-- / sqrt(responses), where s is the sample standard deviation of these values. With few answers, or answers of one kind
-- only, it is too small to be reliable.
--
-- Columns:
--   day: The day, in the report time zone.
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   responses: Answers that count.
--   promoters: Those with 9 or 10.
--   passives: Those with 7 or 8.
--   detractors: Those with 0 to 6.
--   nps: 100 * (promoters - detractors) / responses: -100 to 100.
--   standard_error: Standard error of nps, in its unit; NULL for a single answer.
--   nps_low: Lower end of the 95 % band, nps - 1.96 * standard_error, not below -100; NULL for a single answer.
--   nps_high: Upper end of the 95 % band, not above 100; NULL for a single answer.
WITH tallied AS (
    SELECT day, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM nps_answers
    GROUP BY day, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        day, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY day, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY day IS NOT NULL
)
SELECT
    scored.day, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id
