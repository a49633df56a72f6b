-- Which version of its question each answer was given to, for answers to questions that scans of surveys saw.
--
-- One row: one current answer; key (response_group_uid, question_id). Joins answers to question_versions. The rule is
-- that of answer_versions. Left out: answers to questions that no scan of surveys saw, and those that are deleted or
-- have vanished.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question.
--   survey_id: The survey.
--   version: The version; question_versions.version.
--   is_wording_shown: Whether the version has the wording that came with the answer.
SELECT response_group_uid, question_id, survey_id, version, is_wording_shown
FROM answer_versions
WHERE version IS NOT NULL
