-- Which version of its question each answer was given to: the rule for all views that judge an answer by its question.
--
-- One row: one current answer; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service. Answers that name no survey have no version.
-- The wording that came with the answer decides: of the versions with this wording, the one that was current when
-- the answer was given. If no version has the wording, the time alone decides. An answer from before the first version
-- belongs to the first version.
-- A scan sees a change some time after it was made. So an answer with an option or value that only the next version
-- has belongs to the next version. This is known of LIKERT, MULTIPLECHOICE and MULTIPLESELECT.
-- The same rule finds the set of questions that a session was shown, by the questions that it answered: see
-- session_stages.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question.
--   survey_id: The survey; NULL when the answer names none.
--   version: The version; question_versions.version. NULL for a question that no scan of surveys saw.
--   is_wording_shown: Whether the version has the wording that came with the answer.
--   question_type: The type, as in current_responses.
--   question_text: The wording that was shown.
--   created_at: When the answer was given.
--   is_skipped: Whether the question was shown and not answered.
--   answer_number: The answer as a number: NPS, LIKERT, and any other answer that is a bare number.
--   chosen_labels: The options that the answer itself names (MULTIPLECHOICE, MULTIPLESELECT); NULL when it only has
--     indexes.
--   chosen_indexes: Their indexes as sent, in the same order; NULL when the answer has none, or has another number of
--     indexes than of options.
--   scale_min: LIKERT: lowest value of the version's scale; NULL when the definition does not contain it. See
--     question_scales.
--   scale_max: LIKERT: highest value of the version's scale; NULL when the definition does not contain it.
--   scale_source: LIKERT: options or properties; NULL when the definition does not contain a scale.
--   not_rated_values: LIKERT: values of the options of the version that are no points.
WITH answers AS (
    SELECT
        response_group_uid, question_id, survey_id, question_type, question_text, created_at, is_skipped, answer_number,
        CASE
            WHEN NOT is_skipped AND answer_text IS NOT NULL AND question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT')
                THEN selected_indexes
        END AS selected_indexes,
        CASE
            WHEN is_skipped OR answer_text IS NULL THEN NULL
            WHEN question_type = 'MULTIPLECHOICE' THEN [answer_text]
            WHEN question_type IS DISTINCT FROM 'MULTIPLESELECT' THEN NULL
            WHEN starts_with(ltrim(answer_text), '[') AND json_valid(answer_text) THEN json_extract_string(answer_text, '$[*]')
            -- One text beside several indexes names several options, or one of them.
            WHEN len(selected_indexes) > 1 THEN NULL
            ELSE [answer_text]
        END AS chosen_labels
    FROM current_responses
),
defined AS (
    SELECT
        version.survey_id, version.question_id, version.version, version.question_text, version.option_labels,
        coalesce(version.shown_from, TIMESTAMP '0001-01-01 00:00:00') AS timed_from,
        scale.scale_min, scale.scale_max, scale.scale_source, scale.not_rated_values,
        list_concat(range(scale.scale_min, scale.scale_max + 1), scale.not_rated_values) AS scale_values,
        count(*) OVER question > 1 AS has_changed
    FROM question_versions AS version
    LEFT JOIN question_scales AS scale
        ON scale.survey_id = version.survey_id AND scale.question_id = version.question_id
        AND scale.version = version.version
    WINDOW question AS (PARTITION BY version.survey_id, version.question_id)
),
-- For each wording of a question that has changed, and without one (NULL) for all other answers: which version was shown when, and what
-- the next one has that this one has not.
spans AS (
    SELECT
        survey_id, question_id, wording, version,
        CASE WHEN row_number() OVER worded = 1 THEN TIMESTAMP '0001-01-01 00:00:00' ELSE timed_from END AS begins,
        coalesce(lead(timed_from) OVER worded, TIMESTAMP '9999-12-31 23:59:59.999999') AS ends,
        lead(version) OVER worded AS next_version,
        [label FOR label IN lead(option_labels) OVER worded IF NOT list_contains(coalesce(option_labels, []), label)] AS new_labels,
        CASE WHEN scale_source IS NOT NULL THEN
            [value::DOUBLE FOR value IN lead(scale_values) OVER worded IF NOT list_contains(scale_values, value)]
        END AS new_values,
        coalesce(len(option_labels), 0) AS options,
        len(lead(option_labels) OVER worded) AS next_options,
        question_text, scale_min, scale_max, scale_source, not_rated_values,
        lead(scale_min) OVER worded AS next_min, lead(scale_max) OVER worded AS next_max,
        lead(scale_source) OVER worded AS next_source, lead(not_rated_values) OVER worded AS next_not_rated
    FROM (
        SELECT *, NULL AS wording FROM defined
        UNION ALL
        SELECT *, question_text FROM defined WHERE has_changed AND question_text IS NOT NULL
    )
    WINDOW worded AS (PARTITION BY survey_id, question_id, wording ORDER BY version)
),
wordings AS (
    SELECT survey_id, question_id, list(DISTINCT wording) AS wordings
    FROM spans
    WHERE wording IS NOT NULL
    GROUP BY survey_id, question_id
),
placed AS (
    SELECT
        answer.*, span.* EXCLUDE (survey_id, question_id, question_text),
        coalesce(span.question_text = answer.question_text, false) AS is_wording_shown,
        CASE
            WHEN span.next_version IS NULL THEN false
            WHEN answer.question_type = 'LIKERT' THEN list_contains(span.new_values, answer.answer_number)
            WHEN answer.question_type NOT IN ('MULTIPLECHOICE', 'MULTIPLESELECT') THEN false
            WHEN answer.chosen_labels IS NULL THEN
                list_max(answer.selected_indexes) BETWEEN span.options + 1 AND span.next_options
            ELSE list_has_any(answer.chosen_labels, span.new_labels)
        END AS is_next
    FROM answers AS answer
    LEFT JOIN wordings ON wordings.survey_id = answer.survey_id AND wordings.question_id = answer.question_id
    LEFT JOIN spans AS span
        ON span.survey_id = answer.survey_id AND span.question_id = answer.question_id
        AND span.wording IS NOT DISTINCT FROM
            CASE WHEN list_contains(wordings.wordings, answer.question_text) THEN answer.question_text END
        AND answer.created_at >= span.begins AND answer.created_at < span.ends
)
SELECT
    response_group_uid, question_id, survey_id,
    CASE WHEN is_next THEN next_version ELSE version END AS version,
    is_wording_shown, question_type, question_text, created_at, is_skipped, answer_number, chosen_labels,
    CASE WHEN chosen_labels IS NULL OR len(chosen_labels) = len(selected_indexes) THEN selected_indexes END AS chosen_indexes,
    CASE WHEN is_next THEN next_min ELSE scale_min END AS scale_min,
    CASE WHEN is_next THEN next_max ELSE scale_max END AS scale_max,
    CASE WHEN is_next THEN next_source ELSE scale_source END AS scale_source,
    CASE WHEN is_next THEN next_not_rated ELSE not_rated_values END AS not_rated_values
FROM placed
