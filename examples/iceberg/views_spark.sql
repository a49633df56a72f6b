-- The views of studysync for Apache Spark 3.5 or newer. Written by scripts/readers/dialects.py from the views of DuckDB.
--
-- Run this in each session, after `USE catalog.namespace` names the tables: the views are temporary, and some are
-- cached, so `CLEAR CACHE` and run this again after a sync. It needs spark.sql.codegen.wholeStage = false, since Spark takes minutes to compile
-- code for them. Days, weeks and months are UTC.

-- The report time zone: how far its local time is ahead of UTC, from one change of the clock to the next.
-- One row: one offset; UTC has a single one.
-- Join it to a time, for days of your own: at >= coalesce(valid_from, at) AND at < coalesce(valid_to, TIMESTAMP 'infinity'), then at + to_seconds(offset_seconds) is the local time.
-- Days, weeks and months of the other views are of this zone: [warehouse] report_time_zone, or --time-zone.
-- Left out: changes of the clock before 1970 and from 2100.
-- Stored times stay UTC.
CREATE OR REPLACE TEMPORARY VIEW time_zone_offsets AS
SELECT
  'UTC' AS time_zone,
  CAST(offsets.valid_from AS TIMESTAMP_NTZ) AS valid_from,
  CAST(offsets.valid_to AS TIMESTAMP_NTZ) AS valid_to,
  CAST(offsets.offset_seconds AS BIGINT) AS offset_seconds
FROM VALUES
  (NULL, NULL, 0) AS offsets(valid_from, valid_to, offset_seconds);

-- The current answers.
-- One row: one answered (or skipped) question of one session; key (response_group_uid, question_id).
-- Left out: answers that are deleted or have vanished at the service, and internal columns.
-- An empty external_user_id or partner_anonymous_id reads as NULL.
-- Times are UTC.
CREATE OR REPLACE TEMPORARY VIEW current_responses AS
SELECT
  responses.response_group_uid AS response_group_uid,
  responses.question_id AS question_id,
  responses.survey_id AS survey_id,
  responses.visitor_id AS visitor_id,
  responses.visitor_uuid AS visitor_uuid,
  NULLIF(responses.external_user_id, '') AS external_user_id,
  NULLIF(responses.partner_anonymous_id, '') AS partner_anonymous_id,
  responses.question_type AS question_type,
  responses.question_text AS question_text,
  responses.created_at AS created_at,
  responses.updated_at AS updated_at,
  responses.answer_text AS answer_text,
  responses.answer_number AS answer_number,
  responses.answer_bool AS answer_bool,
  responses.answer_json AS answer_json,
  responses.is_skipped AS is_skipped,
  responses.selected_indexes AS selected_indexes,
  responses.url AS url,
  responses.meta_browser AS meta_browser,
  responses.meta_os AS meta_os,
  responses.meta_language AS meta_language,
  responses.meta_href AS meta_href,
  responses.meta_user_agent AS meta_user_agent,
  responses.meta_client_width AS meta_client_width,
  responses.meta_client_height AS meta_client_height,
  responses.meta_screen_width AS meta_screen_width,
  responses.meta_screen_height AS meta_screen_height,
  responses.meta_extra AS meta_extra,
  responses.custom_metadata AS custom_metadata,
  responses.extra AS extra,
  responses._first_seen_at AS _first_seen_at,
  responses._synced_at AS _synced_at
FROM responses AS responses
WHERE
  responses.deleted_at IS NULL AND responses._vanished_at IS NULL;

-- The versions of every question: wording, options and position, in the order in which scans saw them.
-- One row: one version of one question of one survey; key (survey_id, question_id, version).
-- Left out: questions that no scan of surveys saw, and definitions without an id.
-- Times are UTC.
-- A scan sees a change some time after it was made, so shown_from and shown_until are only as exact as the interval between scans of surveys.
-- For the version that an answer was given to see answer_versions.
-- A survey that names a question twice: the first of them.
CREATE OR REPLACE TEMPORARY VIEW question_versions AS
WITH defined AS (
  SELECT
    survey_question_history.survey_id AS survey_id,
    survey_question_history.question_id AS question_id,
    survey_question_history.question_ordinal AS question_ordinal,
    survey_question_history.valid_from AS valid_from,
    COALESCE(survey_question_history.valid_to, CAST('9999-12-31 23:59:59.999999' AS TIMESTAMP_NTZ)) AS ends
  FROM survey_question_history AS survey_question_history
  WHERE
    NOT survey_question_history.question_id IS NULL
), candidates AS (
  SELECT
    defined.survey_id AS survey_id,
    defined.question_id AS question_id,
    defined.question_ordinal AS question_ordinal,
    defined.valid_from AS valid_from,
    defined.ends AS ends,
    defined.valid_from AS begins
  FROM defined AS defined
  UNION ALL
  SELECT DISTINCT
    later.survey_id AS survey_id,
    later.question_id AS question_id,
    later.question_ordinal AS question_ordinal,
    later.valid_from AS valid_from,
    later.ends AS ends,
    earlier.ends AS ends
  FROM defined AS later
  JOIN defined AS earlier
    ON earlier.survey_id = later.survey_id
    AND earlier.question_id = later.question_id
    AND earlier.question_ordinal < later.question_ordinal
    AND earlier.ends > later.valid_from
    AND earlier.ends < later.ends
), numbered AS (
  SELECT
    candidate.survey_id AS survey_id,
    candidate.question_id AS question_id,
    candidate.question_ordinal AS question_ordinal,
    candidate.valid_from AS valid_from,
    candidate.ends AS ends,
    candidate.begins AS begins,
    ROW_NUMBER() OVER question AS version,
    LEAD(candidate.begins) OVER question AS shown_until
  FROM candidates AS candidate
  ANTI JOIN defined AS earlier
    ON earlier.survey_id = candidate.survey_id
    AND earlier.question_id = candidate.question_id
    AND earlier.question_ordinal < candidate.question_ordinal
    AND earlier.valid_from <= candidate.begins
    AND earlier.ends > candidate.begins
  WINDOW question AS (PARTITION BY candidate.survey_id, candidate.question_id ORDER BY candidate.begins NULLS LAST)
), labelled AS (
  SELECT
    question.survey_id AS survey_id,
    question.question_ordinal AS question_ordinal,
    question.valid_from AS valid_from,
    TRANSFORM(ARRAY_SORT(COLLECT_LIST(STRUCT(option.option_ordinal AS place, option.label AS value))), pair -> pair.value) AS option_labels
  FROM survey_question_history AS question
  JOIN survey_question_option_history AS option
    ON option.survey_id = question.survey_id
    AND option.question_ordinal = question.question_ordinal
    AND option.valid_from <= question.valid_from
    AND COALESCE(option.valid_to, CAST('9999-12-31 23:59:59.999999' AS TIMESTAMP_NTZ)) > question.valid_from
  GROUP BY
    question.survey_id,
    question.question_ordinal,
    question.valid_from
)
SELECT
  numbered.survey_id AS survey_id,
  numbered.question_id AS question_id,
  numbered.version AS version,
  numbered.question_ordinal AS question_ordinal,
  question.question_type AS question_type,
  question.question_text AS question_text,
  question.intro_text AS intro_text,
  question.left_label AS left_label,
  question.right_label AS right_label,
  question.options AS options,
  question.options_properties AS options_properties,
  question.routing_options AS routing_options,
  numbered.begins AS valid_from,
  LEAST(question.valid_to, numbered.shown_until) AS valid_to,
  CASE WHEN numbered.version > 1 THEN numbered.begins END AS shown_from,
  numbered.shown_until AS shown_until,
  LEAST(question.valid_to, numbered.shown_until) IS NULL AS is_current,
  labelled.option_labels AS option_labels
FROM numbered AS numbered
JOIN survey_question_history AS question
  ON question.survey_id = numbered.survey_id
  AND question.question_ordinal = numbered.question_ordinal
  AND question.valid_from = numbered.valid_from
LEFT JOIN labelled AS labelled
  ON labelled.survey_id = numbered.survey_id
  AND labelled.question_ordinal = numbered.question_ordinal
  AND labelled.valid_from = numbered.valid_from;
CACHE LAZY TABLE question_versions;

