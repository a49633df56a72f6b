-- The answers as the warehouse knew them at a moment: the data of a report that was made then.
--
-- Call it as a table: FROM responses_as_of(TIMESTAMP '2026-04-01 00:00:00'). The moment is UTC.
-- One row: one answer that was current at the moment; key (response_group_uid, question_id). Columns as in current_responses.
-- Left out: answers that no scan had found by then, and those that were known to be deleted or to have vanished.
-- The time of the scan counts: an answer given before the moment and first found after it has no row, and people
-- who were erased since have no rows. An answer that only gained optional columns since then shows them.
--
-- Parameters:
--   moment: A moment, UTC.
--
-- Columns:
--   response_group_uid: The session; answers that one visitor gave together share it.
--   question_id: The question.
--   survey_id: The survey; NULL when the service sent none.
--   visitor_id: The service's number of the visitor.
--   visitor_uuid: The visitor's id in webhooks and snapshots.
--   external_user_id: Your own id of the visitor; NULL when there is none.
--   partner_anonymous_id: Id given by a partner integration; NULL when there is none.
--   question_type: NPS, LIKERT, OPEN, MULTIPLECHOICE, MULTIPLESELECT, MATRIX, RANKORDER, MAXDIFF, VIDEOVOICE, CONSENTLEGAL,
--     TEXTURLPROMPT, or a type that this program does not know.
--   question_text: The wording that was shown.
--   created_at: When the answer was given.
--   updated_at: When the service last changed the answer, as it reports; not every edit changes this time.
--   answer_text: The answer as text; NULL for other answers.
--   answer_number: The answer as a number: NPS, LIKERT, and any other answer that is a bare number.
--   answer_bool: The answer as yes or no: CONSENTLEGAL.
--   answer_json: The answer exactly as sent.
--   is_skipped: Whether the question was shown and not answered.
--   selected_indexes: Indexes of the chosen options, as sent.
--   url: Page on which the survey was shown.
--   meta_browser: Browser.
--   meta_os: Operating system.
--   meta_language: Language of the browser.
--   meta_href: Address of the page.
--   meta_user_agent: User agent.
--   meta_client_width: Width of the window, pixels.
--   meta_client_height: Height of the window, pixels.
--   meta_screen_width: Width of the screen, pixels.
--   meta_screen_height: Height of the screen, pixels.
--   meta_extra: JSON of the other fields of meta.
--   custom_metadata: customMetadata of link studies, JSON as sent.
--   extra: JSON of the fields that have no column.
SELECT
    response_group_uid, question_id, survey_id, visitor_id, visitor_uuid, external_user_id, partner_anonymous_id,
    question_type, question_text, created_at, updated_at, answer_text, answer_number, answer_bool, answer_json, is_skipped,
    selected_indexes, url, meta_browser, meta_os, meta_language, meta_href, meta_user_agent, meta_client_width,
    meta_client_height, meta_screen_width, meta_screen_height, meta_extra, custom_metadata, extra
FROM response_versions
WHERE deleted_at IS NULL AND valid_from <= moment::TIMESTAMP AND (valid_to IS NULL OR valid_to > moment::TIMESTAMP)
