-- The views of studysync for DuckDB, over tables in an Iceberg catalog. Written by scripts/readers/dialects.py.
--
-- Run this in each session, after the catalog is attached: ATTACH 'WAREHOUSE' AS lake (TYPE iceberg, ...). If the namespace is not
-- studysync, replace it. Days, weeks and months are UTC.
-- DuckDB 1.5.5 estimates negative numbers of rows for some ranges; joins and unions of these would end with an internal error.
SET disabled_optimizers = 'statistics_propagation';

CREATE OR REPLACE VIEW erasures AS FROM lake.studysync.erasures;
CREATE OR REPLACE VIEW rejects AS FROM lake.studysync.rejects;
CREATE OR REPLACE VIEW response_choices AS FROM lake.studysync.response_choices;
CREATE OR REPLACE VIEW response_custom_metadata AS FROM lake.studysync.response_custom_metadata;
CREATE OR REPLACE VIEW response_history AS FROM lake.studysync.response_history;
CREATE OR REPLACE VIEW response_matrix_cells AS FROM lake.studysync.response_matrix_cells;
CREATE OR REPLACE VIEW response_maxdiff_items AS FROM lake.studysync.response_maxdiff_items;
CREATE OR REPLACE VIEW response_media AS FROM lake.studysync.response_media;
CREATE OR REPLACE VIEW response_ranks AS FROM lake.studysync.response_ranks;
CREATE OR REPLACE VIEW responses AS FROM lake.studysync.responses;
CREATE OR REPLACE VIEW survey_constraint_history AS FROM lake.studysync.survey_constraint_history;
CREATE OR REPLACE VIEW survey_constraints AS FROM lake.studysync.survey_constraints;
CREATE OR REPLACE VIEW survey_history AS FROM lake.studysync.survey_history;
CREATE OR REPLACE VIEW survey_question_history AS FROM lake.studysync.survey_question_history;
CREATE OR REPLACE VIEW survey_question_option_history AS FROM lake.studysync.survey_question_option_history;
CREATE OR REPLACE VIEW survey_question_options AS FROM lake.studysync.survey_question_options;
CREATE OR REPLACE VIEW survey_questions AS FROM lake.studysync.survey_questions;
CREATE OR REPLACE VIEW survey_status_changes AS FROM lake.studysync.survey_status_changes;
CREATE OR REPLACE VIEW surveys AS FROM lake.studysync.surveys;
CREATE OR REPLACE VIEW sync_runs AS FROM lake.studysync.sync_runs;
CREATE OR REPLACE VIEW sync_windows AS FROM lake.studysync.sync_windows;
CREATE OR REPLACE VIEW theme_history AS FROM lake.studysync.theme_history;
CREATE OR REPLACE VIEW themes AS FROM lake.studysync.themes;
CREATE OR REPLACE VIEW user_attributes AS FROM lake.studysync.user_attributes;
CREATE OR REPLACE VIEW user_events AS FROM lake.studysync.user_events;
CREATE OR REPLACE VIEW users AS FROM lake.studysync.users;
CREATE OR REPLACE VIEW visitor_snapshot_attributes AS FROM lake.studysync.visitor_snapshot_attributes;
CREATE OR REPLACE VIEW visitor_snapshot_history AS FROM lake.studysync.visitor_snapshot_history;
CREATE OR REPLACE VIEW visitor_snapshots AS FROM lake.studysync.visitor_snapshots;
CREATE OR REPLACE VIEW webhook_events AS FROM lake.studysync.webhook_events;
CREATE OR REPLACE VIEW webhook_questions AS FROM lake.studysync.webhook_questions;

-- The report time zone: how far its local time is ahead of UTC, from one change of the clock to the next.
-- One row: one offset; UTC has a single one.
-- Join it to a time, for days of your own: at >= coalesce(valid_from, at) AND at < coalesce(valid_to, TIMESTAMP 'infinity'), then at + to_seconds(offset_seconds) is the local time.
-- Days, weeks and months of the other views are of this zone: [warehouse] report_time_zone, or --time-zone.
-- Left out: changes of the clock before 1970 and from 2100.
-- Stored times stay UTC.
CREATE OR REPLACE VIEW time_zone_offsets AS
SELECT
    'UTC' AS time_zone, valid_from::TIMESTAMP AS valid_from, valid_to::TIMESTAMP AS valid_to,
    offset_seconds::BIGINT AS offset_seconds
FROM (VALUES
    (NULL, NULL, 0)
) AS offsets(valid_from, valid_to, offset_seconds);

-- The current answers.
-- One row: one answered (or skipped) question of one session; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service, and internal columns.
-- An empty external_user_id or partner_anonymous_id reads as NULL.
-- Times are UTC.
CREATE OR REPLACE VIEW current_responses AS
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
WHERE deleted_at IS NULL AND _vanished_at IS NULL;

-- The versions of every question: wording, options and position, in the order in which scans saw them.
-- One row: one version of one question of one survey; key (survey_id, question_id, version).
-- Left out: questions that no scan of surveys saw, and definitions without an id.
-- Times are UTC.
-- A scan sees a change some time after it was made, so shown_from and shown_until are only as exact as the interval between scans of surveys.
-- For the version that an answer was given to see answer_versions.
-- A survey that names a question twice: the first of them.
CREATE OR REPLACE VIEW question_versions AS
WITH defined AS (
    SELECT
        survey_id, question_id, question_ordinal, valid_from,
        coalesce(valid_to, TIMESTAMP '9999-12-31 23:59:59.999999') AS ends
    FROM survey_question_history
    WHERE question_id IS NOT NULL
),
-- Of definitions that stand at the same time the first counts; another counts from the end of the first.
candidates AS (
    SELECT *, valid_from AS begins FROM defined
    UNION ALL
    SELECT DISTINCT later.*, earlier.ends
    FROM defined AS later
    JOIN defined AS earlier
        ON earlier.survey_id = later.survey_id AND earlier.question_id = later.question_id
        AND earlier.question_ordinal < later.question_ordinal
        AND earlier.ends > later.valid_from AND earlier.ends < later.ends
),
numbered AS (
    SELECT
        candidate.*, row_number() OVER question AS version, lead(candidate.begins) OVER question AS shown_until
    FROM candidates AS candidate
    ANTI JOIN defined AS earlier
        ON earlier.survey_id = candidate.survey_id AND earlier.question_id = candidate.question_id
        AND earlier.question_ordinal < candidate.question_ordinal
        AND earlier.valid_from <= candidate.begins AND earlier.ends > candidate.begins
    WINDOW question AS (PARTITION BY candidate.survey_id, candidate.question_id ORDER BY candidate.begins)
),
labelled AS (
    SELECT
        question.survey_id, question.question_ordinal, question.valid_from,
        list(option.label ORDER BY option.option_ordinal) AS option_labels
    FROM survey_question_history AS question
    JOIN survey_question_option_history AS option
        ON option.survey_id = question.survey_id AND option.question_ordinal = question.question_ordinal
        AND option.valid_from <= question.valid_from
        AND coalesce(option.valid_to, TIMESTAMP '9999-12-31 23:59:59.999999') > question.valid_from
    GROUP BY question.survey_id, question.question_ordinal, question.valid_from
)
SELECT
    numbered.survey_id, numbered.question_id, version, numbered.question_ordinal, question_type, question_text, intro_text,
    left_label, right_label, options, options_properties, routing_options, begins AS valid_from,
    least(valid_to, shown_until) AS valid_to,
    CASE WHEN version > 1 THEN begins END AS shown_from, shown_until,
    least(valid_to, shown_until) IS NULL AS is_current,
    labelled.option_labels
FROM numbered
JOIN survey_question_history AS question
    ON question.survey_id = numbered.survey_id AND question.question_ordinal = numbered.question_ordinal
    AND question.valid_from = numbered.valid_from
LEFT JOIN labelled
    ON labelled.survey_id = numbered.survey_id AND labelled.question_ordinal = numbered.question_ordinal
    AND labelled.valid_from = numbered.valid_from;

