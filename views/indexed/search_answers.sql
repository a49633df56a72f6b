-- The text answers and transcriptions that contain every word of a text, best first.
--
-- Call it as a table: FROM search_answers('slow export').
-- One row: one answer of open_answers. A word is a sequence of letters and digits. Whole words match, in any order; case and accents do not count: ß is ss.
-- Chinese, Japanese, Thai, Lao, Khmer and Burmese are written without blanks: there, a sequence of letters is found anywhere in an answer.
-- A text without any letter or digit is searched for literally.
-- Left out: answers that are deleted or have vanished at the service, and answers that were added since the last run made the index.
-- The search needs no extension; only making the index does.
--
-- Parameters:
--   wanted: The words.
--
-- Columns:
--   response_group_uid: The session.
--   question_id: The question.
--   survey_id: The survey; NULL when the answer names none.
--   question_text: The wording that was shown.
--   created_at: When the answer was given.
--   source: text, or transcription.
--   answer: The text.
--   score: How well the answer fits, by BM25 over all answers of the index; NULL for a text without words.
WITH wanted_words AS (
    SELECT DISTINCT word
    FROM (
        SELECT unnest(string_split(regexp_replace(
            lower(strip_accents(regexp_replace(
                replace(lower(upper(nfc_normalize(replace(wanted, chr(0), ' ')))), 'ß', 'ss'), '([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])', ' \1 ', 'g'
            ))),
            '[^\p{L}\p{M}\p{N}]+', ' ', 'g'
        ), ' ')) AS word
    )
    WHERE word <> ''
),
wanted_terms AS (
    SELECT dict.termid, dict.df
    FROM fts_main__studysync_texts.dict AS dict
    JOIN wanted_words ON wanted_words.word = dict.term
),
hits AS (
    SELECT terms.docid, terms.termid, count(*) AS tf
    FROM fts_main__studysync_texts.terms AS terms
    SEMI JOIN wanted_terms ON wanted_terms.termid = terms.termid
    GROUP BY ALL
),
scores AS (
    SELECT
        docs.name,
        sum(
            log((stats.num_docs - df + 0.5) / (df + 0.5) + 1)
            * (tf * (1.2 + 1) / (tf + 1.2 * (1 - 0.75 + 0.75 * docs.len / stats.avgdl)))
        ) AS score
    FROM hits
    JOIN wanted_terms ON wanted_terms.termid = hits.termid
    JOIN fts_main__studysync_texts.docs AS docs ON docs.docid = hits.docid
    CROSS JOIN fts_main__studysync_texts.stats AS stats
    GROUP BY docs.name
    HAVING count(*) = (SELECT count(*) FROM wanted_words)
),
found AS (
    SELECT
        answers.response_group_uid, answers.question_id, answers.survey_id, answers.question_text, answers.created_at,
        answers.source, answers.answer, scores.score
    FROM open_answers AS answers
    JOIN scores ON scores.name = answers.question_id || ' ' || answers.response_group_uid
    WHERE NOT answers.is_empty
        -- Letters whose marks change the word, and those that stand without blanks, must be there as they were asked for.
        AND len(list_filter(
            regexp_extract_all(replace(lower(upper(nfc_normalize(replace(wanted, chr(0), ' ')))), 'ß', 'ss'), '[^\p{Latin}\p{Greek}\p{Cyrillic}\p{Common}\p{Inherited}]+'),
            lambda run: NOT contains(replace(lower(upper(nfc_normalize(replace(answers.answer, chr(0), ' ')))), 'ß', 'ss'), run)
        )) = 0
    UNION ALL
    SELECT response_group_uid, question_id, survey_id, question_text, created_at, source, answer, NULL
    FROM open_answers
    WHERE NOT is_empty AND NOT regexp_matches(wanted, '[\p{L}\p{N}]') AND contains(lower(answer), lower(wanted))
)
SELECT response_group_uid, question_id, survey_id, question_text, created_at, source, answer, score
FROM found
ORDER BY score DESC NULLS LAST, created_at DESC, response_group_uid, question_id
