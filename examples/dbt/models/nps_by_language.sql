-- NPS by month and language of the browser: a cut that the views do not have, from their building blocks.
SELECT
    score.month, answer.meta_language AS language, count(*) AS responses,
    100.0 * (count(*) FILTER (WHERE score.score >= 9) - count(*) FILTER (WHERE score.score <= 6)) / count(*) AS nps
FROM {{ source('studysync', 'nps_answers') }} AS score
JOIN {{ source('studysync', 'current_responses') }} AS answer
    ON answer.response_group_uid = score.response_group_uid AND answer.question_id = score.question_id
GROUP BY score.month, answer.meta_language