-- The scale of every version of every LIKERT question whose definition has one.
-- One row: one version of one question of one survey; key (survey_id, question_id, version).
-- Left out: questions that no scan of surveys saw, and definitions without a scale: see likert_values for those.
-- The scale comes from the options, if there are two or more.
-- Else it is 1 to the property "range", if there is one.
-- Options at an end whose label is no point are not part of the scale: "N/A", "Not applicable", "Don't know", "Prefer not to say" and their like, also in other languages; abbreviations such as "k.
-- A."; a label without a number beside three or more points that are numbers.
-- The values of the points are the integers that their labels begin with, if these go up or down by 1.
-- Else they are the positions of the options, from 1: so it is for words, and for labels such as 18-24, 1-2 times or 5+ years.
CREATE OR REPLACE TEMPORARY VIEW question_scales AS
WITH spelled AS (
  SELECT
    question_versions.survey_id AS survey_id,
    question_versions.question_id AS question_id,
    question_versions.version AS version,
    question_versions.option_labels AS labels,
    TRY_CAST(REGEXP_EXTRACT(question_versions.options_properties, '"range"\\s*:\\s*"?([0-9]{1,2})\\s*["},]') AS BIGINT) AS value_range,
    TRANSFORM(
      question_versions.option_labels,
      label -> REGEXP_REPLACE(
        REPLACE(REPLACE(LOWER(label), '\'', ''), '’', ''),
        '(?s)^[^\\pL\\pN]*([0-9]+[^\\pL\\pN]+)?(.*?)[^\\pL\\pN]*$',
        '$2'
      )
    ) AS words,
    TRANSFORM(
      question_versions.option_labels,
      label -> TRY_CAST(REGEXP_EXTRACT(label, '^\\s*([+-]?[0-9]{1,4})([^0-9]|$)') AS BIGINT)
    ) AS numbers,
    TRANSFORM(
      question_versions.option_labels,
      label -> label RLIKE '^\\s*[+-]?[0-9]+([.,+]|\\s*(-|–|—|−|~|〜|～|/|to|bis|à|a)\\s*[+-]?[0-9]|\\s*\\+)'
    ) AS are_spans
  FROM question_versions AS question_versions
  WHERE
    question_versions.question_type = 'LIKERT'
  LIMIT 2147483647
), phrased AS (
  SELECT
    spelled.survey_id AS survey_id,
    spelled.question_id AS question_id,
    spelled.version AS version,
    spelled.labels AS labels,
    spelled.value_range AS value_range,
    spelled.words AS words,
    spelled.numbers AS numbers,
    spelled.are_spans AS are_spans,
    TRANSFORM(spelled.labels, label -> LOWER(label) RLIKE '^[\\s(\\[]*\\pL{1,2}([./\\\\]\\s*\\pL{1,2}){1,3}[.)\\]\\s]*$') AS are_short,
    TRANSFORM(
      spelled.words,
      word -> word RLIKE '^((n ?[./\\\\]? ?a|na|nsp|unknown|undecided|unsure|(im |i am |am )?not sure|not relevant|none of (the above|these)|other)$|(n ?[./\\\\] ?a\\b|(not|non|in)[ -]?applicable|(it |this )?(does ?nt|does not|did not|didnt) apply|(i |we )?(do not|dont|did not|didnt|cannot|can not|cant|could not|couldnt) (know|say|tell|judge|rate|answer|assess|evaluate|comment|remember|recall)|unable to |no (opinion|answer|response|comment|idea)\\b|(i |id |i would |would )*(prefer|rather|choose|wish) (not|to not)\\b|(i )?(decline|refuse)d? to )|(keine? (angaben?|antwort|meinung|aussage)|(ich )?wei(ß|ss) (ich |es )?nicht|(das )?kann ich nicht|nicht (zutreffend|anwendbar|relevant|beurteilbar)|entfällt|möchte ich nicht|sans (objet|opinion|avis|réponse)|non (applicable|concerné)|(je )?ne (sais|sait|se prononce) pas|ne sapplique pas|(je )?préfère ne pas|no (aplica|procede|corresponde|contesta|opina)|(yo )?no (lo )?s(é|abe)|prefiero no|sin (opinión|respuesta)|n[ãa]o (se aplica|aplicável|sei|sabe)|prefiro n[ãa]o|sem (opinião|resposta))|(non (applicabile|pertinente|saprei|si applica|so$)|preferisco non|nessuna opinione|niet van toepassing|weet (ik )?niet|geen (mening|antwoord)|(dat )?(zeg|wil) ik (liever )?niet|vet (ej|inte|ikke)|ved ikke|(ej|inte|ikke) (tillämpligt|aktuellt|aktuelt|relevant)|ingen (åsikt|mening)|(vil|ønsker|vill) (ikke|inte)|en osaa sanoa|en tiedä|ei koske|nie (dotyczy|wiem)|trudno powiedzieć|wolę nie|nevím|neviem|netýká se|nechci|bilmiyorum|fikrim yok|uygun değil|(söylemek|belirtmek) istemiyorum|nem (tudom|vonatkozik)|nu (știu|stiu|se aplică)|tidak (tahu|berlaku)|không (biết|áp dụng))|(не (знаю|применимо|хочу отвечать)|неприменимо|затрудняюсь|нет (мнения|ответа)|важко сказати|δεν (ξέρω|γνωρίζω)|(分|わ)から?ない|わかりません|該当(なし|しない)|答えたくない|回答しない|無回答|不(适用|適用|知道|清楚|愿|願)|[无無]意[见見]|해당 ?(사항 ?)?없음|모름|모르겠|잘 모르|لا (أعرف|ينطبق)|לא (יודע|רלוונטי)))'
    ) AS are_phrases
  FROM spelled AS spelled
  LIMIT 2147483647
), told AS (
  SELECT
    phrased.survey_id AS survey_id,
    phrased.question_id AS question_id,
    phrased.version AS version,
    phrased.labels AS labels,
    phrased.value_range AS value_range,
    phrased.words AS words,
    phrased.numbers AS numbers,
    phrased.are_spans AS are_spans,
    phrased.are_short AS are_short,
    phrased.are_phrases AS are_phrases,
    ARRAY_JOIN(
      TRANSFORM(
        FILTER(
          IF((
            ARRAY_SIZE(phrased.labels) + 1 - 1
          ) < 1, ARRAY(), SEQUENCE(1, (
            ARRAY_SIZE(phrased.labels) + 1 - 1
          ))),
          place -> NOT TRY_ELEMENT_AT(phrased.are_phrases, CAST(place AS INT))
        ),
        place -> TRY_ELEMENT_AT(phrased.words, CAST(place AS INT))
      ),
      ' '
    ) AS others,
    ARRAY_SIZE(FILTER(phrased.words, word -> word = '')) AS marks
  FROM phrased AS phrased
  LIMIT 2147483647
), ends AS (
  SELECT
    told.survey_id AS survey_id,
    told.question_id AS question_id,
    told.version AS version,
    told.labels AS labels,
    told.value_range AS value_range,
    told.words AS words,
    told.numbers AS numbers,
    told.are_spans AS are_spans,
    told.are_short AS are_short,
    told.are_phrases AS are_phrases,
    told.others AS others,
    told.marks AS marks,
    FILTER(
      IF((
        ARRAY_SIZE(told.labels) + 1 - 1
      ) < 1, ARRAY(), SEQUENCE(1, (
        ARRAY_SIZE(told.labels) + 1 - 1
      ))),
      place -> NOT COALESCE(
        CASE
          WHEN TRY_ELEMENT_AT(told.words, CAST(place AS INT)) = ''
          THEN told.marks = 1 AND TRY_ELEMENT_AT(told.labels, CAST(place AS INT)) RLIKE '^\\s*[-–—?./…]\\s*$'
          WHEN TRY_ELEMENT_AT(told.are_phrases, CAST(place AS INT))
          THEN NOT COALESCE(
            CONTAINS(
              told.others,
              NULLIF(
                REGEXP_EXTRACT(
                  TRY_ELEMENT_AT(told.words, CAST(place AS INT)),
                  '(sure|relevant|applicable|apply|know|opinion|answer|decide|remember|recall)'
                ),
                ''
              )
            ),
            FALSE
          )
          ELSE TRY_ELEMENT_AT(told.are_short, CAST(place AS INT))
        END,
        FALSE
      )
    ) AS points
  FROM told AS told
  LIMIT 2147483647
), measured AS (
  SELECT
    ends.survey_id AS survey_id,
    ends.question_id AS question_id,
    ends.version AS version,
    ends.labels AS labels,
    ends.value_range AS value_range,
    ends.words AS words,
    ends.numbers AS numbers,
    ends.are_spans AS are_spans,
    ends.are_short AS are_short,
    ends.are_phrases AS are_phrases,
    ends.others AS others,
    ends.marks AS marks,
    ends.points AS points,
    ARRAY_MIN(ends.points) AS first_point,
    ARRAY_MAX(ends.points) AS last_point,
    FILTER(
      IF(
        (
          ARRAY_MAX(ends.points) + 1 - 1
        ) < ARRAY_MIN(ends.points),
        ARRAY(),
        SEQUENCE(ARRAY_MIN(ends.points), (
          ARRAY_MAX(ends.points) + 1 - 1
        ))
      ),
      place -> NOT TRY_ELEMENT_AT(ends.numbers, CAST(place AS INT)) IS NULL
      AND NOT TRY_ELEMENT_AT(ends.are_spans, CAST(place AS INT))
    ) AS places
  FROM ends AS ends
  LIMIT 2147483647
), shaped AS (
  SELECT
    measured.survey_id AS survey_id,
    measured.question_id AS question_id,
    measured.version AS version,
    measured.labels AS labels,
    measured.value_range AS value_range,
    measured.words AS words,
    measured.numbers AS numbers,
    measured.are_spans AS are_spans,
    measured.are_short AS are_short,
    measured.are_phrases AS are_phrases,
    measured.others AS others,
    measured.marks AS marks,
    measured.points AS points,
    measured.first_point AS first_point,
    measured.last_point AS last_point,
    measured.places AS places,
    ARRAY_MIN(measured.places) AS first_number,
    ARRAY_MAX(measured.places) AS last_number,
    ARRAY_MIN(TRANSFORM(measured.places, place -> TRY_ELEMENT_AT(measured.numbers, CAST(place AS INT)))) AS low,
    ARRAY_MAX(TRANSFORM(measured.places, place -> TRY_ELEMENT_AT(measured.numbers, CAST(place AS INT)))) AS high,
    ARRAY_SIZE(
      ARRAY_DISTINCT(TRANSFORM(measured.places, place -> TRY_ELEMENT_AT(measured.numbers, CAST(place AS INT)) - place))
    ) = 1 AS goes_up,
    ARRAY_SIZE(
      ARRAY_DISTINCT(TRANSFORM(measured.places, place -> TRY_ELEMENT_AT(measured.numbers, CAST(place AS INT)) + place))
    ) = 1 AS goes_down
  FROM measured AS measured
  LIMIT 2147483647
), judged AS (
  SELECT
    shaped.survey_id AS survey_id,
    shaped.question_id AS question_id,
    shaped.version AS version,
    shaped.labels AS labels,
    shaped.value_range AS value_range,
    shaped.words AS words,
    shaped.numbers AS numbers,
    shaped.are_spans AS are_spans,
    shaped.are_short AS are_short,
    shaped.are_phrases AS are_phrases,
    shaped.others AS others,
    shaped.marks AS marks,
    shaped.points AS points,
    shaped.first_point AS first_point,
    shaped.last_point AS last_point,
    shaped.places AS places,
    shaped.first_number AS first_number,
    shaped.last_number AS last_number,
    shaped.low AS low,
    shaped.high AS high,
    shaped.goes_up AS goes_up,
    shaped.goes_down AS goes_down,
    ARRAY_SIZE(shaped.places) >= 2
    AND ARRAY_SIZE(shaped.places) = shaped.last_number - shaped.first_number + 1
    AND (
      shaped.goes_up OR shaped.goes_down
    )
    AND CASE
      WHEN shaped.first_number = shaped.first_point AND shaped.last_number = shaped.last_point
      THEN TRUE
      WHEN ARRAY_SIZE(shaped.places) < 3
      OR (
        shaped.first_number > shaped.first_point AND shaped.last_number < shaped.last_point
      )
      THEN FALSE
      WHEN ARRAY_SIZE(
        FILTER(
          IF(
            shaped.first_point > (
              shaped.last_point + 1 - 1
            ),
            ARRAY(),
            SEQUENCE(shaped.first_point, (
              shaped.last_point + 1 - 1
            ))
          ),
          place -> (
            place < shaped.first_number OR place > shaped.last_number
          )
          AND TRY_ELEMENT_AT(shaped.labels, CAST(place AS INT)) RLIKE '(?i)\\pN|^\\s*(no|none|never|nothing|zero|not at all)\\b'
        )
      ) > 0
      THEN FALSE
      WHEN (
        shaped.first_number > shaped.first_point
      ) = shaped.goes_up
      THEN shaped.low <= 1
      ELSE TRUE
    END AS is_counted
  FROM shaped AS shaped
  LIMIT 2147483647
), scaled AS (
  SELECT
    judged.survey_id AS survey_id,
    judged.question_id AS question_id,
    judged.version AS version,
    judged.labels AS labels,
    judged.value_range AS value_range,
    judged.words AS words,
    judged.numbers AS numbers,
    judged.are_spans AS are_spans,
    judged.are_short AS are_short,
    judged.are_phrases AS are_phrases,
    judged.others AS others,
    judged.marks AS marks,
    judged.points AS points,
    judged.first_point AS first_point,
    judged.last_point AS last_point,
    judged.places AS places,
    judged.first_number AS first_number,
    judged.last_number AS last_number,
    judged.low AS low,
    judged.high AS high,
    judged.goes_up AS goes_up,
    judged.goes_down AS goes_down,
    judged.is_counted AS is_counted,
    CASE WHEN judged.is_counted THEN judged.low ELSE judged.first_point END AS lowest,
    CASE WHEN judged.is_counted THEN judged.high ELSE judged.last_point END AS highest,
    CASE WHEN judged.is_counted THEN judged.first_number ELSE judged.first_point END AS first_place,
    CASE WHEN judged.is_counted THEN judged.last_number ELSE judged.last_point END AS last_place,
    CASE
      WHEN CASE WHEN judged.is_counted THEN judged.last_number ELSE judged.last_point END >= CASE WHEN judged.is_counted THEN judged.first_number ELSE judged.first_point END
      AND ARRAY_SIZE(judged.labels) >= 2
      THEN 'options'
      WHEN judged.value_range >= 2
      THEN 'properties'
    END AS scale_source
  FROM judged AS judged
  LIMIT 2147483647
)
SELECT
  scaled.survey_id AS survey_id,
  scaled.question_id AS question_id,
  scaled.version AS version,
  CASE scaled.scale_source WHEN 'options' THEN scaled.lowest ELSE 1 END AS scale_min,
  CASE scaled.scale_source WHEN 'options' THEN scaled.highest ELSE scaled.value_range END AS scale_max,
  scaled.scale_source AS scale_source,
  CASE
    WHEN scaled.scale_source = 'options'
    THEN FILTER(
      ARRAY_SORT(
        ARRAY_DISTINCT(
          FLATTEN(
            TRANSFORM(
              FILTER(
                IF((
                  ARRAY_SIZE(scaled.labels) + 1 - 1
                ) < 1, ARRAY(), SEQUENCE(1, (
                  ARRAY_SIZE(scaled.labels) + 1 - 1
                ))),
                place -> place < scaled.first_place OR place > scaled.last_place
              ),
              place -> ARRAY(
                TRY_ELEMENT_AT(scaled.numbers, CAST(place AS INT)),
                place,
                CASE
                  WHEN scaled.is_counted AND scaled.goes_up
                  THEN scaled.lowest + place - scaled.first_place
                  WHEN scaled.is_counted
                  THEN scaled.highest - (
                    place - scaled.first_place
                  )
                END
              )
            )
          )
        )
      ),
      value -> value < scaled.lowest OR value > scaled.highest
    )
  END AS not_rated_values
