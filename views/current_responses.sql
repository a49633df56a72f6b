-- The current answers.
--
-- One row: one answered (or skipped) question of one session; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service, and internal columns.
-- An empty external_user_id or partner_anonymous_id reads as NULL. Times are UTC.
--
-- Columns:
--   response_group_uid: The session; answers that one visitor gave together share it.
--   question_id: The question.
--   survey_id: The survey; NULL when the answer names none.
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
--   _first_seen_at: Start of the scan that first found the answer.
--   _synced_at: Start of the scan that wrote the current version.
SELECT
    response_group_uid, question_id, survey_id, visitor_id, visitor_uuid,
    nullif(external_user_id, '') AS external_user_id,
    nullif(partner_anonymous_id, '') AS partner_anonymous_id,
    question_type, question_text, created_at, updated_at,
    answer_text, answer_number, answer_bool, answer_json, is_skipped, selected_indexes,
    url, meta_browser, meta_os, meta_language, meta_href, meta_user_agent,
    meta_client_width, meta_client_height, meta_screen_width, meta_screen_height, meta_extra,
    custom_metadata, extra, _first_seen_at, _synced_at
FROM responses
WHERE deleted_at IS NULL AND _vanished_at IS NULL
