-- The questions of the current definition of every survey, with the scale that the definition gives a LIKERT question.
--
-- One row: one question of one survey. A survey that names a question twice has one row for it, by the first.
-- Left out: questions that are only known from answers, and definitions without an id.
-- The scale is that of the last version: see question_scales.
--
-- Columns:
--   survey_id: The survey.
--   question_id: The question.
--   survey_name: Name of the survey; also of a survey that vanished at the service.
--   question_ordinal: Position in the survey, from 1.
--   question_type: NPS, LIKERT, OPEN and so on.
--   question_text: The current wording.
--   left_label: Label of the left end of the scale, or of the left choice.
--   right_label: Label of the right end of the scale, or of the right choice.
--   scale_min: LIKERT: lowest value of the scale; NULL when the definition does not contain it.
--   scale_max: LIKERT: highest value of the scale; NULL when the definition does not contain it.
--   scale_source: LIKERT: options or properties; NULL when the definition does not contain it.
WITH last_versions AS (
    SELECT survey_id, question_id, max(version) AS version FROM question_versions GROUP BY survey_id, question_id
)
SELECT
    question.survey_id, question.question_id, survey.name AS survey_name, question.question_ordinal,
    question.question_type, question.question_text, question.left_label, question.right_label,
    scale.scale_min, scale.scale_max, scale.scale_source
FROM current_questions AS question
LEFT JOIN surveys AS survey ON survey.id = question.survey_id
LEFT JOIN last_versions
    ON last_versions.survey_id = question.survey_id AND last_versions.question_id = question.question_id
LEFT JOIN question_scales AS scale
    ON scale.survey_id = question.survey_id AND scale.question_id = question.question_id
    AND scale.version = last_versions.version