FROM scaled AS scaled
WHERE
  NOT scaled.scale_source IS NULL;
CACHE LAZY TABLE question_scales;

-- The versions of every survey's set of questions: which questions it had, in which order, from when until when.
-- One row: one version of one survey's set of questions; key (survey_id, set_version).
-- Left out: surveys that no scan saw, definitions without an id, and the time in which a survey had no questions.
-- Times are UTC.
-- A question that is reworded, or gets other options, makes no version.
-- A question that is named twice stands at its first position.
CREATE OR REPLACE TEMPORARY VIEW survey_question_sets AS
WITH defined AS (
  SELECT
    survey_question_history.survey_id AS survey_id,
    survey_question_history.question_id AS question_id,
    survey_question_history.question_ordinal AS question_ordinal,
    survey_question_history.valid_from AS valid_from,
    COALESCE(survey_question_history.valid_to, CAST('9999-12-31 23:59:59.999999' AS TIMESTAMP_NTZ)) AS ends
  FROM survey_question_history AS survey_question_history
  WHERE
    NOT survey_question_history.question_id IS NULL
), moments AS (
  SELECT
    defined.survey_id AS survey_id,
    defined.valid_from AS moment
  FROM defined AS defined
  UNION
  SELECT
    defined.survey_id AS survey_id,
    defined.ends AS ends
  FROM defined AS defined
), placed AS (
  SELECT
    moments.survey_id AS survey_id,
    moments.moment AS moment,
    defined.question_id AS question_id,
    MIN(defined.question_ordinal) AS question_ordinal
  FROM moments AS moments
  JOIN defined AS defined
    ON defined.survey_id = moments.survey_id AND defined.valid_from <= moments.moment AND defined.ends > moments.moment
  GROUP BY
    moments.survey_id,
    moments.moment,
    defined.question_id
), sets AS (
  SELECT
    placed.survey_id AS survey_id,
    placed.moment AS moment,
    TRANSFORM(
      ARRAY_SORT(COLLECT_LIST(STRUCT(placed.question_ordinal AS place, placed.question_id AS value))),
      pair -> pair.value
    ) AS question_ids
  FROM placed AS placed
  GROUP BY
    placed.survey_id,
    placed.moment
), begun AS (
  SELECT
    qualified.survey_id,
    qualified.moment,
    qualified.question_ids
  FROM (
    SELECT
      sets.survey_id AS survey_id,
      sets.moment AS moment,
      sets.question_ids AS question_ids,
      sets.question_ids IS DISTINCT FROM LAG(sets.question_ids) OVER (PARTITION BY sets.survey_id ORDER BY sets.moment NULLS LAST) AS is_kept
    FROM sets AS sets
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  begun.survey_id AS survey_id,
  ROW_NUMBER() OVER survey AS set_version,
  begun.question_ids AS question_ids,
  begun.moment AS valid_from,
  CASE WHEN ROW_NUMBER() OVER survey > 1 THEN begun.moment END AS shown_from,
  LEAD(begun.moment) OVER survey AS shown_until
FROM begun AS begun
WINDOW survey AS (PARTITION BY begun.survey_id ORDER BY begun.moment NULLS LAST);

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
CREATE OR REPLACE TEMPORARY VIEW answer_versions AS
WITH answers AS (
  SELECT
    current_responses.response_group_uid AS response_group_uid,
    current_responses.question_id AS question_id,
    current_responses.survey_id AS survey_id,
    current_responses.question_type AS question_type,
    current_responses.question_text AS question_text,
    current_responses.created_at AS created_at,
    current_responses.is_skipped AS is_skipped,
    current_responses.answer_number AS answer_number,
    CASE
      WHEN NOT current_responses.is_skipped
      AND NOT current_responses.answer_text IS NULL
      AND current_responses.question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT')
      THEN current_responses.selected_indexes
    END AS selected_indexes,
    CASE
      WHEN current_responses.is_skipped OR current_responses.answer_text IS NULL
      THEN NULL
      WHEN current_responses.question_type = 'MULTIPLECHOICE'
      THEN ARRAY(current_responses.answer_text)
      WHEN current_responses.question_type IS DISTINCT FROM 'MULTIPLESELECT'
      THEN NULL
      WHEN STARTSWITH(LTRIM(current_responses.answer_text), '[')
      AND NOT FROM_JSON(current_responses.answer_text, 'array<string>') IS NULL
      THEN FROM_JSON(current_responses.answer_text, 'array<string>')
      WHEN ARRAY_SIZE(current_responses.selected_indexes) > 1
      THEN NULL
      ELSE ARRAY(current_responses.answer_text)
    END AS chosen_labels
  FROM current_responses AS current_responses
  LIMIT 2147483647
), defined AS (
  SELECT
    version.survey_id AS survey_id,
    version.question_id AS question_id,
    version.version AS version,
    version.question_text AS question_text,
    version.option_labels AS option_labels,
    COALESCE(version.shown_from, CAST('0001-01-01 00:00:00' AS TIMESTAMP_NTZ)) AS timed_from,
    scale.scale_min AS scale_min,
    scale.scale_max AS scale_max,
    scale.scale_source AS scale_source,
    scale.not_rated_values AS not_rated_values,
    CONCAT(
      IF(scale.scale_min > (
        scale.scale_max + 1 - 1
      ), ARRAY(), SEQUENCE(scale.scale_min, (
        scale.scale_max + 1 - 1
      ))),
      scale.not_rated_values
    ) AS scale_values,
    COUNT(*) OVER question > 1 AS has_changed
  FROM question_versions AS version
  LEFT JOIN question_scales AS scale
    ON scale.survey_id = version.survey_id
    AND scale.question_id = version.question_id
    AND scale.version = version.version
  WINDOW question AS (PARTITION BY version.survey_id, version.question_id)
  LIMIT 2147483647
), spans AS (
  SELECT
    _0.survey_id AS survey_id,
    _0.question_id AS question_id,
    _0.wording AS wording,
    _0.version AS version,
    CASE WHEN ROW_NUMBER() OVER worded = 1 THEN CAST('0001-01-01 00:00:00' AS TIMESTAMP_NTZ) ELSE _0.timed_from END AS begins,
    COALESCE(LEAD(_0.timed_from) OVER worded, CAST('9999-12-31 23:59:59.999999' AS TIMESTAMP_NTZ)) AS ends,
    LEAD(_0.version) OVER worded AS next_version,
    FILTER(LEAD(_0.option_labels) OVER worded, label -> NOT ARRAY_CONTAINS(COALESCE(_0.option_labels, ARRAY()), label)) AS new_labels,
    CASE
      WHEN NOT _0.scale_source IS NULL
      THEN TRANSFORM(
        FILTER(LEAD(_0.scale_values) OVER worded, value -> NOT ARRAY_CONTAINS(_0.scale_values, value)),
        value -> CAST(value AS DOUBLE)
      )
    END AS new_values,
    COALESCE(ARRAY_SIZE(_0.option_labels), 0) AS options,
    ARRAY_SIZE(LEAD(_0.option_labels) OVER worded) AS next_options,
    _0.question_text AS question_text,
    _0.scale_min AS scale_min,
    _0.scale_max AS scale_max,
    _0.scale_source AS scale_source,
    _0.not_rated_values AS not_rated_values,
    LEAD(_0.scale_min) OVER worded AS next_min,
    LEAD(_0.scale_max) OVER worded AS next_max,
    LEAD(_0.scale_source) OVER worded AS next_source,
    LEAD(_0.not_rated_values) OVER worded AS next_not_rated
  FROM (
    SELECT
      defined.survey_id AS survey_id,
      defined.question_id AS question_id,
      defined.version AS version,
      defined.question_text AS question_text,
      defined.option_labels AS option_labels,
      defined.timed_from AS timed_from,
      defined.scale_min AS scale_min,
      defined.scale_max AS scale_max,
      defined.scale_source AS scale_source,
      defined.not_rated_values AS not_rated_values,
      defined.scale_values AS scale_values,
      defined.has_changed AS has_changed,
      NULL AS wording
    FROM defined AS defined
    UNION ALL
    SELECT
      defined.survey_id AS survey_id,
      defined.question_id AS question_id,
      defined.version AS version,
      defined.question_text AS question_text,
      defined.option_labels AS option_labels,
      defined.timed_from AS timed_from,
      defined.scale_min AS scale_min,
      defined.scale_max AS scale_max,
      defined.scale_source AS scale_source,
      defined.not_rated_values AS not_rated_values,
      defined.scale_values AS scale_values,
      defined.has_changed AS has_changed,
      defined.question_text AS question_text
    FROM defined AS defined
    WHERE
      defined.has_changed AND NOT defined.question_text IS NULL
  ) AS _0
  WINDOW worded AS (PARTITION BY _0.survey_id, _0.question_id, _0.wording ORDER BY _0.version NULLS LAST)
  LIMIT 2147483647
), wordings AS (
  SELECT
    spans.survey_id AS survey_id,
    spans.question_id AS question_id,
    COLLECT_LIST(DISTINCT spans.wording) AS wordings
  FROM spans AS spans
  WHERE
    NOT spans.wording IS NULL
  GROUP BY
    spans.survey_id,
    spans.question_id
  LIMIT 2147483647
), placed AS (
  SELECT
    answer.response_group_uid AS response_group_uid,
    answer.question_id AS question_id,
    answer.survey_id AS survey_id,
    answer.question_type AS question_type,
    answer.question_text AS question_text,
    answer.created_at AS created_at,
    answer.is_skipped AS is_skipped,
    answer.answer_number AS answer_number,
    answer.selected_indexes AS selected_indexes,
    answer.chosen_labels AS chosen_labels,
    span.wording AS wording,
    span.version AS version,
    span.begins AS begins,
    span.ends AS ends,
    span.next_version AS next_version,
    span.new_labels AS new_labels,
    span.new_values AS new_values,
    span.options AS options,
    span.next_options AS next_options,
    span.scale_min AS scale_min,
    span.scale_max AS scale_max,
    span.scale_source AS scale_source,
    span.not_rated_values AS not_rated_values,
    span.next_min AS next_min,
    span.next_max AS next_max,
    span.next_source AS next_source,
    span.next_not_rated AS next_not_rated,
    COALESCE(span.question_text = answer.question_text, FALSE) AS is_wording_shown,
    CASE
      WHEN span.next_version IS NULL
      THEN FALSE
      WHEN answer.question_type = 'LIKERT'
      THEN ARRAY_CONTAINS(span.new_values, answer.answer_number)
      WHEN NOT answer.question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT')
      THEN FALSE
      WHEN answer.chosen_labels IS NULL
      THEN ARRAY_MAX(answer.selected_indexes) BETWEEN span.options + 1 AND span.next_options
      ELSE ARRAYS_OVERLAP(answer.chosen_labels, span.new_labels)
    END AS is_next
  FROM answers AS answer
  LEFT JOIN wordings AS wordings
    ON wordings.survey_id = answer.survey_id AND wordings.question_id = answer.question_id
  LEFT JOIN spans AS span
    ON span.survey_id = answer.survey_id
    AND span.question_id = answer.question_id
    AND span.wording IS NOT DISTINCT FROM CASE WHEN ARRAY_CONTAINS(wordings.wordings, answer.question_text) THEN answer.question_text END
    AND answer.created_at >= span.begins
    AND answer.created_at < span.ends
  LIMIT 2147483647
)
SELECT
  placed.response_group_uid AS response_group_uid,
  placed.question_id AS question_id,
  placed.survey_id AS survey_id,
  CASE WHEN placed.is_next THEN placed.next_version ELSE placed.version END AS version,
  placed.is_wording_shown AS is_wording_shown,
  placed.question_type AS question_type,
  placed.question_text AS question_text,
  placed.created_at AS created_at,
  placed.is_skipped AS is_skipped,
  placed.answer_number AS answer_number,
  placed.chosen_labels AS chosen_labels,
  CASE
    WHEN placed.chosen_labels IS NULL OR ARRAY_SIZE(placed.chosen_labels) = ARRAY_SIZE(placed.selected_indexes)
    THEN placed.selected_indexes
  END AS chosen_indexes,
  CASE WHEN placed.is_next THEN placed.next_min ELSE placed.scale_min END AS scale_min,
  CASE WHEN placed.is_next THEN placed.next_max ELSE placed.scale_max END AS scale_max,
  CASE WHEN placed.is_next THEN placed.next_source ELSE placed.scale_source END AS scale_source,
  CASE WHEN placed.is_next THEN placed.next_not_rated ELSE placed.not_rated_values END AS not_rated_values
FROM placed AS placed;
CACHE LAZY TABLE answer_versions;

-- The chosen options of current answers (MULTIPLECHOICE, MULTIPLESELECT).
-- One row: one chosen option of one answer.
-- Left out: rows of answers that are deleted or have vanished at the service.
-- Times are UTC.
-- The label that the answer itself carries comes first, also from each element of a list, with or without indexes.
-- If the service sent only indexes, or one text for several indexes, the label is that of the option in the version that the answer was given to (see answer_versions), provided that it is proven whether indexes of the question begin with 0 or 1: by other answers with label and index, by an index 0, or by an index equal to the number of options.
-- Else it is the label that other answers to the same version have for that index, if all agree.
-- Else it is not known.
CREATE OR REPLACE TEMPORARY VIEW current_choices AS
WITH reported AS (
  SELECT
    qualified.survey_id,
    qualified.question_id,
    qualified.version,
    qualified.selected_index,
    qualified.label
  FROM (
    SELECT
      _0.survey_id AS survey_id,
      _0.question_id AS question_id,
      _0.version AS version,
      _0.selected_index AS selected_index,
      CASE WHEN MIN(_0.label) = MAX(_0.label) THEN MIN(_0.label) END AS label,
      BOOL_OR(COUNT(_0.label) < COUNT(*)) OVER (PARTITION BY _0.survey_id, _0.question_id) AS is_kept
    FROM (
      SELECT
        zipped.survey_id,
        zipped.question_id,
        zipped.version,
        zipped.unnested.`0` AS label,
        zipped.unnested.`1` AS selected_index
      FROM (
        SELECT
          answer_versions.survey_id AS survey_id,
          answer_versions.question_id AS question_id,
          answer_versions.version AS version,
          EXPLODE(
            ARRAYS_ZIP(COALESCE(answer_versions.chosen_labels, ARRAY()), COALESCE(answer_versions.chosen_indexes, ARRAY()))
          ) AS unnested
        FROM answer_versions AS answer_versions
        WHERE
          answer_versions.question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT')
          AND NOT answer_versions.chosen_indexes IS NULL
      ) AS zipped
    ) AS _0
    GROUP BY
      _0.survey_id,
      _0.question_id,
      _0.version,
      _0.selected_index
  ) AS qualified
  WHERE
    qualified.is_kept
), signs AS (
  SELECT
    reported.survey_id AS survey_id,
    reported.question_id AS question_id,
    reported.version AS version,
    reported.selected_index AS selected_index,
    reported.label AS label,
    defined.option_labels AS labels,
    reported.selected_index - NULLIF(ARRAY_POSITION(defined.option_labels, reported.label), 0) + 1 AS sign,
    MIN(reported.selected_index) OVER version_of AS lowest,
    MAX(reported.selected_index) OVER version_of AS highest
  FROM reported AS reported
  LEFT JOIN question_versions AS defined
    ON defined.survey_id = reported.survey_id
    AND defined.question_id = reported.question_id
    AND defined.version = reported.version
  WINDOW version_of AS (PARTITION BY reported.survey_id, reported.question_id, reported.version)
), ranged AS (
  SELECT
    signs.survey_id AS survey_id,
    signs.question_id AS question_id,
    signs.version AS version,
    signs.selected_index AS selected_index,
    signs.label AS label,
    signs.labels AS labels,
    signs.sign AS sign,
    signs.lowest AS lowest,
    signs.highest AS highest,
    CASE
      WHEN signs.lowest = 0 AND signs.highest < ARRAY_SIZE(signs.labels)
      THEN 0
      WHEN signs.lowest > 0 AND signs.highest = ARRAY_SIZE(signs.labels)
      THEN 1
    END AS range_sign
  FROM signs AS signs
), weighed AS (
  SELECT
    ranged.survey_id AS survey_id,
    ranged.question_id AS question_id,
    ranged.version AS version,
    ranged.selected_index AS selected_index,
    ranged.label AS label,
    ranged.labels AS labels,
    ranged.sign AS sign,
    ranged.lowest AS lowest,
    ranged.highest AS highest,
    ranged.range_sign AS range_sign,
    LEAST(MIN(ranged.range_sign) OVER question, MIN(ranged.sign) OVER question) AS least_sign,
    GREATEST(MAX(ranged.range_sign) OVER question, MAX(ranged.sign) OVER question) AS greatest_sign
  FROM ranged AS ranged
  WINDOW question AS (PARTITION BY ranged.survey_id, ranged.question_id)
), named AS (
  SELECT
    weighed.survey_id AS survey_id,
    weighed.question_id AS question_id,
    weighed.version AS version,
    weighed.selected_index AS selected_index,
    weighed.label AS label,
    CASE
      WHEN weighed.least_sign = weighed.greatest_sign
      AND weighed.least_sign IN (0, 1)
      AND weighed.selected_index >= weighed.least_sign
      THEN TRY_ELEMENT_AT(weighed.labels, CAST(weighed.selected_index - weighed.least_sign + 1 AS INT))
    END AS option_label
  FROM weighed AS weighed
)
SELECT
  part.response_group_uid AS response_group_uid,
  part.question_id AS question_id,
  part.survey_id AS survey_id,
  part.created_at AS created_at,
  part.choice_ordinal AS choice_ordinal,
  part.selected_index AS selected_index,
  COALESCE(part.label, named.option_label, named.label) AS label,
  CASE
    WHEN NOT part.label IS NULL
    THEN 'answer'
    WHEN NOT named.option_label IS NULL
    THEN 'options'
    WHEN NOT named.label IS NULL
    THEN 'other answers'
  END AS label_source,
  part.version AS version
FROM (
  SELECT
    zipped.response_group_uid,
    zipped.question_id,
    zipped.survey_id,
    zipped.version,
    zipped.created_at,
    zipped.unnested.`0` AS label,
    zipped.unnested.`1` AS selected_index,
    zipped.unnested.`2` AS choice_ordinal
  FROM (
    SELECT
      answer_versions.response_group_uid AS response_group_uid,
      answer_versions.question_id AS question_id,
      answer_versions.survey_id AS survey_id,
      answer_versions.version AS version,
      answer_versions.created_at AS created_at,
      EXPLODE(
        ARRAYS_ZIP(
          COALESCE(answer_versions.chosen_labels, ARRAY()),
          COALESCE(answer_versions.chosen_indexes, ARRAY()),
          COALESCE(
            IF(
              (
                COALESCE(ARRAY_SIZE(answer_versions.chosen_labels), ARRAY_SIZE(answer_versions.chosen_indexes)) + 1 - 1
              ) < 1,
              ARRAY(),
              SEQUENCE(1, (
                COALESCE(ARRAY_SIZE(answer_versions.chosen_labels), ARRAY_SIZE(answer_versions.chosen_indexes)) + 1 - 1
              ))
            ),
            ARRAY()
          )
        )
      ) AS unnested
    FROM answer_versions AS answer_versions
    WHERE
      answer_versions.question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT') AND NOT answer_versions.is_skipped
  ) AS zipped
) AS part
LEFT JOIN named AS named
  ON named.survey_id = part.survey_id
  AND named.question_id = part.question_id
  AND named.version IS NOT DISTINCT FROM part.version
  AND named.selected_index = CASE WHEN part.label IS NULL THEN part.selected_index END;

-- The questions of the current definition of every survey.
-- One row: one question of one survey.
-- A survey that names a question twice has one row for it, by the first.
-- Left out: questions that are only known from answers, and definitions without an id.
-- A survey that vanished keeps its last definition.
CREATE OR REPLACE TEMPORARY VIEW current_questions AS
SELECT
  survey_questions.survey_id AS survey_id,
  survey_questions.question_id AS question_id,
  MIN(survey_questions.question_ordinal) AS question_ordinal,
  MIN_BY(survey_questions.question_type, survey_questions.question_ordinal) AS question_type,
  MIN_BY(survey_questions.question_text, survey_questions.question_ordinal) AS question_text,
  MIN_BY(survey_questions.left_label, survey_questions.question_ordinal) AS left_label,
  MIN_BY(survey_questions.right_label, survey_questions.question_ordinal) AS right_label
FROM survey_questions AS survey_questions
WHERE
  NOT survey_questions.question_id IS NULL
GROUP BY
  survey_questions.survey_id,
  survey_questions.question_id;

-- The sessions in which visitors answered surveys.
-- One row: one session of one survey; key (survey_id, response_group_uid).
-- Left out: answers that are deleted or have vanished at the service, and sessions that have no other answers.
-- Where the answers of a session disagree about the visitor, the greatest value is used.
-- Times are UTC.
CREATE OR REPLACE TEMPORARY VIEW sessions AS
SELECT
  current_responses.survey_id AS survey_id,
  current_responses.response_group_uid AS response_group_uid,
  MAX(current_responses.visitor_id) AS visitor_id,
  MAX(current_responses.visitor_uuid) AS visitor_uuid,
  MAX(current_responses.external_user_id) AS external_user_id,
  MIN(current_responses.created_at) AS started_at,
  MAX(current_responses.created_at) AS ended_at,
  (
    TIMESTAMPDIFF(MICROSECOND, CAST('1970-01-01 00:00:00' AS TIMESTAMP), MAX(current_responses.created_at)) - TIMESTAMPDIFF(MICROSECOND, CAST('1970-01-01 00:00:00' AS TIMESTAMP), MIN(current_responses.created_at))
  ) / 1e6 AS duration_secs,
  COUNT(*) AS questions,
  COUNT(*) FILTER(WHERE
    NOT current_responses.is_skipped AND current_responses.question_type IS DISTINCT FROM 'TEXTURLPROMPT') AS answered,
  COUNT(*) FILTER(WHERE
    current_responses.is_skipped) AS skipped
FROM current_responses AS current_responses
GROUP BY
  current_responses.survey_id,
  current_responses.response_group_uid;

-- The NPS answers that count: what the views nps_by_* add up. Start here for a breakdown of your own.
-- One row: one answer to a question of type NPS; key (response_group_uid, question_id).
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Days, weeks and months are those of the report time zone, UTC by default; a week begins on Monday (ISO).
CREATE OR REPLACE TEMPORARY VIEW nps_answers AS
WITH timed AS (
  SELECT
    current_responses.response_group_uid AS response_group_uid,
    current_responses.question_id AS question_id,
    current_responses.survey_id AS survey_id,
    current_responses.visitor_id AS visitor_id,
    current_responses.visitor_uuid AS visitor_uuid,
    current_responses.external_user_id AS external_user_id,
    current_responses.partner_anonymous_id AS partner_anonymous_id,
    current_responses.question_type AS question_type,
    current_responses.question_text AS question_text,
    current_responses.created_at AS created_at,
    current_responses.updated_at AS updated_at,
    current_responses.answer_text AS answer_text,
    current_responses.answer_number AS answer_number,
    current_responses.answer_bool AS answer_bool,
    current_responses.answer_json AS answer_json,
    current_responses.is_skipped AS is_skipped,
    current_responses.selected_indexes AS selected_indexes,
    current_responses.url AS url,
    current_responses.meta_browser AS meta_browser,
    current_responses.meta_os AS meta_os,
    current_responses.meta_language AS meta_language,
    current_responses.meta_href AS meta_href,
    current_responses.meta_user_agent AS meta_user_agent,
    current_responses.meta_client_width AS meta_client_width,
    current_responses.meta_client_height AS meta_client_height,
    current_responses.meta_screen_width AS meta_screen_width,
    current_responses.meta_screen_height AS meta_screen_height,
    current_responses.meta_extra AS meta_extra,
    current_responses.custom_metadata AS custom_metadata,
    current_responses.extra AS extra,
    current_responses._first_seen_at AS _first_seen_at,
    current_responses._synced_at AS _synced_at,
    current_responses.created_at AS local_at
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'NPS'
    AND current_responses.answer_number IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
)
SELECT
  timed.response_group_uid AS response_group_uid,
  timed.question_id AS question_id,
  timed.survey_id AS survey_id,
  COALESCE(CAST(timed.visitor_id AS STRING), timed.visitor_uuid, timed.response_group_uid) AS visitor_key,
  timed.question_text AS question_text,
  timed.created_at AS created_at,
  CAST(timed.local_at AS DATE) AS day,
  CAST(DATE_TRUNC('WEEK', timed.local_at) AS DATE) AS week,
  CAST(DATE_TRUNC('MONTH', timed.local_at) AS DATE) AS month,
  timed.answer_number AS score
FROM timed AS timed;

-- NPS by day, over all surveys.
-- One row: one day.
-- A day without answers has no row; the current day has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE TEMPORARY VIEW nps_by_day AS
WITH tallied AS (
  SELECT
    nps_answers.day AS day,
    nps_answers.score AS score,
    COUNT(*) AS answers
  FROM nps_answers AS nps_answers
  GROUP BY
    nps_answers.day,
    nps_answers.score
), counted AS (
  SELECT
    tallied.day AS day,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors
  FROM tallied AS tallied
  GROUP BY
    tallied.day
), scored AS (
  SELECT
    counted.day AS day,
    counted.responses AS responses,
    counted.promoters AS promoters,
    counted.passives AS passives,
    counted.detractors AS detractors,
    100 * CAST((
      counted.promoters - counted.detractors
    ) AS DOUBLE) / counted.responses AS nps,
    100 * SQRT(
      GREATEST(
        counted.promoters + counted.detractors - POWER(CAST((
          counted.promoters - counted.detractors
        ) AS DOUBLE), 2) / counted.responses,
        0
      ) / NULLIF(counted.responses - 1, 0) / counted.responses
    ) AS standard_error
  FROM counted AS counted
)
SELECT
  scored.day AS day,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored;

-- NPS by week, over all surveys.
-- One row: one week.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE TEMPORARY VIEW nps_by_week AS
WITH tallied AS (
  SELECT
    nps_answers.week AS week,
    nps_answers.score AS score,
    COUNT(*) AS answers
  FROM nps_answers AS nps_answers
  GROUP BY
    nps_answers.week,
    nps_answers.score
), counted AS (
  SELECT
    tallied.week AS week,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors
  FROM tallied AS tallied
  GROUP BY
    tallied.week
), scored AS (
  SELECT
    counted.week AS week,
    counted.responses AS responses,
    counted.promoters AS promoters,
    counted.passives AS passives,
    counted.detractors AS detractors,
    100 * CAST((
      counted.promoters - counted.detractors
    ) AS DOUBLE) / counted.responses AS nps,
    100 * SQRT(
      GREATEST(
        counted.promoters + counted.detractors - POWER(CAST((
          counted.promoters - counted.detractors
        ) AS DOUBLE), 2) / counted.responses,
        0
      ) / NULLIF(counted.responses - 1, 0) / counted.responses
    ) AS standard_error
  FROM counted AS counted
)
SELECT
  scored.week AS week,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored;

-- NPS by week, for each question.
-- One row: one week of one question of one survey.
-- A week without answers has no row; the current week has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE TEMPORARY VIEW nps_by_week_per_question AS
WITH tallied AS (
  SELECT
    nps_answers.week AS week,
    nps_answers.survey_id AS survey_id,
    nps_answers.question_id AS question_id,
    nps_answers.score AS score,
    COUNT(*) AS answers,
    NULL AS shown
  FROM nps_answers AS nps_answers
  GROUP BY
    nps_answers.week,
    nps_answers.survey_id,
    nps_answers.question_id,
    nps_answers.score
  UNION ALL
  SELECT
    NULL AS _col_0,
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    NULL AS _col_3,
    NULL AS _col_4,
    MAX(STRUCT(current_responses.created_at AS at, current_responses.question_text AS text)) FILTER(WHERE
      NOT current_responses.question_text IS NULL) AS _col_5
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'NPS'
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
), counted AS (
  SELECT
    tallied.week AS week,
    tallied.survey_id AS survey_id,
    tallied.question_id AS question_id,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors,
    MAX(tallied.shown) AS shown
  FROM tallied AS tallied
  GROUP BY
    tallied.week,
    tallied.survey_id,
    tallied.question_id
), scored AS (
  SELECT
    qualified.week,
    qualified.survey_id,
    qualified.question_id,
    qualified.responses,
    qualified.promoters,
    qualified.passives,
    qualified.detractors,
    qualified.shown,
    qualified.nps,
    qualified.standard_error,
    qualified.last_shown
  FROM (
    SELECT
      counted.week AS week,
      counted.survey_id AS survey_id,
      counted.question_id AS question_id,
      counted.responses AS responses,
      counted.promoters AS promoters,
      counted.passives AS passives,
      counted.detractors AS detractors,
      counted.shown AS shown,
      100 * CAST((
        counted.promoters - counted.detractors
      ) AS DOUBLE) / counted.responses AS nps,
      100 * SQRT(
        GREATEST(
          counted.promoters + counted.detractors - POWER(CAST((
            counted.promoters - counted.detractors
          ) AS DOUBLE), 2) / counted.responses,
          0
        ) / NULLIF(counted.responses - 1, 0) / counted.responses
      ) AS standard_error,
      MAX(counted.shown) OVER (PARTITION BY counted.survey_id, counted.question_id) AS last_shown,
      NOT counted.week IS NULL AS is_kept
    FROM counted AS counted
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  scored.week AS week,
  scored.survey_id AS survey_id,
  scored.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, scored.last_shown.text) AS question_text,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored
LEFT JOIN surveys AS survey
  ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- NPS by month, over all surveys.
-- One row: one month.
-- A month without answers has no row; the current month has the answers so far.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error: each answer is worth 1 (promoter), 0 (passive) or -1 (detractor), and the error is 100 * s / sqrt(responses), where s is the sample standard deviation of these values.
-- With few answers, or answers of one kind only, it is too small to be reliable.
CREATE OR REPLACE TEMPORARY VIEW nps_by_month AS
WITH tallied AS (
  SELECT
    nps_answers.month AS month,
    nps_answers.score AS score,
    COUNT(*) AS answers
  FROM nps_answers AS nps_answers
  GROUP BY
    nps_answers.month,
    nps_answers.score
), counted AS (
  SELECT
    tallied.month AS month,
    CAST(SUM(tallied.answers) AS BIGINT) AS responses,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score >= 9), 0) AS BIGINT) AS promoters,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score BETWEEN 7 AND 8), 0) AS BIGINT) AS passives,
    CAST(COALESCE(SUM(tallied.answers) FILTER(WHERE
      tallied.score <= 6), 0) AS BIGINT) AS detractors
  FROM tallied AS tallied
  GROUP BY
    tallied.month
), scored AS (
  SELECT
    counted.month AS month,
    counted.responses AS responses,
    counted.promoters AS promoters,
    counted.passives AS passives,
    counted.detractors AS detractors,
    100 * CAST((
      counted.promoters - counted.detractors
    ) AS DOUBLE) / counted.responses AS nps,
    100 * SQRT(
      GREATEST(
        counted.promoters + counted.detractors - POWER(CAST((
          counted.promoters - counted.detractors
        ) AS DOUBLE), 2) / counted.responses,
        0
      ) / NULLIF(counted.responses - 1, 0) / counted.responses
    ) AS standard_error
  FROM counted AS counted
)
SELECT
  scored.month AS month,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored;

