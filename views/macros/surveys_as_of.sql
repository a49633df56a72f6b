-- The surveys as the warehouse knew them at a moment.
--
-- Call it as a table: FROM surveys_as_of(TIMESTAMP '2026-04-01 00:00:00'). The moment is UTC.
-- One row: one survey; key id.
-- Left out: surveys that no scan had found by then, or that had vanished.
--
-- Parameters:
--   moment: A moment, UTC.
--
-- Columns:
--   id: The survey.
--   survey_id: The survey, as id: for USING (survey_id).
--   name: Name.
--   platform: How the survey is delivered.
--   type: Kind.
--   status: NEW, DRAFT, IN_PROGRESS, PAUSED, COMPLETED or ARCHIVED.
--   created_at: When it was created.
--   updated_at: When the service last changed the survey, as it reports.
--   launched_at: When it was launched.
--   completed_at: When it was completed.
--   total_response_limit: Number of responses after which the survey ends; NULL without a limit.
--   valid_from: Start of the scan that first saw this version.
--   valid_to: Start of the scan that saw the next version; NULL for the current version.
SELECT
    id, survey_id, name, platform, type, status, created_at, updated_at, launched_at, completed_at,
    total_response_limit, valid_from, valid_to
FROM survey_history
WHERE valid_from <= moment::TIMESTAMP AND (valid_to IS NULL OR valid_to > moment::TIMESTAMP)
