-- How options were ranked (RANKORDER).
--
-- One row: one option of one question of one survey that was ranked at least once.
-- Left out: options that an answer did not rank, ranks outside 1 to the number of its options, answers that are deleted
-- or have vanished.
--
-- Columns:
--   survey_id: The survey; NULL when the answers name none.
--   question_id: The question.
--   survey_name: Name of the survey; NULL when it is not known.
--   question_text: The current wording; for a question that no survey defines, the wording shown last.
--   option_label: Wording of the option.
--   answers: Answers that ranked it.
--   mean_rank: Mean of its ranks; 1 is the best.
--   first_places: Answers that ranked it first.
--   first_place_share: first_places as a share of answers, 0 to 1.
--   borda_points: Sum over the answers of the number of options in the answer minus the rank: a last place is worth
--     nothing.
--   borda_score: Mean of these points as a share of what a first place is worth, 0 (always last) to 1 (always first);
--     NULL where no answer had two options.
WITH sized AS (
    SELECT *, count(*) OVER (PARTITION BY survey_id, question_id, response_group_uid) AS options FROM current_ranks
),
-- Integers are summed first: the last digits of a sum of fractions would depend on the order of the rows.
counted AS (
    SELECT
        survey_id, question_id, option_label, options, count(*) AS answers, sum(rank)::BIGINT AS ranks,
        count(*) FILTER (rank = 1) AS first_places,
        sum(options - rank)::BIGINT AS points
    FROM sized
    WHERE rank BETWEEN 1 AND options
    GROUP BY survey_id, question_id, option_label, options
),
summed AS (
    SELECT
        survey_id, question_id, option_label, sum(answers)::BIGINT AS answers,
        sum(ranks)::BIGINT / sum(answers)::BIGINT AS mean_rank,
        sum(first_places)::BIGINT AS first_places,
        sum(points)::BIGINT AS borda_points,
        sum(points / (options - 1) ORDER BY options) FILTER (options > 1)
            / sum(answers) FILTER (options > 1) AS borda_score,
        NULL AS shown_answer
    FROM counted
    GROUP BY survey_id, question_id, option_label
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, NULL, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'RANKORDER'
    GROUP BY survey_id, question_id
),
named AS (
    SELECT
        * EXCLUDE (shown_answer), max(shown_answer) OVER (PARTITION BY survey_id, question_id) AS shown_answer
    FROM summed
    QUALIFY answers IS NOT NULL
)
SELECT
    named.survey_id, named.question_id, survey.name AS survey_name,
    coalesce(question.question_text, named.shown_answer.text) AS question_text, named.option_label,
    answers, mean_rank, first_places, first_places / answers AS first_place_share, borda_points, borda_score
FROM named
LEFT JOIN surveys AS survey ON survey.id = named.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = named.survey_id AND question.question_id = named.question_id
