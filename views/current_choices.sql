-- The chosen options of current answers (MULTIPLECHOICE, MULTIPLESELECT).
--
-- One row: one chosen option of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service. Times are UTC.
-- If the service sent only indexes, or one text for several indexes, the label is that of the survey's option, provided that it is
-- proven whether indexes begin with 0 or 1: by other answers with label and index, by an index 0, or by an index equal to the number
-- of options. Else it is the label that other answers to the question have for that index, if all agree. Else it is not known.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question; with response_group_uid the answer, as in current_responses.
--   survey_id: The survey.
--   created_at: When the answer was given.
--   choice_ordinal: Position among the chosen options, from 1.
--   selected_index: Index of the option as sent; NULL when none was sent.
--   label: Wording of the option; NULL when only an index is known.
--   label_source: Source of the label: the answer itself, the survey's options, or other answers; NULL when the label is not known.
WITH listed AS (
    SELECT survey_id, question_id, list(label ORDER BY option_ordinal) AS labels
    FROM (
        SELECT survey_id, question_id, option_ordinal, arg_min(label, question_ordinal) AS label
        FROM survey_question_options
        WHERE question_id IS NOT NULL
        GROUP BY survey_id, question_id, option_ordinal
    )
    GROUP BY survey_id, question_id
),
reported AS (
    SELECT
        survey_id, question_id, selected_index,
        CASE WHEN min(label) = max(label) THEN min(label) END AS label
    FROM response_choices
    WHERE selected_index IS NOT NULL
    GROUP BY survey_id, question_id, selected_index
),
-- Evidence for the index of the first option: options that are sent with their index, and the ends of the range.
signs AS (
    SELECT
        reported.survey_id, reported.question_id, reported.selected_index, reported.label, listed.labels,
        reported.selected_index - nullif(list_position(listed.labels, reported.label), 0) + 1 AS sign,
        min(reported.selected_index) OVER question AS lowest,
        max(reported.selected_index) OVER question AS highest
    FROM reported
    LEFT JOIN listed ON listed.survey_id = reported.survey_id AND listed.question_id = reported.question_id
    WINDOW question AS (PARTITION BY reported.survey_id, reported.question_id)
),
weighed AS (
    SELECT
        survey_id, question_id, selected_index, label, labels,
        CASE
            WHEN lowest = 0 AND highest < len(labels) THEN 0
            WHEN lowest > 0 AND highest = len(labels) THEN 1
        END AS range_sign,
        least(range_sign, min(sign) OVER question) AS least_sign,
        greatest(range_sign, max(sign) OVER question) AS greatest_sign
    FROM signs
    WINDOW question AS (PARTITION BY survey_id, question_id)
),
named AS (
    SELECT
        survey_id, question_id, selected_index, label,
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
    END AS label_source
FROM response_choices AS part
ANTI JOIN (
    SELECT response_group_uid, question_id FROM responses WHERE deleted_at IS NOT NULL OR _vanished_at IS NOT NULL
) AS gone ON part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id
LEFT JOIN named
    ON named.survey_id = part.survey_id AND named.question_id = part.question_id
        AND named.selected_index = part.selected_index
