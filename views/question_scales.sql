-- The scale of every version of every LIKERT question whose definition has one.
--
-- One row: one version of one question of one survey; key (survey_id, question_id, version).
-- Left out: questions that no scan of surveys saw, and definitions without a scale: see likert_values for those. The
-- scale comes from the options, if there are two or more. Else it is 1 to the property "range", if there is one.
-- Options at an end whose label is no point are not part of the scale: "N/A", "Not applicable", "Don't know", "Prefer
-- not to say" and their like, also in other languages; abbreviations such as "k. A."; a label without a number beside
-- three or more points that are numbers. The values of the points are the integers that their labels begin with, if
-- these go up or down by 1. Else they are the positions of the options, from 1: so it is for words, and for labels such
-- as 18-24, 1-2 times or 5+ years.
--
-- Columns:
--   survey_id: The survey.
--   question_id: The question.
--   version: The version; question_versions.version.
--   scale_min: Lowest value of the scale.
--   scale_max: Highest value of the scale.
--   scale_source: options or properties.
--   not_rated_values: Values of the options that are no points; empty when there are none.
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
WHERE scale_source IS NOT NULL