-- NPS of each question over all its answers, with the shares of promoters, passives and detractors.
-- One row: one question of one survey.
-- Left out: skipped answers, numbers that are not whole or not within 0 to 10, answers that are deleted or have vanished.
-- Standard error as in nps_by_week.
CREATE OR REPLACE TEMPORARY VIEW nps_per_question AS
WITH counted AS (
  SELECT
    nps_answers.survey_id AS survey_id,
    nps_answers.question_id AS question_id,
    COUNT(*) AS responses,
    COUNT(*) FILTER(WHERE
      nps_answers.score >= 9) AS promoters,
    COUNT(*) FILTER(WHERE
      nps_answers.score BETWEEN 7 AND 8) AS passives,
    COUNT(*) FILTER(WHERE
      nps_answers.score <= 6) AS detractors
  FROM nps_answers AS nps_answers
  GROUP BY
    nps_answers.survey_id,
    nps_answers.question_id
), shown AS (
  SELECT
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    MAX(STRUCT(current_responses.created_at AS at, current_responses.question_text AS text)) FILTER(WHERE
      NOT current_responses.question_text IS NULL) AS answer
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type = 'NPS'
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
), scored AS (
  SELECT
    counted.survey_id AS survey_id,
    counted.question_id AS question_id,
    counted.responses AS responses,
    counted.promoters AS promoters,
    counted.passives AS passives,
    counted.detractors AS detractors,
    100 * CAST((
      counted.promoters - counted.detractors
    ) AS DOUBLE) / counted.responses AS nps,
    100 * SQRT(
      GREATEST(
        counted.promoters + counted.detractors - POWER(CAST((
          counted.promoters - counted.detractors
        ) AS DOUBLE), 2) / counted.responses,
        0
      ) / NULLIF(counted.responses - 1, 0) / counted.responses
    ) AS standard_error
  FROM counted AS counted
)
SELECT
  scored.survey_id AS survey_id,
  scored.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, shown.answer.text) AS question_text,
  scored.responses AS responses,
  scored.promoters AS promoters,
  scored.passives AS passives,
  scored.detractors AS detractors,
  scored.promoters / scored.responses AS promoter_share,
  scored.passives / scored.responses AS passive_share,
  scored.detractors / scored.responses AS detractor_share,
  scored.nps AS nps,
  scored.standard_error AS standard_error,
  CASE WHEN NOT scored.standard_error IS NULL THEN GREATEST(scored.nps - 1.96 * scored.standard_error, -100) END AS nps_low,
  CASE WHEN NOT scored.standard_error IS NULL THEN LEAST(scored.nps + 1.96 * scored.standard_error, 100) END AS nps_high