-- The scale of every version of every LIKERT question whose definition has one.
-- One row: one version of one question of one survey; key (survey_id, question_id, version).
-- Left out: questions that no scan of surveys saw, and definitions without a scale: see likert_values for those.
-- The scale comes from the options, if there are two or more.
-- Else it is 1 to the property "range", if there is one.
-- Options at an end whose label is no point are not part of the scale: "N/A", "Not applicable", "Don't know", "Prefer not to say" and their like, also in other languages; abbreviations such as "k.
-- A."; a label without a number beside three or more points that are numbers.
-- The values of the points are the integers that their labels begin with, if these go up or down by 1.
-- Else they are the positions of the options, from 1: so it is for words, and for labels such as 18-24, 1-2 times or 5+ years.
CREATE OR REPLACE VIEW question_scales AS
WITH spelled AS (
    SELECT
        survey_id, question_id, version, option_labels AS labels,
        try_cast(regexp_extract(options_properties, '"range"\s*:\s*"?([0-9]{1,2})\s*["},]', 1) AS BIGINT) AS value_range,
        -- Without apostrophes, a number in front, and marks at the ends.
        [regexp_replace(replace(replace(lower(label), '''', ''), '’', ''), '^[^\pL\pN]*([0-9]+[^\pL\pN]+)?(.*?)[^\pL\pN]*$', '\2', 's')
            FOR label IN option_labels] AS words,
        [try_cast(regexp_extract(label, '^\s*([+-]?[0-9]{1,4})([^0-9]|$)', 1) AS BIGINT) FOR label IN option_labels]
            AS numbers,
        -- The beginning of a range (1-2, 1 to 2), of a fraction, or of "5+".
        [regexp_matches(label, '^\s*[+-]?[0-9]+([.,+]|\s*(-|–|—|−|~|〜|～|/|to|bis|à|a)\s*[+-]?[0-9]|\s*\+)')
            FOR label IN option_labels] AS are_spans
    FROM question_versions
    WHERE question_type = 'LIKERT'
),
phrased AS (
    SELECT
        *, [regexp_matches(lower(label), '^[\s(\[]*\pL{1,2}([./\\]\s*\pL{1,2}){1,3}[.)\]\s]*$') FOR label IN labels] AS are_short,
        [regexp_matches(word, '^((n ?[./\\]? ?a|na|nsp|unknown|undecided|unsure|(im |i am |am )?not sure|not relevant|none of (the above|these)|other)$|(n ?[./\\] ?a\b|(not|non|in)[ -]?applicable|(it |this )?(does ?nt|does not|did not|didnt) apply|(i |we )?(do not|dont|did not|didnt|cannot|can not|cant|could not|couldnt) (know|say|tell|judge|rate|answer|assess|evaluate|comment|remember|recall)|unable to |no (opinion|answer|response|comment|idea)\b|(i |id |i would |would )*(prefer|rather|choose|wish) (not|to not)\b|(i )?(decline|refuse)d? to )|(keine? (angaben?|antwort|meinung|aussage)|(ich )?wei(ß|ss) (ich |es )?nicht|(das )?kann ich nicht|nicht (zutreffend|anwendbar|relevant|beurteilbar)|entfällt|möchte ich nicht|sans (objet|opinion|avis|réponse)|non (applicable|concerné)|(je )?ne (sais|sait|se prononce) pas|ne sapplique pas|(je )?préfère ne pas|no (aplica|procede|corresponde|contesta|opina)|(yo )?no (lo )?s(é|abe)|prefiero no|sin (opinión|respuesta)|n[ãa]o (se aplica|aplicável|sei|sabe)|prefiro n[ãa]o|sem (opinião|resposta))|(non (applicabile|pertinente|saprei|si applica|so$)|preferisco non|nessuna opinione|niet van toepassing|weet (ik )?niet|geen (mening|antwoord)|(dat )?(zeg|wil) ik (liever )?niet|vet (ej|inte|ikke)|ved ikke|(ej|inte|ikke) (tillämpligt|aktuellt|aktuelt|relevant)|ingen (åsikt|mening)|(vil|ønsker|vill) (ikke|inte)|en osaa sanoa|en tiedä|ei koske|nie (dotyczy|wiem)|trudno powiedzieć|wolę nie|nevím|neviem|netýká se|nechci|bilmiyorum|fikrim yok|uygun değil|(söylemek|belirtmek) istemiyorum|nem (tudom|vonatkozik)|nu (știu|stiu|se aplică)|tidak (tahu|berlaku)|không (biết|áp dụng))|(не (знаю|применимо|хочу отвечать)|неприменимо|затрудняюсь|нет (мнения|ответа)|важко сказати|δεν (ξέρω|γνωρίζω)|(分|わ)から?ない|わかりません|該当(なし|しない)|答えたくない|回答しない|無回答|不(适用|適用|知道|清楚|愿|願)|[无無]意[见見]|해당 ?(사항 ?)?없음|모름|모르겠|잘 모르|لا (أعرف|ينطبق)|לא (יודע|רלוונטי)))') FOR word IN words] AS are_phrases
    FROM spelled
),
-- "Don't know" is a point beside "Know it well", and "-" is one beside "+".
told AS (
    SELECT
        *, array_to_string([words[place] FOR place IN range(1, len(labels) + 1) IF NOT are_phrases[place]], ' ') AS others,
        len([word FOR word IN words IF word = '']) AS marks
    FROM phrased
),
ends AS (
    SELECT
        *, [place FOR place IN range(1, len(labels) + 1) IF NOT coalesce(
            CASE
                WHEN words[place] = '' THEN marks = 1 AND regexp_matches(labels[place], '^\s*[-–—?./…]\s*$')
                WHEN are_phrases[place] THEN NOT coalesce(contains(others, nullif(regexp_extract(
                    words[place], '(sure|relevant|applicable|apply|know|opinion|answer|decide|remember|recall)', 1
                ), '')), false)
                ELSE are_short[place]
            END, false)] AS points
    FROM told
),
measured AS (
    SELECT
        *, list_min(points) AS first_point, list_max(points) AS last_point,
        [place FOR place IN range(list_min(points), list_max(points) + 1)
            IF numbers[place] IS NOT NULL AND NOT are_spans[place]] AS places
    FROM ends
),
shaped AS (
    SELECT
        *, list_min(places) AS first_number, list_max(places) AS last_number,
        list_min([numbers[place] FOR place IN places]) AS low, list_max([numbers[place] FOR place IN places]) AS high,
        len(list_distinct([numbers[place] - place FOR place IN places])) = 1 AS goes_up,
        len(list_distinct([numbers[place] + place FOR place IN places])) = 1 AS goes_down
    FROM measured
),
-- Words on one side of three or more numbers are no points, unless they stand for a number that is missing.
judged AS (
    SELECT
        *, len(places) >= 2 AND len(places) = last_number - first_number + 1 AND (goes_up OR goes_down) AND CASE
            WHEN first_number = first_point AND last_number = last_point THEN true
            WHEN len(places) < 3 OR (first_number > first_point AND last_number < last_point) THEN false
            WHEN len([place FOR place IN range(first_point, last_point + 1) IF (place < first_number OR place > last_number)
                AND regexp_matches(labels[place], '(?i)\pN|^\s*(no|none|never|nothing|zero|not at all)\b')]) > 0 THEN false
            WHEN (first_number > first_point) = goes_up THEN low <= 1
            ELSE true
        END AS is_counted
    FROM shaped
),
scaled AS (
    SELECT
        *, CASE WHEN is_counted THEN low ELSE first_point END AS lowest,
        CASE WHEN is_counted THEN high ELSE last_point END AS highest,
        CASE WHEN is_counted THEN first_number ELSE first_point END AS first_place,
        CASE WHEN is_counted THEN last_number ELSE last_point END AS last_place,
        CASE WHEN last_place >= first_place AND len(labels) >= 2 THEN 'options' WHEN value_range >= 2 THEN 'properties' END AS scale_source
    FROM judged
)
SELECT
    survey_id, question_id, version,
    CASE scale_source WHEN 'options' THEN lowest ELSE 1 END AS scale_min,
    CASE scale_source WHEN 'options' THEN highest ELSE value_range END AS scale_max,
    scale_source,
    -- An option that is no point is known by its own number, by its position, or by the next number of the sequence.
    CASE WHEN scale_source = 'options' THEN [value
        FOR value IN list_sort(list_distinct(flatten([
            [numbers[place], place, CASE
                WHEN is_counted AND goes_up THEN lowest + place - first_place
                WHEN is_counted THEN highest - (place - first_place)
            END]
            FOR place IN range(1, len(labels) + 1) IF place < first_place OR place > last_place
        ])))
        IF value < lowest OR value > highest
    ] END AS not_rated_values
FROM scaled
WHERE scale_source IS NOT NULL;

-- The versions of every survey's set of questions: which questions it had, in which order, from when until when.
-- One row: one version of one survey's set of questions; key (survey_id, set_version).
-- Left out: surveys that no scan saw, definitions without an id, and the time in which a survey had no questions.
-- Times are UTC.
-- A question that is reworded, or gets other options, makes no version.
-- A question that is named twice stands at its first position.
CREATE OR REPLACE VIEW survey_question_sets AS
WITH defined AS (
    SELECT
        survey_id, question_id, question_ordinal, valid_from, coalesce(valid_to, TIMESTAMP '9999-12-31 23:59:59.999999') AS ends
    FROM survey_question_history
    WHERE question_id IS NOT NULL
),
moments AS (
    SELECT survey_id, valid_from AS moment FROM defined
    UNION
    SELECT survey_id, ends FROM defined
),
placed AS (
    SELECT moments.survey_id, moments.moment, defined.question_id, min(defined.question_ordinal) AS question_ordinal
    FROM moments
    JOIN defined
        ON defined.survey_id = moments.survey_id AND defined.valid_from <= moments.moment AND defined.ends > moments.moment
    GROUP BY moments.survey_id, moments.moment, defined.question_id
),
sets AS (
    SELECT survey_id, moment, list(question_id ORDER BY question_ordinal) AS question_ids
    FROM placed
    GROUP BY survey_id, moment
),
begun AS (
    SELECT * FROM sets
    QUALIFY question_ids IS DISTINCT FROM lag(question_ids) OVER (PARTITION BY survey_id ORDER BY moment)
)
SELECT
    survey_id, row_number() OVER survey AS set_version, question_ids, moment AS valid_from,
    CASE WHEN row_number() OVER survey > 1 THEN moment END AS shown_from,
    lead(moment) OVER survey AS shown_until
FROM begun
WINDOW survey AS (PARTITION BY survey_id ORDER BY moment);

-- Which version of its question each answer was given to: the rule for all views that judge an answer by its question.
-- One row: one current answer; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service.
-- Answers that name no survey have no version.
-- The wording that came with the answer decides: of the versions with this wording, the one that was current when the answer was given.
-- If no version has the wording, the time alone decides.
-- An answer from before the first version belongs to the first version.
-- A scan sees a change some time after it was made.
-- So an answer with an option or value that only the next version has belongs to the next version.
-- This is known of LIKERT, MULTIPLECHOICE and MULTIPLESELECT.
-- The same rule finds the set of questions that a session was shown, by the questions that it answered: see session_stages.
CREATE OR REPLACE VIEW answer_versions AS
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
FROM placed;

-- Which version of its question each answer was given to, for answers to questions that scans of surveys saw.
-- One row: one current answer; key (response_group_uid, question_id).
-- Joins answers to question_versions.
-- The rule is that of answer_versions.
-- Left out: answers to questions that no scan of surveys saw, and those that are deleted or have vanished.
CREATE OR REPLACE VIEW response_question_versions AS
SELECT response_group_uid, question_id, survey_id, version, is_wording_shown
FROM answer_versions
WHERE version IS NOT NULL;

-- The chosen options of current answers (MULTIPLECHOICE, MULTIPLESELECT).
-- One row: one chosen option of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
-- The label that the answer itself carries comes first, also from each element of a list, with or without indexes.
-- If the service sent only indexes, or one text for several indexes, the label is that of the option in the version that the answer was given to (see answer_versions), provided that it is proven whether indexes of the question begin with 0 or 1: by other answers with label and index, by an index 0, or by an index equal to the number of options.
-- Else it is the label that other answers to the same version have for that index, if all agree.
-- Else it is not known.
CREATE OR REPLACE VIEW current_choices AS
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
    AND named.selected_index = CASE WHEN part.label IS NULL THEN part.selected_index END;

-- The rows of current matrix answers (MATRIX).
-- One row: one row of the matrix of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
CREATE OR REPLACE VIEW current_matrix_cells AS
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at,
    part.row_label, part.row_ordinal, part.column_label, part.column_number
FROM response_matrix_cells AS part
ANTI JOIN (
    SELECT response_group_uid, question_id FROM responses WHERE deleted_at IS NOT NULL OR _vanished_at IS NOT NULL
) AS gone ON part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id;

-- The ranked options of current answers (RANKORDER).
-- One row: one option of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
CREATE OR REPLACE VIEW current_ranks AS
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at,
    part.option_label, part.rank
FROM response_ranks AS part
ANTI JOIN (
    SELECT response_group_uid, question_id FROM responses WHERE deleted_at IS NOT NULL OR _vanished_at IS NOT NULL
) AS gone ON part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id;

-- The items shown in current answers (MAXDIFF).
-- One row: one item in one round of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
CREATE OR REPLACE VIEW current_maxdiff_items AS
SELECT
    part.response_group_uid, part.question_id, part.survey_id, part.created_at,
    part.round, part.item_ordinal, part.item_id, part.option, part.selected
FROM response_maxdiff_items AS part
ANTI JOIN (
    SELECT response_group_uid, question_id FROM responses WHERE deleted_at IS NOT NULL OR _vanished_at IS NOT NULL
) AS gone ON part.response_group_uid = gone.response_group_uid AND part.question_id = gone.question_id;

-- The themes of current answers.
-- One row: one theme on one answer; key (id, response_group_uid, question_id).
-- Left out: themes that have vanished, and those of answers that are deleted or have vanished.
-- Times are UTC.
CREATE OR REPLACE VIEW current_themes AS
SELECT
    found.id, found.response_group_uid, found.question_id, found.survey_id, found.visitor_id,
    found.created_at AS found_at,
    coalesce(answer.created_at, found.created_at) AS answered_at,
    found.theme, found.theme_description, found.response
FROM themes AS found
LEFT JOIN responses AS answer
    ON answer.response_group_uid = found.response_group_uid AND answer.question_id = found.question_id
WHERE found._vanished_at IS NULL AND answer.deleted_at IS NULL AND answer._vanished_at IS NULL;

-- The current attributes of people.
-- One row: one attribute of one person; key (external_user_id, name).
-- Left out: earlier values, and people whom the service no longer knows.
-- Times are UTC.
CREATE OR REPLACE VIEW current_user_attributes AS
SELECT
    attribute.external_user_id, attribute.name, attribute.value_text, attribute.value_number, attribute.value_bool,
    attribute.valid_from AS known_since
FROM user_attributes AS attribute
WHERE attribute.is_current;

-- Every version of every answer: what the warehouse knew, and from when until when.
-- One row: one version of one answer; key (response_group_uid, question_id, version).
-- Left out: the time in which an answer had vanished, records that were never current because they lost a collision, and people who were erased.
-- Times are UTC, and are the starts of the scans that saw the changes.
-- An answer that only gained optional columns has no new version.
-- A deleted answer has a version for the time in which it is deleted.
-- responses_as_of has the versions of one moment.
CREATE OR REPLACE VIEW response_versions AS
WITH marked AS (
    -- Earlier versions of the program wrote a version for the time in which a row had vanished: it begins when the version before vanished.
    SELECT
        * REPLACE (
            CASE
                WHEN reason <> 'vanished' THEN NULL
                WHEN returned_at IS NULL AND lead(valid_from) OVER ended = valid_to THEN lead(valid_to) OVER ended
                ELSE returned_at
            END AS returned_at
        ),
        coalesce(
            lag(reason) OVER ended = 'vanished' AND lag(returned_at) OVER ended IS NULL AND lag(valid_to) OVER ended = valid_from, false
        ) AS is_gap
    FROM response_history
    -- A record that lost a collision has a version if it was current before.
    WHERE reason <> 'collision' OR valid_from < valid_to
    WINDOW ended AS (PARTITION BY response_group_uid, question_id ORDER BY valid_to, valid_from, _row_hash)
),
ended AS (
    SELECT * FROM marked WHERE NOT is_gap
),
last_ended AS (
    SELECT
        response_group_uid, question_id, count(*) AS versions, max(valid_to) AS valid_to,
        arg_max(reason, (valid_to, valid_from, _row_hash)) AS reason,
        arg_max({'at': returned_at}, (valid_to, valid_from, _row_hash)).at AS returned_at,
        arg_max({'at': deleted_at}, (valid_to, valid_from, _row_hash)).at AS deleted_at,
        arg_max({'id': survey_id}, (valid_to, valid_from, _row_hash)).id AS survey_id
    FROM ended
    GROUP BY response_group_uid, question_id
),
first_seen AS (
    SELECT today.response_group_uid, today.question_id, min(today._first_seen_at) AS seen_at
    FROM responses AS today
    SEMI JOIN last_ended AS had
        ON had.response_group_uid = today.response_group_uid AND had.question_id = today.question_id
    GROUP BY today.response_group_uid, today.question_id
),
earlier AS (
    SELECT
        was.*, row_number() OVER ended AS version, lag(was.valid_to) OVER ended AS ended_before,
        lag(was.reason) OVER ended AS reason_before, lag(was.returned_at) OVER ended AS returned_before,
        lag(was.deleted_at) OVER ended AS deleted_before, lag(was.survey_id) OVER ended AS survey_before, found.seen_at
    FROM ended AS was
    LEFT JOIN first_seen AS found
        ON found.response_group_uid = was.response_group_uid AND found.question_id = was.question_id
    WINDOW ended AS (PARTITION BY was.response_group_uid, was.question_id ORDER BY was.valid_to, was.valid_from, was._row_hash)
),
latest AS (
    SELECT
        today.*, coalesce(had.versions, 0) + 1 AS version, today._vanished_at AS valid_to, had.valid_to AS ended_before,
        had.reason AS reason_before, had.returned_at AS returned_before, had.deleted_at AS deleted_before,
        had.survey_id AS survey_before, today._first_seen_at AS seen_at, today._synced_at AS valid_from,
        CASE WHEN today._vanished_at IS NOT NULL THEN 'vanished' END AS reason
    FROM responses AS today
    LEFT JOIN last_ended AS had
        ON had.response_group_uid = today.response_group_uid AND had.question_id = today.question_id
    -- The last version of an answer that has vanished is in the history.
    WHERE today._vanished_at IS NULL OR had.valid_to IS NULL OR had.valid_to < today._vanished_at
),
versions AS (
    SELECT * EXCLUDE (is_gap, returned_at) FROM earlier
    UNION ALL BY NAME
    SELECT * EXCLUDE (_first_seen_at, _vanished_at, _flags) FROM latest
)
SELECT
    response_group_uid, question_id, survey_id, visitor_id, visitor_uuid,
    nullif(external_user_id, '') AS external_user_id, nullif(partner_anonymous_id, '') AS partner_anonymous_id,
    question_type, question_text, created_at, updated_at, answer_text, answer_number, answer_bool, answer_json, is_skipped,
    selected_indexes, url, meta_browser, meta_os, meta_language, meta_href, meta_user_agent, meta_client_width,
    meta_client_height, meta_screen_width, meta_screen_height, meta_extra, custom_metadata, extra, deleted_at, version,
    CASE
        WHEN ended_before IS NULL THEN least(seen_at, valid_from)
        WHEN reason_before = 'vanished' THEN coalesce(returned_before, greatest(ended_before, valid_from))
        ELSE ended_before
    END AS valid_from,
    valid_to,
    CASE
        WHEN ended_before IS NULL THEN 'new'
        WHEN deleted_at IS NOT NULL AND deleted_before IS NULL THEN 'deleted'
        WHEN reason_before = 'vanished' OR (deleted_at IS NULL AND deleted_before IS NOT NULL) THEN 'returned'
        WHEN survey_id IS DISTINCT FROM survey_before THEN 'moved'
        ELSE 'edited'
    END AS begun_by,
    CASE WHEN reason = 'collision' THEN 'edited' ELSE reason END AS ended_by, survey_before
FROM versions;

-- Every version of every theme on an answer: what the warehouse knew, and from when until when.
-- One row: one version of one theme on one answer; key (id, response_group_uid, question_id, version).
-- Left out: the time in which a theme had vanished, and people who were erased.
-- Whether the answer was deleted or had vanished does not matter.
-- Times are UTC, and are the starts of the scans that saw the changes.
-- themes_as_of has the versions of one moment.
CREATE OR REPLACE VIEW theme_versions AS
WITH marked AS (
    -- Earlier versions of the program wrote a version for the time in which a row had vanished: it begins when the version before vanished.
    SELECT
        * REPLACE (
            CASE
                WHEN reason <> 'vanished' THEN NULL
                WHEN returned_at IS NULL AND lead(valid_from) OVER ended = valid_to THEN lead(valid_to) OVER ended
                ELSE returned_at
            END AS returned_at
        ),
        coalesce(
            lag(reason) OVER ended = 'vanished' AND lag(returned_at) OVER ended IS NULL AND lag(valid_to) OVER ended = valid_from, false
        ) AS is_gap
    FROM theme_history
    WINDOW ended AS (PARTITION BY id, response_group_uid, question_id ORDER BY valid_to, valid_from, _row_hash)
),
ended AS (
    SELECT * FROM marked WHERE NOT is_gap
),
last_ended AS (
    SELECT
        id, response_group_uid, question_id, count(*) AS versions, max(valid_to) AS valid_to,
        arg_max(reason, (valid_to, valid_from, _row_hash)) AS reason,
        arg_max({'at': returned_at}, (valid_to, valid_from, _row_hash)).at AS returned_at,
        arg_max({'id': survey_id}, (valid_to, valid_from, _row_hash)).id AS survey_id
    FROM ended
    GROUP BY id, response_group_uid, question_id
),
first_seen AS (
    SELECT today.id, today.response_group_uid, today.question_id, min(today._first_seen_at) AS seen_at
    FROM themes AS today
    SEMI JOIN last_ended AS had
        ON had.id = today.id AND had.response_group_uid = today.response_group_uid AND had.question_id = today.question_id
    GROUP BY today.id, today.response_group_uid, today.question_id
),
earlier AS (
    SELECT
        was.*, row_number() OVER ended AS version, lag(was.valid_to) OVER ended AS ended_before,
        lag(was.reason) OVER ended AS reason_before, lag(was.returned_at) OVER ended AS returned_before,
        lag(was.survey_id) OVER ended AS survey_before, found.seen_at
    FROM ended AS was
    LEFT JOIN first_seen AS found
        ON found.id = was.id AND found.response_group_uid = was.response_group_uid AND found.question_id = was.question_id
    WINDOW ended AS (
        PARTITION BY was.id, was.response_group_uid, was.question_id ORDER BY was.valid_to, was.valid_from, was._row_hash
    )
),
latest AS (
    SELECT
        today.*, coalesce(had.versions, 0) + 1 AS version, today._vanished_at AS valid_to, had.valid_to AS ended_before,
        had.reason AS reason_before, had.returned_at AS returned_before, had.survey_id AS survey_before,
        today._first_seen_at AS seen_at, today._synced_at AS valid_from,
        CASE WHEN today._vanished_at IS NOT NULL THEN 'vanished' END AS reason
    FROM themes AS today
    LEFT JOIN last_ended AS had
        ON had.id = today.id AND had.response_group_uid = today.response_group_uid AND had.question_id = today.question_id
    -- The last version of a theme that has vanished is in the history.
    WHERE today._vanished_at IS NULL OR had.valid_to IS NULL OR had.valid_to < today._vanished_at
),
versions AS (
    SELECT * EXCLUDE (is_gap, returned_at) FROM earlier
    UNION ALL BY NAME
    SELECT * EXCLUDE (_first_seen_at, _vanished_at) FROM latest
)
SELECT
    id, response_group_uid, question_id, survey_id, visitor_id, created_at AS found_at, theme, theme_description, response,
    version,
    CASE
        WHEN ended_before IS NULL THEN least(seen_at, valid_from)
        WHEN reason_before = 'vanished' THEN coalesce(returned_before, greatest(ended_before, valid_from))
        ELSE ended_before
    END AS valid_from,
    valid_to,
    CASE
        WHEN ended_before IS NULL THEN 'new'
        WHEN reason_before = 'vanished' THEN 'returned'
        WHEN survey_id IS DISTINCT FROM survey_before THEN 'moved'
        ELSE 'edited'
    END AS begun_by,
    reason AS ended_by, survey_before
FROM versions;

-- The questions of the current definition of every survey.
-- One row: one question of one survey.
-- A survey that names a question twice has one row for it, by the first.
-- Left out: questions that are only known from answers, and definitions without an id.
-- A survey that vanished keeps its last definition.
CREATE OR REPLACE VIEW current_questions AS
SELECT
    survey_id, question_id, min(question_ordinal) AS question_ordinal,
    arg_min(question_type, question_ordinal) AS question_type,
    arg_min(question_text, question_ordinal) AS question_text,
    arg_min(left_label, question_ordinal) AS left_label,
    arg_min(right_label, question_ordinal) AS right_label
FROM survey_questions
WHERE question_id IS NOT NULL
GROUP BY survey_id, question_id;

-- The questions of the current definition of every survey, with the scale that the definition gives a LIKERT question.
-- One row: one question of one survey.
-- A survey that names a question twice has one row for it, by the first.
-- Left out: questions that are only known from answers, and definitions without an id.
-- The scale is that of the last version: see question_scales.
CREATE OR REPLACE VIEW questions AS
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
    AND scale.version = last_versions.version;

-- The sessions in which visitors answered surveys.
-- One row: one session of one survey; key (survey_id, response_group_uid).
-- Left out: answers that are deleted or have vanished at the service, and sessions that have no other answers.
-- Where the answers of a session disagree about the visitor, the greatest value is used.
-- Times are UTC.
CREATE OR REPLACE VIEW sessions AS
SELECT
    survey_id, response_group_uid,
    max(visitor_id) AS visitor_id,
    max(visitor_uuid) AS visitor_uuid,
    max(external_user_id) AS external_user_id,
    min(created_at) AS started_at,
    max(created_at) AS ended_at,
    (epoch_us(max(created_at)) - epoch_us(min(created_at))) / 1e6 AS duration_secs,
    count(*) AS questions,
    count(*) FILTER (NOT is_skipped AND question_type IS DISTINCT FROM 'TEXTURLPROMPT') AS answered,
    count(*) FILTER (is_skipped) AS skipped
FROM current_responses
GROUP BY survey_id, response_group_uid;

-- The NPS answers that count: what the views nps_by_* add up. Start here for a breakdown of your own.
-- One row: one answer to a question of type NPS; key (response_group_uid, question_id).
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Days, weeks and months are those of the report time zone, UTC by default; a week begins on Monday (ISO).
CREATE OR REPLACE VIEW nps_answers AS
WITH timed AS (
    SELECT *, created_at AS local_at
    FROM current_responses
    WHERE question_type = 'NPS' AND answer_number IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
)
SELECT
    response_group_uid, question_id, survey_id,
    coalesce(visitor_id::VARCHAR, visitor_uuid, response_group_uid) AS visitor_key,
    question_text, created_at,
    local_at::DATE AS day,
    date_trunc('week', local_at)::DATE AS week,
    date_trunc('month', local_at)::DATE AS month,
    answer_number AS score
FROM timed;

-- NPS by day, over all surveys.
-- One row: one day.
-- A day without answers has no row; the current day has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW nps_by_day AS
WITH tallied AS (
    SELECT
        day, score, count(*) AS answers
    FROM nps_answers
    GROUP BY day, score
),
counted AS (
    SELECT
        day, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors
    FROM tallied
    GROUP BY day
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    day, responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored;

-- NPS by day, over all surveys; each visitor counts once.
-- One row: one day.
-- A day without answers has no row; the current day has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a day: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW nps_by_day_latest AS
WITH tallied AS (
    SELECT
        day, score, count(*) AS answers
    FROM (
        SELECT
            day, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score
        FROM nps_answers
        GROUP BY day, visitor_key
    )
    GROUP BY day, score
),
counted AS (
    SELECT
        day, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors
    FROM tallied
    GROUP BY day
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    day, responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored;

-- NPS by day, for each question.
-- One row: one day of one question of one survey.
-- A day without answers has no row; the current day has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW nps_by_day_per_question AS
WITH tallied AS (
    SELECT day, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM nps_answers
    GROUP BY day, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        day, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY day, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY day IS NOT NULL
)
SELECT
    scored.day, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by day, for each question; each visitor counts once.
-- One row: one day of one question of one survey.
-- A day without answers has no row; the current day has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a day and question: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW nps_by_day_per_question_latest AS
WITH tallied AS (
    SELECT day, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM (
        SELECT
            day, survey_id, question_id, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score
        FROM nps_answers
        GROUP BY day, survey_id, question_id, visitor_key
    )
    GROUP BY day, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        day, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY day, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY day IS NOT NULL
)
SELECT
    scored.day, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by week, over all surveys.
-- One row: one week.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW nps_by_week AS
WITH tallied AS (
    SELECT
        week, score, count(*) AS answers
    FROM nps_answers
    GROUP BY week, score
),
counted AS (
    SELECT
        week, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors
    FROM tallied
    GROUP BY week
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    week, responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored;

-- NPS by week, over all surveys; each visitor counts once.
-- One row: one week.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a week: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW nps_by_week_latest AS
WITH tallied AS (
    SELECT
        week, score, count(*) AS answers
    FROM (
        SELECT
            week, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score
        FROM nps_answers
        GROUP BY week, visitor_key
    )
    GROUP BY week, score
),
counted AS (
    SELECT
        week, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors
    FROM tallied
    GROUP BY week
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    week, responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored;

-- NPS by week, for each question.
-- One row: one week of one question of one survey.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW nps_by_week_per_question AS
WITH tallied AS (
    SELECT week, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM nps_answers
    GROUP BY week, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        week, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY week, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY week IS NOT NULL
)
SELECT
    scored.week, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by week, for each question; each visitor counts once.
-- One row: one week of one question of one survey.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a week and question: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW nps_by_week_per_question_latest AS
WITH tallied AS (
    SELECT week, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM (
        SELECT
            week, survey_id, question_id, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score
        FROM nps_answers
        GROUP BY week, survey_id, question_id, visitor_key
    )
    GROUP BY week, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        week, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY week, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY week IS NOT NULL
)
SELECT
    scored.week, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by month, over all surveys.
-- One row: one month.
-- A month without answers has no row; the current month has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW nps_by_month AS
WITH tallied AS (
    SELECT
        month, score, count(*) AS answers
    FROM nps_answers
    GROUP BY month, score
),
counted AS (
    SELECT
        month, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors
    FROM tallied
    GROUP BY month
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    month, responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored;

-- NPS by month, over all surveys; each visitor counts once.
-- One row: one month.
-- A month without answers has no row; the current month has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a month: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW nps_by_month_latest AS
WITH tallied AS (
    SELECT
        month, score, count(*) AS answers
    FROM (
        SELECT
            month, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score
        FROM nps_answers
        GROUP BY month, visitor_key
    )
    GROUP BY month, score
),
counted AS (
    SELECT
        month, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors
    FROM tallied
    GROUP BY month
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    month, responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored;

-- NPS by month, for each question.
-- One row: one month of one question of one survey.
-- A month without answers has no row; the current month has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW nps_by_month_per_question AS
WITH tallied AS (
    SELECT month, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM nps_answers
    GROUP BY month, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        month, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY month, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY month IS NOT NULL
)
SELECT
    scored.month, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by month, for each question; each visitor counts once.
-- One row: one month of one question of one survey.
-- A month without answers has no row; the current month has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- A visitor counts once in a month and question: by the latest answer.
-- Of answers with the same time, the one with the greatest session and question id counts.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE VIEW nps_by_month_per_question_latest AS
WITH tallied AS (
    SELECT month, survey_id, question_id, score, count(*) AS answers, NULL AS shown
    FROM (
        SELECT
            month, survey_id, question_id, visitor_key,
            arg_max(score, (created_at, response_group_uid, question_id)) AS score
        FROM nps_answers
        GROUP BY month, survey_id, question_id, visitor_key
    )
    GROUP BY month, survey_id, question_id, score
    UNION ALL
    SELECT
        NULL, survey_id, question_id, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
counted AS (
    SELECT
        month, survey_id, question_id, sum(answers)::BIGINT AS responses,
        coalesce(sum(answers) FILTER (score >= 9), 0)::BIGINT AS promoters,
        coalesce(sum(answers) FILTER (score BETWEEN 7 AND 8), 0)::BIGINT AS passives,
        coalesce(sum(answers) FILTER (score <= 6), 0)::BIGINT AS detractors,
        max(shown) AS shown
    FROM tallied
    GROUP BY month, survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error,
        max(shown) OVER (PARTITION BY survey_id, question_id) AS last_shown
    FROM counted
    QUALIFY month IS NOT NULL
)
SELECT
    scored.month, scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, scored.last_shown.text) AS question_text,
    responses, promoters, passives, detractors, nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS of each question over all its answers, with the shares of promoters, passives and detractors.
-- One row: one question of one survey.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error as in nps_by_week.
CREATE OR REPLACE VIEW nps_per_question AS
WITH counted AS (
    SELECT
        survey_id, question_id, count(*) AS responses,
        count(*) FILTER (score >= 9) AS promoters,
        count(*) FILTER (score BETWEEN 7 AND 8) AS passives,
        count(*) FILTER (score <= 6) AS detractors
    FROM nps_answers
    GROUP BY survey_id, question_id
),
shown AS (
    SELECT survey_id, question_id, max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS answer
    FROM current_responses
    WHERE question_type = 'NPS'
    GROUP BY survey_id, question_id
),
scored AS (
    SELECT
        *, 100 * (promoters - detractors)::DOUBLE / responses AS nps,
        100 * sqrt(greatest(promoters + detractors - (promoters - detractors)::DOUBLE ** 2 / responses, 0)
            / nullif(responses - 1, 0) / responses) AS standard_error
    FROM counted
)
SELECT
    scored.survey_id, scored.question_id, survey.name AS survey_name,
    coalesce(question.question_text, shown.answer.text) AS question_text,
    responses, promoters, passives, detractors,
    promoters / responses AS promoter_share, passives / responses AS passive_share, detractors / responses AS detractor_share,
    nps, standard_error,
    CASE WHEN standard_error IS NOT NULL THEN greatest(nps - 1.96 * standard_error, -100) END AS nps_low,
    CASE WHEN standard_error IS NOT NULL THEN least(nps + 1.96 * standard_error, 100) END AS nps_high
FROM scored
LEFT JOIN shown ON shown.survey_id IS NOT DISTINCT FROM scored.survey_id AND shown.question_id = scored.question_id
LEFT JOIN surveys AS survey ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- The values with which LIKERT questions were answered, each against the scale of the version that the answers were given to.
-- One row: one value of one version of one question of one survey.
-- Values that nobody chose have no row.
-- Left out: skipped answers, values that are not whole, answers that are deleted or have vanished.
-- Which version an answer was given to: answer_versions.
-- Scales of definitions: question_scales.
-- A version without a scale has that of the answers: the shortest usual scale that includes all integers from 0 to 10 with which such versions of the question were answered.
-- Usual are 1 to 5, 7 and 10, and 0 to 4, 6 and 10.
CREATE OR REPLACE VIEW likert_values AS
WITH counted AS (
    SELECT
        survey_id, question_id, version, is_skipped, try_cast(answer_number AS BIGINT) AS value, count(*) AS answers,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown,
        any_value(scale_min) AS scale_min, any_value(scale_max) AS scale_max, any_value(scale_source) AS scale_source,
        any_value(not_rated_values) AS not_rated_values
    FROM answer_versions
    WHERE question_type = 'LIKERT' AND (answer_number IS NULL OR answer_number = floor(answer_number))
    GROUP BY survey_id, question_id, version, is_skipped, value
),
defined AS (
    SELECT
        *, min(value) FILTER (scale_source IS NULL AND value BETWEEN 0 AND 10) OVER question AS lowest,
        max(value) FILTER (scale_source IS NULL AND value BETWEEN 0 AND 10) OVER question AS highest,
        max(shown) OVER question AS last_shown
    FROM counted
    WINDOW question AS (PARTITION BY survey_id, question_id)
),
usual AS (
    SELECT
        *, CASE WHEN lowest = 0 THEN 0 ELSE 1 END AS usual_min,
        CASE WHEN highest <= usual_min + 4 THEN usual_min + 4 WHEN highest <= usual_min + 6 THEN usual_min + 6 ELSE 10 END AS usual_max
    FROM defined
),
scaled AS (
    SELECT
        survey_id, question_id, version, value, answers, last_shown, not_rated_values,
        CASE WHEN scale_source IS NULL AND highest IS NOT NULL THEN usual_min ELSE scale_min END AS scale_min,
        CASE WHEN scale_source IS NULL AND highest IS NOT NULL THEN usual_max ELSE scale_max END AS scale_max,
        CASE
            WHEN scale_source IS NOT NULL THEN scale_source
            WHEN lowest = usual_min AND highest = usual_max THEN 'observed'
            WHEN highest IS NOT NULL THEN 'usual'
        END AS scale_source
    FROM usual
    WHERE NOT is_skipped
)
SELECT
    survey_id, question_id, version, value, answers,
    CASE
        WHEN value BETWEEN scale_min AND scale_max THEN 'point'
        WHEN value IS NULL OR list_contains(not_rated_values, value) THEN 'not rated'
        ELSE 'outside'
    END AS kind,
    scale_min, scale_max, scale_source, last_shown.text AS last_question_text
FROM scaled;

-- The distribution of the answers to every LIKERT question.
-- One row: one value of one question of one survey.
-- Values that nobody chose have no row.
-- Left out: skipped answers, values that are not whole, outside the scale or not rated (see likert_values), answers that are deleted or have vanished.
-- Each answer is held against the scale of the version that it was given to (see answer_versions).
-- If versions have different scales, their answers are in one distribution, and the columns show the scale of the last version: see likert_values for each version.
CREATE OR REPLACE VIEW likert_distribution AS
WITH counted AS (
    SELECT
        survey_id, question_id, CASE WHEN kind = 'point' THEN value END AS value,
        (sum(answers) FILTER (kind = 'point'))::BIGINT AS answers,
        (sum(answers) FILTER (kind = 'not rated'))::BIGINT AS not_rated,
        max({'version': coalesce(version, 0), 'min': scale_min, 'max': scale_max, 'source': scale_source})
            FILTER (kind = 'point') AS scale,
        max(last_question_text) AS last_text
    FROM likert_values
    GROUP BY ALL
),
shared AS (
    SELECT
        survey_id, question_id, value, answers, answers / sum(answers) OVER question AS share,
        (coalesce(sum(not_rated) OVER question, 0))::BIGINT AS not_rated,
        max(scale) OVER question AS last_scale, max(last_text) OVER question AS last_text
    FROM counted
    WINDOW question AS (PARTITION BY survey_id, question_id)
    QUALIFY value IS NOT NULL
)
SELECT
    shared.survey_id, shared.question_id, survey.name AS survey_name,
    coalesce(question.question_text, last_text) AS question_text,
    value, answers, share, last_scale.min AS scale_min, last_scale.max AS scale_max, last_scale.source AS scale_source, not_rated
FROM shared
LEFT JOIN surveys AS survey ON survey.id = shared.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = shared.survey_id AND question.question_id = shared.question_id;

-- Top-two box and mean of every LIKERT question, against its own scale.
-- One row: one question of one survey that has an answer within its scale.
-- Left out: skipped answers, values that are not whole, outside the scale or not rated (see likert_values), answers that are deleted or have vanished.
-- Each answer is held against the scale of the version that it was given to (see answer_versions).
-- If versions have different scales, the boxes are those of each answer's own scale, and the columns show the scale of the last version: see likert_values for each version.
CREATE OR REPLACE VIEW likert_top_two AS
WITH counted AS (
    SELECT
        survey_id, question_id,
        coalesce(sum(answers) FILTER (kind = 'point'), 0)::BIGINT AS answers,
        coalesce(sum(answers) FILTER (kind = 'not rated'), 0)::BIGINT AS not_rated,
        sum(value * answers) FILTER (kind = 'point')::DOUBLE AS total,
        (sum(answers) FILTER (kind = 'point' AND scale_max - scale_min >= 2))::BIGINT AS boxed,
        coalesce(sum(answers) FILTER (kind = 'point' AND scale_max - scale_min >= 2 AND value >= scale_max - 1), 0)::BIGINT AS top,
        coalesce(sum(answers) FILTER (kind = 'point' AND scale_max - scale_min >= 2 AND value <= scale_min + 1), 0)::BIGINT AS bottom,
        max({'version': coalesce(version, 0), 'min': scale_min, 'max': scale_max, 'source': scale_source})
            FILTER (kind = 'point') AS scale,
        max(last_question_text) AS last_text
    FROM likert_values
    GROUP BY survey_id, question_id
    HAVING count(*) FILTER (kind = 'point') > 0
)
SELECT
    counted.survey_id, counted.question_id, survey.name AS survey_name,
    coalesce(question.question_text, last_text) AS question_text,
    answers, total / answers AS mean,
    CASE WHEN boxed > 0 THEN top END AS top_two, top / boxed AS top_two_share,
    CASE WHEN boxed > 0 THEN bottom END AS bottom_two, bottom / boxed AS bottom_two_share,
    scale.min AS scale_min, scale.max AS scale_max, scale.source AS scale_source, boxed, not_rated
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = counted.survey_id AND question.question_id = counted.question_id;

-- Which options were chosen, as a share of those who answered (MULTIPLECHOICE, MULTIPLESELECT).
-- One row: one option of one question of one survey.
-- Options that nobody chose have no row.
-- Left out: skipped answers, answers that are deleted or have vanished.
-- An option that one answer names twice counts once.
-- An option that was renamed has a row for each of its wordings.
-- The shares of a MULTIPLESELECT question add up to more than 1: each is a share of all who answered the question.
CREATE OR REPLACE VIEW choice_share AS
WITH counted AS (
    SELECT
        survey_id, question_id, label, CASE WHEN label IS NULL THEN selected_index END AS selected_index,
        count(DISTINCT response_group_uid) AS chosen, NULL::BIGINT AS answered, NULL AS shown_answer
    FROM current_choices
    GROUP BY ALL
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, count(*) FILTER (NOT is_skipped),
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT')
    GROUP BY survey_id, question_id
),
based AS (
    SELECT
        survey_id, question_id, label, selected_index, chosen, max(answered) OVER question AS answered,
        max(shown_answer) OVER question AS shown_answer
    FROM counted
    WINDOW question AS (PARTITION BY survey_id, question_id)
    QUALIFY chosen IS NOT NULL
)
SELECT
    based.survey_id, based.question_id, survey.name AS survey_name,
    coalesce(question.question_text, based.shown_answer.text) AS question_text,
    based.label, based.selected_index, based.chosen, based.answered,
    based.chosen / based.answered AS share
FROM based
LEFT JOIN surveys AS survey ON survey.id = based.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = based.survey_id AND question.question_id = based.question_id;

-- NPS, top-two box and choice shares of every question, one figure a row: what figure_changes compares.
-- One row: one figure of one question of one survey; of choice shares, one option.
-- Options that nobody chose have no row.
-- Left out: questions without an answer that counts, answers that are deleted or have vanished.
-- The figures are those of nps_answers, likert_top_two and choice_share.
CREATE OR REPLACE VIEW figures AS
WITH scores AS (
    SELECT survey_id, question_id, count(*) AS answers, sum(worth) AS total, sum(worth * worth) AS squares
    FROM (SELECT *, CASE WHEN score >= 9 THEN 100 WHEN score >= 7 THEN 0 ELSE -100 END AS worth FROM nps_answers)
    GROUP BY survey_id, question_id
),
shares AS (
    SELECT
        survey_id, question_id, 'top_two_share' AS figure, NULL AS label, NULL AS selected_index, boxed AS answers,
        top_two_share AS value
    FROM likert_top_two
    WHERE boxed > 0
    UNION ALL
    SELECT survey_id, question_id, 'choice_share', label, selected_index, answered, share FROM choice_share
)
SELECT
    survey_id, question_id, 'nps' AS figure, NULL::VARCHAR AS label, NULL::BIGINT AS selected_index, answers,
    total / answers AS value,
    CASE WHEN answers > 1 THEN
        sqrt(greatest(squares - total::DOUBLE ** 2 / answers, 0) / (answers - 1) / answers) END AS standard_error
FROM scores
UNION ALL
SELECT
    survey_id, question_id, figure, label, selected_index, answers, value,
    CASE WHEN answers > 1 THEN sqrt(value * (1 - value) / answers) END
FROM shares;

-- How the rows of matrix questions were answered (MATRIX).
-- One row: one column chosen in one row of one question of one survey.
-- Columns that nobody chose have no row.
-- Left out: rows that were skipped, answers that are deleted or have vanished.
CREATE OR REPLACE VIEW matrix_distribution AS
WITH counted AS (
    SELECT
        survey_id, question_id, row_label, column_label, max(column_number) AS column_number, count(*) AS answers,
        NULL AS shown_answer
    FROM current_matrix_cells
    WHERE column_label IS NOT NULL
    GROUP BY survey_id, question_id, row_label, column_label
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'MATRIX'
    GROUP BY survey_id, question_id
),
based AS (
    SELECT
        * EXCLUDE (shown_answer), (sum(answers) OVER (PARTITION BY survey_id, question_id, row_label))::BIGINT AS answered,
        max(shown_answer) OVER (PARTITION BY survey_id, question_id) AS shown_answer
    FROM counted
    QUALIFY answers IS NOT NULL
)
SELECT
    based.survey_id, based.question_id, survey.name AS survey_name,
    coalesce(question.question_text, based.shown_answer.text) AS question_text,
    based.row_label, based.column_label, based.column_number,
    based.answers, based.answered, based.answers / based.answered AS share
FROM based
LEFT JOIN surveys AS survey ON survey.id = based.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = based.survey_id AND question.question_id = based.question_id;

-- How options were ranked (RANKORDER).
-- One row: one option of one question of one survey that was ranked at least once.
-- Left out: options that an answer did not rank, ranks outside 1 to the number of its options, answers that are deleted or have vanished.
CREATE OR REPLACE VIEW rank_summary AS
WITH sized AS (
    SELECT *, count(*) OVER (PARTITION BY survey_id, question_id, response_group_uid) AS options FROM current_ranks
),
-- Integers are summed first: the last digits of a sum of fractions would depend on the order of the rows.
counted AS (
    SELECT
        survey_id, question_id, option_label, options, count(*) AS answers, sum(rank)::BIGINT AS ranks,
        count(*) FILTER (rank = 1) AS first_places,
        sum(options - rank)::BIGINT AS points
    FROM sized
    WHERE rank BETWEEN 1 AND options
    GROUP BY survey_id, question_id, option_label, options
),
summed AS (
    SELECT
        survey_id, question_id, option_label, sum(answers)::BIGINT AS answers,
        sum(ranks)::BIGINT / sum(answers)::BIGINT AS mean_rank,
        sum(first_places)::BIGINT AS first_places,
        sum(points)::BIGINT AS borda_points,
        sum(points / (options - 1) ORDER BY options) FILTER (options > 1)
            / sum(answers) FILTER (options > 1) AS borda_score,
        NULL AS shown_answer
    FROM counted
    GROUP BY survey_id, question_id, option_label
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, NULL, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'RANKORDER'
    GROUP BY survey_id, question_id
),
named AS (
    SELECT
        * EXCLUDE (shown_answer), max(shown_answer) OVER (PARTITION BY survey_id, question_id) AS shown_answer
    FROM summed
    QUALIFY answers IS NOT NULL
)
SELECT
    named.survey_id, named.question_id, survey.name AS survey_name,
    coalesce(question.question_text, named.shown_answer.text) AS question_text, named.option_label,
    answers, mean_rank, first_places, first_places / answers AS first_place_share, borda_points, borda_score
FROM named
LEFT JOIN surveys AS survey ON survey.id = named.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = named.survey_id AND question.question_id = named.question_id;

-- Best-worst scores (MAXDIFF).
-- One row: one item of one question of one survey that was shown at least once.
-- Left out: rounds in which nothing was chosen, answers that are deleted or have vanished.
-- The service sends left and right.
-- Which is best and which is worst is read off the two labels of the version that the answer was given to (see answer_versions): one must speak of most, best, highest or top and the other of least, worst, lowest or bottom, and neither of anything contrary (not, never, dis..., un..., hate, annoy..., bad).
-- Answers to other versions are not in best, worst and score, which are NULL if there are no others.
CREATE OR REPLACE VIEW maxdiff_scores AS
WITH counted AS (
    SELECT
        answer.survey_id, answer.question_id, answer.version, item.option AS item, count(*) AS shown,
        count(*) FILTER (item.selected = 'left') AS chosen_left,
        count(*) FILTER (item.selected = 'right') AS chosen_right
    FROM response_maxdiff_items AS item
    JOIN answer_versions AS answer
        ON answer.response_group_uid = item.response_group_uid AND answer.question_id = item.question_id
            AND answer.question_type = 'MAXDIFF'
    SEMI JOIN (SELECT response_group_uid, question_id, round FROM response_maxdiff_items WHERE selected IS NOT NULL) AS chosen
        ON chosen.response_group_uid = item.response_group_uid AND chosen.question_id = item.question_id
            AND chosen.round = item.round
    GROUP BY ALL
),
spoken AS (
    SELECT
        survey_id, question_id, version, left_label, right_label,
        regexp_matches(left_label, '(?i)\b(most|best|highest|top)\b') AS left_best,
        regexp_matches(left_label, '(?i)\b(least|worst|lowest|bottom)\b') AS left_worst,
        regexp_matches(right_label, '(?i)\b(most|best|highest|top)\b') AS right_best,
        regexp_matches(right_label, '(?i)\b(least|worst|lowest|bottom)\b') AS right_worst,
        regexp_matches(left_label || ' ' || right_label, '(?i)\b(not|never|(dis|un)[a-z]{3,}|hate|annoy[a-z]*|bad)\b')
            AS is_contrary
    FROM question_versions
),
told AS (
    SELECT
        *, CASE
            WHEN is_contrary THEN NULL
            WHEN left_best AND right_worst AND NOT left_worst AND NOT right_best THEN 'left'
            WHEN right_best AND left_worst AND NOT right_worst AND NOT left_best THEN 'right'
        END AS best_side
    FROM spoken
),
summed AS (
    SELECT
        counted.survey_id, counted.question_id, counted.item, sum(shown)::BIGINT AS shown,
        sum(chosen_left)::BIGINT AS chosen_left, sum(chosen_right)::BIGINT AS chosen_right,
        max({'version': coalesce(counted.version, 0), 'left': told.left_label, 'right': told.right_label}) AS labels,
        (sum(shown) FILTER (best_side IS NOT NULL))::BIGINT AS scored,
        (sum(CASE best_side WHEN 'left' THEN chosen_left WHEN 'right' THEN chosen_right END))::BIGINT AS best,
        (sum(CASE best_side WHEN 'left' THEN chosen_right WHEN 'right' THEN chosen_left END))::BIGINT AS worst,
        NULL AS shown_answer
    FROM counted
    LEFT JOIN told
        ON told.survey_id = counted.survey_id AND told.question_id = counted.question_id AND told.version = counted.version
    GROUP BY counted.survey_id, counted.question_id, counted.item
    UNION ALL
    SELECT
        survey_id, question_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL)
    FROM current_responses
    WHERE question_type = 'MAXDIFF'
    GROUP BY survey_id, question_id
),
named AS (
    SELECT
        * EXCLUDE (labels, shown_answer), max(labels) OVER question AS labels, max(shown_answer) OVER question AS shown_answer
    FROM summed
    WINDOW question AS (PARTITION BY survey_id, question_id)
    QUALIFY shown IS NOT NULL
)
SELECT
    named.survey_id, named.question_id, survey.name AS survey_name,
    coalesce(question.question_text, named.shown_answer.text) AS question_text, item, shown, chosen_left, chosen_right,
    labels.left AS left_label, labels.right AS right_label, best, worst, (best - worst) / scored AS score
FROM named
LEFT JOIN surveys AS survey ON survey.id = named.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = named.survey_id AND question.question_id = named.question_id;

-- Themes of answers, by week of the answer.
-- One row: one theme in one survey in one week.
-- Left out: themes that have vanished, and those of answers that are deleted or have vanished.
-- answers of several weeks, or of several surveys, may be added up; themed_answers of several themes may not.
CREATE OR REPLACE VIEW theme_trend AS
WITH dated AS (
    SELECT
        date_trunc('week', answered_at)::DATE AS week, survey_id, theme, (response_group_uid, question_id) AS answer
    FROM current_themes
),
counted AS (
    SELECT week, survey_id, theme, count(DISTINCT answer) AS answers FROM dated GROUP BY week, survey_id, theme
),
based AS (
    SELECT week, survey_id, count(DISTINCT answer) AS themed_answers FROM dated GROUP BY week, survey_id
)
SELECT
    counted.week, counted.survey_id, survey.name AS survey_name, counted.theme, counted.answers, based.themed_answers,
    counted.answers / based.themed_answers AS share
FROM counted
JOIN based ON based.week = counted.week AND based.survey_id IS NOT DISTINCT FROM counted.survey_id
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id;

-- How far visitors get in a survey: question by question, how many of its sessions were shown it and answered it.
-- One row: one question of one survey that was shown at least once.
-- Order by question_ordinal.
-- Left out: answers that are deleted or have vanished at the service.
CREATE OR REPLACE VIEW survey_funnel AS
WITH counted AS (
    SELECT
        survey_id, question_id, count(*) AS shown,
        count(*) FILTER (NOT is_skipped) AS answered,
        count(*) FILTER (is_skipped) AS skipped,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown_answer,
        NULL::BIGINT AS sessions
    FROM current_responses
    GROUP BY survey_id, question_id
    UNION ALL
    SELECT survey_id, NULL, NULL, NULL, NULL, NULL, count(DISTINCT response_group_uid)
    FROM current_responses
    GROUP BY survey_id
),
shown AS (
    SELECT * EXCLUDE (sessions), max(sessions) OVER (PARTITION BY survey_id) AS sessions
    FROM counted
    QUALIFY question_id IS NOT NULL
)
SELECT
    shown.survey_id, survey.name AS survey_name, question.question_ordinal, shown.question_id,
    coalesce(question.question_text, shown.shown_answer.text) AS question_text,
    shown.sessions, shown.shown, shown.answered, shown.skipped,
    shown.shown / shown.sessions AS shown_share,
    shown.answered / shown.sessions AS answered_share
FROM shown
LEFT JOIN surveys AS survey ON survey.id = shown.survey_id
LEFT JOIN current_questions AS question ON question.survey_id = shown.survey_id AND question.question_id = shown.question_id;

-- Answers, sessions and visitors by day and survey.
-- One row: one survey on one day on which it was answered.
-- Left out: answers that are deleted or have vanished at the service.
-- A session that lasts past midnight is counted on both days, a visitor on every day: only answers may be added up.
CREATE OR REPLACE VIEW daily_breakdown AS
WITH counted AS (
    SELECT
        created_at::DATE AS day, survey_id,
        count(DISTINCT response_group_uid) AS sessions,
        count(DISTINCT visitor_id) AS visitors,
        count(*) AS answers,
        count(*) FILTER (NOT is_skipped) AS answered,
        count(*) FILTER (is_skipped) AS skipped
    FROM current_responses
    GROUP BY day, survey_id
)
SELECT day, counted.survey_id, survey.name AS survey_name, sessions, visitors, answers, answered, skipped
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id;

-- Which questions are skipped, and how the service sends skips.
-- One row: one question of one survey that was shown at least once.
-- Left out: texts that ask nothing (TEXTURLPROMPT), answers that are deleted or have vanished at the service.
-- A question that a session never reached has no answer at all, and is not a skip: see survey_funnel.
CREATE OR REPLACE VIEW skips AS
WITH counted AS (
    SELECT
        survey_id, question_id, max(question_type) AS question_type,
        max({'at': created_at, 'text': question_text}) FILTER (question_text IS NOT NULL) AS shown_answer,
        count(*) AS shown,
        count(*) FILTER (NOT is_skipped) AS answered,
        count(*) FILTER (is_skipped) AS skipped,
        count(*) FILTER (is_skipped AND answer_json = 'null') AS sent_null,
        count(*) FILTER (is_skipped AND answer_json <> 'null') AS sent_empty,
        count(*) FILTER (is_skipped AND answer_json IS NULL) AS sent_nothing
    FROM current_responses
    WHERE question_type IS DISTINCT FROM 'TEXTURLPROMPT'
    GROUP BY survey_id, question_id
)
SELECT
    counted.survey_id, counted.question_id, survey.name AS survey_name,
    coalesce(question.question_text, counted.shown_answer.text) AS question_text, counted.question_type,
    shown, answered, skipped, skipped / shown AS skipped_share, sent_null, sent_empty, sent_nothing
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id
LEFT JOIN current_questions AS question
    ON question.survey_id = counted.survey_id AND question.question_id = counted.question_id;

-- The answers in people's own words: texts, and what was said in recordings.
-- One row: one answer to an OPEN question, or one transcription; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service; skipped ones are there, and empty.
-- Times are UTC.
-- Nothing here depends on a language.
-- Two texts are the same if they differ only in case (ß is ss) and in the blanks around them.
CREATE OR REPLACE VIEW open_answers AS
WITH texts AS (
    SELECT
        answer.response_group_uid, answer.question_id, answer.survey_id, answer.question_text, answer.created_at,
        CASE WHEN answer.question_type = 'OPEN' THEN 'text' ELSE 'transcription' END AS source,
        CASE WHEN answer.question_type = 'OPEN' THEN answer.answer_text ELSE media.transcription END AS answer
    FROM current_responses AS answer
    LEFT JOIN response_media AS media
        ON media.response_group_uid = answer.response_group_uid AND media.question_id = answer.question_id
    WHERE answer.question_type = 'OPEN' OR media.transcription IS NOT NULL
),
measured AS (
    SELECT *, regexp_replace(coalesce(answer, ''), '^[\s\x0b\x{85}\p{Z}]+|[\s\x0b\x{85}\p{Z}]+$', '', 'g') AS trimmed FROM texts
)
SELECT
    response_group_uid, question_id, survey_id, question_text, created_at, source, answer,
    length(trimmed) AS characters,
    trimmed = '' AS is_empty,
    regexp_matches(trimmed, '(?i)https?://|www\.|[^\s@]+@[^\s@]+\.[^\s@]') AS has_link,
    CASE WHEN trimmed <> ''
        THEN count(*) OVER (PARTITION BY survey_id, question_id, source, replace(lower(upper(nfc_normalize(replace(trimmed, chr(0), ' ')))), 'ß', 'ss')) END AS repeats
FROM measured;

-- How long each survey was in each status, and how many questions were answered in that time.
-- One row: one survey in one status, from one change to the next.
-- Order by survey_id, since.
-- Left out: the time before a survey was first seen, and the time in which it had vanished at the service.
-- Times are UTC.
-- The earlier of webhook and scan gives the time of a change.
-- The current status lasts until the time of the last answer that a scan could have read.
CREATE OR REPLACE VIEW survey_status_timeline AS
WITH ordered AS (
    SELECT
        survey_id, changed_at AS since, new_status AS status, seen_by,
        lead(changed_at) OVER (PARTITION BY survey_id ORDER BY changed_at, new_status) AS until
    FROM survey_status_changes
),
known AS (
    SELECT max(window_end) AS scanned_until FROM sync_windows WHERE stream = 'responses'
),
ended AS (
    SELECT
        ordered.*, greatest(coalesce(ordered.until, known.scanned_until, ordered.since), ordered.since) AS ends
    FROM ordered CROSS JOIN known
    WHERE ordered.status IS NOT NULL
),
timed AS (
    SELECT
        ended.survey_id, ended.status, ended.since, ended.until, ended.seen_by,
        (epoch_us(ended.ends) - epoch_us(ended.since)) / 86400e6 AS days,
        count(answer.question_id) AS answers
    FROM ended
    LEFT JOIN current_responses AS answer
        ON answer.survey_id = ended.survey_id AND NOT answer.is_skipped
        AND answer.created_at >= ended.since AND answer.created_at < ended.ends
    GROUP BY ended.survey_id, ended.status, ended.since, ended.until, ended.seen_by, ended.ends
)
SELECT
    timed.survey_id, survey.name AS survey_name, timed.status, timed.since, timed.until, timed.seen_by, timed.days,
    timed.answers, CASE WHEN timed.days > 0 THEN timed.answers / timed.days END AS answers_per_day
FROM timed
LEFT JOIN surveys AS survey ON survey.id = timed.survey_id;

-- How far each session went, from sent to completed, from webhooks and scans together.
-- One row: one session; key response_group_uid.
-- Left out: webhooks of other environments, and sessions whose answers are all deleted or have vanished, unless a webhook reports them.
-- Times are UTC.
-- A webhook of a study without a session counts as a session of its own.
-- A UUID in capitals or in braces is the same session as without.
-- Webhooks are sent once and may be lost, and no list shows what was sent or seen: a stage without a time may have been reached.
-- A session was shown the set of questions that was current when it began; or the next one, if it has an answer to a question that only the next one has: the rule of answer_versions.
CREATE OR REPLACE VIEW session_stages AS
WITH deliveries AS (
    SELECT
        *, coalesce(occurred_at, received_at) AS told_at,
        coalesce(TRY_CAST(response_group_uid AS UUID)::VARCHAR, nullif(response_group_uid, ''), 'event ' || event_key) AS session,
        -- Skipped: null, blanks, a list or object that contains only nulls, and a MAXDIFF in which nothing was selected.
        kind = 'answer_submitted' AND (export_question_type IS NOT DISTINCT FROM 'TEXTURLPROMPT' OR NOT CASE
            WHEN response_parsed_json IS NULL
            THEN regexp_full_match(coalesce(response_text, nullif(response_json::VARCHAR, 'null'), ''), '[\s\x0b\x{85}\p{Z}]*')
            WHEN export_question_type = 'MAXDIFF' THEN NOT regexp_matches(response_parsed_json::VARCHAR, '"selected"\s*:\s*[^\sn]')
            ELSE regexp_full_match(
                regexp_replace(response_parsed_json::VARCHAR, '"(?:[^"\\]|\\.)*"\s*:', '', 'g'), '(?:null|[\[\]{},\s])*'
            )
        END) AS is_answer
    FROM webhook_events
    WHERE kind IN ('study_sent', 'study_seen', 'answer_submitted', 'study_submitted')
),
reported AS (
    SELECT
        session AS response_group_uid,
        max(survey_id) AS survey_id,
        min(told_at) AS begun_at,
        min(told_at) FILTER (kind = 'study_sent') AS sent_at,
        min(told_at) FILTER (kind = 'study_seen') AS seen_at,
        min(told_at) FILTER (is_answer) AS answered_at,
        min(told_at) FILTER (kind = 'study_submitted') AS submitted_at,
        max(triggering_event) FILTER (kind = 'study_sent') AS sent_trigger,
        max(triggering_event) FILTER (kind = 'answer_submitted') AS answer_trigger,
        max(platform) AS platform,
        session IN (SELECT coalesce(TRY_CAST(response_group_uid AS UUID)::VARCHAR, response_group_uid) FROM responses) AS is_listed
    FROM deliveries
    GROUP BY session
),
scanned AS (
    SELECT
        response_group_uid, max(survey_id) AS survey_id, min(created_at) AS begun_at,
        min(created_at) FILTER (NOT is_skipped) AS answered_at,
        list(question_id) AS shown_ids, list(created_at) AS shown_at
    FROM current_responses
    GROUP BY response_group_uid
),
sets AS (
    SELECT
        survey_id, set_version, question_ids,
        coalesce(shown_from, TIMESTAMP '0001-01-01 00:00:00') AS begins,
        coalesce(shown_until, TIMESTAMP '9999-12-31 23:59:59.999999') AS ends,
        lead(set_version) OVER survey AS next_version, lead(question_ids) OVER survey AS next_ids,
        [id FOR id IN lead(question_ids) OVER survey IF NOT list_contains(question_ids, id)] AS new_ids
    FROM survey_question_sets
    WINDOW survey AS (PARTITION BY survey_id ORDER BY set_version)
),
joined AS (
    SELECT
        coalesce(scanned.response_group_uid, reported.response_group_uid) AS response_group_uid,
        coalesce(scanned.survey_id, reported.survey_id) AS survey_id,
        least(scanned.begun_at, reported.begun_at) AS begun_at,
        reported.sent_at, reported.seen_at, least(scanned.answered_at, reported.answered_at) AS answered_at, reported.submitted_at,
        scanned.begun_at AS shown_first_at, scanned.shown_ids, scanned.shown_at, reported.platform, reported.sent_trigger, reported.answer_trigger,
        CASE WHEN reported.begun_at IS NULL THEN 'scan' WHEN scanned.begun_at IS NULL AND NOT reported.is_listed THEN 'webhook' ELSE 'both' END
            AS known_by
    FROM scanned
    FULL JOIN reported
        ON reported.response_group_uid = coalesce(TRY_CAST(scanned.response_group_uid AS UUID)::VARCHAR, scanned.response_group_uid)
),
placed AS (
    SELECT
        joined.*,
        CASE WHEN list_has_any(joined.shown_ids, sets.new_ids) THEN sets.next_version ELSE sets.set_version END AS question_set,
        CASE WHEN list_has_any(joined.shown_ids, sets.new_ids) THEN sets.next_ids ELSE sets.question_ids END AS question_ids
    FROM joined
    LEFT JOIN sets
        ON sets.survey_id = joined.survey_id AND joined.begun_at >= sets.begins AND joined.begun_at < sets.ends
)
SELECT
    joined.response_group_uid, joined.survey_id, joined.begun_at, joined.sent_at, joined.seen_at, joined.answered_at,
    joined.submitted_at,
    joined.submitted_at IS NOT NULL OR coalesce(list_contains(joined.shown_ids, joined.question_ids[-1]), false) AS is_completed,
    coalesce(joined.sent_trigger, joined.answer_trigger, snapshot.triggering_event) AS triggering_event,
    coalesce(joined.platform, survey.platform) AS platform,
    -- Of answers at one time, the first by position in the set.
    CASE
        WHEN joined.shown_ids IS NULL THEN joined.question_ids[1]
        ELSE list_min([
            {'place': coalesce(nullif(list_position(joined.question_ids, shown_ids[i]), 0), 2147483647), 'id': shown_ids[i]}
            FOR i IN range(1, len(shown_ids) + 1) IF shown_at[i] = shown_first_at
        ]).id
    END AS first_question_id,
    joined.known_by, joined.question_set
FROM placed AS joined
LEFT JOIN surveys AS survey ON survey.id = joined.survey_id
LEFT JOIN (
    SELECT response_group_uid, max(triggering_event) AS triggering_event FROM visitor_snapshots GROUP BY response_group_uid
) AS snapshot ON snapshot.response_group_uid = joined.response_group_uid;

-- How many of those who were sent a study saw, answered, submitted and completed it.
-- One row: one survey on one day, by trigger, platform and first question.
-- The counts may be added up; make shares anew from the sums.
-- Left out: sessions from before the first webhook of a study or an answer: what was sent then is not known.
-- Without webhooks the view is empty: `studysync serve` receives them.
-- Webhooks are sent once and may be lost: one_source_share is the share that one side alone knows.
-- Sessions that scans have not reached yet are not counted as known by webhooks alone.
CREATE OR REPLACE VIEW response_rates AS
WITH known AS (
    SELECT
        (SELECT min(coalesce(occurred_at, received_at)) FROM webhook_events
         WHERE kind IN ('study_sent', 'study_seen', 'answer_submitted', 'study_submitted')) AS webhooks_since,
        (SELECT max(window_end) FROM sync_windows WHERE stream = 'responses') AS scanned_until
),
counted AS (
    SELECT
        stage.survey_id, stage.begun_at::DATE AS day, stage.triggering_event, stage.platform, stage.first_question_id,
        count(*) AS sessions,
        count(stage.sent_at) AS sent,
        count(stage.seen_at) AS seen,
        count(stage.answered_at) AS answered,
        count(stage.submitted_at) AS submitted,
        count(*) FILTER (stage.is_completed) AS completed,
        count(*) FILTER (stage.sent_at IS NOT NULL AND stage.seen_at IS NOT NULL) AS sent_and_seen,
        count(*) FILTER (stage.sent_at IS NOT NULL AND stage.answered_at IS NOT NULL) AS sent_and_answered,
        count(*) FILTER (stage.known_by = 'webhook' AND stage.answered_at < known.scanned_until) AS only_webhooks,
        count(*) FILTER (stage.known_by = 'scan' AND stage.answered_at IS NOT NULL) AS only_scans,
        any_value(known.webhooks_since) AS webhooks_since
    FROM session_stages AS stage
    JOIN known ON stage.begun_at >= known.webhooks_since
    GROUP BY ALL
)
SELECT
    counted.survey_id, survey.name AS survey_name, counted.day, counted.triggering_event, counted.platform,
    counted.first_question_id, counted.sessions, counted.sent, counted.seen, counted.answered, counted.submitted,
    counted.completed, counted.sent_and_seen, counted.sent_and_answered,
    counted.sent_and_seen / nullif(counted.sent, 0) AS seen_rate,
    counted.sent_and_answered / nullif(counted.sent, 0) AS response_rate,
    counted.completed / nullif(counted.answered, 0) AS completion_rate,
    counted.only_webhooks, counted.only_scans,
    (counted.only_webhooks + counted.only_scans) / nullif(counted.answered, 0) AS one_source_share,
    counted.webhooks_since
FROM counted
LEFT JOIN surveys AS survey ON survey.id = counted.survey_id;

-- Answers that only one source has: reported by a webhook and found by no scan, or found by a scan and reported by no webhook.
-- One row: one answer of one session.
-- Order by answered_at.
-- Left out: times that scans have not reached yet, and answers from before the first webhook of an answer.
-- Webhooks are sent once and may be lost, so rows known by a scan alone are normal; rows known by a webhook alone were deleted before a scan came by, or call for a look.
CREATE OR REPLACE VIEW webhook_mismatches AS
WITH told AS (
    SELECT DISTINCT
        survey_id, response_group_uid, question_text, coalesce(occurred_at, received_at) AS answered_at,
        coalesce(TRY_CAST(response_group_uid AS UUID)::VARCHAR, response_group_uid) AS session
    FROM webhook_events
    WHERE kind = 'answer_submitted'
),
held AS (
    SELECT
        survey_id, response_group_uid, question_text, question_id, created_at,
        coalesce(TRY_CAST(response_group_uid AS UUID)::VARCHAR, response_group_uid) AS session
    FROM responses
),
span AS (
    SELECT
        (SELECT min(answered_at) FROM told) AS first_told,
        (SELECT max(window_end) FROM sync_windows WHERE stream = 'responses') AS scanned_until
)
SELECT
    'webhook' AS known_by, told.survey_id, told.response_group_uid, told.question_text, NULL::BIGINT AS question_id, told.answered_at
FROM told
CROSS JOIN span
WHERE told.answered_at < span.scanned_until
    AND NOT EXISTS (
        SELECT 1 FROM held
        WHERE held.session = told.session AND held.question_text = told.question_text
    )
UNION ALL
SELECT
    'scan' AS known_by, held.survey_id, held.response_group_uid, held.question_text, held.question_id, held.created_at AS answered_at
FROM held
CROSS JOIN span
WHERE held.created_at >= span.first_told
    AND NOT EXISTS (
        SELECT 1 FROM told
        WHERE held.session = told.session AND held.question_text = told.question_text
    );

-- Keys that several records of the service have had: one record is current, the others are in response_history.
-- One row: one key (response_group_uid, question_id) that ever collided, also if its records are gone by now.
-- Order by last_found_at.
-- Left out: themes with one key; rejects has them, with the reason key_collision.
-- Times are UTC.
CREATE OR REPLACE VIEW key_collisions AS
WITH lost AS (
    SELECT response_group_uid, question_id, created_at, updated_at, answer_json, valid_to, _row_hash,
        row_number() OVER (PARTITION BY response_group_uid, question_id ORDER BY valid_to DESC, created_at DESC, _row_hash) AS ordinal
    FROM response_history
    WHERE reason = 'collision'
),
keys AS (
    SELECT
        response_group_uid, question_id,
        count(DISTINCT (created_at, _row_hash)) AS lost_records,
        min(valid_to) AS first_found_at, max(valid_to) AS last_found_at,
        any_value(created_at) FILTER (ordinal = 1) AS lost_created_at,
        any_value(updated_at) FILTER (ordinal = 1) AS lost_updated_at,
        any_value(answer_json) FILTER (ordinal = 1) AS lost_answer_json
    FROM lost
    GROUP BY response_group_uid, question_id
)
SELECT
    keys.response_group_uid, keys.question_id, winner.survey_id, winner.question_text,
    keys.lost_records, keys.first_found_at, keys.last_found_at,
    winner.created_at AS current_created_at, winner.updated_at AS current_updated_at, winner.answer_json AS current_answer_json,
    keys.lost_created_at, keys.lost_updated_at, keys.lost_answer_json
FROM keys
LEFT JOIN responses AS winner
    ON winner.response_group_uid = keys.response_group_uid AND winner.question_id = keys.question_id
    AND winner._vanished_at IS NULL;

-- Why data may be wrong or incomplete: one list of everything that the warehouse knows against itself.
-- One row: one reason for one range of creation time; a reason without a range concerns all times.
-- An empty view means that nothing is known against the data.
-- Left out: how old the data is; see sync_windows.
-- Ranges are of the stream: responses by creation time of the answer.
-- Join it by range and survey; the example questions do.
-- withheld, needs_recheck and clock are as of the last run that changed the warehouse or one of these three; drift as of the last of the newest 200 runs that read the stream.
-- rejects and collisions stay until the warehouse is built again.
-- Times are UTC.
CREATE OR REPLACE VIEW untrusted AS
WITH reports AS (
    SELECT run_id, started_at, report
    FROM sync_runs
    WHERE json_valid(report) AND json_exists(report, '$.drift')
    ORDER BY started_at DESC, run_id DESC
    LIMIT 200
),
last_report AS (
    SELECT started_at, report FROM reports ORDER BY started_at DESC, run_id DESC LIMIT 1
),
told AS (
    SELECT
        started_at, unnest(from_json(
            json_extract(report, '$.untrusted'),
            '[{"reason": "VARCHAR", "stream": "VARCHAR", "survey_id": "BIGINT", "range_start": "VARCHAR", "range_end": "VARCHAR", "records": "BIGINT", "detail": "VARCHAR"}]'
        )) AS part
    FROM last_report
),
unsure AS (
    SELECT
        part.reason, part.stream, part.survey_id, try_cast(part.range_start AS TIMESTAMP) AS range_start,
        try_cast(part.range_end AS TIMESTAMP) AS range_end, part.records, started_at AS found_at, part.detail
    FROM told
),
reject AS (
    SELECT
        rejects.stream, rejects.reason, rejects.field, scan.window_start, scan.window_end, rejects._synced_at,
        CASE WHEN json_valid(raw) THEN try_cast(json_extract_string(
            raw, CASE rejects.stream WHEN 'surveys' THEN '$.id' ELSE '$.surveyId' END
        ) AS BIGINT) END AS survey_id,
        CASE WHEN json_valid(raw) AND rejects.stream IN ('responses', 'themes') THEN
            date_trunc('day', try_cast(json_extract_string(raw, '$.createdAt') AS TIMESTAMP)) END AS day
    FROM rejects
    LEFT JOIN sync_windows AS scan ON scan.scan_id = rejects.scan_id AND rejects.stream IN ('responses', 'themes')
),
scanned AS (
    SELECT DISTINCT stream, survey_id, window_start, window_end
    FROM sync_windows
    WHERE stream IN ('responses', 'themes') AND survey_id IS NULL
    UNION
    SELECT own.stream, own.survey_id, scan.window_start, scan.window_end
    FROM (
        SELECT stream, survey_id FROM sync_windows
        WHERE stream IN ('responses', 'themes') AND survey_id IS NOT NULL
        GROUP BY stream, survey_id
        HAVING sum(rows_read) > 0
    ) AS own
    JOIN sync_windows AS scan ON scan.stream = own.stream AND coalesce(scan.survey_id = own.survey_id, true)
),
gaps AS (
    SELECT
        stream, survey_id, window_start AS range_end,
        max(window_end) OVER (
            PARTITION BY stream, survey_id ORDER BY window_start, window_end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS range_start
    FROM scanned
    QUALIFY range_start < range_end
),
reading AS (
    SELECT unnest(json_keys(report, '$.streams')) AS stream, started_at, run_id, report FROM reports
    UNION ALL
    SELECT 'webhooks', started_at, run_id, report FROM reports WHERE json_exists(report, '$.webhook_events')
),
drifted AS (
    SELECT
        stream, started_at, unnest(from_json(
            json_extract(report, '$.drift'),
            '[{"stream": "VARCHAR", "kind": "VARCHAR", "where": "VARCHAR", "records": "BIGINT", "example": "VARCHAR", "fate": "VARCHAR"}]'
        )) AS drift
    FROM (
        SELECT * FROM reading
        QUALIFY row_number() OVER (PARTITION BY stream ORDER BY started_at DESC, run_id DESC) = 1
    )
)
SELECT
    CASE WHEN reason = 'key_collision' THEN 'collisions' ELSE 'rejects' END AS reason, stream, survey_id,
    coalesce(day, window_start) AS range_start, coalesce(day + INTERVAL 1 DAY, window_end) AS range_end,
    count(*) AS records, max(_synced_at) AS found_at,
    CASE WHEN reason = 'key_collision' THEN 'different records have one key: the table rejects has the others'
        ELSE reason || ' ' || field || ': the table rejects has the records' END AS detail
FROM reject
GROUP BY ALL
UNION ALL
SELECT
    'collisions', 'responses', survey_id, date_trunc('day', coalesce(current_created_at, lost_created_at)) AS day,
    day + INTERVAL 1 DAY, sum(lost_records)::BIGINT, max(last_found_at), 'different records have one key: see key_collisions'
FROM key_collisions
GROUP BY survey_id, day
UNION ALL
SELECT reason, stream, survey_id, range_start, range_end, records, found_at, detail FROM unsure
UNION ALL
SELECT 'uncovered', stream, survey_id, range_start, range_end, NULL, NULL, 'no scan has read this range: run studysync sync'
FROM gaps
UNION ALL
SELECT
    'drift', stream, NULL, NULL, NULL, drift.records, started_at,
    replace(drift.kind, '_', ' ') || ' ' || drift."where" || ' (' || drift.example || '): ' || replace(drift.fate, '_', ' ')
FROM drifted
WHERE drift.stream = stream;
