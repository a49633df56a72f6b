-- The answers that stand today.
--
-- One row: one answered (or skipped) question of one session; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service, and the columns with which the program keeps its books.
-- An empty external_user_id or partner_anonymous_id reads as NULL. Times are UTC.
--
-- Columns:
--   response_group_uid: The session; answers that one visitor gave together share it.
--   question_id: The question.
--   survey_id: The survey; NULL when the service sent none.
--   visitor_id: The visitor, as the service numbers them.
--   visitor_uuid: The visitor, as webhooks and snapshots name them.
--   external_user_id: Your own id of the visitor; NULL when there is none.
--   partner_anonymous_id: Id given by a partner integration; NULL when there is none.
--   question_type: NPS, LIKERT, OPEN, MULTIPLECHOICE, MULTIPLESELECT, MATRIX, RANKORDER, MAXDIFF, VIDEOVOICE, CONSENTLEGAL,
--     TEXTURLPROMPT, or one that is newer than this program.
--   question_text: The wording that was shown.
--   created_at: When the answer was given.
--   updated_at: When the service says that it last changed; edits do not always move it.
--   answer_text: The answer as text, where it is one.
--   answer_number: The answer as a number: NPS, LIKERT, and any other that is a bare number.
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
--   meta_extra: JSON of what else was sent under meta.
--   custom_metadata: customMetadata of link studies, JSON as sent.
--   extra: JSON of the fields that have no column.
--   _first_seen_at: When a scan first found the answer.
--   _synced_at: When the scan began that wrote it as it stands.
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