FROM scored AS scored
LEFT JOIN shown AS shown
  ON shown.survey_id IS NOT DISTINCT FROM scored.survey_id AND shown.question_id = scored.question_id
LEFT JOIN surveys AS survey
  ON survey.id = scored.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = scored.survey_id AND question.question_id = scored.question_id;

-- Which options were chosen, as a share of those who answered (MULTIPLECHOICE, MULTIPLESELECT).
-- One row: one option of one question of one survey.
-- Options that nobody chose have no row.
-- Left out: skipped answers, answers that are deleted or have vanished.
-- An option that one answer names twice counts once.
-- An option that was renamed has a row for each of its wordings.
-- The shares of a MULTIPLESELECT question add up to more than 1: each is a share of all who answered the question.
CREATE OR REPLACE TEMPORARY VIEW choice_share AS
WITH counted AS (
  SELECT
    current_choices.survey_id AS survey_id,
    current_choices.question_id AS question_id,
    current_choices.label AS label,
    CASE WHEN current_choices.label IS NULL THEN current_choices.selected_index END AS selected_index,
    COUNT(DISTINCT current_choices.response_group_uid) AS chosen,
    CAST(NULL AS BIGINT) AS answered,
    NULL AS shown_answer
  FROM current_choices AS current_choices
  GROUP BY ALL
  UNION ALL
  SELECT
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    NULL AS _col_2,
    NULL AS _col_3,
    NULL AS _col_4,
    COUNT(*) FILTER(WHERE
      NOT current_responses.is_skipped) AS _col_5,
    MAX(STRUCT(current_responses.created_at AS at, current_responses.question_text AS text)) FILTER(WHERE
      NOT current_responses.question_text IS NULL) AS _col_6
  FROM current_responses AS current_responses
  WHERE
    current_responses.question_type IN ('MULTIPLECHOICE', 'MULTIPLESELECT')
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
), based AS (
  SELECT
    qualified.survey_id,
    qualified.question_id,
    qualified.label,
    qualified.selected_index,
    qualified.chosen,
    qualified.answered,
    qualified.shown_answer
  FROM (
    SELECT
      counted.survey_id AS survey_id,
      counted.question_id AS question_id,
      counted.label AS label,
      counted.selected_index AS selected_index,
      counted.chosen AS chosen,
      MAX(counted.answered) OVER question AS answered,
      MAX(counted.shown_answer) OVER question AS shown_answer,
      NOT counted.chosen IS NULL AS is_kept
    FROM counted AS counted
    WINDOW question AS (PARTITION BY counted.survey_id, counted.question_id)
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  based.survey_id AS survey_id,
  based.question_id AS question_id,
  survey.name AS survey_name,
  COALESCE(question.question_text, based.shown_answer.text) AS question_text,
  based.label AS label,
  based.selected_index AS selected_index,
  based.chosen AS chosen,
  based.answered AS answered,
  based.chosen / based.answered AS share
FROM based AS based
LEFT JOIN surveys AS survey
  ON survey.id = based.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = based.survey_id AND question.question_id = based.question_id;

-- How far visitors get in a survey: question by question, how many of its sessions were shown it and answered it.
-- One row: one question of one survey that was shown at least once.
-- Order by question_ordinal.
-- Left out: answers that are deleted or have vanished at the service.
CREATE OR REPLACE TEMPORARY VIEW survey_funnel AS
WITH counted AS (
  SELECT
    current_responses.survey_id AS survey_id,
    current_responses.question_id AS question_id,
    COUNT(*) AS shown,
    COUNT(*) FILTER(WHERE
      NOT current_responses.is_skipped) AS answered,
    COUNT(*) FILTER(WHERE
      current_responses.is_skipped) AS skipped,
    MAX(STRUCT(current_responses.created_at AS at, current_responses.question_text AS text)) FILTER(WHERE
      NOT current_responses.question_text IS NULL) AS shown_answer,
    CAST(NULL AS BIGINT) AS sessions
  FROM current_responses AS current_responses
  GROUP BY
    current_responses.survey_id,
    current_responses.question_id
  UNION ALL
  SELECT
    current_responses.survey_id AS survey_id,
    NULL AS _col_1,
    NULL AS _col_2,
    NULL AS _col_3,
    NULL AS _col_4,
    NULL AS _col_5,
    COUNT(DISTINCT current_responses.response_group_uid) AS _col_6
  FROM current_responses AS current_responses
  GROUP BY
    current_responses.survey_id
), shown AS (
  SELECT
    qualified.survey_id,
    qualified.question_id,
    qualified.shown,
    qualified.answered,
    qualified.skipped,
    qualified.shown_answer,
    qualified.sessions
  FROM (
    SELECT
      counted.survey_id AS survey_id,
      counted.question_id AS question_id,
      counted.shown AS shown,
      counted.answered AS answered,
      counted.skipped AS skipped,
      counted.shown_answer AS shown_answer,
      MAX(counted.sessions) OVER (PARTITION BY counted.survey_id) AS sessions,
      NOT counted.question_id IS NULL AS is_kept
    FROM counted AS counted
  ) AS qualified
  WHERE
    qualified.is_kept
)
SELECT
  shown.survey_id AS survey_id,
  survey.name AS survey_name,
  question.question_ordinal AS question_ordinal,
  shown.question_id AS question_id,
  COALESCE(question.question_text, shown.shown_answer.text) AS question_text,
  shown.sessions AS sessions,
  shown.shown AS shown,
  shown.answered AS answered,
  shown.skipped AS skipped,
  shown.shown / shown.sessions AS shown_share,
  shown.answered / shown.sessions AS answered_share
FROM shown AS shown
LEFT JOIN surveys AS survey
  ON survey.id = shown.survey_id
LEFT JOIN current_questions AS question
  ON question.survey_id = shown.survey_id AND question.question_id = shown.question_id;

-- Answers, sessions and visitors by day and survey.
-- One row: one survey on one day on which it was answered.
-- Left out: answers that are deleted or have vanished at the service.
-- A session that lasts past midnight is counted on both days, a visitor on every day: only answers may be added up.
CREATE OR REPLACE TEMPORARY VIEW daily_breakdown AS
WITH counted AS (
  SELECT
    CAST(current_responses.created_at AS DATE) AS day,
    current_responses.survey_id AS survey_id,
    COUNT(DISTINCT current_responses.response_group_uid) AS sessions,
    COUNT(DISTINCT current_responses.visitor_id) AS visitors,
    COUNT(*) AS answers,
    COUNT(*) FILTER(WHERE
      NOT current_responses.is_skipped) AS answered,
    COUNT(*) FILTER(WHERE
      current_responses.is_skipped) AS skipped
  FROM current_responses AS current_responses
  GROUP BY
    CAST(current_responses.created_at AS DATE),
    current_responses.survey_id
)
SELECT
  counted.day AS day,
  counted.survey_id AS survey_id,
  survey.name AS survey_name,
  counted.sessions AS sessions,
  counted.visitors AS visitors,
  counted.answers AS answers,
  counted.answered AS answered,
  counted.skipped AS skipped
FROM counted AS counted
LEFT JOIN surveys AS survey
  ON survey.id = counted.survey_id;

-- How far each session went, from sent to completed, from webhooks and scans together.
-- One row: one session; key response_group_uid.
-- Left out: webhooks of other environments, and sessions whose answers are all deleted or have vanished, unless a webhook reports them.
-- Times are UTC.
-- A webhook of a study without a session counts as a session of its own.
-- A UUID in capitals or in braces is the same session as without.
-- Webhooks are sent once and may be lost, and no list shows what was sent or seen: a stage without a time may have been reached.
-- A session was shown the set of questions that was current when it began; or the next one, if it has an answer to a question that only the next one has: the rule of answer_versions.
CREATE OR REPLACE TEMPORARY VIEW session_stages AS
WITH deliveries AS (
  SELECT
    webhook_events.event_key AS event_key,
    webhook_events.kind AS kind,
    webhook_events.received_at AS received_at,
    webhook_events.occurred_at AS occurred_at,
    webhook_events.created_at AS created_at,
    webhook_events.updated_at AS updated_at,
    webhook_events.event_date AS event_date,
    webhook_events.body_hash AS body_hash,
    webhook_events.webhook_id AS webhook_id,
    webhook_events.environment_id AS environment_id,
    webhook_events.product_id AS product_id,
    webhook_events.product_name AS product_name,
    webhook_events.event_type AS event_type,
    webhook_events.event_name AS event_name,
    webhook_events.action AS action,
    webhook_events.record_type AS record_type,
    webhook_events.is_user_interviews AS is_user_interviews,
    webhook_events.team_id AS team_id,
    webhook_events.survey_id AS survey_id,
    webhook_events.survey_name AS survey_name,
    webhook_events.old_status AS old_status,
    webhook_events.status AS status,
    webhook_events.response_group_uid AS response_group_uid,
    webhook_events.question_text AS question_text,
    webhook_events.question_type AS question_type,
    webhook_events.export_question_type AS export_question_type,
    webhook_events.response_json AS response_json,
    webhook_events.response_parsed_json AS response_parsed_json,
    webhook_events.response_text AS response_text,
    webhook_events.response_number AS response_number,
    webhook_events.selected_indexes AS selected_indexes,
    webhook_events.theme_name AS theme_name,
    webhook_events.visitor_id AS visitor_id,
    webhook_events.old_visitor_id AS old_visitor_id,
    webhook_events.user_id AS user_id,
    webhook_events.anonymous_id AS anonymous_id,
    webhook_events.email AS email,
    webhook_events.triggering_event AS triggering_event,
    webhook_events.platform AS platform,
    webhook_events.href AS href,
    webhook_events.os AS os,
    webhook_events.browser AS browser,
    webhook_events.user_agent AS user_agent,
    webhook_events.attributes AS attributes,
    webhook_events.event_properties AS event_properties,
    webhook_events.custom_metadata AS custom_metadata,
    webhook_events.questions AS questions,
    webhook_events.extra AS extra,
    webhook_events.raw AS raw,
    webhook_events.raw_base64 AS raw_base64,
    webhook_events._run_id AS _run_id,
    webhook_events._synced_at AS _synced_at,
    COALESCE(webhook_events.occurred_at, webhook_events.received_at) AS told_at,
    COALESCE(
      CASE
        WHEN webhook_events.response_group_uid RLIKE '^[{]?[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}[}]?$'
        THEN LOWER(TRANSLATE(webhook_events.response_group_uid, '{}', ''))
      END,
      NULLIF(webhook_events.response_group_uid, ''),
      'event ' || webhook_events.event_key
    ) AS session,
    webhook_events.kind = 'answer_submitted'
    AND (
      webhook_events.export_question_type IS NOT DISTINCT FROM 'TEXTURLPROMPT'
      OR NOT CASE
        WHEN webhook_events.response_parsed_json IS NULL
        THEN COALESCE(webhook_events.response_text, NULLIF(CAST(webhook_events.response_json AS STRING), 'null'), '') RLIKE '^(?:[\\s\\x0b\\x{85}\\p{Z}]*)$'
        WHEN webhook_events.export_question_type = 'MAXDIFF'
        THEN NOT CAST(webhook_events.response_parsed_json AS STRING) RLIKE '"selected"\\s*:\\s*[^\\sn]'
        ELSE REGEXP_REPLACE(CAST(webhook_events.response_parsed_json AS STRING), '"(?:[^"\\\\]|\\\\.)*"\\s*:', '') RLIKE '^(?:(?:null|[\\[\\]{},\\s])*)$'
      END
    ) AS is_answer
  FROM webhook_events AS webhook_events
  WHERE
    webhook_events.kind IN ('study_sent', 'study_seen', 'answer_submitted', 'study_submitted')
  LIMIT 2147483647
), reported AS (
  SELECT
    deliveries.session AS response_group_uid,
    MAX(deliveries.survey_id) AS survey_id,
    MIN(deliveries.told_at) AS begun_at,
    MIN(deliveries.told_at) FILTER(WHERE
      deliveries.kind = 'study_sent') AS sent_at,
    MIN(deliveries.told_at) FILTER(WHERE
      deliveries.kind = 'study_seen') AS seen_at,
    MIN(deliveries.told_at) FILTER(WHERE
      deliveries.is_answer) AS answered_at,
    MIN(deliveries.told_at) FILTER(WHERE
      deliveries.kind = 'study_submitted') AS submitted_at,
    MAX(deliveries.triggering_event) FILTER(WHERE
      deliveries.kind = 'study_sent') AS sent_trigger,
    MAX(deliveries.triggering_event) FILTER(WHERE
      deliveries.kind = 'answer_submitted') AS answer_trigger,
    MAX(deliveries.platform) AS platform,
    MAX(
      deliveries.session IN (
        SELECT
          COALESCE(
            CASE
              WHEN responses.response_group_uid RLIKE '^[{]?[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}[}]?$'
              THEN LOWER(TRANSLATE(responses.response_group_uid, '{}', ''))
            END,
            responses.response_group_uid
          ) AS _col_0
        FROM responses AS responses
      )
    ) AS is_listed
  FROM deliveries AS deliveries
  GROUP BY
    deliveries.session
  LIMIT 2147483647
), scanned AS (
  SELECT
    current_responses.response_group_uid AS response_group_uid,
    MAX(current_responses.survey_id) AS survey_id,
    MIN(current_responses.created_at) AS begun_at,
    MIN(current_responses.created_at) FILTER(WHERE
      NOT current_responses.is_skipped) AS answered_at,
    COLLECT_LIST(current_responses.question_id) AS shown_ids,
    COLLECT_LIST(current_responses.created_at) AS shown_at
  FROM current_responses AS current_responses
  GROUP BY
    current_responses.response_group_uid
  LIMIT 2147483647
), sets AS (
  SELECT
    survey_question_sets.survey_id AS survey_id,
    survey_question_sets.set_version AS set_version,
    survey_question_sets.question_ids AS question_ids,
    COALESCE(survey_question_sets.shown_from, CAST('0001-01-01 00:00:00' AS TIMESTAMP_NTZ)) AS begins,
    COALESCE(survey_question_sets.shown_until, CAST('9999-12-31 23:59:59.999999' AS TIMESTAMP_NTZ)) AS ends,
    LEAD(survey_question_sets.set_version) OVER survey AS next_version,
    LEAD(survey_question_sets.question_ids) OVER survey AS next_ids,
    FILTER(
      LEAD(survey_question_sets.question_ids) OVER survey,
      id -> NOT ARRAY_CONTAINS(survey_question_sets.question_ids, id)
    ) AS new_ids
  FROM survey_question_sets AS survey_question_sets
  WINDOW survey AS (PARTITION BY survey_question_sets.survey_id ORDER BY survey_question_sets.set_version NULLS LAST)
  LIMIT 2147483647
), joined AS (
  SELECT
    COALESCE(scanned.response_group_uid, reported.response_group_uid) AS response_group_uid,
    COALESCE(scanned.survey_id, reported.survey_id) AS survey_id,
    LEAST(scanned.begun_at, reported.begun_at) AS begun_at,
    reported.sent_at AS sent_at,
    reported.seen_at AS seen_at,
    LEAST(scanned.answered_at, reported.answered_at) AS answered_at,
    reported.submitted_at AS submitted_at,
    scanned.begun_at AS shown_first_at,
    scanned.shown_ids AS shown_ids,
    scanned.shown_at AS shown_at,
    reported.platform AS platform,
    reported.sent_trigger AS sent_trigger,
    reported.answer_trigger AS answer_trigger,
    CASE
      WHEN reported.begun_at IS NULL
      THEN 'scan'
      WHEN scanned.begun_at IS NULL AND NOT reported.is_listed
      THEN 'webhook'
      ELSE 'both'
    END AS known_by
  FROM scanned AS scanned
  FULL JOIN reported AS reported
    ON reported.response_group_uid = COALESCE(
      CASE
        WHEN scanned.response_group_uid RLIKE '^[{]?[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}[}]?$'
        THEN LOWER(TRANSLATE(scanned.response_group_uid, '{}', ''))
      END,
      scanned.response_group_uid
    )
  LIMIT 2147483647
), placed AS (
  SELECT
    joined.response_group_uid AS response_group_uid,
    joined.survey_id AS survey_id,
    joined.begun_at AS begun_at,
    joined.sent_at AS sent_at,
    joined.seen_at AS seen_at,
    joined.answered_at AS answered_at,
    joined.submitted_at AS submitted_at,
    joined.shown_first_at AS shown_first_at,
    joined.shown_ids AS shown_ids,
    joined.shown_at AS shown_at,
    joined.platform AS platform,
    joined.sent_trigger AS sent_trigger,
    joined.answer_trigger AS answer_trigger,
    joined.known_by AS known_by,
    CASE WHEN ARRAYS_OVERLAP(joined.shown_ids, sets.new_ids) THEN sets.next_version ELSE sets.set_version END AS question_set,
    CASE WHEN ARRAYS_OVERLAP(joined.shown_ids, sets.new_ids) THEN sets.next_ids ELSE sets.question_ids END AS question_ids
  FROM joined AS joined
  LEFT JOIN sets AS sets
    ON sets.survey_id = joined.survey_id AND joined.begun_at >= sets.begins AND joined.begun_at < sets.ends
  LIMIT 2147483647
)
SELECT
  joined.response_group_uid AS response_group_uid,
  joined.survey_id AS survey_id,
  joined.begun_at AS begun_at,
  joined.sent_at AS sent_at,
  joined.seen_at AS seen_at,
  joined.answered_at AS answered_at,
  joined.submitted_at AS submitted_at,
  NOT joined.submitted_at IS NULL
  OR COALESCE(ARRAY_CONTAINS(joined.shown_ids, TRY_ELEMENT_AT(joined.question_ids, -1)), FALSE) AS is_completed,
  COALESCE(joined.sent_trigger, joined.answer_trigger, snapshot.triggering_event) AS triggering_event,
  COALESCE(joined.platform, survey.platform) AS platform,
  CASE
    WHEN joined.shown_ids IS NULL
    THEN TRY_ELEMENT_AT(joined.question_ids, 1)
    ELSE ARRAY_MIN(
      TRANSFORM(
        FILTER(
          IF((
            ARRAY_SIZE(joined.shown_ids) + 1 - 1
          ) < 1, ARRAY(), SEQUENCE(1, (
            ARRAY_SIZE(joined.shown_ids) + 1 - 1
          ))),
          i -> TRY_ELEMENT_AT(joined.shown_at, CAST(i AS INT)) = joined.shown_first_at
        ),
        i -> STRUCT(
          COALESCE(NULLIF(ARRAY_POSITION(joined.question_ids, TRY_ELEMENT_AT(joined.shown_ids, CAST(i AS INT))), 0), 2147483647) AS place,
          TRY_ELEMENT_AT(joined.shown_ids, CAST(i AS INT)) AS id
        )
      )
    ).id
  END AS first_question_id,
  joined.known_by AS known_by,
  joined.question_set AS question_set
FROM placed AS joined
LEFT JOIN surveys AS survey
  ON survey.id = joined.survey_id
LEFT JOIN (
  SELECT
    visitor_snapshots.response_group_uid AS response_group_uid,
    MAX(visitor_snapshots.triggering_event) AS triggering_event
  FROM visitor_snapshots AS visitor_snapshots
  GROUP BY
    visitor_snapshots.response_group_uid
) AS snapshot
  ON snapshot.response_group_uid = joined.response_group_uid;
CACHE LAZY TABLE session_stages;

-- How many of those who were sent a study saw, answered, submitted and completed it.
-- One row: one survey on one day, by trigger, platform and first question.
-- The counts may be added up; make shares anew from the sums.
-- Left out: sessions from before the first webhook of a study or an answer: what was sent then is not known.
-- Without webhooks the view is empty: `studysync serve` receives them.
-- Webhooks are sent once and may be lost: one_source_share is the share that one side alone knows.
-- Sessions that scans have not reached yet are not counted as known by webhooks alone.
CREATE OR REPLACE TEMPORARY VIEW response_rates AS
WITH known AS (
  SELECT
    (
      SELECT
        MIN(COALESCE(webhook_events.occurred_at, webhook_events.received_at)) AS _col_0
      FROM webhook_events AS webhook_events
      WHERE
        webhook_events.kind IN ('study_sent', 'study_seen', 'answer_submitted', 'study_submitted')
    ) AS webhooks_since,
    (
      SELECT
        MAX(sync_windows.window_end) AS _col_0
      FROM sync_windows AS sync_windows
      WHERE
        sync_windows.stream = 'responses'
    ) AS scanned_until
), counted AS (
  SELECT
    stage.survey_id AS survey_id,
    CAST(stage.begun_at AS DATE) AS day,
    stage.triggering_event AS triggering_event,
    stage.platform AS platform,
    stage.first_question_id AS first_question_id,
    COUNT(*) AS sessions,
    COUNT(stage.sent_at) AS sent,
    COUNT(stage.seen_at) AS seen,
    COUNT(stage.answered_at) AS answered,
    COUNT(stage.submitted_at) AS submitted,
    COUNT(*) FILTER(WHERE
      stage.is_completed) AS completed,
    COUNT(*) FILTER(WHERE
      NOT stage.sent_at IS NULL AND NOT stage.seen_at IS NULL) AS sent_and_seen,
    COUNT(*) FILTER(WHERE
      NOT stage.sent_at IS NULL AND NOT stage.answered_at IS NULL) AS sent_and_answered,
    COUNT(*) FILTER(WHERE
      stage.known_by = 'webhook' AND stage.answered_at < known.scanned_until) AS only_webhooks,
    COUNT(*) FILTER(WHERE
      stage.known_by = 'scan' AND NOT stage.answered_at IS NULL) AS only_scans,
    MAX(known.webhooks_since) AS webhooks_since
  FROM session_stages AS stage
  JOIN known AS known
    ON stage.begun_at >= known.webhooks_since
  GROUP BY ALL
)
SELECT
  counted.survey_id AS survey_id,
  survey.name AS survey_name,
  counted.day AS day,
  counted.triggering_event AS triggering_event,
  counted.platform AS platform,
  counted.first_question_id AS first_question_id,
  counted.sessions AS sessions,
  counted.sent AS sent,
  counted.seen AS seen,
  counted.answered AS answered,
  counted.submitted AS submitted,
  counted.completed AS completed,
  counted.sent_and_seen AS sent_and_seen,
  counted.sent_and_answered AS sent_and_answered,
  counted.sent_and_seen / NULLIF(counted.sent, 0) AS seen_rate,
  counted.sent_and_answered / NULLIF(counted.sent, 0) AS response_rate,
  counted.completed / NULLIF(counted.answered, 0) AS completion_rate,
  counted.only_webhooks AS only_webhooks,
  counted.only_scans AS only_scans,
  (
    counted.only_webhooks + counted.only_scans
  ) / NULLIF(counted.answered, 0) AS one_source_share,
  counted.webhooks_since AS webhooks_since
FROM counted AS counted
LEFT JOIN surveys AS survey
  ON survey.id = counted.survey_id;

-- Left out: open_answers, because Spark does not normalize texts.
-- Left out: untrusted, because it lists the keys of JSON objects.
-- Left out: response_question_versions, because it has not been tried.
-- Left out: current_matrix_cells, because it has not been tried.
-- Left out: current_ranks, because it has not been tried.
-- Left out: current_maxdiff_items, because it has not been tried.
-- Left out: current_themes, because it has not been tried.
-- Left out: current_user_attributes, because it has not been tried.
-- Left out: response_versions, because it has not been tried.
-- Left out: theme_versions, because it has not been tried.
-- Left out: questions, because it has not been tried.
-- Left out: nps_by_day_latest, because it has not been tried.
-- Left out: nps_by_day_per_question, because it has not been tried.
-- Left out: nps_by_day_per_question_latest, because it has not been tried.
-- Left out: nps_by_week_latest, because it has not been tried.
-- Left out: nps_by_week_per_question_latest, because it has not been tried.
-- Left out: nps_by_month_latest, because it has not been tried.
-- Left out: nps_by_month_per_question, because it has not been tried.
-- Left out: nps_by_month_per_question_latest, because it has not been tried.
-- Left out: likert_values, because it has not been tried.
-- Left out: likert_distribution, because it reads likert_values.
-- Left out: likert_top_two, because it reads likert_values.
-- Left out: figures, because it reads likert_top_two.
-- Left out: matrix_distribution, because it reads current_matrix_cells.
-- Left out: rank_summary, because it reads current_ranks.
-- Left out: maxdiff_scores, because it has not been tried.
-- Left out: theme_trend, because it reads current_themes.
-- Left out: skips, because it has not been tried.
-- Left out: survey_status_timeline, because it has not been tried.
-- Left out: webhook_mismatches, because it has not been tried.
-- Left out: key_collisions, because it has not been tried.
