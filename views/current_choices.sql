-- The chosen options of current answers (MULTIPLECHOICE, MULTIPLESELECT).
--
-- One row: one chosen option of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service. Times are UTC.
-- The label that the answer itself carries comes first, also from each element of a list, with or without indexes. If
-- the service sent only indexes, or one text for several indexes, the label is that of the option in the version that
-- the answer was given to (see answer_versions), provided that it is proven whether indexes of the question begin with
-- 0 or 1: by other answers with label and index, by an index 0, or by an index equal to the number of options. Else it
-- is the label that other answers to the same version have for that index, if all agree. Else it is not known.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question; with response_group_uid the answer, as in current_responses.
--   survey_id: The survey; NULL when the answer names none.
--   created_at: When the answer was given.
--   choice_ordinal: Position among the chosen options, from 1.
--   selected_index: Index of the option as sent; NULL when none was sent.
--   label: Wording of the option; NULL when only an index is known.
--   label_source: Source of the label: the answer itself, the survey's options, or other answers; NULL when the label
--     is not known.
--   version: The version of the question that the answer was given to; NULL for a question that no scan of surveys saw.
-- Only where an answer to the question has an index and no label.
WITH reported AS (
    SELECT
        survey_id, question_id, version, selected_index,
        CASE WHEN min(label) = max(label) THEN min(label) END AS label
    FROM (
        SELECT
            survey_id, question_id, version, unnest(chosen_labels) AS label, unnest(chosen_indexes) AS selected_index
        FROM answer_versions
        WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND chosen_indexes IS NOT NULL
    )
    GROUP BY survey_id, question_id, version, selected_index
    QUALIFY bool_or(count(label) < count(*)) OVER (PARTITION BY survey_id, question_id)
),
-- Evidence for the index of the first option: options that are sent with their index, and the ends of the range.
signs AS (
    SELECT
        reported.survey_id, reported.question_id, reported.version, reported.selected_index, reported.label,
        defined.option_labels AS labels,
        reported.selected_index - nullif(list_position(defined.option_labels, reported.label), 0) + 1 AS sign,
        min(reported.selected_index) OVER version_of AS lowest,
        max(reported.selected_index) OVER version_of AS highest
    FROM reported
    LEFT JOIN question_versions AS defined
        ON defined.survey_id = reported.survey_id AND defined.question_id = reported.question_id
        AND defined.version = reported.version
    WINDOW version_of AS (PARTITION BY reported.survey_id, reported.question_id, reported.version)
),
ranged AS (
    SELECT
        *, CASE
            WHEN lowest = 0 AND highest < len(labels) THEN 0
            WHEN lowest > 0 AND highest = len(labels) THEN 1
        END AS range_sign
    FROM signs
),
weighed AS (
    SELECT
        *, least(min(range_sign) OVER question, min(sign) OVER question) AS least_sign,
        greatest(max(range_sign) OVER question, max(sign) OVER question) AS greatest_sign
    FROM ranged
    WINDOW question AS (PARTITION BY survey_id, question_id)
),
named AS (
    SELECT
        survey_id, question_id, version, selected_index, label,
        CASE
            WHEN least_sign = greatest_sign AND least_sign IN (0, 1) AND selected_index >= least_sign
                THEN labels[selected_index - least_sign + 1]
        END AS option_label
    FROM weighed
)
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at, part.choice_ordinal, part.selected_index,
    coalesce(part.label, named.option_label, named.label) AS label,
    CASE
        WHEN part.label IS NOT NULL THEN 'answer'
        WHEN named.option_label IS NOT NULL THEN 'options'
        WHEN named.label IS NOT NULL THEN 'other answers'
    END AS label_source,
    part.version
FROM (
    SELECT
        response_group_uid, question_id, survey_id, version, created_at,
        unnest(chosen_labels) AS label, unnest(chosen_indexes) AS selected_index,
        unnest(range(1, coalesce(len(chosen_labels), len(chosen_indexes)) + 1)) AS choice_ordinal
    FROM answer_versions
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND NOT is_skipped
) AS part
LEFT JOIN named
    ON named.survey_id = part.survey_id AND named.question_id = part.question_id
    AND named.version IS NOT DISTINCT FROM part.version
    AND named.selected_index = CASE WHEN part.label IS NULL THEN part.selected_index END
