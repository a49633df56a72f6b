-- Answers by the version of their question, so that a change of wording is not taken for a change of mind.
SELECT version.survey_id, version.question_id, version.version, version.question_text, count(*) AS answers
FROM {{ source('studysync', 'question_versions') }} AS version
JOIN {{ source('studysync', 'response_question_versions') }} AS shown
    ON shown.survey_id = version.survey_id AND shown.question_id = version.question_id AND shown.version = version.version
GROUP BY version.survey_id, version.question_id, version.version, version.question_text
